"""The thread pools that run a driver, a row each: our own, or the OpenMP runtime of the process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from ctypes import addressof
from typing import Any, NamedTuple

from convgrad.engines import openmp, pool, scratch, settings
from convgrad.engines.addresses import Words, words
from convgrad.engines.team import work

PAGE_BYTES = 4096  # no two threads' scratch shares one


class Pool(NamedTuple):
    """The two functions of a pool: see ``pool.helped`` and ``pool.run``."""

    helped: Callable[[int, float], bool]
    run: Callable[[Any, Words, int, int, float, object], None]


def helped(threads: int, time_ms: float) -> bool:
    """Return whether a call that takes ``time_ms`` on some threads should be cut for any but the caller's."""
    return _asked().helped(threads, time_ms)


def run(kernel: Any, arguments: Words, scratch_bytes: int, threads: int, time_ms: float, keep: object = None) -> None:
    """Run a driver on ``threads`` threads of the pool of the context; ``pool.run`` has the parameters."""
    _asked().run(kernel, arguments, scratch_bytes, threads, time_ms, keep)


def name() -> str:
    """Return the name of the pool of this context."""
    asked = settings.pool()
    return settings.OWN if asked == settings.OPENMP and openmp.runtime() is None else asked


def _asked() -> Pool:
    return POOLS[name()]


# -- OpenMP ----------------------------------------------------------------------------------------------------------


def _helped_by_team(threads: int, time_ms: float) -> bool:
    """Return whether PyTorch's team has other threads. If they sleep, our pool decides."""
    if threads > 1 and openmp.rests():
        return pool.helped(threads, time_ms)
    there = _there(threads)
    return there > 1 or _waits(threads, there, time_ms)


def _run_by_team(kernel: Any, arguments: Words, scratch_bytes: int, threads: int, time_ms: float, keep: object) -> None:
    """Run a driver on this thread and on its team.

    Our pool runs it if this thread must react to Ctrl-C, or if the team sleeps. The team keeps its size, because a team
    that shrinks ends threads: additional threads return at once.
    """
    there = _there(threads)
    if _waits(threads, there, time_ms) or (there > 1 and openmp.rested()):
        pool.run(kernel, arguments, scratch_bytes, threads, time_ms, keep)
        return
    if there == 1:
        work(kernel, addressof(arguments), scratch_bytes)
        return
    from convgrad.engines.llvm import wait  # noqa: PLC0415 - LLVM is there when a driver is

    found, each = _found(), wait.region()  # held by this frame: where two threads compile it, one is forgotten
    step = -(-scratch_bytes // PAGE_BYTES) * PAGE_BYTES
    address, memory = scratch.own.address(there * step, there)
    given = words(len(wait.REGION.columns))
    system = (found.number, found.system_call, found.gettid, 0)
    given[:] = [kernel.address, addressof(arguments), address, step, there, *system]
    found.parallel(each.address, addressof(given), max(there, found.threads()), 0)
    openmp.met(given[wait.REGION.index("member")])
    del memory


def _found() -> openmp.Runtime:
    found = openmp.runtime()
    assert found is not None, "calls are sent here where there is a runtime"
    return found


def _there(threads: int) -> int:
    """Return how many of ``threads`` can run: only the caller inside a region, or at the end of the interpreter."""
    found = _found()
    return 1 if sys.is_finalizing() or found.inside() else min(threads, found.cores())


def _waits(threads: int, there: int, time_ms: float) -> bool:
    """Return whether the caller must wait for others: only the main thread receives signals."""
    return pool.is_long(threads, there, time_ms) and threading.current_thread() is threading.main_thread()


POOLS = {settings.OWN: Pool(pool.helped, pool.run), settings.OPENMP: Pool(_helped_by_team, _run_by_team)}
