"""The strategies there are: what each applies to, and its plans; a problem none applies to keeps every reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from convgrad.formats import F64
from convgrad.plan import dense
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Plan, Rejected
from convgrad.plan.view import View
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem


@dataclass(frozen=True)
class Strategy:
    """A way to compute some problems: why not this one, or the empty string; and its plans, the cheapest first."""

    name: str
    why_not: Callable[[Problem], str]
    plans: Callable[[Problem, View, Machine, int, int | None], list[Plan]]


def _not_dense(problem: Problem) -> str:
    geometry = problem.geometry
    if problem.solves_for != "weights" or not isinstance(geometry, Conv):
        return f"it does not solve for {problem.solves_for}"
    if problem.operand_format is F64:
        return "its sums are kept in f32; got f64"
    terms = geometry.batch * geometry.positions
    return "" if terms * geometry.src_channels * geometry.dst_channels else "there is nothing to sum"


STRATEGIES = (Strategy(dense.NAME, _not_dense, dense.plans),)
REMEMBERED = 1024  # problems whose reasons are kept
KERNELS = 4  # of a strategy, the most promising ones are planned in full


def as_weights(problem: Problem) -> Problem:
    """Return a bias gradient as the weight gradient it is, of one src channel of ones under one tap; others as given.

    Both sum the same terms in the same order, and 1 * y is exact.
    """
    channels = problem.geometry
    if problem.solves_for != "bias" or not isinstance(channels, Channels):
        return problem
    axes = tuple(Axis(n, n, 1) for n in channels.extents or (1,))
    conv = Conv(channels.batch, 1, 1, channels.channels, axes)
    return replace(problem, solves_for="weights", geometry=conv, operands=("src", "dst"), output="weights")


@lru_cache(maxsize=REMEMBERED)
def why_none(problem: Problem) -> tuple[Rejected, ...]:
    """Return why no strategy applies to a problem; nothing where one does."""
    reasons = tuple(Rejected(s.name, s.why_not(as_weights(problem))) for s in STRATEGIES)
    return reasons if all(r.reason for r in reasons) else ()


def plan(problem: Problem, view: View, machine: Machine, threads: int) -> Plan:
    """Return the cheapest plan of all strategies that apply; it keeps the others' reasons."""
    found, rejected = [], []
    for strategy in STRATEGIES:
        if reason := strategy.why_not(problem):
            rejected.append(Rejected(strategy.name, reason))
        else:
            found += strategy.plans(problem, view, machine, threads, KERNELS)
    best, *others = sorted(found, key=lambda one: one.time_ms)
    rejected += [Rejected(other.words, f"{other.time_ms:.3g} ms") for other in others]
    return replace(best, rejected=tuple(rejected))
