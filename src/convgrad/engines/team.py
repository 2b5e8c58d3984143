"""The threads of one call. Each thread runs the compiled driver, which claims tasks until none is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from ctypes import addressof, sizeof
from functools import partial
from typing import TYPE_CHECKING

from convgrad.engines import scratch
from convgrad.engines.addresses import Words
from convgrad.engines.engine import CompiledKernel
from convgrad.plan.constants import CALLER_LOOKS
from convgrad.starting import deferred

if TYPE_CHECKING:
    from convgrad.engines.llvm.wait import Waiting

# The last three arguments of a driver: how many threads will run it, how many run it, and whether it must stop.
PENDING, ACTIVE, STOP = -3, -2, -1
_give_way: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))  # Windows has no sched_yield
LOOK_S = 0.02  # the interval at which a waiting caller checks for signals


def work(kernel: CompiledKernel, arguments: int, scratch_bytes: int, thread: int = 0) -> None:
    """Run a driver on this thread, which has a number among the threads of the call."""
    address, memory = scratch.own.address(scratch_bytes)
    kernel(arguments, address, thread)
    del memory


@deferred
def _compiled() -> Callable[[], Waiting]:
    """Return the function that compiles these functions. It is needed if there is a driver, because it loads LLVM."""
    from convgrad.engines.llvm.wait import compiled  # noqa: PLC0415

    return compiled


def waiting() -> Waiting:
    """Return the compiled functions by which threads wait for work and for each other."""
    return _compiled()()


class Team:
    """The state of a call that several threads share: how many work, whether more may join, and the first error."""

    def __init__(self, kernel: CompiledKernel, arguments: Words, scratch_bytes: int, keep: object):
        self.kernel, self.arguments, self.scratch_bytes, self.keep = kernel, arguments, scratch_bytes, keep
        self.address = addressof(arguments)
        self.lock = threading.RLock()
        self.left = threading.Event()
        self.members = 1  # the caller is the first one, with the number 0
        self.expected = self.working = 0
        self.closed = self.done = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        """Set the stop flag, so that the driver claims no more tasks."""
        self.arguments[STOP] = 1

    def flag(self, which: int) -> int:
        """Return the address of a flag: PENDING, ACTIVE or STOP."""
        return self.address + sizeof(self.arguments) + 8 * which

    def work(self, thread: int = 0) -> None:
        """Run the driver on this thread, which has a number among the members."""
        work(self.kernel, self.address, self.scratch_bytes, thread)

    def help(self) -> None:
        """Run the driver on a thread of the pool, unless the call is over."""
        with self.lock:
            if self.closed:
                return
            self.working += 1
            thread = self.members
            self.members += 1
        try:
            self.work(thread)
        except BaseException as error:
            self.error = error
            self.stop()
        with self.lock:
            self.working -= 1
            self.expected -= 1
            if self.working == 0 and (self.closed or self.expected == 0):
                self.left.set()

    def wait(self) -> None:
        """Wait until all invited threads have finished."""
        while not self.left.wait(LOOK_S):
            pass

    def settle(self) -> None:
        """Admit no more threads and wait for those that work. Raise an interruption, such as Ctrl-C, afterwards."""
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
        """Admit no more threads and wait for those that work.

        If all tasks are finished (``done``), wait only until no thread is in the driver. A thread that enters the
        driver later finds nothing to do.
        """
        if not self.done:
            self.stop()
        with self.lock:
            self.closed = True
            if self.working:
                self.left.clear()
        while self.arguments[PENDING] or self.arguments[ACTIVE]:
            waiting().idle(self.flag(PENDING), self.flag(ACTIVE), CALLER_LOOKS)
            _give_way()  # not time.sleep(0), which takes 50 microseconds because of the slack of Linux's timers
        while self.working and not self.done:
            self.left.wait(LOOK_S)
        if self.done or not self.working:  # a thread that still enters the driver reads only its arguments
            self.keep = None
