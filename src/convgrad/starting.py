"""Threads of convgrad with a given stack size, imports at first need, and locks that a fork waits for."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, TypeVar

from convgrad.float_environment import in_default_environment

LARGE_STACK_BYTES = 8 << 20  # the stack size that LLVM needs
SPARE_BYTES = 2 << 20  # more than the interpreter allocates while a thread starts
_OURS: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
Result = TypeVar("Result")

ending: list[bool] = []  # not empty once the interpreter is about to end: then no threads are started


def forked_with() -> threading.RLock:
    """Return a new lock that every fork of the process waits for.

    A forked child has only the forking thread, so it must not inherit the unfinished work of other threads. The lock is
    reentrant, because a signal handler may compute while its thread has the lock.
    """
    lock = threading.RLock()
    _waited_for.append(lock)
    return lock


def forks_wait_for(lock: threading.RLock) -> None:
    """Let every fork of the process wait for a lock of another library, which is taken after all locks of ours."""
    _waited_for.insert(0, lock)


def _before_fork() -> None:
    """Take all locks that forks wait for.

    An exception of a signal handler, such as Ctrl-C, does not end the wait: Python reports exceptions of this function,
    and forks nevertheless.
    """
    interruption: BaseException | None = None
    while True:
        try:
            _held.append(_all_taken())
            break
        except BaseException as error:
            interruption = error.with_traceback(None)  # its frames would keep locks
    if interruption is not None:
        raise interruption


def _all_taken() -> Iterator[None]:
    """Return an iterator that has all locks until it is deleted."""
    while True:
        locks = _waited_for[::-1]
        taken = _taken(locks)
        next(taken)
        if len(locks) == len(_waited_for):
            return taken
        del taken  # another lock was made meanwhile, and must be taken before these: start again


def _taken(locks: list[threading.RLock]) -> Iterator[None]:
    """Take locks, the youngest first: a thread that has a lock may need an older one. A deleted iterator has none."""
    if not locks:
        yield
        return
    with locks[0]:  # unlike ``acquire``, no signal handler can prevent the release
        yield from _taken(locks[1:])


_waited_for: list[threading.RLock] = []
_held: list[Iterator[None]] = []  # has the locks of the running fork
release_held = _held.clear  # not a function in Python, which a signal handler could prevent from releasing the locks
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=release_held, after_in_child=release_held)
_lock = forked_with()
loading = forked_with()  # of deferred imports, which include the load of LLVM at the first call


def has_room(size_bytes: int) -> bool:
    """Return whether memory can be allocated, as private memory, which every limit of a process counts."""
    try:
        mmap.mmap(-1, size_bytes, **_OURS).close()
    except (OSError, MemoryError):
        return False
    return True


def start(work: Callable[[], None], name: str, stack_bytes: int) -> threading.Thread:
    """Start a daemon thread and return it.

    Raise RuntimeError if the system cannot start a thread, or if the interpreter is ending.
    """
    if ending or sys.is_finalizing():  # some interpreters would start the thread and wait forever until it runs
        raise RuntimeError("can't start new thread at interpreter shutdown")
    if not has_room(stack_bytes + SPARE_BYTES):  # then ``Thread.start`` could wait forever
        raise RuntimeError("can't start new thread: there is no memory for it")
    thread = threading.Thread(target=work, name=name, daemon=True)
    with _lock:
        before = threading.stack_size(stack_bytes)
        try:
            thread.start()
        finally:
            if threading.stack_size() == stack_bytes:  # unless another thread has changed the size meanwhile
                threading.stack_size(before)
    return thread


def run_on_large_stack(work: Callable[[], Result]) -> Result:
    """Call ``work`` on a new thread with a large stack, which LLVM needs, and return its result.

    The thread also keeps signal handlers out of LLVM's Python binding, because Python runs them on the main thread. The
    work is done in the default floating-point environment, because a new thread would inherit that of the caller.
    """
    in_default = in_default_environment(work)
    results: list[Result] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            results.append(in_default())
        except BaseException as error:
            failed.append(error)

    try:
        thread = start(run, "convgrad-compiler", LARGE_STACK_BYTES)
    except RuntimeError:  # the system cannot start a thread, or the interpreter is ending
        return in_default()
    thread.join()
    if failed:
        raise failed[0]
    return results[0]


def deferred(importing: Callable[[], Result]) -> Callable[[], Result]:
    """Decorate a function that imports and returns names: it runs at the first call, and its result is kept.

    Forks wait for the imports, so that no child inherits a partly loaded module. The function must do nothing else: a
    fork takes the compiler's lock before that of the imports, so the opposite order could deadlock.
    """

    def alone() -> Result:
        with loading:  # on the thread that imports, because Ctrl-C ends only the wait for this thread
            return importing()

    @cache
    def imported() -> Result:
        return run_on_large_stack(alone)

    return wraps(importing)(imported)
