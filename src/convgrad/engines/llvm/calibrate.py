"""Calibration: the speeds of this machine are fitted until the cost model chooses fast plans and predicts their times.

Each problem of ``PROBLEMS`` is timed with a few of its plans, on one thread and on all. The speeds of ``Machine`` are
changed one after the other as long as that makes the loss smaller. Then the plans that the new speeds choose are timed,
too, and all speeds are compared by what they choose. This changes no bit of any result.

Choices have most weight, because better predictions alone may choose slower plans: on Zen 4 they did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import log2
from statistics import mean
from typing import NamedTuple

from convgrad.engines.llvm.tune import distinct, measured
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
PLANS = 6  # plans of each problem that are timed first
FITS = 4  # after each of them, the plans that it chooses are timed
FACTORS = (1.6, 1.25, 1.1, 1.05)  # by which a speed is changed, until that makes the loss no smaller
CHOICES = 40.0  # weight of the time that wrong choices cost, compared with errors of predictions
PRIOR = 0.02  # weight of the distance of a speed from its old value: speeds that matter nowhere stay


class TimedPlans(NamedTuple):
    """A problem, some of its plans for a number of threads, and their measured times in ms."""

    problem: Problem
    view: Nest
    threads: int
    plans: Sequence[Chosen]
    ms: Sequence[float]


def calibrated(
    machine: Machine, threads: int, lines: Iterable[str] = PROBLEMS
) -> tuple[Machine, list[tuple[float, float]]]:
    """Return the machine with fitted speeds, and of each plan the ratio of prediction and time, before and after."""
    samples = [_sample(machine, problem(line), count) for line in lines for count in sorted({1, threads})]
    machines = [machine]
    for _ in range(FITS):
        machines.append(fitted(machine, samples))
        samples = [_with_choice(machines[-1], sample) for sample in samples]
    best = min(machines, key=lambda tried: _loss(machine, tried, samples))
    before, after = ([ratio for sample in samples for ratio in _ratios(of, sample)] for of in (machine, best))
    return best, [*zip(before, after, strict=True)]


def _sample(machine: Machine, problem: Problem, threads: int) -> TimedPlans:
    """Return the promising plans of a problem with their measured times."""
    view = dense_view(problem)
    return _timed(TimedPlans(problem, view, threads, plans(problem, view, machine, threads, PLANS)[:PLANS], ()))


def _with_choice(machine: Machine, sample: TimedPlans) -> TimedPlans:
    """Return a sample that has the plan which a machine would choose; all plans are timed again if it is a new one."""
    choice = plans(sample.problem, sample.view, machine, sample.threads, 1)[:1]
    known = distinct([*sample.plans, *choice])
    return sample if len(known) == len(sample.plans) else _timed(sample._replace(plans=known))


def _timed(sample: TimedPlans) -> TimedPlans:
    """Return a sample with the measured times of its plans."""
    return sample._replace(ms=measured(sample.problem, dense_strides(sample.problem), sample.plans))


def fitted(machine: Machine, samples: Sequence[TimedPlans]) -> Machine:
    """Return the machine with the speeds whose loss is smallest."""
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


def _loss(old: Machine, machine: Machine, samples: Sequence[TimedPlans]) -> float:
    """Return the loss of a machine's speeds.

    It is the mean error of predictions, the mean time that choices among the timed plans cost, and the distance of the
    speeds from their old values; all are logarithms.
    """
    errors, costs = [], []
    for sample in samples:
        ratios = _ratios(machine, sample)
        errors.append(mean(abs(log2(ratio)) for ratio in ratios))
        _, chosen = min((ratio * ms, ms) for ratio, ms in zip(ratios, sample.ms, strict=True))
        costs.append(log2(chosen / min(sample.ms)))
    distance = sum(log2(getattr(machine, name) / getattr(old, name)) ** 2 for name in SPEEDS)
    return mean(errors) + CHOICES * mean(costs) + PRIOR * distance


def _ratios(machine: Machine, sample: TimedPlans) -> list[float]:
    """Return the predicted times of compiled code, without that of Python, divided by the measured times."""
    return [
        (predicted_ms(sample.problem, sample.view, machine, plan) - machine.call_ns / 1e6) / ms
        for plan, ms in zip(sample.plans, sample.ms, strict=True)
    ]


def speeds(machine: Machine) -> Mapping[str, float]:
    """Return the speeds of a machine, by name."""
    return {name: getattr(machine, name) for name in SPEEDS}
