"""The table of thread pools that run a driver: convgrad's own pool, and the OpenMP runtime of the process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from ctypes import addressof
from typing import NamedTuple

from convgrad.engines import openmp, pool, scratch, settings
from convgrad.engines.addresses import Words, words
from convgrad.engines.engine import CompiledKernel
from convgrad.engines.team import work
from convgrad.plan.records import Record
from convgrad.starting import deferred

PAGE_BYTES = 4096  # scratch is a multiple of a page, so that two threads share no page


class Pool(NamedTuple):
    """The two functions of a pool, with the parameters and results of ``pool.helped`` and ``pool.run``."""

    helped: Callable[[int, float], bool]
    run: Callable[[CompiledKernel, Words, int, int, float, object], None]


def helped(threads: int, time_ms: float) -> bool:
    """Return whether a call should use more threads than the caller's; it takes ``time_ms`` on ``threads`` threads."""
    return _asked().helped(threads, time_ms)


def needs_no_pool(threads: int, time_ms: float) -> bool:
    """Return whether only the calling thread runs a driver that takes ``time_ms`` on ``threads`` threads."""
    return threads == 1 and time_ms < pool.LONG_MS


def run(
    kernel: CompiledKernel, arguments: Words, scratch_bytes: int, threads: int, time_ms: float, keep: object = None
) -> None:
    """Run a driver on ``threads`` threads of the context's pool. The parameters are those of ``pool.run``."""
    if needs_no_pool(threads, time_ms):
        work(kernel, addressof(arguments), scratch_bytes)
    else:
        _asked().run(kernel, arguments, scratch_bytes, threads, time_ms, keep)


def name() -> str:
    """Return the name of the context's pool: "own" or "openmp"."""
    asked = settings.pool()
    return settings.OWN if asked == settings.OPENMP and openmp.runtime() is None else asked


def _asked() -> Pool:
    return POOLS[name()]


# -- OpenMP ----------------------------------------------------------------------------------------------------------


def _helped_by_team(threads: int, time_ms: float) -> bool:
    """Return whether a call should use more threads than the caller's: convgrad's pool decides if the team sleeps."""
    if threads > 1 and openmp.rests():
        return pool.helped(threads, time_ms)
    there = _there(threads)
    return there > 1 or _waits(threads, there, time_ms)


@deferred
def _region() -> tuple[Callable[[], CompiledKernel], Record]:
    """Return the function that compiles an OpenMP region, and the record that is the region's argument."""
    from convgrad.engines.llvm.wait import REGION, region  # noqa: PLC0415

    return region, REGION


def _run_by_team(
    kernel: CompiledKernel, arguments: Words, scratch_bytes: int, threads: int, time_ms: float, keep: object
) -> None:
    """Run a driver on this thread and on its OpenMP team.

    Convgrad's own pool runs the driver if this thread must react to Ctrl-C, or if the team sleeps. The region always
    has at least as many threads as PyTorch's, because OpenMP ends threads of a team that becomes smaller. Threads that
    the driver does not need return immediately.
    """
    there = _there(threads)
    if _waits(threads, there, time_ms) or (there > 1 and openmp.rested()):
        pool.run(kernel, arguments, scratch_bytes, threads, time_ms, keep)
        return
    if there == 1:
        work(kernel, addressof(arguments), scratch_bytes)
        return
    # ``function`` keeps it alive: if two threads compile the function at once, the cache drops one of them.
    region, record = _region()
    runtime, function = _openmp_runtime(), region()
    step = -(-scratch_bytes // PAGE_BYTES) * PAGE_BYTES
    address, memory = scratch.own.address(there * step, there)
    arguments_of_team = words(len(record.columns))
    system = (runtime.number, runtime.system_call, runtime.gettid, 0)
    arguments_of_team[:] = [kernel.address, addressof(arguments), address, step, there, *system]
    runtime.parallel(function.address, addressof(arguments_of_team), max(there, runtime.threads()), 0)
    openmp.record_member(arguments_of_team[record.index("member")])
    del memory


def _openmp_runtime() -> openmp.Runtime:
    runtime = openmp.runtime()
    assert runtime is not None, "calls are sent here where there is a runtime"
    return runtime


def _there(threads: int) -> int:
    """Return how many of ``threads`` threads can run.

    This is 1 inside a parallel region of OpenMP, and while the interpreter ends.
    """
    runtime = _openmp_runtime()
    return 1 if sys.is_finalizing() or runtime.inside() else min(threads, runtime.cores())


def _waits(threads: int, there: int, time_ms: float) -> bool:
    """Return whether the caller must only wait, to react to Ctrl-C: in long calls of the main thread."""
    return pool.is_long(threads, there, time_ms) and threading.current_thread() is threading.main_thread()


POOLS = {settings.OWN: Pool(pool.helped, pool.run), settings.OPENMP: Pool(_helped_by_team, _run_by_team)}
