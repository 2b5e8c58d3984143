"""Random problems under the speeds of several machines, and under ``tune``: plans differ, and no bit of a result does.

``python -m campaigns speeds --problems 10000 --seed 7`` computes so many with the plans for the speeds of this machine
and of two made-up machines, on one and two threads, and with a measured plan. All bits must be the same; every fourth
problem, if it is small, is also compared with the executed order. The problems of a chunk share types and an
instruction set, so that few kernels are compiled. A wrong problem is printed with the arguments that run it alone; the
exit code is then 1. The campaign neither reads nor writes the times that ``tune`` keeps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import cycle, islice, product
from typing import NamedTuple

import numpy as np
import pytest

from campaigns.classes import BIASED, MULTIPLY_ADDS, small
from campaigns.command import parser_of
from convgrad.engines.llvm import isas, tune
from convgrad.engines.llvm.execute import Planner, executable, predicted
from convgrad.formats import FORMATS
from convgrad.functional.call import Prepared, prepare
from convgrad.plan import constants
from convgrad.plan.machine import ISAS, SPEEDS, Machine
from convgrad.plan.reach import conv_of
from convgrad.plan.recipe import Chosen
from convgrad.spec.ordered import evaluate_in_order
from tests.engines.runs import lying_anyhow
from tests.support.classes import BIAS, CLASSES, CONVOLUTIONS, QUICK_ELEMENTS, TYPES, any_case, draw, layer_case
from tests.support.engine_helpers import SMALL, Array
from tests.support.helpers import Case, assert_same_bits

CHUNK = 250  # problems
SHARED = list(product(TYPES, TYPES, [isa.name for isa in isas.host_isas()]))
FACTORS = {"this machine": (1.0,), "made-up 1": (4.0, 1 / 4), "made-up 2": (1 / 4, 4.0)}  # of the speeds, by turns
THREADS = (1, 2)
IN_ORDER = 4  # each fourth problem is compared with the executed order


class Way(NamedTuple):
    """A way to choose the plan of a problem."""

    name: str
    machine: Machine
    planner: Planner
    threads: int


@dataclass
class Tally:
    """The number of problems, the numbers of them that differ in something, and the wrong ones."""

    problems: int = 0
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {number}" for name, number in sorted(self.found.items()))
        return f"{self.problems} problems, {len(self.wrong)} problems wrong; {found}"


def cases_of(chunk: int) -> Iterator[Case]:
    """Yield calls of a chunk without end: of all classes in turn, and bias gradients."""
    operand, output, _ = SHARED[chunk % len(SHARED)]
    rng = np.random.default_rng([131, chunk])
    rows = {**CLASSES, **BIASED}.values()
    drawn = [small(draw(row, rng, MULTIPLY_ADDS, most_elements=QUICK_ELEMENTS)) for row in rows]
    while True:
        for convs in drawn:
            yield any_case(next(convs), rng, FORMATS[operand], FORMATS[output], CONVOLUTIONS)
        yield layer_case(BIAS, rng, operand, output)


@cache
def ways_of(isa: str, as_large: bool) -> tuple[Way, ...]:
    """Return the ways to choose plans: for three machines, and by measurement.

    If ``as_large``, calls and threads cost nothing, so that more plans have two threads.
    """
    ours, ways = isas.machine(ISAS[isa]), []
    if as_large:
        ours = replace(ours, call_ns=0.0, wake_ns=0.0)
    for name, factors in FACTORS.items():
        speeds = {speed: by * getattr(ours, speed) for speed, by in zip(SPEEDS, cycle(factors), strict=False)}
        machine = replace(ours, **speeds)
        ways += [Way(name, machine, predicted, threads) for threads in THREADS]
    return (*ways, *(Way("tune", ours, tune.fastest, threads) for threads in THREADS))


def run(seed: int, number: int, case: Case, tally: Tally) -> None:
    """Compute a problem in all ways: every other one on kernels as for large problems, however small it is."""
    *_, isa = SHARED[_chunk(seed, number) % len(SHARED)]
    as_large, rng = bool(number % 2), np.random.default_rng([132, seed, number])
    operands, lying = lying_anyhow(case, rng, "normal")
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype, bool(rng.random() < 0.5))
    problem = prepared.problem
    before = rng.standard_normal(problem.output_shape).astype(problem.output_format.dtype)
    where = f"python -m campaigns speeds --seed {seed} --first {number} --problems 1"
    call = f"{case} {isa} {lying} accumulate {problem.accumulate}"
    *modelled, first_tuned, second_tuned = ways_of(isa, as_large)
    ways = [*modelled, (first_tuned, second_tuned)[number // 2 % 2]]
    with pytest.MonkeyPatch.context() as patch:
        _quickly(patch)
        if as_large:
            patch.setattr(constants, "SMALL_PROBLEM", 0)
            patch.setattr(constants, "FEWER_ROWS_POSITIONS", 1)
        results = [_computed(prepared, before, way) for way in ways]
    plans = [plan for plan, _ in results]
    words = [
        f"{way.name}, {way.threads} threads, {' '.join(str(plan).split())}"
        for way, plan in zip(ways, plans, strict=True)
    ]
    expected, what = results[0][1], words[0]
    if number % IN_ORDER == 0 and conv_of(problem).multiply_adds < SMALL:
        old = prepared.canonical_output(before) if problem.accumulate else None
        expected, what = evaluate_in_order(problem, prepared.operands, old), "the executed order"
        tally.found["compared with the executed order"] += 1
    _count(ways, plans, tally)
    tally.found[f"solved for {problem.solves_for}"] += 1
    for (_, result), text in zip(results, words, strict=True):
        try:
            assert_same_bits(result, expected, f"{where}: {call}: {text}; expected: {what}")
        except AssertionError as error:
            tally.wrong.append(str(error))
            return


def _quickly(patch: pytest.MonkeyPatch) -> None:
    """Measure few plans in one short round, and keep no times in the kernel cache."""
    patch.setattr(tune, "kernel_directory", lambda: None)
    patch.setattr(tune, "MAX_PLANS", 3)
    patch.setattr(tune, "MIN_ROUNDS", 1)
    patch.setattr(tune, "ROUNDS_S", 0.0)
    patch.setattr(tune, "SAMPLE_S", 1e-4)


def _computed(prepared: Prepared, before: Array, way: Way) -> tuple[Chosen, Array]:
    """Return the plan that a way chooses, without times, and its result."""
    out = prepared.canonical_output(before.copy())
    strides = (*[each.strides for each in prepared.operands], out.strides)
    made = executable(prepared.problem, strides, way.machine, way.threads, way.planner)
    made.execute(prepared.operands, out)
    return replace(made.plan, time_ms=0.0, measured_ms=0.0, rejected=()), np.ascontiguousarray(out)


def _count(ways: Sequence[Way], plans: Sequence[Chosen], tally: Tally) -> None:
    """Count a problem, and whether its plans differ."""
    *modelled, tuned = zip(ways, plans, strict=True)
    by_threads = [[plan for way, plan in modelled if way.threads == threads] for threads in THREADS]
    of_tuned = next(plan for way, plan in modelled if way.threads == tuned[0].threads)
    tally.problems += 1
    tally.found["different plans under the machines"] += any(len(set(each)) > 1 for each in by_threads)
    tally.found["different kernels under the machines"] += any(len({plan.spec for plan in e}) > 1 for e in by_threads)
    tally.found["another plan with tune"] += tuned[1] != of_tuned
    tally.found["plans with two threads"] += any(plan.threads == 2 for plan in plans)


def _chunk(seed: int, number: int) -> int:
    return 1000 * seed + number // CHUNK


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(
        "speeds", "Compute random problems by the plans of several machines.", problems=1000, seed=0, first=0
    )
    options = parser.parse_args(arguments)
    tally, started, last = Tally(), time.monotonic(), options.first + options.problems
    for at in range(options.first // CHUNK * CHUNK, last, CHUNK):
        told, begin, end = len(tally.wrong), max(at, options.first), min(at + CHUNK, last)
        for number, case in enumerate(islice(cases_of(_chunk(options.seed, at)), begin - at, end - at), begin):
            run(options.seed, number, case, tally)
        for words in tally.wrong[told:]:
            print(f"wrong: {words}", flush=True)
        print(f"seed {options.seed}, {time.monotonic() - started:.0f} s: {tally}", flush=True)
    return 1 if tally.wrong else 0
