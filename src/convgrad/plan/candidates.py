"""The strategies of all passes, a row each: what it does not apply to and why, its kernels, their loop nest.

Weight and bias gradients have theirs here, forwards and data gradients in files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any

from convgrad.plan import cost, tiling
from convgrad.plan.constants import GROUP_CHANNELS, LANES_AGAIN, MOST_ADDRESSES
from convgrad.plan.cost import Costs
from convgrad.plan.cuts import Cut
from convgrad.plan.forward import cost as forward_cost
from convgrad.plan.forward import grouped_stencil, kn2row, positions, spatial_stencil
from convgrad.plan.forward.recipe import ForwardPlan
from convgrad.plan.machine import ISAS, Isa, Machine
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, GROUPS, STRIDED, STRIP, TILE, Chosen, KernelSpec, Operands, Plan, Read
from convgrad.plan.sides import contiguous_axis, evenly_apart, lanes_in_place, readable_in_place
from convgrad.plan.tiling import balanced, outer_products, under_taps
from convgrad.plan.view import View, per_group, pieces
from convgrad.spec.problem import Problem

Proposed = Iterator[tuple[KernelSpec, Operands]]
Kernels = Callable[[Problem, Any, Isa], Iterator[tuple[Any, Operands]]]
FEWEST_GROUPS = max(isa.lanes for isa in ISAS.values())  # a full vector: nothing is read beyond the last group


@dataclass(frozen=True, eq=False)  # rows of a table: each is itself only
class Nest:
    """The loops that kernels run in: what one costs alone, how its work may be cut and what that takes, its plan."""

    alone: Callable[[Problem, Any, Machine, Any, Operands], Costs]
    timed: Callable[[Costs, Problem, Any, Machine, int], Iterator[tuple[float, Cut]]]
    plan: Callable[..., Chosen]


@dataclass(frozen=True)
class Candidate:
    """A way to compute some problems: why not this one, or the empty string; and the kernels that it proposes.

    Where there is little to do it proposes ``small``, if anything. Plans have its ``strategy``, or its name.
    """

    name: str
    unsupported: Callable[[Problem, Any, Isa], str]
    kernels: Kernels
    nest: Nest
    small: Kernels | None = None
    strategy: str = ""


def _not_dense(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not: it always applies."""
    return ""


def _dense(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    names = (problem.operand_format.name, problem.output_format.name)
    channels, compact = per_group(view), 2 in steps(problem, isa) and _whole_words(problem, view)
    lying = {tensor: contiguous_axis(problem, view, tensor) for tensor in channels}
    ways = {tensor: (False, True) if readable_in_place(problem, view, tensor) else (False,) for tensor in channels}
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), isa.tiles):
        whole = lanes_in_place(problem, view, isa, lanes, vectors)
        for tile, in_place in product(outer_products(most, vectors, channels[rows]), ways[rows]):
            x = Read(lying[rows], tile.rows, in_place, moves=True)
            y = Read(lying[lanes], vectors * isa.lanes)
            few = ceil(channels[rows] / tile.rows) <= LANES_AGAIN and view.conv.taps == 1  # tiles read lanes
            for read in (y, replace(y, in_place=True)) if few and whole else (y,):
                for step in steps(problem, isa):
                    one = KernelSpec(isa, *names, TILE, tile, x, read, step=step)
                    yield one, (rows, lanes)
                    if step == 2 and compact:
                        yield replace(one, compact=True), (rows, lanes)


def _whole_words(problem: Problem, view: View) -> bool:
    """Tell whether words of every second position do: lines are pieces of blocks, and begin at even positions."""
    if not view.pointwise or any(contiguous_axis(problem, view, tensor) == STRIDED for tensor in ("src", "dst")):
        return False
    together = all(evenly_apart(view, tensor) for tensor in ("src", "dst"))
    return together and not (pieces(view).first % 2).any()


def _not_thin(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    thin = min(per_group(view).values())
    if view.conv.taps == 1:
        return "there is one tap"
    return "" if 2 * thin < isa.registers else f"registers hold no two taps of {thin} channels"


def _thin(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose rows are all channels of the thin operand, under several taps."""
    axes, channels = view.conv.axes, per_group(view)
    names = (problem.operand_format.name, problem.output_format.name)
    adjacent = axes[-1].dilation == 1
    for rows, lanes in (("src", "dst"), ("dst", "src")):
        x = Read(contiguous_axis(problem, view, rows), channels[rows], moves=rows == "src")
        for vectors in sorted({min(v, -(-channels[lanes] // isa.lanes)) for v in (1, 2, 3, 4)}):
            y = Read(contiguous_axis(problem, view, lanes), vectors * isa.lanes, moves=lanes == "src")
            held = vectors if x.moves else channels[rows] + vectors
            in_place = x.moves and lanes_in_place(problem, view, isa, lanes, vectors)
            for tile in under_taps(axes, channels[rows], vectors, isa.registers - held - isa.spare, MOST_ADDRESSES):
                for read in (y, replace(y, in_place=True)) if in_place else (y,):
                    for step in steps(problem, isa) if tile.taps > 1 else ():
                        yield KernelSpec(isa, *names, TILE, tile, x, read, adjacent=adjacent, step=step), (rows, lanes)


def _not_grouped(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    if view.conv.groups == 1:
        return "there is one group"
    most = max(per_group(view).values())
    return "" if most <= GROUP_CHANNELS else f"a group has {most} channels; at most {GROUP_CHANNELS} fit"


def _grouped(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is some channels of src times some of dst, of as many groups as there are lanes."""
    axes, channels = view.conv.axes, per_group(view)
    names = (problem.operand_format.name, problem.output_format.name)
    x = Read(contiguous_axis(problem, view, "src"), channels["src"], moves=True)
    y = Read(contiguous_axis(problem, view, "dst"), channels["dst"])
    shapes = product(*(sorted({balanced(read.items, n) for n in range(1, 9)}) for read in (x, y)))
    adjacent = axes[-1].dilation == 1
    for rows, vectors in shapes:
        for tile in under_taps(axes, rows, vectors, isa.registers - vectors - isa.spare, MOST_ADDRESSES):
            for step in steps(problem, isa):
                yield KernelSpec(isa, *names, TILE, tile, x, y, GROUPS, adjacent, step=step), ("src", "dst")


def _not_depthwise(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    channels = max(per_group(view).values())
    if view.conv.groups < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if channels > 1:
        return f"a group has {channels} channels"
    if any(contiguous_axis(problem, view, tensor) != CHANNELS for tensor in ("src", "dst")):
        return "channels are not neighbours"
    return "" if all(evenly_apart(view, tensor) for tensor in ("src", "dst")) else "positions are not evenly apart"


def _depthwise(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is some taps of as many groups as there are lanes, in registers."""
    names = (problem.operand_format.name, problem.output_format.name)
    for tile, slide in tiling.strips(isa, view.conv.axes):
        x, y = Read(CHANNELS, 1, in_place=True, moves=True), Read(CHANNELS, 1, in_place=True)
        yield KernelSpec(isa, *names, STRIP, tile, x, y, GROUPS, slide=slide), ("src", "dst")


_SUMS = Nest(cost.costs, cost.timed, Plan)
_POSITIONS = Nest(forward_cost.alone, forward_cost.timed, ForwardPlan)
_KN2ROW = Nest(forward_cost.kn2row_alone, forward_cost.kn2row_timed, kn2row.Kn2rowPlan)
_STENCIL = Nest(forward_cost.stencil_costs, forward_cost.stencil_timed, spatial_stencil.SpatialStencilPlan)

_OF_SUMS = (
    Candidate("dense", _not_dense, _dense, _SUMS, _dense),
    Candidate("taps in the tile", _not_thin, _thin, _SUMS),
    Candidate("groups in the lanes", _not_grouped, _grouped, _SUMS),
    Candidate("strips", _not_depthwise, _depthwise, _SUMS),
)
_OF_POSITIONS = (
    Candidate("positions", positions.unsupported, positions.kernels, _POSITIONS, positions.any_layout),
    Candidate(
        "transposed GEMM", positions.transposed_unsupported, positions.transposed_kernels, _POSITIONS,
        strategy="positions",
    ),
    Candidate("windows", grouped_stencil.unsupported, grouped_stencil.windows, _POSITIONS),
    Candidate("products", kn2row.unsupported, kn2row.products, _KN2ROW),
    Candidate("planes", spatial_stencil.unsupported, spatial_stencil.planes, _STENCIL),
)  # fmt: skip
CANDIDATES: Mapping[str, tuple[Candidate, ...]] = {  # by what is solved for
    "weights": _OF_SUMS, "bias": _OF_SUMS, "dst": _OF_POSITIONS, "src": _OF_POSITIONS,
}  # fmt: skip
