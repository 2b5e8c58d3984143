"""The cheapest plan of a forward or a data gradient, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from convgrad.formats import BF16, F32
from convgrad.plan import constants
from convgrad.plan.forward.cost import Costs, costs, crowded, runs_along, time_ns
from convgrad.plan.forward.cuts import cuts, reached_bytes
from convgrad.plan.forward.grouped_stencil import windows
from convgrad.plan.forward.kn2row import Kn2rowPlan, products
from convgrad.plan.forward.recipe import ForwardPlan, ForwardSpec
from convgrad.plan.forward.sides import contiguous_axes
from convgrad.plan.forward.spatial_stencil import SpatialStencilPlan, planes
from convgrad.plan.forward.view import OPERAND, ForwardNest
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, CHANNELS_OUT, F32_BYTES, STRIDED, Rejected
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem

# Whether rows are read in place where terms are neighbours: of bf16 if to take words apart costs less than a pack.
PLACES = {F32.name: (True,), BF16.name: (True, False)}
AnyPlan = ForwardPlan | SpatialStencilPlan | Kn2rowPlan


def plans(
    problem: Problem, view: ForwardNest, machine: Machine, threads: int, most: int | None = None
) -> list[AnyPlan]:
    """Return the plans there are, the cheapest first: of the ``most`` most promising kernels, or of all."""
    specs = kernels(problem, view, machine.isa)
    found = sorted((costs(view.seen(spec), machine, spec) for spec in specs), key=_alone)
    planned: list[AnyPlan] = [_planned(one, problem, view, machine, threads) for one in found[:most]]
    planned += products(problem, view, machine, threads)
    planned += planes(problem, view, machine, threads)
    return sorted((_activated(one, problem) for one in planned), key=lambda p: p.time_ms)


def plan(problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> AnyPlan:
    """Return the cheapest plan; where there is little to do, that of the kernel which takes anything."""
    if view.multiply_adds < constants.FEW:
        small = costs(view, machine, any_layout(problem, view, machine.isa))
        return _activated(_planned(small, problem, view, machine, threads), problem)
    best, *others = plans(problem, view, machine, threads, constants.KERNELS)
    return replace(best, rejected=tuple(Rejected(other.words, f"{other.time_ms:.3g} ms") for other in others))


def _activated(one: AnyPlan, problem: Problem) -> AnyPlan:
    """Return a plan whose kernel ends with the problem's activation: that changes no cost."""
    spec: Any = one.spec
    return replace(one, spec=replace(spec, activation=problem.activation)) if problem.activation else one


def _alone(one: Costs) -> float:
    return one.alone_ns


def any_layout(problem: Problem, view: ForwardNest, isa: Isa) -> ForwardSpec:
    """Return the kernel that takes operands however they lie, for whatever is too small for one of its own."""
    names = (problem.operand_format.name, problem.output_format.name)
    return ForwardSpec(isa, *names, constants.SMALL_ROWS, 1, False, len(view.axes), STRIDED, STRIDED, STRIDED, True)


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[ForwardSpec]:
    """Yield the kernels for a problem's layouts: of the tiles that registers hold, some heights."""
    yield from _kernels(problem, view, isa, False)
    yield from windows(problem, view, isa)
    other = view.transposed_gemm
    if other is not None and view.out[1] != other.out[1] == problem.output_format.dtype.itemsize:
        yield from _kernels(problem, other, isa, True)


def _kernels(problem: Problem, view: ForwardNest, isa: Isa, transposed_gemm: bool) -> Iterator[ForwardSpec]:
    names = (problem.operand_format.name, problem.output_format.name)
    data, weights, out = contiguous_axes(view, *names)
    places = PLACES.get(names[0], (False,)) if data == CHANNELS else (False,)
    if crowded(view) and False not in places:
        places = (*places, False)
    if reached_bytes(view, [1] * len(view.axes)) > constants.SLAB_BYTES:  # too far apart to be packed
        places = (True,)
    f32 = problem.operand_format is F32
    for step, (most, vectors) in ((many, tile) for many in steps(problem, isa) for tile in isa.tiles_of(many)):
        few = view.positions <= constants.FEW_AGAIN * most
        if (vectors > 2 and not few) or (vectors - 1) * isa.lanes >= view.results:
            continue
        whole = view.results >= vectors * isa.lanes and not problem.accumulate
        padded = view.taps * view.terms * vectors * isa.lanes * F32_BYTES
        masked = view.results < vectors * isa.lanes and padded > constants.PADDED_BYTES
        once = few or (transposed_gemm and f32)  # else caches want them close together, and in f32
        readable = weights == CHANNELS_OUT and view.tap_step is not None and step == 1
        ways = (False, True) if readable and once and (whole or masked) else (False,)
        rest = view.results % (vectors * isa.lanes)
        for rows in range(most, max(1, most - constants.FEWER_HEIGHTS), -1):
            narrow = vectors > 1 and 0 < rest <= isa.lanes
            for in_place, place in product(places, ways):
                if in_place and f32 is False and rows * vectors > isa.registers - 2 * isa.spare:
                    continue
                if place and problem.operand_format is BF16 and not in_place:  # rows are packed in another order
                    continue
                if step == 2 and (view.terms == 1 or (in_place and data != CHANNELS)):  # there are no pairs
                    continue
                yield ForwardSpec(
                    isa, *names, rows, vectors, narrow and not place, len(view.axes), data, weights, out, in_place,
                    place, transposed_gemm, step=step, masked=place and masked,
                )  # fmt: skip


def _planned(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> ForwardPlan:
    """Return the plan of one kernel, cut in the cheapest way."""
    view = view.seen(one.spec)
    along = runs_along(view.axes, one.spec.rows, one.spec.vectors)
    ways = cuts(view, machine, one.spec, threads, along)
    in_slabs: dict[tuple[int, ...], Costs] = {}
    timed = []
    for cut in ways:
        if cut.slab not in in_slabs:
            in_slabs[cut.slab] = costs(view, machine, one.spec, cut.slab)
        timed.append((time_ns(in_slabs[cut.slab], view, machine, cut, threads), cut))
    time, cut = min(timed, key=lambda each: each[0])
    strategy = "windows" if one.spec.window else "positions"
    return ForwardPlan(
        strategy=strategy, spec=one.spec, operands=_operands(problem, one.spec), slab=cut.slab, panels=cut.panels,
        pass_blocks=cut.pass_blocks,
        parts=cut.parts, threads=min(threads, cut.tasks), error_height=height_of(problem), time_ms=time / 1e6,
    )  # fmt: skip


def _operands(problem: Problem, spec: ForwardSpec) -> tuple[str, str]:
    data = OPERAND[problem.solves_for]
    return ("weights", data) if spec.transposed_gemm else (data, "weights")
