"""Forwards and data gradients on today's tile: its rows are output positions, its lanes channels, a line is a tap.

Plain Python walks stretches and blocks and calls the compiled tile at each; nothing of it is meant to be fast.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from convgrad.engines.llvm.emit import Module
from convgrad.engines.llvm.jit import functions
from convgrad.engines.llvm.tile import tile
from convgrad.plan.fields import FIELDS
from convgrad.plan.joins import joins
from convgrad.plan.machine import ISAS
from convgrad.plan.recipe import F32_BYTES, ITEMS, TERMS, TILE, KernelSpec, Read, Tile
from convgrad.plan.stretches import Stretch, stretches
from convgrad.plan.taps import TAP
from convgrad.spec.geometry import Conv
from convgrad.spec.order import Order, order_of
from convgrad.spec.problem import Problem

Array = np.ndarray
Line = tuple[int, int, int]  # a tap, its first channel, and the one behind its last

_EVERYWHERE = np.array([0, 1 << 62, 0], np.int64)  # the segment of a tile of one tap that no padding cuts
_FIRST_TAP = np.zeros(len(TAP), np.int64)  # its row of the table of taps: nothing is shifted
_NO_SHIFT = np.zeros(1, np.int64)


def spec_of(isa: str, rows: int, vectors: int) -> KernelSpec:
    """A tile whose rows are read in place, terms being neighbours and items not, and its lanes packed."""
    x, y = Read(TERMS, rows, in_place=True, moves=True), Read(ITEMS, vectors * ISAS[isa].lanes)
    return KernelSpec(ISAS[isa], "f32", "f32", TILE, Tile(rows, vectors), x, y)


def module_of(spec: KernelSpec) -> tuple[str, tuple[str, ...]]:
    """The IR of ``enter(words)``, which calls the tile with words of 64 bits, and the names of these."""
    module = Module()
    tile(module, spec, spec.tile.vectors)
    kinds = {name: value.type for name, value in module.functions[0].parameters.items()}
    f = module.function("enter", public=True, words="ptr")
    given = []
    for at, kind in enumerate(kinds.values()):
        word = f.load("ptr" if kind == "ptr" else "i64", f.words, 8 * at)
        given.append(f.op("i1", f"trunc {word} to i1") if kind == "i1" else word)
    f.call(f"tile{spec.tile.vectors}", *given)
    f.done()
    return str(module), tuple(kinds)


@functools.cache
def compiled(spec: KernelSpec) -> tuple[Any, tuple[str, ...]]:
    """The tile as a function of the address of its arguments, and their names."""
    ir, names = module_of(spec)
    (enter,) = functions(spec.isa, ir, enter=(None, ctypes.c_void_p))
    return enter, names


def blocks_of(order: Order) -> list[list[Line]]:
    """The lines of each block of an order of taps and channels, all units one after the other."""
    found, bounds = [], [*order.begins().tolist(), order.unit_terms]
    for unit in range(order.units):
        for begin, end in pairwise(bounds):
            taps = range(begin // order.length, -(-end // order.length))
            cut = [(k, max(begin - k * order.length, 0), min(end - k * order.length, order.length)) for k in taps]
            found.append([(unit * order.lines + k, *ends) for k, *ends in cut])
    return found


def packed(weights: Array, width: int) -> Array:
    """Weights of (result, summed, tap) as panels of lanes: (panel, tap, summed, lane), zeros behind the last result."""
    results, summed, taps = weights.shape
    panels = np.zeros((-(-results // width), width, summed, taps), np.float32)
    panels.reshape(-1, summed, taps)[:results] = weights
    return np.ascontiguousarray(panels.transpose(0, 3, 2, 1))


def computed(problem: Problem, operands: Sequence[Array], isa: str, rows: int, vectors: int) -> Array:
    """The canonical result of a dense f32 problem that solves for dst or src, by tiles of some rows or one."""
    conv = problem.geometry
    assert isinstance(conv, Conv)
    assert conv.groups == 1
    given = dict(zip(problem.operands, operands, strict=True))
    forward = problem.solves_for == "dst"
    data = np.ascontiguousarray(np.moveaxis(given["src" if forward else "dst"], 1, -1))
    weights = given["weights"].reshape(conv.dst_channels, conv.src_channels, conv.taps)
    spec = spec_of(isa, rows, vectors)
    panels = packed(weights if forward else weights.swapaxes(0, 1), spec.width)
    results = conv.dst_channels if forward else conv.src_channels
    extents = [axis.dst if forward else axis.src for axis in conv.axes]
    out = np.full((conv.batch, *extents, len(panels) * spec.width), np.nan, np.float32)
    order = order_of(problem)
    for stretch in stretches(conv.axes, problem.solves_for):
        lines = _lines(stretch, conv, data.strides[1:-1], blocks_of(order), panels.strides[1])
        for panel, weights_panel in enumerate(panels):
            lanes = slice(panel * spec.width, (panel + 1) * spec.width)
            for at, source, step, size in _rows(stretch, conv.batch, rows, data.strides[:-1]):
                x, y = data.ctypes.data + source, weights_panel.ctypes.data
                out[(*at, lanes)] = _tile(spec_of(isa, size, vectors), order, lines, x, y, step)
    out = out[..., :results] + np.float32(0)
    return np.moveaxis(out + given["bias"] if "bias" in given else out, -1, 1)


def _lines(
    stretch: Stretch, conv: Conv, steps: Sequence[int], blocks: list[list[Line]], tap_bytes: int
) -> list[tuple[Array, Array]]:
    """Of each block, rows of LINE for the taps that a stretch meets, and the places of the data they meet."""
    places = {}
    for box in product(*(range(len(part.taps)) for part in stretch.parts)):
        tap = 0
        for axis, part, t in zip(conv.axes, stretch.parts, box, strict=True):
            tap = tap * axis.kernel + part.taps[t]
        places[tap] = sum(t * part.by_tap * step for t, part, step in zip(box, stretch.parts, steps, strict=True))
    found = []
    for block in blocks:
        met = [line for line in block if line[0] in places]
        table = [(first, end, tap * tap_bytes, 8 * n) for n, (tap, first, end) in enumerate(met)]
        found.append((np.array(table, np.int64).reshape(-1, 4), np.array([places[k] for k, *_ in met], np.int64)))
    return found


def _rows(stretch: Stretch, batch: int, rows: int, steps: Sequence[int]) -> list[tuple[tuple[Any, ...], int, int, int]]:
    """Tiles of a stretch along its longest axis, images being one: where each writes, what it meets first, step, rows.

    The last tile overlaps the one before; where there are fewer positions than rows, a tile has one.
    """
    axes = [(range(batch), 0, steps[0])]
    for part, step in zip(stretch.parts, steps[1:], strict=True):
        axes.append((part.positions, part.met * step, part.by_position * step))
    counts = [len(positions) for positions, *_ in axes]
    longest = counts.index(max(counts))
    size = rows if counts[longest] >= rows else 1
    firsts = sorted({min(first, counts[longest] - size) for first in range(0, counts[longest], size)})
    found = []
    for at in product(*(firsts if n == longest else range(count) for n, count in enumerate(counts))):
        where: list[Any] = [positions[t] for (positions, *_), t in zip(axes, at, strict=True)]
        taken = axes[longest][0][at[longest] : at[longest] + size]
        where[longest] = slice(taken.start, taken.stop, taken.step)
        source = sum(met + t * step for (_, met, step), t in zip(axes, at, strict=True))
        found.append((tuple(where), source, axes[longest][2], size))
    return found


def _tile(spec: KernelSpec, order: Order, lines: list[tuple[Array, Array]], x: int, y: int, step: int) -> Array:
    """The sums of one tile, (row, lane): every block by the compiled tile, joined as the tables of joins say."""
    enter, names = compiled(spec)
    table, levels = joins(order.blocks, order.units)
    sums = np.full((levels, spec.tile.rows, spec.width), np.nan, np.float32)
    for (block, places), (firsts, carries, _) in zip(lines, table.tolist(), strict=True):
        fields = {
            "places": places.ctypes.data, "shifts": _NO_SHIFT.ctypes.data, "segments": _EVERYWHERE.ctypes.data,
            "rows.read_term": F32_BYTES, "lanes.read_term": spec.width * F32_BYTES, "rows.item": step,
        }  # fmt: skip
        arguments = np.array([fields.get(name, 0) for name in FIELDS], np.int64)
        words = {
            "arguments": arguments.ctypes.data, "partial": sums.ctypes.data, "first": firsts & 1, "x": x, "y": y,
            "images": 1, "lines_at": block.ctypes.data, "line_count": len(block), "tap": _FIRST_TAP.ctypes.data,
        }  # fmt: skip
        enter(np.array([words[name] for name in names], np.int64).ctypes.data)
        for level in range(1, carries + 1):
            sums[level] = sums[level - 1] if firsts >> level & 1 else sums[level] + sums[level - 1]
    return sums[-1]
