"""A plan of planes as tables and numbers, and the names that the compiled driver reads them by."""

from __future__ import annotations

from functools import cache
from math import prod

from convgrad.plan.forward.fields import CALL
from convgrad.plan.forward.spatial_stencil import SpatialStencilPlan
from convgrad.plan.forward.view import ForwardNest
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.stretches import Part
from convgrad.plan.tables import Schedule, placed, table_of
from convgrad.plan.tasks import parts as evenly

TABLES = ("tasks", "parts")
NUMBERS = (
    "task_count", "results", "terms", "taps", "result_bytes",  # bytes of packed weights from a result to the next
    "data_group", "data_item", "out_group", "out_item", "weights_group", "weights_item", "weights_term", "bias_item",
    "number_share",  # taps of a block
    "accumulate", "extent", "met",  # of the last axis
    "line_met",  # of the axis of lines
    "weights_at", "bias_at", "outer_at", "entries_at", "nodes_at",
)  # fmt: skip
ALONG = (
    "kernel",
    "tap",
    "first",
    "count",
)  # of each axis: taps, bytes of weights; rows of PART, phases of the last two
TASK = ("group", "groups")
PART = (
    "count", "out", "out_step", "data", "data_step",  # bytes of what the first position meets by the first tap
    "taps", "tap", "tap_step", "tap_data", "met", "met_step", "tap_met",  # numbers of taps; the same in positions
)  # fmt: skip
ENTRY = ("data", "weight", "line", "met")  # bytes, bytes; which line, and which position the tile's first output meets
NODE = ("number", "terms")  # a block
OUTER = ("data", "tap")


@cache
def planes_fields(axes: int) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel of so many axes, in order."""
    return (*CALL, *TABLES, *NUMBERS, *(f"axis{axis}.{word}" for axis in range(axes) for word in ALONG))


def schedule(view: ForwardNest, plan: SpatialStencilPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    order, last, lines = view.order, view.axes[-1], view.axes[-2]
    rows, numbers = list[tuple[int, ...]](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        parts = axis.phases if at >= len(view.axes) - 2 else axis.parts
        values = (axis.kernel, axis.weights, len(rows) * 8 * len(PART), len(parts))
        numbers |= {f"axis{at}.{word}": value for word, value in zip(ALONG, values, strict=True)}
        rows.extend(_part(view, at, part) for part in parts)
    tasks = [(first, end - first) for first, end in evenly(view.groups, plan.parts)]
    tables = {"tasks": table_of(tasks), "parts": table_of(rows)}
    most = max(count for _, count in tasks)
    outer = prod(axis.kernel for axis in view.axes[:-2])
    result_bytes = view.taps * view.terms * F32_BYTES
    sizes = {
        "weights_at": most * view.results * result_bytes, "bias_at": most * view.results * F32_BYTES,
        "outer_at": outer * 8 * len(OUTER), "entries_at": view.taps * view.terms * 8 * len(ENTRY),
        "nodes_at": (order.blocks + 1) * 8 * len(NODE),
    }  # fmt: skip
    places, size = placed(sizes)
    group, item, term = view.weights
    numbers |= {
        **places,
        "task_count": len(tasks), "results": view.results, "terms": view.terms, "taps": view.taps,
        "result_bytes": result_bytes, "data_group": view.data[0], "data_item": view.data[1],
        "out_group": view.out[0], "out_item": view.out[1],
        "weights_group": group, "weights_item": item, "weights_term": term, "bias_item": view.bias,
        "number_share": order.lines_a_block, "accumulate": int(accumulates), "extent": last.extent, "met": last.met,
        "line_met": lines.met,
    }  # fmt: skip
    return Schedule(
        tables, numbers, (0, 0), size + 4 * LINE_BYTES, 0, 0, sum(table.nbytes for table in tables.values())
    )


def _part(view: ForwardNest, at: int, part: Part) -> tuple[int, ...]:
    """Return a row of PART."""
    axis, unit = view.axes[at], prod(inner.kernel for inner in view.axes[at + 1 :])
    met = part.met if part.taps else 0
    return (
        len(part.positions), part.positions.start * axis.out, part.positions.step * axis.out, met * axis.data,
        part.by_position * axis.data, len(part.taps), part.taps.start * unit, part.taps.step * unit,
        part.by_tap * axis.data, met, part.by_position, part.by_tap,
    )  # fmt: skip
