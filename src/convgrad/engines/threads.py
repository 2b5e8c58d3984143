"""The pool: one compiled driver run on several threads, each of which claims tasks until none is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import InvalidAttributeError
from convgrad.host import usable_cores
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

ACTIVE, STOP = -2, -1  # of the driver's arguments: how many threads are in it, whether it is to end
SPIN_S = 200e-6  # how long the caller looks for the others' end before it sleeps
LONG_MS = 50.0  # from here on the caller waits, so that Ctrl-C ends the call at the next chunk
_KEPT_BYTES = 64 << 20  # the most scratch a thread keeps between calls

Kernel = Callable[[int, int], None]


_wanted: ContextVar[int | None] = ContextVar("convgrad_threads", default=None)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Use at most ``number`` threads in a ``with`` block of this thread or task; the ``threads`` of a call beats it.

    Raises InvalidAttributeError unless ``number`` is a positive integer. Results do not depend on it.

    >>> with threads(1):
    ...     count(None), count(2)
    (1, 2)
    """
    wanted = as_integer(number)
    if wanted is None or wanted < 1:  # D6
        refuse("D6", "threads", f"threads must be a positive integer; got {number!r}")
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def count(threads: int | None) -> int:
    """Return how many threads to use: as asked of the call or the context, by the environment, or all we may run on."""
    asked = _wanted.get() if threads is None else threads
    if asked is not None:
        return asked
    for name in ("CONVGRAD_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").split(",")[0].strip()
        if value.isdecimal() and int(value) >= 1:
            return int(value)
        if value and name == "CONVGRAD_NUM_THREADS":  # what the other one means is for its own libraries to say
            raise InvalidAttributeError(f"{name} must be a positive integer; got {os.environ[name]!r}")
    return len(usable_cores())


class _Scratch(threading.local):
    """Each thread's own workspace, kept from call to call: fresh memory costs page faults."""

    memory: NDArray[np.uint8] | None = None

    def address(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """Return the address of ``size`` bytes on a cache line, and what holds them."""
        if self.memory is None or self.memory.size < size + 64:
            self.memory = None
            self.memory = np.empty(size + 64, np.uint8)
        memory = self.memory
        if memory.size > _KEPT_BYTES:
            self.memory = None
        start: int = memory.ctypes.data
        return start + -start % 64, memory


_scratch = _Scratch()


def _work(kernel: Kernel, arguments: NDArray[np.int64], scratch_bytes: int) -> None:
    address, memory = _scratch.address(scratch_bytes)
    kernel(arguments.ctypes.data, address)
    del memory


class Team:
    """The threads of one call: who is at work, whether any may still join, and what went wrong."""

    def __init__(self, kernel: Kernel, arguments: NDArray[np.int64], scratch_bytes: int, keep: object):
        self.kernel, self.arguments, self.scratch_bytes, self.keep = kernel, arguments, scratch_bytes, keep
        self.lock = threading.Lock()
        self.left = threading.Event()
        self.expected = self.working = 0
        self.closed = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Raise the flag that the driver looks at."""
        self.arguments[STOP] = 1

    def work(self) -> None:
        """Run the driver on this thread."""
        _work(self.kernel, self.arguments, self.scratch_bytes)

    def help(self) -> None:
        """Run the driver on a thread of the pool, unless the call is over."""
        with self.lock:
            if self.closed:
                return
            self.working += 1
        try:
            self.work()
        except BaseException as error:
            self.error = error
            self.stop()
        with self.lock:
            self.working -= 1
            self.expected -= 1
            if self.working == 0 and (self.closed or self.expected == 0):
                self.left.set()

    def close(self, done: bool) -> None:
        """Let nobody join any more, and wait for those at work.

        Where all tasks are claimed (``done``) it is enough that nobody is in the driver: whoever joined and has not
        come there yet finds nothing to do. That is seen at once, while to be woken takes 50 microseconds.
        """
        with self.lock:
            self.closed = True
            if self.working == 0:
                return
            if not done:
                self.left.clear()
        give_up = time.perf_counter() + SPIN_S
        while done and self.arguments[ACTIVE]:
            time.sleep(0)  # lets the others have the interpreter
            done = time.perf_counter() < give_up
        if not done or self.arguments[STOP]:
            self.left.wait()


class _Pool:
    """Waiting threads of one process. A forked child begins with none."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.queue: SimpleQueue[Team] = SimpleQueue()
        self.size = 0

    def invite(self, team: Team, helpers: int) -> int:
        """Ask for ``helpers`` threads to join a team, and return how many there are: the system may have no more."""
        with self.lock:
            while self.size < helpers:
                try:
                    threading.Thread(target=self._serve, name=f"convgrad-{self.size}", daemon=True).start()
                except RuntimeError:  # can't start new thread
                    break
                self.size += 1
            invited = min(helpers, self.size)
        team.expected = invited
        for _ in range(invited):
            self.queue.put(team)
        return invited

    def _serve(self) -> None:
        while True:
            team = self.queue.get()
            team.help()
            del team


_pool = _Pool()


def _current() -> _Pool:
    global _pool  # noqa: PLW0603 - threads do not survive a fork
    if _pool.process != os.getpid():
        _pool = _Pool()
    return _pool


def size() -> int:
    """Return how many threads this process's pool has."""
    return _current().size


def run(
    kernel: Kernel,
    arguments: NDArray[np.int64],
    scratch_bytes: int,
    threads: int,
    time_ms: float,
    keep: object = None,
) -> None:
    """Run a driver on ``threads`` threads; on one of them the caller, unless the call is long and must hear Ctrl-C.

    ``keep`` is what the arguments point into: it lives as long as any thread may look at it.
    """
    if threads == 1 and time_ms < LONG_MS:
        _work(kernel, arguments, scratch_bytes)
        return
    team = Team(kernel, arguments, scratch_bytes, keep)
    begun = done = False
    error: BaseException | None = None
    while True:  # whatever interrupts it, the call does not end while others read or write the arrays
        try:
            if not begun and time_ms < LONG_MS:
                begun = True
                _current().invite(team, threads - 1)
                team.work()
                done = True
            elif not begun:
                begun = True
                if _current().invite(team, threads):
                    team.left.wait()
                else:  # no thread but this one: Ctrl-C is heard at the end
                    team.work()
                    done = True
            team.close(done and error is None)
            break
        except BaseException as interruption:
            team.stop()
            error = error or interruption
    if error is not None:
        raise error
    if team.error is not None:
        raise team.error
