"""The pool: one compiled driver run on several threads, each of which claims tasks until none is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import InvalidAttributeError
from convgrad.host import usable_cores
from convgrad.spec.check import as_integer
from convgrad.spec.rules import refuse

if TYPE_CHECKING:
    from convgrad.engines.llvm.wait import Waiting

PENDING, ACTIVE, STOP = -3, -2, -1  # of the driver's arguments: threads that will run it, that do; whether it ends
SCRATCH = slice(3, 5)  # of a mailbox: address and bytes, as engines/llvm/wait.py has them
SPIN = 40_000  # looks at a word by a thread without work: about a millisecond, after which it sleeps
LONG_MS = 50.0  # from here on the caller waits, so that Ctrl-C ends the call at the next chunk
LOOK_S = 0.02  # how often it looks whether somebody has asked it to end
_KEPT_BYTES = 64 << 20  # the most scratch a thread keeps between calls


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

    held: tuple[int, NDArray[np.uint8]] | None = None  # its first cache line, and what holds it: one value, as an
    # interrupt between two would leave one without the other

    def kept(self) -> tuple[int, int]:
        """Return the address on a cache line, and the bytes, of what is kept."""
        held = self.held
        return (0, 0) if held is None else (held[0], held[1].size - 64)

    def address(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """Return the address of ``size`` bytes on a cache line, and what holds them."""
        held = self.held
        if held is None or held[1].size < size + 64:
            self.held = held = None  # the old memory goes before the new one comes
            memory = np.empty(size + 64, np.uint8)
            start = memory.ctypes.data
            held = self.held = (start + -start % 64, memory)
        if held[1].size > _KEPT_BYTES:
            self.held = None
        return held


class _Shared(threading.local):
    """Memory that all threads of a call share, kept by the thread that calls: taken while a call is at it."""

    memory: NDArray[np.int64] | None = None

    def take(self, words: int) -> NDArray[np.int64]:
        """Return memory that nobody else has."""
        memory, self.memory = self.memory, None
        if memory is not None and memory.size >= words:
            return memory
        del memory
        return np.empty(words, np.int64)

    def give_back(self, memory: NDArray[np.int64]) -> None:
        """Keep it for the next call."""
        if memory.nbytes <= _KEPT_BYTES:
            self.memory = memory


_scratch = _Scratch()
shared = _Shared()


def _work(kernel: Any, arguments: int, scratch_bytes: int) -> None:
    address, memory = _scratch.address(scratch_bytes)
    kernel(arguments, address)
    del memory


def waiting() -> Waiting:
    """Return the compiled functions that wait."""
    from convgrad.engines.llvm import wait  # noqa: PLC0415 - LLVM is there when a driver is

    return wait.waiting()


class Team:
    """The threads of one call: who is at work, whether any may still join, and what went wrong."""

    def __init__(self, kernel: Any, arguments: NDArray[np.int64], scratch_bytes: int, keep: object):
        self.kernel, self.arguments, self.scratch_bytes, self.keep = kernel, arguments, scratch_bytes, keep
        self.address: int = arguments.ctypes.data
        self.lock = threading.RLock()
        self.left = threading.Event()
        self.expected = self.working = 0
        self.closed = self.done = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Raise the flag that the driver looks at."""
        self.arguments[STOP] = 1

    def flag(self, which: int) -> int:
        """Return the address of one of the flags."""
        return self.address + self.arguments.nbytes + 8 * which

    def work(self) -> None:
        """Run the driver on this thread."""
        _work(self.kernel, self.address, self.scratch_bytes)

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

    def wait(self) -> None:
        """Wait until all who were invited have worked."""
        while not self.left.wait(LOOK_S):
            pass

    def settle(self) -> None:
        """Let nobody join any more, and see those at work to their end, whatever interrupts it; raise that then."""
        interruption: BaseException | None = None
        while True:
            try:
                self._see_off()
                break
            except BaseException as error:
                interruption = interruption or error
                self.stop()
        if interruption is not None:
            raise interruption

    def _see_off(self) -> None:
        """Wait for those at work.

        Where all tasks are claimed (``done``) it is enough that nobody is in the driver: whoever joined and has not
        come there yet finds nothing to do.
        """
        if not self.done:
            self.stop()
        with self.lock:
            self.closed = True
            if self.working:
                self.left.clear()
        while self.arguments[PENDING] or self.arguments[ACTIVE]:
            waiting().idle(self.flag(PENDING), self.flag(ACTIVE), SPIN)
            time.sleep(0)  # lets the others have the interpreter
        while self.working and not self.done:
            self.left.wait(LOOK_S)


class _Helper:
    """A thread of the pool: it waits for teams in a queue, and between calls looks into its mailbox for a while."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool = pool
        self.memory = np.zeros(32, np.int64)
        self.mail = self.memory.ctypes.data + -self.memory.ctypes.data % 64
        self.words = self.memory[(self.mail - self.memory.ctypes.data) // 8 :]
        threading.Thread(target=self._serve, name=f"convgrad-{number}", daemon=True).start()

    def post(self, team: Team) -> int:
        """Have it run a team's driver if it is looking for work: return 1 if so, else 0."""
        address = getattr(team.kernel, "address", None)  # a function of Python has none
        if address is None:
            return 0
        return waiting().post(self.mail, address, team.address, team.scratch_bytes, team.flag(PENDING))

    def _serve(self) -> None:
        queue = self.pool.queue
        while True:
            team = queue.get()
            with self.pool.lock:
                self.pool.idle -= 1
            team.help()
            del team
            with self.pool.lock:
                self.pool.idle += 1
            if self.pool.looks and queue.empty():
                self.words[SCRATCH] = _scratch.kept()
                waiting().serve(self.mail, SPIN)


class _Pool:
    """Waiting threads of one process. A forked child begins with none."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.queue: SimpleQueue[Team] = SimpleQueue()
        self.helpers: list[_Helper] = []
        self.idle = 0
        self.looks = True  # whether a thread without work looks for it: where each has a core of its own

    def invite(self, team: Team, wanted: int, all_needed: bool) -> int:
        """Ask threads to join a team, and return how many are there: the system may have no more.

        Those that look into their mailbox begin at once. Of a call whose caller does not work itself all are needed:
        threads that are at work elsewhere do not count.
        """
        posted = 0
        if not all_needed:
            for helper in self.helpers:
                if posted == wanted:
                    return posted
                posted += helper.post(team)
            wanted -= posted
        with self.lock:
            try:
                while len(self.helpers) < wanted or (all_needed and self.idle - self.queue.qsize() < wanted):
                    self.helpers.append(_Helper(self, len(self.helpers)))
                    self.idle += 1
            except RuntimeError:  # can't start new thread
                wanted = min(wanted, len(self.helpers))
            self.looks = len(self.helpers) < len(usable_cores())
        team.expected = wanted
        for _ in range(wanted):
            self.queue.put(team)
        return posted + wanted


_pool = _Pool()


def _current() -> _Pool:
    global _pool  # noqa: PLW0603 - threads do not survive a fork
    if _pool.process != os.getpid():
        _pool = _Pool()
    return _pool


def size() -> int:
    """Return how many threads this process's pool has."""
    return len(_current().helpers)


def run(
    kernel: Any,
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
        _work(kernel, arguments.ctypes.data, scratch_bytes)
        return
    team = Team(kernel, arguments, scratch_bytes, keep)
    try:
        if time_ms < LONG_MS:
            _current().invite(team, threads - 1, all_needed=False)
            team.work()
        elif _current().invite(team, threads, all_needed=True):
            team.wait()
        else:  # no thread but this one: Ctrl-C is heard at the end
            team.work()
        team.done = team.error is None
    finally:  # whatever interrupts it, and again, the call does not end while others read or write the arrays
        try:
            team.settle()
        finally:
            team.settle()
    if team.error is not None:
        raise team.error
