"""A plan of a spatial stencil as tables and numbers, and the records by which the compiled driver reads them."""

from __future__ import annotations

from functools import cache
from math import prod

from convgrad.plan.forward_nest import Along, ForwardNest
from convgrad.plan.gemm.schedule import CALL, PAIRS
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import add_condition
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record, addresses
from convgrad.plan.regions import AxisPart
from convgrad.plan.stencils.constants import PREFETCH_MAX_LINE_BYTES
from convgrad.plan.stencils.spatial import SpatialStencilPlan
from convgrad.plan.tables import Schedule, Table, evenly, placed

TABLES = addresses("tasks", "parts")
NUMBERS = Record(
    "task_count", "n", "k", "result_bytes",  # bytes from an output channel to the next in packed weights
    "data_group", "data_k", "out_group", "out_n", "weights_group", "weights_n", "weights_k", "bias_n",
    "accumulate", "extent",  # number of output positions of the last axis
    "prefetched_line",  # bytes of a line that are prefetched: all, or none if lines are long or not neighbours
    "b_at", "bias_at",
)  # fmt: skip
ALONG = Record(  # an axis
    "kernel", "tap", "first", "count",  # number of taps, bytes from a tap to the next, rows of PART
    "inputs", "data",  # number of input positions, bytes from one to the next
)  # fmt: skip
TASK = Record("group", "groups")
PART = Record(
    "count", "out", "out_step", "data", "data_step", "input",  # data: bytes to the input of the first position
    "taps", "tap", "tap_step", "tap_data",  # of axes before the last two; tap: bytes to the first in packed weights
)  # fmt: skip


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of a kernel for a number of axes."""
    return sum((ALONG.within(f"axis{axis}") for axis in range(axes)), CALL + TABLES + NUMBERS + PAIRS)


def schedule(view: ForwardNest, plan: SpatialStencilPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest."""
    last_axis, lines = view.axes[-1], view.axes[-2]
    rows, numbers = list[dict[str, int]](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        parts = axis.phases if at >= len(view.axes) - 2 else axis.parts
        first = len(rows) * PART.bytes
        numbers |= ALONG.values(
            f"axis{at}",
            kernel=axis.kernel,
            tap=axis.weights,
            first=first,
            count=len(parts),
            inputs=axis.inputs,
            data=axis.data,
        )
        tap_bytes = prod(inner.kernel for inner in view.axes[at + 1 :]) * plan.spec.tap_bytes
        rows.extend(_part(axis, part, tap_bytes) for part in parts)
    tasks = [{"group": first, "groups": end - first} for first, end in evenly(view.groups, *plan.parts)]
    groups = max(task["groups"] for task in tasks)
    result_bytes = view.taps * plan.spec.tap_bytes
    offsets, size = placed(
        {
            "b_at": groups * view.n * result_bytes,
            "bias_at": groups * view.n * F32_BYTES,
            "min_at": 2 * LINE_BYTES,
        }
    )
    of_group, of_result, of_k = view.weights
    numbers |= {
        **offsets,
        "task_count": len(tasks),
        "n": view.n,
        "k": view.k,
        "result_bytes": result_bytes,
        "data_group": view.data[0],
        "data_k": view.data[1],
        "out_group": view.out[0],
        "out_n": view.out[1],
        "weights_group": of_group,
        "weights_n": of_result,
        "weights_k": of_k,
        "bias_n": view.bias,
        "accumulate": int(accumulates),
        "extent": last_axis.extent,
        "prefetched_line": lines.data
        if lines.data == last_axis.data * last_axis.inputs <= PREFETCH_MAX_LINE_BYTES
        else 0,
    }
    tables: dict[str, Table] = {"tasks": TASK.rows(tasks), "parts": PART.rows(rows)}
    if plan.spec.k_per_add == 2:
        add_condition(tables, numbers)
    return Schedule(tables, numbers, size + 4 * LINE_BYTES)


def _part(axis: Along, part: AxisPart, tap_bytes: int) -> dict[str, int]:
    """Return a row of PART for a part of an axis, whose taps are ``tap_bytes`` apart in packed weights."""
    return {
        "count": len(part.positions),
        "out": part.positions.start * axis.out,
        "out_step": part.positions.step * axis.out,
        "data": part.input * axis.data,
        "data_step": part.by_position * axis.data,
        "input": part.input,
        "taps": len(part.taps),
        "tap": part.taps.start * tap_bytes,
        "tap_step": part.taps.step * tap_bytes,
        "tap_data": part.by_tap * axis.data,
    }
