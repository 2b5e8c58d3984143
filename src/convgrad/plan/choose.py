"""The cheapest plan of a weight or bias gradient, of all strategies that apply, and why not the others."""

from __future__ import annotations

from dataclasses import replace

from convgrad.plan.candidates import CANDIDATES
from convgrad.plan.constants import KERNELS
from convgrad.plan.cost import Costs, costs, time_ns
from convgrad.plan.cuts import cuts
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import Plan, Rejected
from convgrad.plan.view import View
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem


def plans(problem: Problem, view: View, machine: Machine, threads: int, most: int | None = None) -> list[Plan]:
    """Return the plans there are, the cheapest first: of the ``most`` most promising kernels, or of all."""
    proposed = [
        (costs(problem, view, machine, spec, operands), strategy.name)
        for strategy in CANDIDATES
        if not strategy.unsupported(problem, view)
        for spec, operands in strategy.kernels(problem, view, machine.isa)
    ]
    proposed.sort(key=lambda one: one[0].alone_ns)
    found = [_planned(name, one, problem, view, machine, threads) for one, name in proposed[:most]]
    return sorted(found, key=lambda plan: plan.time_ms)


def plan(problem: Problem, view: View, machine: Machine, threads: int) -> Plan:
    """Return the cheapest plan of all strategies that apply; it keeps the others' reasons."""
    best, *others = plans(problem, view, machine, threads, KERNELS)
    rejected = [Rejected(other.words, f"{other.time_ms:.3g} ms") for other in others]
    rejected += [Rejected(s.name, reason) for s in CANDIDATES if (reason := s.unsupported(problem, view))]
    return replace(best, rejected=tuple(rejected))


def _planned(name: str, one: Costs, problem: Problem, view: View, machine: Machine, threads: int) -> Plan:
    """Return the plan of one kernel, cut in the cheapest way."""
    size = problem.operand_format.dtype.itemsize
    ways = cuts(view, machine, one.spec, one.operands, threads, size)
    time, cut = min(((time_ns(one, problem, view, machine, cut), cut) for cut in ways), key=lambda each: each[0])
    used = min(cut.threads, cut.tasks)
    return Plan(
        strategy=name, spec=one.spec, operands=one.operands, slice_blocks=cut.chunk.blocks,
        chunk_images=cut.chunk.images, parts=cut.parts, threads=used, error_height=height_of(problem),
        time_ms=time / 1e6,
    )  # fmt: skip
