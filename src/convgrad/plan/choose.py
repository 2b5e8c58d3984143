"""The planner: the plan of a problem with the least predicted time, and the reasons against other candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import nsmallest
from typing import Any

from convgrad.plan import constants
from convgrad.plan.cost import Costs, Division
from convgrad.plan.kernels import FAMILIES, KERNELS, Family, Kernel, Nest, Specs
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Chosen, Rejected
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.spec.work import moved_bytes
from convgrad.words import duration

TOO_LITTLE = "the problem is too small for a kernel of its own"
NOTHING_FITS = "no micro-tile fits the registers, or no output block fits the memory"


def plans(
    problem: Problem, view: Nest, machine: Machine, threads: int, limit: int | None = None, cuts: int = 1
) -> list[Chosen]:
    """Return the plans of a problem, the fastest first: for at most ``limit`` kernels per loop nest.

    Each kernel has at most ``cuts`` plans, which divide its work among threads in the fastest ways.
    """
    supported = [
        (kernel, kernel.specs)
        for kernel in KERNELS[problem.solves_for]
        if not kernel.unsupported(problem, view, machine.isa)
    ]
    return _planned(supported, problem, view, machine, threads, (limit, cuts))


def plan(problem: Problem, view: Nest, machine: Machine, threads: int) -> Chosen:
    """Return the plan with the least predicted time. Its ``rejected`` has the reasons against the other candidates."""
    supported: list[tuple[Kernel, Specs]] = []
    rejected: list[Rejected] = []
    few = view.multiply_adds < constants.SMALL_PROBLEM
    for kernel in KERNELS[problem.solves_for]:
        specs = kernel.small if few else kernel.specs
        reason = kernel.unsupported(problem, view, machine.isa)
        if specs and not reason:
            supported.append((kernel, specs))
        else:
            rejected.append(Rejected(kernel.name, reason or TOO_LITTLE))
    best, *others = _planned(supported, problem, view, machine, threads, (constants.MAX_KERNELS_PLANNED, 1))
    families = {FAMILIES[candidate.spec.body] for candidate in (best, *others)}
    rejected += [Rejected(kernel.name, NOTHING_FITS) for kernel, _ in supported if kernel.family not in families]
    slower = [Rejected(other.summary, duration(other.time_ms), slower=True) for other in others]
    return replace(best, rejected=(*slower, *rejected))


def predicted_ms(problem: Problem, view: Nest, machine: Machine, chosen: Chosen) -> float:
    """Return the predicted ms of a plan with no more threads than tasks, on a machine that may have other speeds."""
    machine = machine.for_traffic(moved_bytes(problem))
    family = FAMILIES[chosen.spec.body]
    view = family.nest(view)
    costs = family.alone(problem, view, machine, chosen.spec, chosen.operands)
    for time, cut in family.timed(costs, problem, view, machine, chosen.threads):
        same = (cut.parts, min(cut.threads, cut.tasks)) == (chosen.parts, chosen.threads)
        if same and all(getattr(chosen, name) == size for name, size in cut.loops.items()):
            return time / 1e6
    raise AssertionError("machines with the same caches have the same divisions of the work")


def _planned(
    supported: Iterable[tuple[Kernel, Specs]],
    problem: Problem,
    view: Nest,
    machine: Machine,
    threads: int,
    numbers: tuple[int | None, int],
) -> list[Chosen]:
    """Return plans of the fastest kernels of each family, with the fastest divisions of their work.

    ``numbers`` are the maximum numbers of kernels of a family, or None for all, and of divisions of a kernel's work.
    """
    limit, cuts = numbers
    machine = machine.for_traffic(moved_bytes(problem))
    of_families: dict[Family, list[tuple[Costs, str]]] = {}
    for kernel, specs in supported:
        family, candidates = kernel.family, of_families.setdefault(kernel.family, [])
        for spec, operands in specs(problem, view, machine.isa):
            costs = family.alone(problem, family.nest(view), machine, spec, operands)
            candidates.append((costs, kernel.name))
    planned: list[Chosen] = []
    for family, candidates in of_families.items():
        for costs, name in sorted(candidates, key=lambda candidate: candidate[0].alone_ns)[:limit]:
            timed = family.timed(costs, problem, family.nest(view), machine, threads)
            cheapest = nsmallest(cuts, timed, key=lambda division: division[0])
            planned += [_plan(problem, family, name, costs, *division) for division in cheapest]
    return sorted(planned, key=lambda candidate: candidate.time_ms)


def _plan(problem: Problem, family: Family, name: str, costs: Costs, time: float, cut: Division) -> Chosen:
    """Return the plan of a kernel and a division of its work. The kernel applies the activation, which adds no time."""
    spec: Any = costs.spec
    if problem.activation:
        spec = replace(spec, activation=problem.activation)
    return family.plan(
        strategy=name,
        spec=spec,
        operands=costs.operands,
        parts=cut.parts,
        threads=min(cut.threads, cut.tasks),
        rounding_depth=height_of(problem),
        time_ms=time / 1e6,
        **cut.loops,
    )
