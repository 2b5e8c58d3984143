"""The measurement of one case. A contender is an implementation: convgrad, or another library in one layout.

Every contender is warmed up and checked. Then all contenders are timed, round by round. A round takes one sample of
each contender and one of the multiply-add peak, so that a slow phase of the machine affects all of them. Before a
sample, some calls are not timed. During these calls the threads of the previous contender stop spinning, and the
contender's own threads spread over the cores. A sample of a fast contender is a loop of calls. A slow contender has
fewer rounds.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from typing import Any

from convgrad.array_types import Array
from convgrad.cli.bench.agreement import agree, judge, middle
from convgrad.cli.bench.figures import Series
from convgrad.cli.bench.measure import FmaPeak
from convgrad.cli.bench.peers import Peer, contenders
from convgrad.cli.bench.suites import TimedCase
from convgrad.cli.bench.work import Contender, Work, magnitudes, make_work, ours
from convgrad.host import staying_on
from convgrad.spec.problem import Problem
from convgrad.spec.work import moved_bytes, needed_flops, nominal_flops
from convgrad.verify.verdict import Verdict

SAMPLE_S = 0.002
BUDGET_S = 4.0  # the time for all rounds of one contender, which has at least one round
SETTLE_S = 0.03
LONG_S = 10 * SETTLE_S  # calls that take longer need no untimed calls before a sample

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # parameters of mallopt(3)
KEPT_BYTES, OWN_BYTES = 1 << 30, 32 << 20  # OWN_BYTES is the largest value that glibc accepts

_peak = cache(FmaPeak)


@dataclass(frozen=True)
class TimedOutcome:
    """The outcome of a case: its cost, all times, samples of the peak in GFLOP/s, and whether convgrad is correct."""

    case: TimedCase
    problem: Problem
    engine: str
    nominal_flops: int
    needed_flops: int
    bytes: int
    ours: Series
    peers: dict[str, tuple[Series, ...]]
    peaks: tuple[float, ...]
    right: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runner:
    """A contender that is warmed up: ``loops`` calls per sample, in at most ``rounds`` rounds.

    It has no rounds if it raised an error.
    """

    contender: Contender
    first_ms: float
    loops: int
    rounds: int
    settles: bool
    notes: tuple[str, ...]

    def sample_ms(self) -> float:
        """Return the mean time of the calls of one sample, in ms."""
        with staying_on(self.contender.cores):
            if self.settles:
                settle(self.contender.call)
            started = time.perf_counter()
            for _ in range(self.loops):
                self.contender.call()
            return 1e3 * (time.perf_counter() - started) / self.loops


def keep_freed_memory() -> None:
    """Make glibc keep freed memory up to KEPT_BYTES, except arrays above OWN_BYTES. Other C libraries are left alone.

    Otherwise some contenders get new pages for their outputs and others do not, by chance.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        mallopt(MMAP_THRESHOLD, OWN_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def measure(
    case: TimedCase,
    peers: Sequence[Peer],
    threads: int,
    repeat: int,
    progress: Callable[[float], None] = lambda share: None,
) -> TimedOutcome:
    """Return the outcome of one case after convgrad and the peers are checked and timed on it."""
    work = make_work(case)
    mine, result = _warm(ours(work, threads), repeat)
    result = work.canonical(result)
    verdicts = [judge(work, result, middle(work))]
    magnitude = magnitudes(work) if peers else result
    runners = [mine]
    for contender in (c for peer in peers for c in contenders(peer, work, threads)):
        runner, on_ours = _warm_peer(contender, work, result, magnitude, repeat)
        runners.append(runner)
        verdicts += on_ours
    samples, peaks = _rounds(runners, _peak(threads, work.problem.operand_format.accumulator.name), repeat, progress)
    first, *others = (
        Series(runner.contender.name, runner.first_ms, tuple(times), runner.notes)
        for runner, times in zip(runners, samples, strict=True)
    )
    of_peers = iter(others)
    return TimedOutcome(
        case,
        work.problem,
        work.engine,
        nominal_flops(work.conv),
        needed_flops(work.conv),
        moved_bytes(work.problem),
        first,
        {peer.name: tuple(next(of_peers) for _ in peer.layouts) for peer in peers},
        tuple(peaks),
        all(verdict.ok for verdict in verdicts),
        tuple(f"convgrad is wrong by the oracle: {verdict.brief}" for verdict in verdicts if not verdict.ok),
    )


def _warm(contender: Contender, repeat: int) -> tuple[Runner, Any]:
    """Return a contender that is warmed up, and the result of its first call."""
    with staying_on(contender.cores):
        started = time.perf_counter()
        result = contender.call()
        first = time.perf_counter() - started
        best = first if first > BUDGET_S else settle(contender.call)
    rounds = max(1, min(repeat, int(BUDGET_S / best)))
    return Runner(contender, 1e3 * first, ceil(SAMPLE_S / best), rounds, best < LONG_S, contender.notes), result


def settle(call: Callable[[], object]) -> float:
    """Repeat a call until SETTLE_S have passed, at least once. Return the time of the fastest call in seconds."""
    best, spent = float("inf"), 0.0
    while spent < SETTLE_S:
        started = time.perf_counter()
        call()
        taken = time.perf_counter() - started
        best, spent = min(best, taken), spent + taken
    return best


def _warm_peer(
    contender: Contender, work: Work, mine: Array, magnitude: Array, repeat: int
) -> tuple[Runner, list[Verdict]]:
    """Return a peer's contender that is warmed up, and a list of verdicts on convgrad's result.

    The list has a verdict only if the peer's result differs from convgrad's by more than the bound.
    """
    try:
        runner, result = _warm(contender, repeat)
    except Exception as error:  # a peer may raise any exception if it does not support a case
        sentence = str(error).strip().split("\n")[0]
        return Runner(contender, 0.0, 0, 0, False, (f"{contender.name} refuses: {sentence}",)), []
    theirs = contender.canonical(result)
    agreement = agree(mine, theirs, magnitude, work.problem)
    if agreement.ok:
        return runner, []
    on_ours, on_theirs = (judge(work, array, agreement.worst) for array in (mine, theirs))
    notes = () if on_theirs.ok else (f"{contender.name} errs by {on_theirs.share:.3g} of the bound",)
    return replace(runner, notes=(*runner.notes, *notes)), [on_ours]


def _rounds(
    runners: Sequence[Runner], peak: Callable[[], float], repeat: int, progress: Callable[[float], None]
) -> tuple[list[list[float]], list[float]]:
    """Return the samples of each runner and of the peak, one per round. A runner may have fewer rounds."""
    samples: list[list[float]] = [[] for _ in runners]
    peaks = []
    for number in range(repeat):
        settle(peak)
        peaks.append(peak())
        for runner, times in zip(runners, samples, strict=True):
            if number < runner.rounds:
                times.append(runner.sample_ms())
        progress((number + 1) / repeat)
    return samples, peaks
