"""The pool: threads that help callers, kept off the core of a caller who works himself, and a driver run on some."""

from __future__ import annotations

import os
import sys
import threading
import time
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import workspace
from convgrad.engines.starting import start
from convgrad.engines.team import PENDING, SPIN, Team, waiting, work
from convgrad.host import move_thread, present_core, usable_cores

SCRATCH = slice(3, 5)  # of a mailbox: address and bytes, as engines/llvm/wait.py has them
LONG_MS = 50.0  # from here on the caller waits, so that Ctrl-C ends the call at the next chunk
STACK_BYTES = 1 << 20  # of a thread of the pool
MOST_ALONE = 16  # calls without help, in a row


class _Helper:
    """A thread of the pool: it waits for teams in a queue, and between calls looks into its mailbox for a while."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool = pool
        self.memory = np.zeros(32, np.int64)
        self.mail = self.memory.ctypes.data + -self.memory.ctypes.data % 64
        self.words = self.memory[(self.mail - self.memory.ctypes.data) // 8 :]
        self.cores: frozenset[int] = frozenset()
        waiting()  # compiled by who calls, not by each helper
        self.thread = start(self._serve, f"convgrad-{number}", STACK_BYTES)

    def stay_on(self, cores: frozenset[int]) -> None:
        """Move it to these cores, where the system can."""
        if self.cores != cores:
            self.cores = cores
            move_thread(self.thread, cores)

    def post(self, team: Team) -> int:
        """Have it run a team's driver if it is looking for work: return 1 if so, else 0."""
        address = getattr(team.kernel, "address", None)  # a function of Python has none
        if address is None:
            return 0
        return waiting().post(self.mail, address, team.address, team.scratch_bytes, team.flag(PENDING))

    def _serve(self) -> None:
        pool, queue = self.pool, self.pool.queue
        while True:
            team = queue.get()
            with pool.lock:
                pool.idle -= 1
            team.help()
            del team
            with pool.lock:
                pool.idle += 1
                looks = queue.empty() and pool.looking < pool.cores - 1
                pool.looking += looks
            if looks:
                self._look()
                with pool.lock:
                    pool.looking -= 1

    def _look(self) -> None:
        """Look into the mailbox for a while, and do what is posted."""
        held = (
            workspace.scratch.held
        )  # this frame keeps it: the interpreter's end clears what is a thread's while kernels run
        self.words[SCRATCH] = (0, 0) if held is None else (held[0], held[1].size - 64)
        waiting().serve(self.mail, SPIN)
        del held


class _Pool:
    """Waiting threads of one process. A forked child begins with none."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.queue: SimpleQueue[Team] = SimpleQueue()
        self.helpers: list[_Helper] = []
        self.idle = 0
        self.looking = 0  # of those: less than there are cores, as a caller needs one
        self.cores = 1
        self.patience = Patience()

    def place(self, cores: tuple[int, ...], caller: int | None) -> None:
        """Have the helpers on all cores but the caller's: a thread that wakes up there displaces the caller."""
        self.cores = len(cores)
        others = frozenset(cores) - {caller}
        for helper in self.helpers:
            helper.stay_on(others)

    def invite(self, team: Team, wanted: int, cores: tuple[int, ...], all_needed: bool) -> int:
        """Ask threads to join a team, and return how many are there: the system may have no more.

        Those that look into their mailbox begin at once. Of a call whose caller does not work itself all are needed:
        threads that are at work elsewhere do not count.
        """
        caller = None if all_needed else present_core()
        self.place(cores, caller)
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
        self.place(cores, caller)
        team.expected = wanted
        for _ in range(wanted):
            self.queue.put(team)
        return posted + wanted


class Patience:
    """What calls do on a machine that others use too: after one whose helpers kept it waiting, some have none.

    The more calls were kept waiting, the more; a call that was not halves their number.
    """

    def __init__(self) -> None:
        self.left = self.last = 0

    def alone(self) -> bool:
        """Return whether the next call goes without help."""
        if not self.left:
            return False
        self.left -= 1
        return True

    def learn(self, waited_ms: float, time_ms: float) -> None:
        """Take how long a call waited for its helpers when there was nothing left to do, and what it was to take."""
        slow = waited_ms > time_ms
        self.last = min(max(2 * self.last, 1), MOST_ALONE) if slow else self.last // 2
        self.left = self.last if slow else 0


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
    """Run a driver on ``threads`` threads, or as many as there are cores; ``time_ms`` is what it takes on those asked.

    On one of them the caller, unless the call is long and must hear Ctrl-C. ``keep`` is what the arguments point into:
    it lives as long as any thread may look at it. Where the interpreter is ending there is no thread but the caller.
    """
    if threads == 1 and time_ms < LONG_MS:
        work(kernel, arguments.ctypes.data, scratch_bytes)
        return
    cores = usable_cores()
    there = 1 if sys.is_finalizing() else min(threads, len(cores))
    time_ms *= threads / there
    long = time_ms >= LONG_MS and not sys.is_finalizing()
    pool = _current()
    if not long and (there == 1 or pool.patience.alone()):
        work(kernel, arguments.ctypes.data, scratch_bytes)
        return
    team = Team(kernel, arguments, scratch_bytes, keep)
    begin = 0.0
    try:
        if not long:
            pool.invite(team, there - 1, cores, all_needed=False)
            team.work()
            begin = time.perf_counter()
        elif pool.invite(team, there, cores, all_needed=True):
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
    if not long:
        pool.patience.learn(1e3 * (time.perf_counter() - begin), time_ms)
