"""The strategies there are: what each applies to, and its plans; a problem none applies to keeps every reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from convgrad.formats import F64
from convgrad.plan import dense, grouped, strips, thin, tiles
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Plan, Rejected
from convgrad.plan.tiles import Kernel
from convgrad.plan.view import View
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem


@dataclass(frozen=True)
class Strategy:
    """A way to compute some problems: why not this one, or the empty string; and its kernels with their costs."""

    name: str
    why_not: Callable[[Problem, View], str]
    kernels: Callable[[Problem, View, Machine], list[Kernel]]


STRATEGIES = (
    Strategy("dense", lambda problem, view: "", dense.kernels),
    Strategy("taps in the tile", thin.why_not, thin.kernels),
    Strategy("groups in the lanes", grouped.why_not, grouped.kernels),
    Strategy("strips", strips.why_not, strips.kernels),
)
REMEMBERED = 1024  # problems whose reasons are kept
KERNELS = 4  # the most promising ones are planned in full


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
def why_none(problem: Problem) -> str:
    """Return why there is no kernel for a problem; nothing where there is."""
    weights = as_weights(problem)
    geometry = weights.geometry
    if weights.solves_for != "weights" or not isinstance(geometry, Conv):
        return f"there is no kernel that solves for {problem.solves_for}"
    if problem.operand_format is F64:
        return "kernels keep their sums in f32; got f64"
    terms = geometry.batch * geometry.positions
    return "" if terms * geometry.src_channels * geometry.dst_channels else "there is nothing to sum"


def plans(problem: Problem, view: View, machine: Machine, threads: int, most: int | None = None) -> list[Plan]:
    """Return the plans there are, the cheapest first: of the ``most`` most promising kernels, or of all."""
    kernels = [
        (kernel, strategy.name)
        for strategy in STRATEGIES
        if not strategy.why_not(problem, view)
        for kernel in strategy.kernels(problem, view, machine)
    ]
    kernels.sort(key=lambda one: one[0].of())
    found = [tiles.plan(problem, view, machine, threads, name, kernel) for kernel, name in kernels[:most]]
    return sorted(found, key=lambda plan: plan.time_ms)


def plan(problem: Problem, view: View, machine: Machine, threads: int) -> Plan:
    """Return the cheapest plan of all strategies that apply; it keeps the others' reasons."""
    best, *others = plans(problem, view, machine, threads, KERNELS)
    rejected = [Rejected(other.words, f"{other.time_ms:.3g} ms") for other in others]
    rejected += [Rejected(s.name, reason) for s in STRATEGIES if (reason := s.why_not(problem, view))]
    return replace(best, rejected=tuple(rejected))
