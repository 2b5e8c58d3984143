"""Calibration: the speeds of this machine are fitted until the cost model predicts measured times.

Each problem of ``PROBLEMS`` is timed on one thread with a few of its plans. Then the speeds of ``Machine`` are changed
one after the other as long as predictions become better. This changes which plans are chosen, and no bit of any result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import NamedTuple

from convgrad.engines.llvm.tune import measured
from convgrad.notation import problem
from convgrad.plan.choose import predicted_ms
from convgrad.plan.kernels import Nest
from convgrad.plan.machine import SPEEDS, Machine
from convgrad.plan.passes import dense_strides, dense_view, plans
from convgrad.plan.recipe import Chosen
from convgrad.spec.problem import Problem

PROBLEMS = (
    "BWD_W f32 NXC mb8ic64ih28oc64oh28kh3ph1",
    "BWD_W f32 NXC mb8ic256ih14oc256oh14kh3ph1",
    "BWD_W f32 NXC mb8ic1024ih14oc256oh14kh1ph0",
    "BWD_W f32 NXC mb8ic512ih14oc128oh7kh1sh2ph0",
    "BWD_W f32 NXC mb8ic256ih28oc64oh28kh1ph0",
    "BWD_W f32 NXC:OIX mb8ic64ih28oc64oh28kh3ph1",
    "BWD_W f32 NXC mb8ic512ih7oc512oh7kh3ph1",
    "BWD_W f32 NCX mb8ic64ih28oc64oh28kh3ph1",
    "BWD_W f32 NCX:OIX mb8ic256ih14oc256oh14kh1ph0",
    "BWD_W f32 NCX mb8ic128ih28oc128oh14kh3sh2ph1",
    "BWD_W f32 NXC mb4ic3ih112oc32oh56kh3sh2ph1",
    "BWD_W f32 NXC g128mb8ic128ih28oc128oh28kh3ph1",
    "BWD_W f32 NXC g144mb8ic144ih56oc144oh28kh3sh2ph1",
    "BWD_W f32 NCX g128mb8ic128ih28oc128oh28kh3ph1",
    "BWD_W f32 NXC g32mb8ic128ih28oc128oh28kh3ph1",
    "FWD_D f32 NXC mb8ic64ih28oc64oh28kh3ph1",
    "FWD_D f32 NXC mb8ic256ih14oc256oh14kh3ph1",
    "FWD_D f32 NXC mb8ic256ih28oc64oh28kh1ph0",
    "FWD_D f32 NXC mb8ic64ih56oc256oh56kh1ph0",
    "FWD_D f32 NXC:OIX mb1ic512ih7oc512oh7kh3ph1",
    "FWD_D f32 NXC mb8ic256ih28oc512oh14kh1sh2ph0",
    "FWD_D f32 NCX mb8ic64ih28oc64oh28kh3ph1",
    "FWD_D f32 NCX:OIX mb8ic256ih14oc256oh14kh1ph0",
    "FWD_D f32 NCX:OIX mb1ic512ih7oc512oh7kh3ph1",
    "FWD_D f32 NXC mb4ic3ih112oc32oh56kh3sh2ph1",
    "FWD_D f32 NXC mb8ic64ih56oc3oh56kh3ph1",
    "FWD_D f32 NXC g128mb8ic128ih28oc128oh28kh3ph1",
    "FWD_D f32 NCX g128mb8ic128ih28oc128oh28kh3ph1",
    "FWD_D f32 NXC g32mb8ic128ih28oc128oh28kh3ph1",
    "BWD_D f32 NXC mb8ic64ih28oc64oh28kh3ph1",
    "BWD_D f32 NXC mb8ic256ih28oc64oh28kh1ph0",
    "BWD_D f32 NCX mb8ic64ih28oc64oh28kh3ph1",
    "BWD_D f32 NXC mb8ic128ih28oc128oh14kh3sh2ph1",
    "BWD_D f32 NXC g144mb8ic144ih56oc144oh28kh3sh2ph1",
    "BWD_D f32 NCX g144mb8ic144ih56oc144oh28kh3sh2ph1",
    "FWD_D f32 NXC g64mb8ic64ih112oc64oh112kh3ph1",
    "BWD_W f32 NCX g64mb8ic64ih112oc64oh112kh3ph1",
    "FWD_D f32 NXC mb8ic64ih112oc64oh112kh1ph0",
    "BWD_D f32 NCX mb8ic64ih112oc64oh112kh1ph0",
)
PLANS = 2  # plans of each problem that are timed
FACTORS = (1.6, 1.25, 1.1, 1.05)  # by which a speed is changed, until that makes no prediction better
PRIOR = 0.02  # weight of the distance of a speed from its old value: speeds that matter nowhere stay


class TimedPlan(NamedTuple):
    """A plan of a problem, and its measured time in ms."""

    problem: Problem
    view: Nest
    plan: Chosen
    ms: float


def calibrated(machine: Machine, lines: Iterable[str] = PROBLEMS) -> tuple[Machine, list[tuple[float, float]]]:
    """Return the machine with fitted speeds, and of each sample the ratio of prediction and time, before and after."""
    samples = [sample for line in lines for sample in _samples(problem(line), machine)]
    calibrated_machine = fitted(machine, samples)
    return calibrated_machine, [(_ratio(machine, sample), _ratio(calibrated_machine, sample)) for sample in samples]


def _samples(problem: Problem, machine: Machine) -> list[TimedPlan]:
    """Return the measured times of the promising plans of a problem."""
    view = dense_view(problem)
    distinct: dict[str, Chosen] = {}
    for candidate in plans(problem, view, machine, 1, PLANS):
        distinct.setdefault(candidate.summary, candidate)
    chosen = list(distinct.values())[:PLANS]
    return [
        TimedPlan(problem, view, *pair)
        for pair in zip(chosen, measured(problem, dense_strides(problem), chosen), strict=True)
    ]


def fitted(machine: Machine, samples: Sequence[TimedPlan]) -> Machine:
    """Return the machine with the speeds that predict the times of the samples best."""
    old, best = machine, machine
    minimum = _loss(old, best, samples)
    for factor in FACTORS:
        better = True
        while better:
            better = False
            for name in SPEEDS:
                for by in (factor, 1 / factor):
                    tried = replace(best, **{name: getattr(best, name) * by})
                    loss = _loss(old, tried, samples)
                    if loss < minimum:
                        best, minimum, better = tried, loss, True
    return best


def _loss(old: Machine, machine: Machine, samples: Sequence[TimedPlan]) -> float:
    """Return the mean error of predictions, plus the distance of the speeds from their old values."""
    errors = sum(abs(log2(_ratio(machine, sample))) for sample in samples) / len(samples)
    return errors + PRIOR * sum(log2(getattr(machine, name) / getattr(old, name)) ** 2 for name in SPEEDS)


def _ratio(machine: Machine, sample: TimedPlan) -> float:
    """Return the predicted time of compiled code, without that of Python, divided by the measured time."""
    predicted = predicted_ms(sample.problem, sample.view, machine, sample.plan)
    return (predicted - machine.call_ns / 1e6) / sample.ms


def speeds(machine: Machine) -> Mapping[str, float]:
    """Return the speeds of a machine, by name."""
    return {name: getattr(machine, name) for name in SPEEDS}
