"""One case timed: every contender warmed up and checked, then all of them in turns, round by round.

A round takes one sample of each contender and one of the multiply-add peak, so that a slow second hurts all alike. A
sample of a quick contender is a loop of calls; a slow contender sits out the later rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from convgrad.bench.agreement import agree, judge, middle
from convgrad.bench.figures import Series
from convgrad.bench.measure import FmaPeak
from convgrad.bench.peers import Peer, contenders
from convgrad.bench.suites import Case
from convgrad.bench.work import (
    ENGINE,
    Array,
    Contender,
    Work,
    magnitudes,
    make_work,
    moved_bytes,
    needed_flops,
    nominal_flops,
    ours,
)
from convgrad.verify.compare import Verdict

SAMPLE_S = 0.002
BUDGET_S = 4.0  # of one contender's rounds together, as long as it had one
WARM_S = 0.005


@dataclass(frozen=True)
class Outcome:
    """What came of a case: its cost, everybody's times, the peak's samples in GFLOP/s, whether convgrad is right."""

    case: Case
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
    """A contender ready for its rounds."""

    contender: Contender
    first_ms: float
    loops: int
    rounds: int
    notes: tuple[str, ...]

    def sample_ms(self) -> float:
        """Return the time of a call in ms."""
        started = time.perf_counter()
        for _ in range(self.loops):
            self.contender.call()
        return 1e3 * (time.perf_counter() - started) / self.loops


def measure(
    case: Case,
    peers: Sequence[Peer],
    threads: int,
    repeat: int,
    progress: Callable[[float], None] = lambda share: None,
) -> Outcome:
    """Check and time one case."""
    work = make_work(case)
    mine, result = _warm(ours(work, threads), repeat)
    result = work.canonical(result)
    verdict = judge(work, result, middle(work))
    wrong = [] if verdict.ok else [verdict]
    magnitude = magnitudes(work) if peers else result
    runners: dict[str, list[Runner | Series]] = {}
    for peer in peers:
        runners[peer.name] = []
        for contender in contenders(peer, work, threads):
            runner, verdict = _warm_peer(contender, work, result, magnitude, repeat)
            runners[peer.name].append(runner)
            if not (verdict is None or verdict.ok):
                wrong.append(verdict)
    del result
    turns = [mine, *(r for entries in runners.values() for r in entries if isinstance(r, Runner))]
    samples, peaks = _rounds(turns, _peak(work, threads), repeat, progress)
    timed = {
        runner.contender.name: Series(runner.contender.name, runner.first_ms, tuple(times), runner.notes)
        for runner, times in zip(turns, samples, strict=True)
    }
    return Outcome(
        case,
        ENGINE,
        nominal_flops(work.conv),
        needed_flops(work.conv),
        moved_bytes(work.problem),
        timed[mine.contender.name],
        {
            name: tuple(r if isinstance(r, Series) else timed[r.contender.name] for r in entries)
            for name, entries in runners.items()
        },
        tuple(peaks),
        not wrong,
        tuple(f"convgrad is wrong by the oracle: {verdict}" for verdict in wrong),
    )


def _peak(work: Work, threads: int) -> Callable[[], float]:
    return FmaPeak(threads, work.problem.operand_format.accumulator.name)


def _warm(contender: Contender, repeat: int) -> tuple[Runner, Any]:
    """Return a contender ready for its rounds, and what its first call returned."""
    started = time.perf_counter()
    result = contender.call()
    first = time.perf_counter() - started
    best, spent = first, 0.0
    while spent < WARM_S and first < BUDGET_S:
        started = time.perf_counter()
        contender.call()
        taken = time.perf_counter() - started
        best, spent = min(best, taken), spent + taken
    rounds = max(1, min(repeat, int(BUDGET_S / best)))
    return Runner(contender, 1e3 * first, ceil(SAMPLE_S / best), rounds, contender.notes), result


def _warm_peer(
    contender: Contender, work: Work, mine: Array, magnitude: Array, repeat: int
) -> tuple[Runner | Series, Verdict | None]:
    """Return a peer's contender ready for its rounds, or its refusal; where they differ, the verdict on convgrad."""
    try:
        runner, result = _warm(contender, repeat)
    except Exception as error:  # a peer refuses what it lacks with any exception
        sentence = str(error).strip().split("\n")[0]
        return Series(contender.name, 0.0, (), (f"{contender.name} refuses: {sentence}",)), None
    theirs = contender.canonical(result)
    agreement = agree(mine, theirs, magnitude, work.problem)
    if agreement.ok:
        return runner, None
    on_ours, on_theirs = (judge(work, array, agreement.worst) for array in (mine, theirs))
    notes = () if on_theirs.ok else (f"{contender.name} errs by {on_theirs.share:.3g} of the bound",)
    return replace(runner, notes=(*runner.notes, *notes)), on_ours


def _rounds(
    runners: Sequence[Runner], peak: Callable[[], float], repeat: int, progress: Callable[[float], None]
) -> tuple[list[list[float]], list[float]]:
    """Return the samples of every runner, and of the peak: one a round in turn, for as many rounds as each has."""
    samples: list[list[float]] = [[] for _ in runners]
    peaks = []
    for number in range(repeat):
        peaks.append(peak())
        for runner, times in zip(runners, samples, strict=True):
            if number < runner.rounds:
                times.append(runner.sample_ms())
        progress((number + 1) / repeat)
    return samples, peaks
