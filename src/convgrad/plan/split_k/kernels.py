"""The candidate kernels of weight gradients (dense, thin, grouped, depthwise), and micro-tiles that fit registers.

A support check, such as ``not_thin``, returns why a kernel does not apply, or the empty string if it applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, prod

from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.pairs import k_per_add_choices
from convgrad.plan.recipe import CHANNELS, STRIDED, Operands
from convgrad.plan.split_k.constants import (
    DEPTHWISE_MAX_OUTER_TAPS,
    FEWER_ROWS_WEIGHTS,
    MAX_ADDRESSES,
    MAX_B_READS,
    MAX_GROUP_CHANNELS,
    MAX_PAIR_STRIDE,
)
from convgrad.plan.split_k.nest import WeightsNest, per_group, segments_of
from convgrad.plan.split_k.operands import b_in_place, contiguous_axis, evenly_apart, readable_in_place
from convgrad.plan.split_k.recipe import DEPTHWISE, GROUPS, OUTER_PRODUCTS, MicroTileShape, SplitKOperand, SplitKSpec
from convgrad.plan.tiling import balanced
from convgrad.spec.geometry import Axis
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem

Proposed = Iterator[tuple[SplitKSpec, Operands]]
FEWEST_GROUPS = max(isa.lanes for isa in ISAS.values())  # a full vector, so that no load reads beyond the last group
EITHER_WAY = (("src", "dst"), ("dst", "src"))  # the two choices of the tensors for A and B


def dense(problem: Problem, nest: WeightsNest, isa: Isa) -> Proposed:
    """Yield the dense kernels. A micro-tile has one tap: broadcast channels of A times vectors of channels of B."""
    names = (problem.operand_format.name, problem.output_format.name)
    channels, choices, chains = per_group(nest), _choices(problem, nest, isa), order_of(problem).chains
    compact = chains == 1 and 2 in choices and _segments_of_whole_pairs(problem, nest)
    axis = {tensor: contiguous_axis(problem, nest, tensor) for tensor in channels}
    ways = {tensor: (False, True) if readable_in_place(problem, nest, tensor) else (False,) for tensor in channels}
    for (a, b), (max_mr, nr) in product(EITHER_WAY, isa.micro_tiles_of(1, chains)):
        whole = b_in_place(problem, nest, isa, b, nr)
        for micro_tile, in_place in product(outer_products(max_mr, nr, channels[a]), ways[a]):
            x = SplitKOperand(*axis[a], in_place, width=micro_tile.mr, moves=True)
            y = SplitKOperand(*axis[b], width=nr * isa.lanes)
            few = ceil(channels[a] / micro_tile.mr) <= MAX_B_READS and nest.conv.taps == 1  # few reads of B
            for operand in (y, replace(y, in_place=True)) if few and whole else (y,):
                for k_per_add in choices:
                    spec = SplitKSpec(
                        isa, *names, OUTER_PRODUCTS, micro_tile, x, operand, k_per_add=k_per_add, chains=chains
                    )
                    yield spec, (a, b)
                    if k_per_add == 2 and compact:
                        yield replace(spec, compact=True), (a, b)


def _segments_of_whole_pairs(problem: Problem, nest: WeightsNest) -> bool:
    """Return whether kernels with ``compact`` pairs apply: segments must be whole chains that begin at an even k."""
    axes = [contiguous_axis(problem, nest, tensor) for tensor in ("src", "dst")]
    if not nest.pointwise or any(axis == STRIDED or stride > 1 for axis, stride in axes):
        return False
    return all(evenly_apart(nest, tensor) for tensor in ("src", "dst")) and not (segments_of(nest).first % 2).any()


def _choices(problem: Problem, nest: WeightsNest, isa: Isa) -> tuple[int, ...]:
    """Return the numbers of k per multiply-add. Bytes between the two k of a pair must fit in 64 bits."""
    return k_per_add_choices(problem, isa) if nest.conv.axes[-1].stride < MAX_PAIR_STRIDE else (1,)


def not_thin(problem: Problem, nest: WeightsNest, isa: Isa) -> str:
    """Return why the thin kernel does not apply."""
    channels = min(per_group(nest).values())
    if nest.conv.taps == 1:
        return "there is one tap"
    if order_of(problem).chains == 2:
        return "sums have two chains"
    return "" if 2 * channels < isa.registers else f"two taps of {channels} channels do not fit in registers"


def thin(problem: Problem, nest: WeightsNest, isa: Isa) -> Proposed:
    """Yield the thin kernels. A micro-tile has several taps: all channels of A times vectors of channels of B."""
    axes, channels = nest.conv.axes, per_group(nest)
    names = (problem.operand_format.name, problem.output_format.name)
    adjacent = axes[-1].dilation == 1
    for a, b in EITHER_WAY:
        x = SplitKOperand(*contiguous_axis(problem, nest, a), width=channels[a], moves=a == "src")
        for nr in sorted({min(v, -(-channels[b] // isa.lanes)) for v in (1, 2, 3, 4)}):
            y = SplitKOperand(*contiguous_axis(problem, nest, b), width=nr * isa.lanes, moves=b == "src")
            held = nr if x.moves else channels[a] + nr
            in_place = x.moves and b_in_place(problem, nest, isa, b, nr)
            for micro_tile in under_taps(axes, channels[a], nr, isa.registers - held - isa.spare):
                for operand in (y, replace(y, in_place=True)) if in_place else (y,):
                    for k_per_add in _choices(problem, nest, isa) if micro_tile.taps > 1 else ():
                        spec = SplitKSpec(
                            isa, *names, OUTER_PRODUCTS, micro_tile, x, operand, adjacent=adjacent, k_per_add=k_per_add
                        )
                        yield spec, (a, b)


def not_grouped(problem: Problem, nest: WeightsNest, isa: Isa) -> str:
    """Return why the grouped kernel does not apply."""
    if nest.conv.groups == 1:
        return "there is one group"
    if order_of(problem).chains == 2:
        return "sums have two chains"
    channels = max(per_group(nest).values())
    return "" if channels <= MAX_GROUP_CHANNELS else f"a group has {channels} channels, more than {MAX_GROUP_CHANNELS}"


def grouped(problem: Problem, nest: WeightsNest, isa: Isa) -> Proposed:
    """Yield the grouped kernels, whose lanes are groups: some src channels times some dst channels of each group."""
    axes, channels = nest.conv.axes, per_group(nest)
    names = (problem.operand_format.name, problem.output_format.name)
    x = SplitKOperand(*contiguous_axis(problem, nest, "src"), width=channels["src"], moves=True)
    y = SplitKOperand(*contiguous_axis(problem, nest, "dst"), width=channels["dst"])
    shapes = product(*(sorted({balanced(operand.width, n) for n in range(1, 9)}) for operand in (x, y)))
    adjacent = axes[-1].dilation == 1
    for mr, nr in shapes:
        for micro_tile in under_taps(axes, mr, nr, isa.registers - nr - isa.spare):
            for k_per_add in _choices(problem, nest, isa):
                spec = SplitKSpec(isa, *names, OUTER_PRODUCTS, micro_tile, x, y, GROUPS, adjacent, k_per_add=k_per_add)
                yield spec, ("src", "dst")


def not_depthwise(problem: Problem, nest: WeightsNest, isa: Isa) -> str:
    """Return why the direct depthwise kernel does not apply."""
    channels = max(per_group(nest).values())
    if nest.conv.groups < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if channels > 1:
        return f"a group has {channels} channels"
    if any(contiguous_axis(problem, nest, tensor)[0] != CHANNELS for tensor in ("src", "dst")):
        return "channels are not contiguous"
    return "" if all(evenly_apart(nest, tensor) for tensor in ("src", "dst")) else "positions have no common stride"


def depthwise(problem: Problem, nest: WeightsNest, isa: Isa) -> Proposed:
    """Yield the direct depthwise kernels: several taps of a vector of groups, with the sums in registers."""
    names = (problem.operand_format.name, problem.output_format.name)
    x, y = (SplitKOperand(CHANNELS, in_place=True, width=1, moves=moves) for moves in (True, False))
    for micro_tile, slide in stencils(isa, nest.conv.axes):
        yield SplitKSpec(isa, *names, DEPTHWISE, micro_tile, x, y, GROUPS, slide=slide), ("src", "dst")


def outer_products(max_mr: int, nr: int, channels: int) -> list[MicroTileShape]:
    """Return the micro-tiles of one tap with ``max_mr`` rows or a few less, and at most ``channels`` rows.

    >>> [micro_tile.mr for micro_tile in outer_products(14, 2, channels=11)]
    [6, 7, 8, 9, 10, 11]
    """
    max_mr = min(max_mr, channels)
    return [MicroTileShape(mr, nr) for mr in range(max(1, max_mr - FEWER_ROWS_WEIGHTS), max_mr + 1)]


def under_taps(axes: tuple[Axis, ...], mr: int, nr: int, room: int) -> list[MicroTileShape]:
    """Return the micro-tiles of ``mr`` rows and ``nr`` vectors whose sums of several taps fit ``room`` registers.

    With dilation, each tap needs its own address, and the padding of src grows with the extent of the taps.
    """
    *outer, inner = axes
    fit = room // (mr * nr)
    if inner.dilation > 1:
        fit = min(fit, MAX_ADDRESSES, inner.src // inner.dilation + 1)
    if fit < 1:
        return []
    k = balanced(inner.kernel, fit)
    shapes = [MicroTileShape(mr, nr, 1, k)]
    count = prod(axis.kernel for axis in outer)
    if k == inner.kernel and count > 1:
        several = sorted({balanced(count, n) for n in (2, 3, 4, 5)})
        shapes += [MicroTileShape(mr, nr, u, k) for u in several if 1 < u <= fit // k]
    return shapes


def stencils(isa: Isa, axes: tuple[Axis, ...]) -> Iterator[tuple[MicroTileShape, int]]:
    """Yield the micro-tiles of the depthwise kernel that fit in registers, each with its ``SplitKSpec.slide``."""
    *outer, inner = axes
    moved = inner.stride // inner.dilation if inner.stride % inner.dilation == 0 else 0
    for u in range(1, min(prod(axis.kernel for axis in outer), DEPTHWISE_MAX_OUTER_TAPS) + 1):
        for k in sorted({ceil(inner.kernel / n) for n in range(1, 5)} | {min(inner.kernel, 8)}):
            for slide in {moved if moved < k else 0, 0}:
                held = u * (k - slide) if slide else 0
                if u * k + held + 1 + isa.spare <= isa.registers:
                    yield MicroTileShape(1, 1, u, k), slide
