"""The thread pool. Its threads run on all cores except that of the calling thread, if that runs tasks too."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from ctypes import addressof
from queue import Empty, SimpleQueue

import numpy as np

from convgrad.engines import scratch
from convgrad.engines.addresses import Words
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.mailbox import LEAVE, MAIL, READY
from convgrad.engines.team import PENDING, Team, waiting, work
from convgrad.host import move_thread, present_core, usable_cores
from convgrad.plan.constants import CALLS_WEIGHED, LOOKS, MAX_ALONE, MIN_WAKE_MS, SUCCESSION_S
from convgrad.starting import start

STATE, SCRATCH = MAIL.index("state"), slice(MAIL.index("scratch"), MAIL.index("scratch_bytes") + 1)
MORE_THAN_ANY = 1 << 62  # bytes: more scratch than any thread has
LONG_MS = 50.0  # the caller of a longer call only waits, so that Ctrl-C can stop the call at the next cache block
STACK_BYTES = 1 << 20  # the stack size of a thread of the pool


class _Helper:
    """A thread of the pool. It sleeps until the queue has a team; after each call it polls its mailbox for a while."""

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool = pool
        self.memory = np.zeros(32, np.int64)
        self.mail = self.memory.ctypes.data + -self.memory.ctypes.data % 64
        self.words = self.memory[(self.mail - self.memory.ctypes.data) // 8 :]
        self.cores: frozenset[int] = frozenset()
        waiting()  # compile these functions on the calling thread, so that no helper must
        self.thread = start(self._serve, f"convgrad-{number}", STACK_BYTES)

    def stay_on(self, cores: frozenset[int]) -> None:
        """Bind the thread to these cores, if the operating system supports it."""
        if self.cores != cores:
            move_thread(self.thread, cores)
            self.cores = cores

    @property
    def looks(self) -> bool:
        """Whether the thread is polling its mailbox."""
        return bool(self.words[STATE] == READY)

    def post(self, team: Team) -> bool:
        """Post a team's driver to the mailbox; return False if the thread isn't polling or has too little scratch."""
        address = getattr(team.kernel, "address", None)  # None for a Python function
        if address is None:
            return False
        of_thread = team.scratch_bytes, team.flag(PENDING), team.members
        is_posted = bool(waiting().post(self.mail, address, team.address, *of_thread))
        team.members += is_posted
        return is_posted

    def leave(self) -> bool:
        """Make the thread stop polling and go to the queue; return whether it will. Do nothing if it isn't polling."""
        waiting().post(self.mail, 0, 0, MORE_THAN_ANY, 0, 0)  # a thread with too little scratch leaves its mailbox
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
        """Poll the mailbox for a while, and run the drivers that are posted."""
        # The ending interpreter clears thread-local data while kernels run: ``held`` keeps their scratch alive.
        held = scratch.own.held
        self.words[SCRATCH] = (0, 0) if held is None else (held[0], held[1].size - 64)
        waiting().serve(self.mail, LOOKS)
        del held


class _Pool:
    """The pool of one process. A forked child has a new pool without threads."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.queue: SimpleQueue[Team] = SimpleQueue()
        self.helpers: list[_Helper] = []
        self.idle = 0
        self.looking = 0  # idle threads that poll their mailboxes: fewer than cores, because the caller needs a core
        self.cores, self.others = 1, frozenset[int]()  # the number of usable cores; all except that of the last caller
        self.patience = Patience()
        self.asked = 0.0  # the time of the last call for which helpers were considered

    def place(self, caller: int | None) -> None:
        """Bind helpers to all cores except the caller's, because a helper that wakes up there displaces the caller."""
        cores = frozenset(usable_cores())
        with self.lock:
            self.cores, self.others = len(cores), cores - {caller}
            for helper in self.helpers:
                helper.stay_on(self.others)

    def post(self, team: Team, wanted: int) -> int:
        """Post a team's driver to at most ``wanted`` helpers that poll their mailboxes; return how many took it."""
        posted = 0
        for helper in self.helpers:
            if posted < wanted:
                posted += helper.post(team)
        return posted

    def invite(self, team: Team, wanted: int, all_needed: bool) -> int:
        """Put a team into the queue for ``wanted`` threads, which may sleep; start threads if the pool has too few.

        Return the number of invited threads, which is smaller if the system cannot start more threads. Pass
        ``all_needed`` if the caller does not work itself: then threads that work for other calls do not count.
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
            except RuntimeError:  # the system cannot start another thread
                wanted = min(wanted, len(self.helpers))
            self._forget()
            if not all_needed:  # keep at most one team per thread in the queue
                wanted = max(0, min(wanted, len(self.helpers) - self.queue.qsize()))
        team.expected = wanted
        for _ in range(wanted):
            self.queue.put(team)
        return wanted

    def _forget(self) -> None:
        """Remove ended teams from the queue, so that threads that wake up join a team that still has work."""
        there: list[Team] = []
        count = self.queue.qsize()
        with suppress(Empty):  # threads that wake up may empty the queue meanwhile
            while len(there) < count:
                there.append(self.queue.get_nowait())
        for team in there:
            if not team.closed:
                self.queue.put(team)

    def _free(self) -> int:
        """Return how many idle threads wait in the queue to join a team. Threads that poll a mailbox do not count."""
        return self.idle - self.looking - self.queue.qsize()


class Patience:
    """The policy that decides about helpers on a machine that other programs use too.

    If callers must wait for their helpers, the next calls run without helpers.
    """

    def __init__(self) -> None:
        self.left = 0  # how many of the next calls run without helpers
        self.waited = 0.0  # the share of the last calls whose caller waited for helpers

    def alone(self) -> bool:
        """Return whether the next call runs without helpers."""
        if self.left <= 0:  # two threads can decrease it at the same time, so it may be negative
            return False
        self.left -= 1
        return True

    def learn(self, waited_ms: float, time_ms: float) -> None:
        """Record how long a caller waited for helpers after its own last task, and the expected time of the call."""
        self.waited += ((waited_ms > time_ms) - self.waited) / CALLS_WEIGHED
        self.left = int(MAX_ALONE * self.waited**2)  # squared, because a single call that waited can be chance


_pool = _Pool()


def _current() -> _Pool:
    global _pool  # noqa: PLW0603 - threads do not survive a fork
    if _pool.process != os.getpid():
        _pool = _Pool()
    return _pool


def size() -> int:
    """Return the number of threads in the pool of this process."""
    return len(_current().helpers)


def helped(threads: int, time_ms: float) -> bool:
    """Return whether a call should use more threads than the caller's; it takes ``time_ms`` on ``threads`` threads.

    It should if it is so long that its caller only waits. A shorter call should not if only one thread can run, or if
    ``Patience`` decides that it runs alone. Otherwise a shorter call should in any of these cases:

    - A helper is polling its mailbox.
    - The call is long enough to wake sleeping helpers.
    - The last call was less than SUCCESSION_S ago. Then helpers that wake up now will be polling at the next call.
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
    kernel: CompiledKernel,
    arguments: Words,
    scratch_bytes: int,
    threads: int,
    time_ms: float,
    keep: object = None,
) -> None:
    """Run a driver on ``threads`` threads, or on one thread per core if there are fewer cores.

    ``time_ms`` is the expected time of the driver on ``threads`` threads. The caller is one of the threads, unless the
    call is long and must react to Ctrl-C. ``keep`` keeps alive the memory to which the arguments point. The caller runs
    the driver alone while the interpreter ends.
    """
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
        else:  # no thread could be started, so this thread reacts to Ctrl-C only after the driver
            team.work()
        team.done = team.error is None
    finally:  # even after two interrupts, the call does not end while other threads use the arrays
        try:
            team.settle()
        finally:
            team.settle()
    if team.error is not None:
        raise team.error
    if not long:
        pool.patience.learn(1e3 * (time.perf_counter() - worked), time_ms * threads / there)


def _there(threads: int) -> int:
    """Return how many of ``threads`` threads can run at the same time: at most one per usable core."""
    return 1 if sys.is_finalizing() else min(threads, len(usable_cores()))


def is_long(threads: int, there: int, time_ms: float) -> bool:
    """Return whether a call on ``there`` threads is so long that its caller must only wait, to react to Ctrl-C."""
    return time_ms * threads / there >= LONG_MS and not sys.is_finalizing()
