"""A plan of kn2row as tables and numbers, and the records that the compiled driver reads them by."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import prod

import numpy as np

from convgrad.plan.forward.kn2row import Kn2rowPlan, reached, rows_of, tap_lines
from convgrad.plan.forward.nest import Along, ForwardNest
from convgrad.plan.forward.schedule import CHAIN, SEGMENT, of_axes
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import CHANNELS_OUT, F32_BYTES
from convgrad.plan.records import Record, addresses
from convgrad.plan.regions import Parts
from convgrad.plan.tables import Ints, Schedule, evenly, placed, wrapped
from convgrad.plan.tiling import tiles
from convgrad.plan.tree import levels_of
from convgrad.spec.order import BLOCK as BLOCK_TERMS

TABLES = addresses("ends", "phases", "runs", "blocks")  # besides those of any forward or data gradient
NUMBERS = Record(
    "block_count",  # of the terms of a tap
    "row_count", "row_bytes", "height", "tiles", "block",  # taps times results; their tiles, and those at a time
    "chunk",  # positions of the data at a time
    "slab_count", "end_count", "phase_count",  # slabs along lines, along the last axis; phases of that
    "tile_ahead", "term_ahead",  # bytes of the data asked for ahead, from a tile, from a term to the next
    "lines", "line_bytes", "together",  # of products that are kept; whether positions of lines are evenly apart
    "inner",  # positions of a line
    "tap_bytes_out", "result_bytes",  # of products, from a tap, a result to the next
    "stream_bytes",  # from a phase and result of gathered outputs to the next
    "out_step", "adds",
    "done_at", "products_at", "outer_at", "entries_at", "nodes_at", "streams_at", "line_at", "nothing_at",
)  # fmt: skip
ALONG = Record("extent", "given", "out", "taps", "tap", "met", "place")  # taps as lines, met and bytes of products
TASK = Record("slab", "slabs")
SLAB = Record("part", "parts", "first", "end")  # rows of PART; lines of the data
PART = Record("count", "out", "out_step", "met", "met_step", "taps", "tap", "tap_step", "tap_met")
END = Record("phase", "first", "count", "out", "outputs", "across")  # rows of PHASE, positions of the data, outputs
PHASE = Record("met", "taps", "tap", "tap_step", "tap_met")  # behind the slab's first position
OUTER = Record("place", "number")  # a tap of all axes but the last: bytes of products, its number
ENTRY = Record("at", "met")  # a tap of an output: bytes of products, and which position the first output meets
NODE = Record("number", "taps")


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of a kernel of so many axes: first those of a tile of one axis."""
    return sum((ALONG.within(f"line{axis}") for axis in range(axes)), of_axes(1) + TABLES + NUMBERS)


def schedule(view: ForwardNest, plan: Kn2rowPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    spec, one = plan.spec, plan.spec.product
    lines, last = view.axes[spec.line], view.axes[-1]
    along, across = plan.slab
    rows, cut = reached(lines, along), lines.parts.in_blocks(along)
    parts = [_parts(view, spec.line, cut.parts)]
    slabs = [
        {"part": first * PART.bytes, "parts": count, "first": met.start, "end": met.stop}
        for first, count, met in zip(cut.begins.tolist(), cut.lengths.tolist(), rows, strict=True)
    ]
    for at in range(spec.line + 1, len(view.axes) - 1):
        inner = _parts(view, at, view.axes[at].parts)
        slabs.append({"part": sum(map(len, parts)) * PART.bytes, "parts": len(inner), "first": 0, "end": 0})
        parts.append(inner)
    ends, phases = _ends(last, across, _unit(view, len(view.axes) - 1))
    order = view.order
    block_count = order.blocks_a_line
    runs = [
        {
            "data": first * F32_BYTES,
            "weights": first * one.width * F32_BYTES,
            "count": min(BLOCK_TERMS, view.k - first),
        }
        for first in range(0, block_count * BLOCK_TERMS, BLOCK_TERMS)
    ]
    blocks = [{"number": at, "segments": 1, "segment": at * SEGMENT.bytes} for at in range(block_count)]
    count = prod(axis.extent for axis in view.axes[: spec.line]) * len(rows) * len(ends)
    tasks = [{"slab": first, "slabs": end - first} for first, end in evenly(count, *plan.parts)]
    tables = {
        "tasks": TASK.rows(tasks), "output_blocks": SLAB.rows(slabs), "parts": np.concatenate(parts),
        "ends": END.rows(ends),
        "phases": PHASE.rows(phases), "runs": SEGMENT.rows(runs),
        "blocks": CHAIN.rows([*blocks, {"number": -1, "segments": 0, "segment": 0}]),
    }  # fmt: skip
    reach, counts = [len(met) for met in rows], [end["count"] for end in ends]
    numbers = _numbers(view, plan, reach, counts, [end["across"] for end in ends])
    numbers |= {
        "task_count": len(tasks), "slab_count": len(rows), "end_count": len(ends), "phase_count": len(last.phases),
        "block_count": block_count, "adds": int(accumulates),
    }  # fmt: skip
    return Schedule(tables, numbers, numbers.pop("scratch"))


def _unit(view: ForwardNest, at: int) -> int:
    """Return how far the numbers of an axis's taps are apart."""
    return prod(inner.kernel for inner in view.axes[at + 1 :])


def _parts(view: ForwardNest, at: int, parts: Parts) -> Ints:
    """Return rows of PART."""
    out, unit = view.axes[at].out, _unit(view, at)
    return PART.table(
        len(parts),
        count=parts.count, out=parts.first * wrapped(out), out_step=parts.step * out, met=parts.met,
        met_step=parts.by_position, taps=parts.taps, tap=parts.tap * unit, tap_step=parts.tap_step * unit,
        tap_met=parts.by_tap,
    )  # fmt: skip


def _ends(last: Along, across: int, unit: int) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Return rows of END and of PHASE."""
    ends, phases = list[dict[str, int]](), list[dict[str, int]]()
    stride = last.phases[0].positions.step
    for begin, met in zip(range(0, last.extent, across), reached(last, across), strict=True):
        count = min(across, last.extent - begin)
        each = -(-count // stride)
        ends.append({
            "phase": len(phases) * PHASE.bytes, "first": met.start, "count": len(met), "out": begin * last.out,
            "outputs": count, "across": each,
        })  # fmt: skip
        for phase in last.phases:
            first = phase.met + begin // stride * phase.by_position - met.start
            there = _touching(first, phase.by_tap, len(phase.taps), each, len(met))
            taps = phase.taps[there.start : there.stop] if there else range(0)
            low = first + there.start * phase.by_tap if there else 0
            phases.append({
                "met": low, "taps": len(taps), "tap": taps.start * unit, "tap_step": taps.step * unit,
                "tap_met": phase.by_tap,
            })  # fmt: skip
    return ends, phases


def _touching(first: int, by_tap: int, taps: int, positions: int, extent: int) -> range:
    """Return the taps by which some positions, neighbours of which the first meets ``first``, meet 0 to an extent.

    >>> _touching(-3, 1, 9, 2, 4), _touching(3, -1, 9, 2, 4)
    (range(2, 7), range(0, 5))
    """
    low, end = (1 - positions - first, extent - first) if by_tap > 0 else (first - extent + 1, first + positions)
    return range(max(0, -(-low // abs(by_tap))), min(taps, -(-end // abs(by_tap))))


def _numbers(
    view: ForwardNest, plan: Kn2rowPlan, reach: list[int], counts: list[int], each: list[int]
) -> dict[str, int]:
    """Return the numbers, and the bytes of all that a task keeps."""
    spec, one = plan.spec, plan.spec.product
    order, last = view.order, view.axes[-1]
    in_last, across = max(counts), -(-max(each) // spec.across) * spec.across
    middle = view.axes[spec.line + 1 : -1]
    places = [prod(axis.met for axis in middle[at + 1 :]) * in_last * F32_BYTES for at in range(len(middle))]
    inner = max(1, prod(axis.met for axis in middle) * in_last)
    several = [*(axis for axis in view.axes[spec.line : -1] if axis.met > 1), last]
    together = in_last == last.met and all(a.data == b.data * b.met for a, b in pairwise(several))
    rows, kept = rows_of(view), max(1, *reach)
    pitch = -(-(kept * inner * F32_BYTES + 1) // LINE_BYTES) // 2 * 2 * LINE_BYTES + LINE_BYTES
    height, many, _ = tiles(rows, one.mr, one.nr)
    beside = (max(counts) + 2 * across) * F32_BYTES
    levels = max(1, levels_of(order.blocks))
    streams = len(last.phases) * view.n
    sizes = {
        "packed_at": 8, "done_at": 8, "nothing_at": 4,
        "bias_at": view.n * F32_BYTES,
        "sums_at": levels * one.tile_bytes,
        "data_at": rows * view.k * F32_BYTES,
        "weights_at": -(-plan.chunk // one.width) * one.width * view.k * F32_BYTES,
        "outer_at": prod(axis.kernel for axis in view.axes[:-1]) * OUTER.bytes,
        "entries_at": view.taps * ENTRY.bytes, "nodes_at": (view.taps + 1) * NODE.bytes,
        "streams_at": streams * across * F32_BYTES,
        "line_at": (streams * across + one.isa.lanes) * F32_BYTES,
        "products_at": rows * pitch + 2 * beside,
    }  # fmt: skip
    found, size = placed(sizes)
    found["products_at"] += -(-beside // LINE_BYTES) * LINE_BYTES
    _, by_result, by_term = view.weights
    numbers = {
        **found, "scratch": size + 4 * LINE_BYTES,
        "n": view.n, "k": view.k, "channels": view.channels, "taps": view.taps, "levels": levels,
        "weights_group": by_result, "weights_n": last.data, "weights_k": view.data[1], "data_k": by_term,
        "a_k": F32_BYTES, "b_k": one.width * F32_BYTES, "panel_bytes": one.width * view.k * F32_BYTES,
        "out_n": view.out[1], "bias_n": view.bias, "accumulate": 0,
        "axis0.kernel": 1, "axis0.tap": 0, "axis0.given": tap_lines(view)[-1][1],
        "row_count": rows, "row_bytes": view.k * F32_BYTES, "height": height, "tiles": many, "block": plan.block,
        "chunk": plan.chunk, "lines": kept, "line_bytes": inner * F32_BYTES, "inner": inner,
        "together": int(together),
        "tap_bytes_out": pitch, "result_bytes": pitch * view.taps, "stream_bytes": across * F32_BYTES,
        "out_step": last.out,
    }  # fmt: skip
    if one.weights == CHANNELS_OUT:
        ahead = (0, 0)
    else:
        term = -(-one.width * last.data // (many * view.k) // LINE_BYTES) * LINE_BYTES
        ahead = (term * view.k, term)
    numbers["tile_ahead"], numbers["term_ahead"] = ahead
    place: dict[int, int] = {
        spec.line: inner * F32_BYTES,
        **{spec.line + 1 + at: bytes_ for at, bytes_ in enumerate(places)},
    }
    for number, (axis, (taps, tap)) in enumerate(zip(view.axes, tap_lines(view), strict=True)):
        numbers |= ALONG.values(
            f"line{number}", extent=axis.extent, given=axis.data, out=axis.out, taps=taps, tap=tap, met=axis.met,
            place=place.get(number, 0),
        )  # fmt: skip
    return numbers
