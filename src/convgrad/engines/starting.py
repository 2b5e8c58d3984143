"""Our own threads, with a stack of known size and a mailbox, and locks that forks wait for."""

from __future__ import annotations

import mmap
import os
import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeVar

LARGE_STACK_BYTES = 8 << 20  # for LLVM
SPARE_BYTES = 2 << 20  # that the interpreter may allocate until a thread has started
_OURS: dict[str, Any] = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
MAIL = ("state", "kernel", "arguments", "scratch", "scratch_bytes", "pending")  # of a thread's mailbox: 64 bits each
AWAY, READY, POSTED, CLAIMED, LEAVE = range(5)  # its states
Made = TypeVar("Made")

ending: list[bool] = []  # true once the interpreter is about to end: callers then work on their own threads


def forked_with() -> threading.RLock:
    """Return a lock that a fork waits for: a child must not inherit unfinished work of threads that it does not have.

    A thread may take the lock again, because a signal handler may compute.
    """
    lock = threading.RLock()
    _waited_for.append(lock)
    return lock


def _before_fork() -> None:
    """Take all locks, the youngest first, as whoever has one may need an older one; and those made meanwhile."""
    while True:
        locks = _waited_for[::-1]
        for lock in locks:
            lock.acquire()
        if len(locks) == len(_waited_for):
            _taken.extend(locks)
            return
        for lock in locks:  # a module that was loading made one: it may be needed for what it is held for
            lock.release()


def _after_fork() -> None:
    locks = _taken[:]
    _taken.clear()  # while they are ours: then another thread's fork may take them
    for lock in locks:
        lock.release()


_waited_for: list[threading.RLock] = []
_taken: list[threading.RLock] = []  # by the one fork that goes on
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
_lock = forked_with()
_loading = forked_with()


def start(work: Callable[[], None], name: str, stack_bytes: int) -> threading.Thread:
    """Start a daemon thread and return it; RuntimeError where the system has no more or the interpreter is ending."""
    if ending or sys.is_finalizing():  # some interpreters start it all the same, and wait for ever for its first sign
        raise RuntimeError("can't start new thread at interpreter shutdown")
    try:  # whoever starts one that has no room to begin waits for ever; the interpreter maps its frames
        mmap.mmap(-1, stack_bytes + SPARE_BYTES, **_OURS).close()
    except (OSError, MemoryError) as error:
        raise RuntimeError("can't start new thread: there is no memory for it") from error
    thread = threading.Thread(target=work, name=name, daemon=True)
    with _lock:
        before = threading.stack_size(stack_bytes)
        try:
            thread.start()
        finally:
            if threading.stack_size() == stack_bytes:  # nobody has set another meanwhile
                threading.stack_size(before)
    return thread


def run_on_large_stack(work: Callable[[], Made]) -> Made:
    """Run some work on a thread of our own: LLVM's binding tolerates no signal, and LLVM needs a large stack."""
    made: list[Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            made.append(work())
        except BaseException as error:
            failed.append(error)

    try:
        thread = start(run, "convgrad-compiler", LARGE_STACK_BYTES)
    except RuntimeError:  # no more threads, or the interpreter is ending
        return work()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


@cache
def loaded(name: str) -> Any:
    """Return a module, imported on a thread of our own: no forked child inherits a partly loaded module."""
    with _loading:
        return run_on_large_stack(partial(import_module, name))
