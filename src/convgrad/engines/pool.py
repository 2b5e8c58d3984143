"""The pool: threads that help callers. They run on other cores than a calling thread that works itself."""

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
LONG_MS = 50.0  # the caller of longer calls waits, so that Ctrl-C ends the call at the next cache block
STACK_BYTES = 1 << 20  # of a thread of the pool


class _Helper:
    """A thread of the pool: it waits for teams in a queue. After a call it looks into its mailbox for a while."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool = pool
        self.memory = np.zeros(32, np.int64)
        self.mail = self.memory.ctypes.data + -self.memory.ctypes.data % 64
        self.words = self.memory[(self.mail - self.memory.ctypes.data) // 8 :]
        self.cores: frozenset[int] = frozenset()
        waiting()  # compiled by the calling thread, not by each helper
        self.thread = start(self._serve, f"convgrad-{number}", STACK_BYTES)

    def stay_on(self, cores: frozenset[int]) -> None:
        """Move the thread to these cores, if the system can."""
        if self.cores != cores:
            move_thread(self.thread, cores)
            self.cores = cores

    @property
    def looks(self) -> bool:
        """Whether the thread looks into its mailbox."""
        return bool(self.words[STATE] == READY)

    def post(self, team: Team) -> int:
        """Post a team's driver if the thread looks into its mailbox: return 1 if so, else 0."""
        address = getattr(team.kernel, "address", None)  # a function of Python has none
        if address is None:
            return 0
        return waiting().post(self.mail, address, team.address, team.scratch_bytes, team.flag(PENDING))

    def leave(self) -> bool:
        """Send the thread to the queue if it looks into its mailbox; return whether it goes."""
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
        """Look into the mailbox for a while, and run posted drivers."""
        # The end of the interpreter clears thread-local data while kernels run: this frame holds their scratch.
        held = scratch.own.held
        self.words[SCRATCH] = (0, 0) if held is None else (held[0], held[1].size - 64)
        waiting().serve(self.mail, LOOKS)
        del held


class _Pool:
    """The threads of one process. A forked child begins without any."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.queue: SimpleQueue[Team] = SimpleQueue()
        self.helpers: list[_Helper] = []
        self.idle = 0
        self.looking = 0  # of the idle ones: fewer than cores, because a caller needs one
        self.cores, self.others = 1, frozenset[int]()  # of the last caller: how many, and all except its own
        self.patience = Patience()
        self.asked = 0.0  # the time of the last call that could have help

    def place(self, caller: int | None) -> None:
        """Move helpers to all cores except the caller's: a thread that wakes up there displaces the caller."""
        cores = frozenset(usable_cores())
        with self.lock:
            self.cores, self.others = len(cores), cores - {caller}
            for helper in self.helpers:
                helper.stay_on(self.others)

    def post(self, team: Team, wanted: int) -> int:
        """Post a team's driver to helpers that look into their mailboxes; return how many take it."""
        posted = 0
        for helper in self.helpers:
            if posted < wanted:
                posted += helper.post(team)
        return posted

    def invite(self, team: Team, wanted: int, all_needed: bool) -> int:
        """Invite threads, which may sleep, to a team; return how many, because the system may have no more threads.

        ``all_needed``: the caller does not work itself, so threads that work for other calls do not count.
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
        """Remove teams from the queue that ended before a thread came: threads that wake may join another."""
        there: list[Team] = []
        count = self.queue.qsize()
        with suppress(Empty):  # threads that wake take teams meanwhile
            while len(there) < count:
                there.append(self.queue.get_nowait())
        for team in there:
            if not team.closed:
                self.queue.put(team)

    def _free(self) -> int:
        """Return how many threads will come to the queue: other calls may keep those busy that look."""
        return self.idle - self.looking - self.queue.qsize()


class Patience:
    """The policy on a machine that others use too: the more calls wait for helpers, the more calls go without."""

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
        """Record how long a call waited for its helpers after its last task, and its expected time."""
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

    A short call is if a thread looks into its mailbox, if the call is worth waking threads, or if calls follow one
    another at once: the next one finds threads that look.
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
    """Run a driver on ``threads`` threads, or one per core if those are fewer; ``time_ms`` is its time on ``threads``.

    The caller is one of them, unless the call is long and must react to Ctrl-C. ``keep`` holds the memory behind the
    arguments until no thread can read it. At the end of the interpreter, the caller works alone.
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
    """Return how many of ``threads`` can run."""
    return 1 if sys.is_finalizing() else min(threads, len(usable_cores()))


def is_long(threads: int, there: int, time_ms: float) -> bool:
    """Return whether a call is so long that its caller waits, to react to Ctrl-C."""
    return time_ms * threads / there >= LONG_MS and not sys.is_finalizing()
