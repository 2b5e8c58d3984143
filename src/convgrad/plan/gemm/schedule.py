"""A plan of a GEMM as tables of integers that the compiled driver reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.forward_nest import Along, ForwardNest
from convgrad.plan.gemm.constants import PACK_TOGETHER, PACK_TOGETHER_BYTES
from convgrad.plan.gemm.cuts import levels, max_tiles, panel_bytes, panels_of, waiting_bytes
from convgrad.plan.gemm.spec import GemmPlan, GemmSpec
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import PAIR_BYTES, add_condition
from convgrad.plan.recipe import CHANNELS, F32_BYTES
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.regions import AxisBlocks, Parts
from convgrad.plan.tables import Ints, Schedule, Table, distinct, evenly, offsets, placed, wrapped
from convgrad.plan.tree import levels_of
from convgrad.spec.order import FAN_IN

# The arguments that differ between calls. If there is no bias, its address is 0 and its value is -0.0.
CALL = FLAGS + addresses("data", "weights", "out", "bias")
TABLES = addresses("tasks", "output_blocks", "parts")
NUMBERS = Record(
    "task_count",
    "n", "k", "channels", "taps",  # n and k per group, channels of a packed position of A, taps of the filter
    "data_group", "data_k", "out_group", "out_n",  # byte strides
    "weights_group", "weights_n", "weights_k", "bias_n",
    "tap_chains",  # accumulation chains per tap
    "number_step", "number_share",  # number of a chain: (tap * number_step + chain of the tap) / number_share
    "levels",  # levels of the reduction tree
    "pass_chains", "waiting_bytes",  # chains per pass; bytes of a micro-tile's sums between passes
    "a_k",  # bytes from a k to the next in the A that micro-tiles read
    "b_tap", "b_k",  # bytes from a tap, from a k to the next in the B that micro-tiles read
    "panels", "panel_bytes", "weights_panel",  # number of panels packed at a time; bytes of a panel: packed, in memory
    "a_at", "b_at", "bias_at", "segments_at", "chains_at", "sums_at", "packed_at", "out_at",  # byte offsets in scratch
    "accumulate",
)  # fmt: skip
STEPS = Record("data", "step")  # bytes from a position to the next: in memory, and in scratch if there is a copy
ALONG = Record(  # an axis
    "extent", "inputs",  # number of output positions, number of input positions
    "blocks", "block",  # number of output blocks, and byte offset of the first row of OUTPUT_BLOCK
    "kernel", "tap",  # number of taps; bytes of weights from a tap to the next
) + STEPS + STEPS.within("out")  # of A, and of the output, in memory and scratch  # fmt: skip
PAIRS = Record(  # additional arguments of kernels with bf16 pairs
    "min_sum", "paths",  # the smallest exponent sum that allows pairs; address of the counters ``PATHS``
    "min_at",  # offset in scratch of the minimum exponent of A in an output block
    "tiles_at",  # offset in scratch of the rows of micro-tiles for which tiles of AMX are configured; 0: for none
    "maxima_at",  # offset in scratch of the maxima of packed B
    addresses=("paths",),
)  # fmt: skip
LINE = Record("source", "to", "count")  # a task that packs A: byte offsets in memory and in packed A, positions
PACKING = Record(
    "packs",  # whether each output block packs its part of A
    "packing", "packing_count",  # address of the rows of LINE, and their number
    addresses=("packing",),
)  # fmt: skip
TASK = Record("group", "groups", "panel", "panels", "block", "blocks")
POSITIONS = Record("first", "count")
PARTS = Record("part", "parts")  # bytes to the first row of PART, and the number of rows
# An output block's parts, those that are not cut if A is padded, and its positions: of A (padded), and of the output.
OUTPUT_BLOCK = PARTS + PARTS.within("uncut") + POSITIONS + POSITIONS.within("out")
PART = Record(  # a part of an axis; a region is one part of each axis
    "count", "out", "out_step",  # number of output positions, bytes to the first position, bytes between positions
    "input", "input_step",  # position of A for the first output position and tap, and its step per output position
    "data", "data_step",  # the same as the line above, in bytes
    "taps", "tap", "tap_step", "tap_data",  # number of taps, first tap, step of taps, bytes of A from a tap to the next
    "first_bias", "bias",  # if each row of A has a bias: bytes to the first position's bias, and to the next
    "mr", "tiles", "cycles",  # micro-tiles along this axis: rows, number, 1024ths of a cycle per k and position
)  # fmt: skip
SEGMENT = Record("data", "weights", "count")  # byte offsets in A and in B; number of k
# A leaf of the reduction tree: its number in the tree, its number of segments, and bytes to the first segment. The leaf
# is a chain, which `spec/order.py` calls a block, or a portion of two chains (``spec.chains``).
CHAIN = Record("number", "segments", "segment")

MAX_WEIGHED = 1 << 20  # if there are more output blocks, tasks assume that all have equal work


@cache
def of_axes(axes: int) -> Record:
    """Return the arguments of a kernel for a number of axes, without those of bf16 pairs."""
    return sum((ALONG.within(f"axis{axis}") for axis in range(axes)), CALL + TABLES + NUMBERS)


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of the output-stationary nest for a number of axes."""
    return of_axes(axes) + PAIRS + PACKING


def schedule(view: ForwardNest, plan: GemmPlan, accumulates: bool, segment: Record = SEGMENT) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest. ``segment`` is the record of a segment."""
    spec = plan.spec
    cut = [axis.parts.in_blocks(size) for axis, size in zip(view.axes, plan.output_block, strict=True)]
    uncut = cut
    if spec.padded:
        uncut = [axis.uncut.in_blocks(size) for axis, size in zip(view.axes, plan.output_block, strict=True)]
    reached = [_reached(axis, part, spec.padded) for axis, part in zip(view.axes, uncut, strict=True)]
    # The maximum positions of A along each axis that are packed together: of an output block, or all.
    room = [axis.inputs for axis in view.axes] if plan.packed_once else [int(counts.max()) for _, counts in reached]
    sizes = [min(axis.extent, size) for axis, size in zip(view.axes, plan.output_block, strict=True)]
    out_row = spec.pitch * F32_BYTES  # bytes of a position's sums in scratch
    row = spec.packed_row_bytes(view.channels)
    steps = _steps([axis.data for axis in view.axes], () if spec.a.in_place else room, row)
    out_steps = _steps([axis.out for axis in view.axes], sizes if spec.collects else (), out_row)
    blocks, parts, axes = _axes(view, plan, (cut, uncut), reached, (steps, out_steps))
    tables: dict[str, Table] = {
        "tasks": _tasks(view, plan, list(map(_work, uncut))),
        "output_blocks": blocks,
        "parts": parts,
    }
    packed = prod(room) * row
    a_bytes = 0 if spec.a.in_place or plan.packed_once else packed
    scratch, size = _scratch(view, plan, segment, a_bytes, prod(sizes) * out_row * spec.collects)
    numbers = {
        "task_count": len(tables["tasks"]),
        "n": view.n,
        "k": view.k,
        "channels": view.channels,
        "taps": view.taps,
        "data_group": packed if plan.packed_once else view.data[0],
        "data_k": view.data[1],
        "out_group": view.out[0],
        "out_n": view.out[1],
        "weights_group": view.weights[0],
        "weights_n": view.weights[1],
        "weights_k": view.weights[2],
        "a_k": _a_k(view, spec),
        "bias_n": view.bias,
        "panels": plan.panels,
        "accumulate": int(accumulates),
        **_numbering(view),
        **_b_steps(view, spec),
        **scratch,
        **axes,
    }
    if spec.k_per_add == 2:
        add_condition(tables, numbers)
    if not plan.packed_once:
        return Schedule(tables, numbers | {"packs": 1}, size)
    tables["packing"] = _packing(view, row)
    numbers["packing_count"] = len(tables["packing"])
    return Schedule(tables, numbers, size, packed_bytes=view.groups * packed)


def _packing(view: ForwardNest, row: int) -> Table:
    """Return rows of LINE for all of A, whose positions are contiguous. Packed positions are ``row`` bytes apart."""
    outer = view.outer_axes
    length, step = prod(axis.inputs for axis in view.axes[len(outer) :]), view.axes[-1].data
    begins = offsets((view.groups, *(axis.inputs for axis in outer)), (view.data[0], *(axis.data for axis in outer)))
    rows = max(PACK_TOGETHER, PACK_TOGETHER_BYTES // row)
    return LINE.rows(
        {"source": begin + first * step, "to": (line * length + first) * row, "count": min(rows, length - first)}
        for line, begin in enumerate(begins.tolist())
        for first in range(0, length, rows)
    )


def _axes(
    view: ForwardNest,
    plan: GemmPlan,
    in_blocks: tuple[Sequence[AxisBlocks], Sequence[AxisBlocks]],
    reached: Sequence[tuple[Ints, Ints]],
    all_steps: tuple[Sequence[int], Sequence[int]],
) -> tuple[Ints, Ints, dict[str, int]]:
    """Return the rows of OUTPUT_BLOCK and of PART, and the values of ALONG, for all axes.

    ``in_blocks`` are the parts of each axis, and those that are not cut where taps become absent. ``all_steps`` are the
    byte strides of each axis in A and in the output.
    """
    (cut, uncut), (steps, out_steps) = in_blocks, all_steps
    blocks, parts, numbers = list[Ints](), list[Ints](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        begins, (first, count) = cut[at].begins, reached[at]
        columns: dict[str, Ints | int] = {"uncut.part": 0, "uncut.parts": 0}
        unit = prod(inner.kernel for inner in view.axes[at + 1 :])
        beside = plan.output_block[at] < prod(plan.output_block)
        for name, some in (("part", cut[at]), ("uncut.part", uncut[at]))[: 1 + plan.spec.padded]:
            columns |= {name: (sum(map(len, parts)) + some.begins) * PART.bytes, f"{name}s": some.lengths}
            parts.append(_rows(some.parts, axis, (steps[at], out_steps[at]), unit, plan.spec, beside))
        numbers |= ALONG.values(
            f"axis{at}",
            extent=axis.extent,
            inputs=axis.inputs,
            blocks=len(begins),
            block=sum(map(len, blocks)) * OUTPUT_BLOCK.bytes,
            kernel=axis.kernel,
            tap=axis.weights,
            data=steps[at] if plan.packed_once else axis.data,  # if packed once, no task reads A in memory
            step=steps[at],
            **STEPS.values("out", data=axis.out, step=out_steps[at]),
        )
        begin = np.arange(len(begins)) * plan.output_block[at]
        outs = {"out.first": begin, "out.count": np.minimum(axis.extent - begin, plan.output_block[at])}
        blocks.append(OUTPUT_BLOCK.table(len(begins), first=first, count=count, **columns, **outs))
    return np.concatenate(blocks), np.concatenate(parts), numbers


def _steps(steps: Sequence[int], room: Sequence[int], size: int) -> Sequence[int]:
    """Return the byte stride of each axis in scratch with ``room`` of ``size`` bytes per position, or ``steps``."""
    return steps if not room else [prod(room[at + 1 :]) * size for at in range(len(room))]


def _reached(axis: Along, cut: AxisBlocks, padded: bool) -> tuple[Ints, Ints]:
    """Return the first position of A that each output block reads, and the number of positions to the last.

    Positions before 0 and after the last are padding, which only ``padded`` A has.
    """
    low, end = cut.reached
    first = low if padded else np.maximum(low, 0)
    return first, (end if padded else np.minimum(end, axis.inputs)) - first


def _rows(parts: Parts, axis: Along, steps: tuple[int, int], unit: int, spec: GemmSpec, beside: bool) -> Ints:
    """Return rows of PART for the parts of an axis, whose strides in A and in the output are ``steps`` bytes."""
    (counts, which), (step, out_step) = distinct(parts.count), steps
    tilings = [spec.tiling(count, beside=beside) for count in counts.tolist()]
    rows = [(mr, many, int(1024 * cycles)) for mr, many, cycles in tilings]
    mr, many, cycles = np.array(rows, np.int64)[which].T
    first_bias, bias = (F32_BYTES * parts.first, F32_BYTES) if spec.bias_per_row and axis.extent > 1 else (0, 0)
    return PART.table(
        len(parts),
        count=parts.count,
        out=parts.first * wrapped(out_step),
        out_step=parts.step * out_step,
        input=parts.input,
        input_step=parts.by_position,
        data=np.where(parts.taps > 0, parts.input * wrapped(step), 0),
        data_step=parts.by_position * step,
        taps=parts.taps,
        tap=np.where(parts.taps > 0, parts.tap * unit, 0),
        tap_step=parts.tap_step * unit,
        tap_data=parts.by_tap * step,
        first_bias=first_bias,
        bias=bias,
        mr=mr,
        tiles=many,
        cycles=cycles,
    )


def _work(cut: AxisBlocks) -> Ints:
    """Return the relative work of each output block of an axis: 4 per pair of position and tap, plus 1 per position."""
    return np.add.reduceat(cut.parts.count * (4 * cut.parts.taps + 1), cut.begins)


def _tasks(view: ForwardNest, plan: GemmPlan, work: Sequence[Ints]) -> Ints:
    """Return rows of TASK. Groups and panels are cut into equal parts, output blocks into parts of decreasing size.

    The first parts are large, because a thread then reads neighbouring data. The last parts are small, so that all
    threads end at about the same time.
    """
    groups, panels, parts = plan.parts
    count = prod(map(len, work))
    done = np.arange(1, parts) / parts
    if parts > plan.threads:
        done = 1 - (1 - done) ** 2
    bounds = _bounds(_ends(work, done) if count <= MAX_WEIGHED else (count * done).astype(np.int64), parts, count)
    return TASK.rows(
        {"group": g0, "groups": g1 - g0, "panel": p0, "panels": p1 - p0, "block": b0, "blocks": b1 - b0}
        for g0, g1 in evenly(view.groups, groups)
        for p0, p1 in evenly(panels_of(view, plan.spec), panels)
        for b0, b1 in pairwise(bounds)
    )


def _ends(work: Sequence[Ints], done: NDArray[np.float64]) -> Ints:
    """Return for each share in ``done`` how many output blocks together have this share of the work."""
    weights = np.ones(1)
    for counts in work:
        weights = np.multiply.outer(weights, counts.astype(float)).ravel()
    total = np.concatenate([[0.0], np.cumsum(weights)])
    ends: Ints = np.searchsorted(total, total[-1] * done, side="left")
    return ends


def _bounds(ends: Ints, parts: int, count: int) -> list[int]:
    """Return the bounds of ``parts`` parts of ``range(count)``: close to ``ends``, but with no empty part.

    >>> _bounds(np.array([1, 1, 4]), 4, 4)
    [0, 1, 2, 3, 4]
    """
    number = np.arange(1, parts)
    ends = np.maximum.accumulate(ends - number) + number
    return [0, *np.clip(ends, number, count - parts + number).tolist(), count]


def _numbering(view: ForwardNest) -> dict[str, int]:
    """Return the arguments from which the driver computes the number of a chain in the tree.

    If a chain has several taps, such as 4 taps of 64 channels, ``number_step`` is 1 and ``number_share`` is 4.
    """
    order = view.order
    if order.units > 1:
        step, share = FAN_IN ** levels_of(order.blocks), 1
    else:
        step, share = order.blocks_a_line, order.lines_a_block
    return {
        "tap_chains": order.blocks_a_line,
        "number_step": step,
        "number_share": share,
        "levels": levels(view),
    }


def _a_k(view: ForwardNest, spec: GemmSpec) -> int:
    """Return the bytes from a k to the next in the A that micro-tiles read.

    If channels are contiguous, this is the size of an element, not the stride of the nest. A single channel may have
    the stride of positions, and then the driver would merge the segments of neighbouring taps.
    """
    if spec.k_per_add == 2:
        return PAIR_BYTES // 2
    if not spec.a.in_place:
        return F32_BYTES
    return spec.operand_bytes if spec.a.contiguous == CHANNELS else view.data[1]


def _b_steps(view: ForwardNest, spec: GemmSpec) -> dict[str, int]:
    """Return the byte strides of taps, k and panels in the B that micro-tiles read, and of panels in memory."""
    group, n, k = view.weights
    if spec.b.in_place:
        panel = spec.width * n
        return {"b_tap": view.tap_step or 0, "b_k": k, "panel_bytes": panel, "weights_panel": panel}
    return {
        "b_tap": spec.tap_bytes(view.k),
        "b_k": spec.pitch * F32_BYTES // spec.k_per_add,
        "panel_bytes": panel_bytes(view, spec),
        "weights_panel": spec.panel_step(group, n),
    }


def _scratch(
    view: ForwardNest, plan: GemmPlan, segment: Record, data_bytes: int, out_bytes: int
) -> tuple[dict[str, int], int]:
    """Return the offsets of a task's arrays in scratch, the arguments for passes, and the bytes of scratch."""
    spec, order = plan.spec, view.order
    parts = (axis.uncut if spec.padded else axis.parts for axis in view.axes)
    segments = prod(part.max_taps for part in parts) * order.blocks_a_line + 1
    sums = waiting_bytes(view, spec)
    sizes = {
        # If sums wait between passes, ``micro_tiles`` in engines/llvm/gemm/region.py gives each micro-tile its own.
        "sums_at": sums * (max_tiles(view, plan.output_block, spec) if plan.pass_chains else 1),
        "bias_at": (view.axes[-1].extent if spec.bias_per_row else plan.panels * spec.width) * F32_BYTES,
        "chains_at": (segments + 1) * CHAIN.bytes,
        "segments_at": segments * segment.bytes,
        "b_at": 0 if spec.b.in_place else plan.panels * panel_bytes(view, spec),
        "a_at": data_bytes,
        "out_at": out_bytes,
        "packed_at": 8,
    }
    if spec.k_per_add == 2:
        sizes |= {"min_at": LINE_BYTES, "tiles_at": 8, "maxima_at": LINE_BYTES * spec.padded}
    places, size = placed(sizes)
    waiting = {"pass_chains": plan.pass_chains or segments, "waiting_bytes": sums if plan.pass_chains else 0}
    return {**places, **waiting}, size + 4 * LINE_BYTES
