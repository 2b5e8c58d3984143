"""A plan of a spatial stencil as tables and numbers, and the records by which the compiled driver reads them."""

from __future__ import annotations

from functools import cache
from math import prod

from convgrad.plan.forward.nest import ForwardNest
from convgrad.plan.forward.schedule import CALL
from convgrad.plan.forward.spatial_stencil import SpatialStencilPlan
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record, addresses
from convgrad.plan.regions import Part
from convgrad.plan.tables import Schedule, evenly, placed

TABLES = addresses("tasks", "parts")
NUMBERS = Record(
    "task_count", "n", "k", "taps", "result_bytes",  # bytes from an output channel to the next in packed weights
    "data_group", "data_k", "out_group", "out_n", "weights_group", "weights_n", "weights_k", "bias_n",
    "number_share",  # taps per accumulation chain
    "accumulate", "extent", "met",  # numbers of output and input positions of the last axis
    "line_met",  # input positions along the axis of lines
    "b_at", "bias_at", "outer_at", "entries_at", "chains_at",
)  # fmt: skip
ALONG = Record("kernel", "tap", "first", "count")  # an axis: number of taps, bytes from a tap to the next, rows of PART
TASK = Record("group", "groups")
PART = Record(
    "count", "out", "out_step", "data", "data_step",  # data: bytes to the input of the first position and tap
    "taps", "tap", "tap_step", "tap_data", "met", "met_step", "tap_met",  # met: numbers
)  # fmt: skip
ENTRY = Record("data", "weight", "line", "met")  # a tap and a k: byte offsets, input line, input position
CHAIN = Record("number", "count")  # an accumulation chain: its number, and its number of k
OUTER = Record("data", "tap")  # a tap of all axes except the last two: byte offset in the data, number


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of a kernel for a number of axes."""
    return sum((ALONG.within(f"axis{axis}") for axis in range(axes)), CALL + TABLES + NUMBERS)


def schedule(view: ForwardNest, plan: SpatialStencilPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest."""
    order, last, lines = view.order, view.axes[-1], view.axes[-2]
    rows, numbers = list[dict[str, int]](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        parts = axis.phases if at >= len(view.axes) - 2 else axis.parts
        first = len(rows) * PART.bytes
        numbers |= ALONG.values(f"axis{at}", kernel=axis.kernel, tap=axis.weights, first=first, count=len(parts))
        rows.extend(_part(view, at, part) for part in parts)
    tasks = [{"group": first, "groups": end - first} for first, end in evenly(view.groups, *plan.parts)]
    groups = max(task["groups"] for task in tasks)
    outer = prod(axis.kernel for axis in view.axes[:-2])
    result_bytes = view.taps * view.k * F32_BYTES
    sizes = {
        "b_at": groups * view.n * result_bytes, "bias_at": groups * view.n * F32_BYTES,
        "outer_at": outer * OUTER.bytes, "entries_at": view.taps * view.k * ENTRY.bytes,
        "chains_at": (order.blocks + 1) * CHAIN.bytes,
    }  # fmt: skip
    offsets, size = placed(sizes)
    of_group, of_result, of_k = view.weights
    numbers |= {
        **offsets,
        "task_count": len(tasks), "n": view.n, "k": view.k, "taps": view.taps,
        "result_bytes": result_bytes, "data_group": view.data[0], "data_k": view.data[1],
        "out_group": view.out[0], "out_n": view.out[1],
        "weights_group": of_group, "weights_n": of_result, "weights_k": of_k, "bias_n": view.bias,
        "number_share": order.lines_a_block, "accumulate": int(accumulates), "extent": last.extent, "met": last.met,
        "line_met": lines.met,
    }  # fmt: skip
    return Schedule({"tasks": TASK.rows(tasks), "parts": PART.rows(rows)}, numbers, size + 4 * LINE_BYTES)


def _part(view: ForwardNest, at: int, part: Part) -> dict[str, int]:
    """Return a row of PART for a part of axis ``at``."""
    axis, unit = view.axes[at], prod(inner.kernel for inner in view.axes[at + 1 :])
    met = part.met if part.taps else 0
    return {
        "count": len(part.positions), "out": part.positions.start * axis.out,
        "out_step": part.positions.step * axis.out, "data": met * axis.data, "data_step": part.by_position * axis.data,
        "taps": len(part.taps), "tap": part.taps.start * unit, "tap_step": part.taps.step * unit,
        "tap_data": part.by_tap * axis.data, "met": met, "met_step": part.by_position, "tap_met": part.by_tap,
    }  # fmt: skip
