"""The pool: threads that help callers, kept off the core of a caller who works himself, and a driver run on some."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from ctypes import addressof
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from convgrad.engines import scratch
from convgrad.engines.addresses import Words
from convgrad.engines.starting import LEAVE, MAIL, READY, start
from convgrad.engines.team import PENDING, Team, waiting, work
from convgrad.host import move_thread, present_core, usable_cores
from convgrad.plan.constants import CALLS_WEIGHED, LOOKS, MAX_ALONE, MIN_WAKE_MS, SUCCESSION_S

STATE, SCRATCH = MAIL.index("state"), slice(MAIL.index("scratch"), MAIL.index("scratch_bytes") + 1)
MORE_THAN_ANY = 1 << 62  # bytes
LONG_MS = 50.0  # from here on the caller waits, so that Ctrl-C ends the call at the next chunk
STACK_BYTES = 1 << 20  # of a thread of the pool


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
            move_thread(self.thread, cores)
            self.cores = cores

    @property
    def looks(self) -> bool:
        """Whether it looks for work at present."""
        return bool(self.words[STATE] == READY)

    def post(self, team: Team) -> int:
        """Have it run a team's driver if it is looking for work: return 1 if so, else 0."""
        address = getattr(team.kernel, "address", None)  # a function of Python has none
        if address is None:
            return 0
        return waiting().post(self.mail, address, team.address, team.scratch_bytes, team.flag(PENDING))

    def leave(self) -> bool:
        """Have it come to the queue, if it is looking for work; return whether it does."""
        waiting().post(self.mail, 0, 0, MORE_THAN_ANY, 0)  # as for work that needs more scratch than it has
        return bool(self.words[STATE] == LEAVE)

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
        # The interpreter's end clears what is a thread's while kernels run: this frame keeps the memory they write to.
        held = scratch.own.held
        self.words[SCRATCH] = (0, 0) if held is None else (held[0], held[1].size - 64)
        waiting().serve(self.mail, LOOKS)
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
        self.cores, self.others = 1, frozenset[int]()  # that the last caller might use, and without its own
        self.patience = Patience()
        self.asked = 0.0  # when the last call was that could have help

    def place(self, caller: int | None) -> None:
        """Have the helpers on all cores but the caller's: a thread that wakes up there displaces the caller."""
        cores = frozenset(usable_cores())
        with self.lock:
            self.cores, self.others = len(cores), cores - {caller}
            for helper in self.helpers:
                helper.stay_on(self.others)

    def post(self, team: Team, wanted: int) -> int:
        """Have helpers that look into their mailbox run a team's driver, at once; return how many do."""
        posted = 0
        for helper in self.helpers:
            if posted < wanted:
                posted += helper.post(team)
        return posted

    def invite(self, team: Team, wanted: int, all_needed: bool) -> int:
        """Ask threads to join a team, who may be asleep, and return how many are there: the system may have no more.

        Of a call whose caller does not work itself all are needed: threads that are at work elsewhere do not count.
        """
        with self.lock:
            try:
                left = 0
                for helper in self.helpers if all_needed else ():
                    if self._free() + left < wanted:
                        left += helper.leave()
                while len(self.helpers) < wanted or (all_needed and self._free() + left < wanted):
                    self.helpers.append(_Helper(self, len(self.helpers)))
                    self.helpers[-1].stay_on(self.others)
                    self.idle += 1
            except RuntimeError:  # can't start new thread
                wanted = min(wanted, len(self.helpers))
            self._forget()
            if not all_needed:  # no more than there are threads
                wanted = max(0, min(wanted, len(self.helpers) - self.queue.qsize()))
        team.expected = wanted
        for _ in range(wanted):
            self.queue.put(team)
        return wanted

    def _forget(self) -> None:
        """Take teams from the queue that were over before anybody came: who wakes for one of them may join another."""
        there: list[Team] = []
        count = self.queue.qsize()
        with suppress(Empty):  # threads that wake take teams meanwhile
            while len(there) < count:
                there.append(self.queue.get_nowait())
        for team in there:
            if not team.closed:
                self.queue.put(team)

    def _free(self) -> int:
        """Return how many threads will come to the queue: those that look may be kept busy by others' calls."""
        return self.idle - self.looking - self.queue.qsize()


class Patience:
    """What calls do on a machine that others use too: the more of them helpers kept waiting, the more go alone."""

    def __init__(self) -> None:
        self.left = 0  # calls that go alone
        self.waited = 0.0  # the share of the last calls that waited

    def alone(self) -> bool:
        """Return whether the next call goes without help."""
        if self.left <= 0:  # less, where two took the last one at once
            return False
        self.left -= 1
        return True

    def learn(self, waited_ms: float, time_ms: float) -> None:
        """Take how long a call waited for its helpers when there was nothing left to do, and what it was to take."""
        self.waited += ((waited_ms > time_ms) - self.waited) / CALLS_WEIGHED
        self.left = int(MAX_ALONE * self.waited**2)  # one call that waited among many that did not is chance


_pool = _Pool()


def _current() -> _Pool:
    global _pool  # noqa: PLW0603 - threads do not survive a fork
    if _pool.process != os.getpid():
        _pool = _Pool()
    return _pool


def size() -> int:
    """Return how many threads this process's pool has."""
    return len(_current().helpers)


def helped(threads: int, time_ms: float) -> bool:
    """Return whether a call that takes ``time_ms`` on some threads should be cut for any but the caller's.

    A short one is, where somebody looks for work, where it is worth waking those who sleep, or where calls follow one
    another at once: the next will find them looking.
    """
    pool, there = _current(), _there(threads)
    if is_long(threads, there, time_ms):
        return True
    if there == 1 or pool.patience.alone():
        return False
    before, pool.asked = pool.asked, time.perf_counter()
    worth = time_ms >= MIN_WAKE_MS or pool.asked - before < SUCCESSION_S
    return worth or any(helper.looks for helper in pool.helpers)


def run(
    kernel: Any,
    arguments: Words,
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
        work(kernel, addressof(arguments), scratch_bytes)
        return
    there = _there(threads)
    long = is_long(threads, there, time_ms)
    if there == 1 and not long:
        work(kernel, addressof(arguments), scratch_bytes)
        return
    pool, team = _current(), Team(kernel, arguments, scratch_bytes, keep)
    pool.place(None if long else present_core())
    worked = 0.0
    try:
        if not long:
            asleep = there - 1 - pool.post(team, there - 1)
            if asleep:
                pool.invite(team, asleep, all_needed=False)
            team.work()
            worked = time.perf_counter()
        elif pool.invite(team, there, all_needed=True):
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
        pool.patience.learn(1e3 * (time.perf_counter() - worked), time_ms * threads / there)


def _there(threads: int) -> int:
    """Return how many of the threads asked for there are."""
    return 1 if sys.is_finalizing() else min(threads, len(usable_cores()))


def is_long(threads: int, there: int, time_ms: float) -> bool:
    """Return whether a call takes so long on the threads there are that its caller waits, to hear Ctrl-C."""
    return time_ms * threads / there >= LONG_MS and not sys.is_finalizing()
