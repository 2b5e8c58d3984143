"""The kernels of weight gradients: dense, thin, grouped and depthwise, and which micro-tiles registers hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil, prod

from convgrad.plan.backward_weights.nest import View, per_group, pieces
from convgrad.plan.backward_weights.operands import contiguous_axis, evenly_apart, lanes_in_place, readable_in_place
from convgrad.plan.backward_weights.recipe import GROUPS, STRIP, TILE, KernelSpec, Read, Tile
from convgrad.plan.constants import (
    DEPTHWISE_MAX_OUTER_TAPS,
    FEWER_ROWS_WEIGHTS,
    MAX_ADDRESSES,
    MAX_B_READS,
    MAX_GROUP_CHANNELS,
)
from convgrad.plan.machine import ISAS, Isa
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, STRIDED, Operands
from convgrad.plan.tiling import balanced
from convgrad.spec.geometry import Axis
from convgrad.spec.problem import Problem

Proposed = Iterator[tuple[KernelSpec, Operands]]
FEWEST_GROUPS = max(isa.lanes for isa in ISAS.values())  # a full vector: nothing is read beyond the last group


def not_dense(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not: it always applies."""
    return ""


def dense(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is channels of one operand, each in all lanes, times lanes of the other's."""
    names = (problem.operand_format.name, problem.output_format.name)
    channels, compact = per_group(view), 2 in steps(problem, isa) and _whole_words(problem, view)
    lying = {tensor: contiguous_axis(problem, view, tensor) for tensor in channels}
    ways = {tensor: (False, True) if readable_in_place(problem, view, tensor) else (False,) for tensor in channels}
    for (rows, lanes), (most, vectors) in product((("src", "dst"), ("dst", "src")), isa.micro_tiles):
        whole = lanes_in_place(problem, view, isa, lanes, vectors)
        for tile, in_place in product(outer_products(most, vectors, channels[rows]), ways[rows]):
            x = Read(lying[rows], tile.rows, in_place, moves=True)
            y = Read(lying[lanes], vectors * isa.lanes)
            few = ceil(channels[rows] / tile.rows) <= MAX_B_READS and view.conv.taps == 1  # tiles read lanes
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


def not_thin(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    thin = min(per_group(view).values())
    if view.conv.taps == 1:
        return "there is one tap"
    return "" if 2 * thin < isa.registers else f"registers hold no two taps of {thin} channels"


def thin(problem: Problem, view: View, isa: Isa) -> Proposed:
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
            for tile in under_taps(axes, channels[rows], vectors, isa.registers - held - isa.spare, MAX_ADDRESSES):
                for read in (y, replace(y, in_place=True)) if in_place else (y,):
                    for step in steps(problem, isa) if tile.taps > 1 else ():
                        yield KernelSpec(isa, *names, TILE, tile, x, read, adjacent=adjacent, step=step), (rows, lanes)


def not_grouped(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    if view.conv.groups == 1:
        return "there is one group"
    most = max(per_group(view).values())
    return "" if most <= MAX_GROUP_CHANNELS else f"a group has {most} channels; at most {MAX_GROUP_CHANNELS} fit"


def grouped(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is some channels of src times some of dst, of as many groups as there are lanes."""
    axes, channels = view.conv.axes, per_group(view)
    names = (problem.operand_format.name, problem.output_format.name)
    x = Read(contiguous_axis(problem, view, "src"), channels["src"], moves=True)
    y = Read(contiguous_axis(problem, view, "dst"), channels["dst"])
    shapes = product(*(sorted({balanced(read.items, n) for n in range(1, 9)}) for read in (x, y)))
    adjacent = axes[-1].dilation == 1
    for rows, vectors in shapes:
        for tile in under_taps(axes, rows, vectors, isa.registers - vectors - isa.spare, MAX_ADDRESSES):
            for step in steps(problem, isa):
                yield KernelSpec(isa, *names, TILE, tile, x, y, GROUPS, adjacent, step=step), ("src", "dst")


def not_depthwise(problem: Problem, view: View, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    channels = max(per_group(view).values())
    if view.conv.groups < FEWEST_GROUPS:
        return f"there are fewer than {FEWEST_GROUPS} groups"
    if channels > 1:
        return f"a group has {channels} channels"
    if any(contiguous_axis(problem, view, tensor) != CHANNELS for tensor in ("src", "dst")):
        return "channels are not neighbours"
    return "" if all(evenly_apart(view, tensor) for tensor in ("src", "dst")) else "positions are not evenly apart"


def depthwise(problem: Problem, view: View, isa: Isa) -> Proposed:
    """Yield the kernels whose tile is some taps of as many groups as there are lanes, in registers."""
    names = (problem.operand_format.name, problem.output_format.name)
    for tile, slide in strips(isa, view.conv.axes):
        x, y = Read(CHANNELS, 1, in_place=True, moves=True), Read(CHANNELS, 1, in_place=True)
        yield KernelSpec(isa, *names, STRIP, tile, x, y, GROUPS, slide=slide), ("src", "dst")


def outer_products(most: int, vectors: int, items: int) -> list[Tile]:
    """Return the tiles of one tap with as many rows as registers hold, or some fewer.

    >>> [tile.rows for tile in outer_products(14, 2, items=11)]
    [6, 7, 8, 9, 10, 11]
    """
    most = min(most, items)
    return [Tile(rows, vectors) for rows in range(max(1, most - FEWER_ROWS_WEIGHTS), most + 1)]


def under_taps(axes: tuple[Axis, ...], rows: int, vectors: int, room: int, addresses: int) -> list[Tile]:
    """Return the tiles of some rows and vectors with as many taps as registers hold: ``room`` sums of all.

    Under dilation each tap needs an address of its own, of ``addresses``, and src as much padding as the taps reach.
    """
    *outer, inner = axes
    most = room // (rows * vectors)
    if inner.dilation > 1:
        most = min(most, addresses, inner.src // inner.dilation + 1)
    if most < 1:
        return []
    k = balanced(inner.kernel, most)
    tiles = [Tile(rows, vectors, 1, k)]
    count = prod(axis.kernel for axis in outer)
    if k == inner.kernel and count > 1:
        several = sorted({balanced(count, n) for n in (2, 3, 4, 5)})
        tiles += [Tile(rows, vectors, u, k) for u in several if 1 < u <= most // k]
    return tiles


def strips(isa: Isa, axes: tuple[Axis, ...]) -> Iterator[tuple[Tile, int]]:
    """Yield the tiles of taps of one vector, and how many inner taps a position moves on what registers hold."""
    *outer, inner = axes
    ahead = inner.stride // inner.dilation if inner.stride % inner.dilation == 0 else 0
    for u in range(1, min(prod(axis.kernel for axis in outer), DEPTHWISE_MAX_OUTER_TAPS) + 1):
        for k in sorted({ceil(inner.kernel / n) for n in range(1, 5)} | {min(inner.kernel, 8)}):
            for slide in {ahead if ahead < k else 0, 0}:
                held = u * (k - slide) if slide else 0
                if u * k + held + 1 + isa.spare <= isa.registers:
                    yield Tile(1, 1, u, k), slide
