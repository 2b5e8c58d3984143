"""The planner: the plan of a problem with the least predicted time, and the reasons against other candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from convgrad.plan import constants
from convgrad.plan.candidates import CANDIDATES, Candidate, Kernels, Nest
from convgrad.plan.cost import Costs, Cut
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Chosen, Rejected
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.spec.work import moved_bytes
from convgrad.words import duration

TOO_LITTLE = "the problem is too small for a kernel of its own"


def plans(
    problem: Problem, view: Any, machine: Machine, threads: int, limit: int | None = None, cuts: int = 1
) -> list[Any]:
    """Return the plans of a problem, the fastest first: for at most ``limit`` kernels per loop nest.

    Each kernel has at most ``cuts`` plans, which divide its work among threads in the fastest ways.
    """
    supported = [
        (one, one.kernels) for one in CANDIDATES[problem.solves_for] if not one.unsupported(problem, view, machine.isa)
    ]
    return _planned(supported, problem, view, machine, threads, limit, cuts)


def plan(problem: Problem, view: Any, machine: Machine, threads: int) -> Any:
    """Return the plan with the least predicted time. Its ``rejected`` has the reasons against the other candidates."""
    supported: list[tuple[Candidate, Kernels]] = []
    rejected: list[Rejected] = []
    few = view.multiply_adds < constants.SMALL_PROBLEM
    for one in CANDIDATES[problem.solves_for]:
        kernels = one.small if few else one.kernels
        reason = one.unsupported(problem, view, machine.isa)
        if kernels and not reason:
            supported.append((one, kernels))
        else:
            rejected.append(Rejected(one.name, reason or TOO_LITTLE))
    best, *others = _planned(supported, problem, view, machine, threads, constants.MAX_KERNELS_PLANNED)
    slower = [Rejected(other.summary, duration(other.time_ms), slower=True) for other in others]
    return replace(best, rejected=(*slower, *rejected))


def predicted_ms(problem: Problem, view: Any, machine: Machine, chosen: Chosen) -> float:
    """Return the predicted ms of a plan with no more threads than tasks, on a machine that may have other speeds."""
    machine = machine.for_traffic(moved_bytes(problem))
    nest = next(one.nest for one in CANDIDATES[problem.solves_for] if one.nest.plan is type(chosen))
    costs = nest.alone(problem, view, machine, chosen.spec, chosen.operands)
    for time, cut in nest.timed(costs, problem, view, machine, chosen.threads):
        same = (cut.parts, min(cut.threads, cut.tasks)) == (chosen.parts, chosen.threads)
        if same and all(getattr(chosen, name) == size for name, size in cut.loops.items()):
            return time / 1e6
    raise AssertionError("machines with the same caches have the same divisions of the work")


def _planned(
    proposing: Iterable[tuple[Candidate, Kernels]], problem: Problem, view: Any, machine: Machine, threads: int,
    limit: int | None, cuts: int = 1,
) -> list[Any]:  # fmt: skip
    """Return plans for the ``limit`` fastest kernels of each loop nest, with their ``cuts`` fastest divisions."""
    machine = machine.for_traffic(moved_bytes(problem))
    of_nests: dict[Nest, list[tuple[Costs, str]]] = {}
    for one, kernels in proposing:
        alone, found = one.nest.alone, of_nests.setdefault(one.nest, [])
        for spec, operands in kernels(problem, view, machine.isa):
            found.append((alone(problem, view, machine, spec, operands), one.strategy or one.name))
    planned: list[Chosen] = []
    for nest, found in of_nests.items():
        for costs, strategy in sorted(found, key=lambda each: each[0].alone_ns)[:limit]:
            timed = nest.timed(costs, problem, view, machine, threads)
            cheapest = nsmallest(cuts, timed, key=lambda each: each[0])
            planned += [_plan(problem, nest, strategy, costs, *each) for each in cheapest]
    return sorted(planned, key=lambda each: each.time_ms)


def _plan(problem: Problem, nest: Nest, strategy: str, costs: Costs, time: float, cut: Cut) -> Chosen:
    """Return the plan of a kernel and a division of its work. The kernel applies the activation, which adds no time."""
    spec: Any = costs.spec
    if problem.activation:
        spec = replace(spec, activation=problem.activation)
    return nest.plan(
        strategy=strategy, spec=spec, operands=costs.operands, parts=cut.parts, threads=min(cut.threads, cut.tasks),
        rounding_depth=height_of(problem), time_ms=time / 1e6, **cut.loops,
    )  # fmt: skip
