"""A plan of a forward or a data gradient as tables of integers that the compiled driver walks, as long as axes are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.forward.cuts import levels, most_tiles, panel_bytes, panels_of, tile_sums
from convgrad.plan.forward.nest import Along, ForwardNest
from convgrad.plan.forward.recipe import ForwardPlan, ForwardSpec
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import MIN_EXPONENT_SUM, PAIR_BYTES, PATHS
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.regions import Parts, Slabs
from convgrad.plan.tables import Ints, Schedule, distinct, evenly, placed, wrapped
from convgrad.plan.tiling import tiles
from convgrad.plan.tree import levels_of
from convgrad.spec.order import FAN_IN

CALL = FLAGS + addresses("data", "weights", "out", "bias")  # what each call has of its own; no bias: that of -0.0
TABLES = addresses("tasks", "slabs", "parts")
NUMBERS = Record(
    "task_count",
    "results", "terms", "channels", "taps",  # of a group; of the data's position, as packed; of the kernel
    "data_group", "data_item", "out_group", "out_item",  # bytes from one to the next
    "weights_group", "weights_item", "weights_term", "bias_item",
    "line_blocks",  # that the terms of a tap are cut into
    "number_step", "number_share",  # a block's number is (tap * step + its number in the tap) / share
    "levels",  # of the tree of blocks
    "pass_blocks", "tile_sums",  # blocks under which all tiles go at a time; bytes of a tile's sums that wait for more
    "term_step",  # bytes of data from a term to the next, as tiles read them
    "tap_bytes", "term_bytes",  # of weights from a tap, a term to the next, as tiles read them
    "panels", "panel_bytes", "weights_panel",  # at a time; of one, as they are read; of weights from one to the next
    "data_at", "weights_at", "bias_at", "runs_at", "blocks_at", "sums_at", "packed_at",  # in scratch
    "accumulate",
)  # fmt: skip
ALONG = Record(  # of each axis
    "extent", "met",  # positions of the output, of the operand
    "slabs", "slab",  # how many, and bytes of the table to the first
    "kernel", "tap",  # taps, and bytes of weights from one to the next
    "given", "step",  # bytes of the operand from a position to the next: in memory, and as tiles read it
)  # fmt: skip
PAIRS = Record(  # of kernels that take pairs
    "least_sum", "paths",  # of least exponents; where panels are counted by how their terms were taken
    "line_at", "least_at",  # in scratch: a line of positions that is packed, before it is pairs; the least of a slab
    addresses=("paths",),
)  # fmt: skip
TASK = Record("group", "groups", "panel", "panels", "slab", "slabs")
SLAB = Record("part", "parts", "first", "count")  # rows of PART, in bytes; positions of the operand
PART = Record(
    "count", "out", "out_step",  # positions; bytes of the output at the first, and to the next
    "met", "met_step",  # the operand's position that the first meets by its first tap; to what the next meets
    "data", "data_step",  # bytes of what that is, and to what the next meets
    "taps", "tap", "tap_step", "tap_data",  # count, numbers in the kernel, bytes of data from one to the next
    "first_bias", "bias",  # bytes to the first position's bias, and to the next, where positions have any
    "height", "tiles", "waste",  # of tiles along this axis: rows, how many, and cycles a position in 1024ths
)  # fmt: skip
RUN = Record("data", "weights", "count")  # terms that are contiguous in both: bytes, bytes
WINDOW_RUN = RUN + Record("first")  # taps of a row of the kernel, and which of the row is the first of them
BLOCK = Record("number", "runs", "run")  # its number, how many runs, and bytes to the first

MOST_WEIGHED = 1 << 20  # slabs; of more, one is like the other
NOT_ALONG = 512  # 1024ths of a cycle a position: tiles run along a contiguous axis unless others save more


@cache
def of_axes(axes: int) -> Record:
    """Return the arguments of a kernel of so many axes: those that a tile reads."""
    return sum((ALONG.within(f"axis{axis}") for axis in range(axes)), CALL + TABLES + NUMBERS)


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of a kernel whose rows are positions, of so many axes."""
    return of_axes(axes) + PAIRS


def schedule(view: ForwardNest, plan: ForwardPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    spec = plan.spec
    view = view.seen(spec)
    cut = [axis.parts.in_slabs(size) for axis, size in zip(view.axes, plan.slab, strict=True)]
    reached = [_reached(axis, each) for axis, each in zip(view.axes, cut, strict=True)]
    most = [int(counts.max()) for _, counts in reached]
    slabs, parts, axes = _axes(view, spec, cut, reached, _steps(view, spec, most))
    tables = {"tasks": _tasks(view, plan, list(map(_work, cut))), "slabs": slabs, "parts": parts}
    packed = 0 if spec.in_place else prod(most) * spec.position_bytes(view.channels)
    scratch, size = _scratch(view, plan, packed, most[-1])
    numbers = {
        "task_count": len(tables["tasks"]),
        "results": view.results, "terms": view.terms, "channels": view.channels, "taps": view.taps,
        "data_group": view.data[0], "data_item": view.data[1],
        "out_group": view.out[0], "out_item": view.out[1],
        "weights_group": view.weights[0], "weights_item": view.weights[1], "weights_term": view.weights[2],
        "term_step": _term_step(view, spec),
        "bias_item": view.bias, "panels": plan.panels, "accumulate": int(accumulates),
        **_numbering(view), **_lanes(view, spec), **scratch, **axes,
    }  # fmt: skip
    if spec.step == 2:
        tables["paths"], numbers["least_sum"] = np.zeros(len(PATHS), np.int64), MIN_EXPONENT_SUM
    return Schedule(tables, numbers, size)


def _axes(
    view: ForwardNest, spec: ForwardSpec, cut: Sequence[Slabs], reached: Sequence[tuple[Ints, Ints]],
    steps: Sequence[int],
) -> tuple[Ints, Ints, dict[str, int]]:  # fmt: skip
    """Return rows of SLAB and of PART, and the numbers, of all axes."""
    slabs, parts, numbers = list[Ints](), list[Ints](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        begins, (first, count), part = cut[at].begins, reached[at], sum(map(len, parts))
        numbers |= ALONG.values(
            f"axis{at}", extent=axis.extent, met=axis.met, slabs=len(begins), slab=sum(map(len, slabs)) * SLAB.bytes,
            kernel=axis.kernel, tap=axis.weights, given=axis.data, step=steps[at],
        )  # fmt: skip
        unit = prod(inner.kernel for inner in view.axes[at + 1 :])
        contiguous = spec.out != SPATIAL or at == len(view.axes) - 1
        slabs.append(
            SLAB.table(len(begins), part=(part + begins) * PART.bytes, parts=cut[at].lengths, first=first, count=count)
        )
        parts.append(_rows(cut[at].parts, axis, steps[at], unit, spec, contiguous))
    return np.concatenate(slabs), np.concatenate(parts), numbers


def _steps(view: ForwardNest, spec: ForwardSpec, most: Sequence[int]) -> list[int]:
    """Return how far positions of each axis are apart as tiles read them: ``most`` are what slabs reach."""
    if spec.in_place:
        return [axis.data for axis in view.axes]
    return [prod(most[at + 1 :]) * spec.position_bytes(view.channels) for at in range(len(most))]


def _reached(axis: Along, cut: Slabs) -> tuple[Ints, Ints]:
    """Return the first existing position of the operand that each slab meets, and the number to the last."""
    low, end = cut.reached
    low, end = np.maximum(low, 0), np.minimum(end, axis.met)
    there = low < end
    return np.where(there, low, 0), np.where(there, end - low, 0)


def _rows(parts: Parts, axis: Along, step: int, unit: int, spec: ForwardSpec, contiguous: bool) -> Ints:
    """Return rows of PART."""
    counts, which = distinct(parts.count)
    along = 0 if contiguous else NOT_ALONG
    heights = [tiles(count, spec.rows, spec.vectors) for count in counts.tolist()]
    height, many, waste = np.array(
        [(height, many, int(1024 * waste) + along) for height, many, waste in heights], np.int64
    )[which].T
    first_bias, bias = (F32_BYTES * parts.first, F32_BYTES) if spec.transposed_gemm and axis.extent > 1 else (0, 0)
    return PART.table(
        len(parts),
        count=parts.count, out=parts.first * wrapped(axis.out), out_step=parts.step * axis.out,
        met=parts.met, met_step=parts.by_position,
        data=np.where(parts.taps > 0, parts.met * wrapped(step), 0), data_step=parts.by_position * step,
        taps=parts.taps, tap=np.where(parts.taps > 0, parts.tap * unit, 0), tap_step=parts.tap_step * unit,
        tap_data=parts.by_tap * step, first_bias=first_bias, bias=bias, height=height, tiles=many, waste=waste,
    )  # fmt: skip


def _work(cut: Slabs) -> Ints:
    """Return how much slabs of an axis have to do: meetings of positions and taps, and a little for each position."""
    return np.add.reduceat(cut.parts.count * (4 * cut.parts.taps + 1), cut.begins)


def _tasks(view: ForwardNest, plan: ForwardPlan, work: Sequence[Ints]) -> Ints:
    """Rows of TASK: groups and panels as evenly as can be, slabs in parts that grow smaller.

    The first parts are large, as what lies together is read by one thread; the last small, as all threads end together.
    """
    groups, panels, parts = plan.parts
    count = prod(map(len, work))
    done = np.arange(1, parts) / parts
    if parts > plan.threads:
        done = 1 - (1 - done) ** 2
    bounds = _apart(_ends(work, done) if count <= MOST_WEIGHED else (count * done).astype(np.int64), parts, count)
    return TASK.rows(
        {"group": g0, "groups": g1 - g0, "panel": p0, "panels": p1 - p0, "slab": s0, "slabs": s1 - s0}
        for g0, g1 in evenly(view.groups, groups)
        for p0, p1 in evenly(panels_of(view, plan.spec), panels)
        for s0, s1 in pairwise(bounds)
    )


def _ends(work: Sequence[Ints], done: NDArray[np.float64]) -> Ints:
    """Return behind which slab some shares of all work are done: that of a slab is the product of its axes'."""
    weights = np.ones(1)
    for each in work:
        weights = np.multiply.outer(weights, each.astype(float)).ravel()
    total = np.concatenate([[0.0], np.cumsum(weights)])
    ends: Ints = np.searchsorted(total, total[-1] * done, side="left")
    return ends


def _apart(ends: Ints, parts: int, count: int) -> list[int]:
    """Return the bounds of so many parts of a range, none of them empty: those nearest to some ends.

    >>> _apart(np.array([1, 1, 4]), 4, 4)
    [0, 1, 2, 3, 4]
    """
    number = np.arange(1, parts)
    ends = np.maximum.accumulate(ends - number) + number  # at least one apart,
    return [0, *np.clip(ends, number, count - parts + number).tolist(), count]


def _numbering(view: ForwardNest) -> dict[str, int]:
    """Return what tells a block's number from a tap and a part of its terms: its units' levels above its own.

    Of 3x3 taps of 64 terms four taps are a block: a step of 1, a share of 4.
    """
    order = view.order
    if order.units > 1:
        step, share = FAN_IN ** levels_of(order.blocks), 1
    else:
        step, share = order.blocks_a_line, order.lines_a_block
    return {
        "line_blocks": order.blocks_a_line, "number_step": step, "number_share": share,
        "levels": levels(view),
    }  # fmt: skip


def _term_step(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return how far terms are apart where tiles read them: a kernel of items takes them to be neighbours.

    The one term of a tap has any stride. Of data that repeats it is a tap's too, and their terms would seem to follow.
    """
    if spec.step == 2:
        return PAIR_BYTES // 2
    if not spec.in_place:
        return F32_BYTES
    return spec.item_bytes if spec.data == CHANNELS else view.data[1]


def _lanes(view: ForwardNest, spec: ForwardSpec) -> dict[str, int]:
    """Return how far taps, terms and panels of weights are apart."""
    if spec.lanes_in_place:
        _, item, term = view.weights
        return {
            "tap_bytes": view.tap_step or 0, "term_bytes": term, "panel_bytes": spec.width * item,
            "weights_panel": spec.width * item,
        }  # fmt: skip
    term = spec.pitch * F32_BYTES
    group, item, _ = view.weights
    tap = spec.pitch * spec.position_bytes(view.terms)
    return {
        "tap_bytes": tap, "term_bytes": term // spec.step, "panel_bytes": panel_bytes(view, spec),
        "weights_panel": spec.window.groups * group if spec.window else spec.width * item,
    }  # fmt: skip


def _scratch(view: ForwardNest, plan: ForwardPlan, data_bytes: int, line: int) -> tuple[dict[str, int], int]:
    """Return where what a task keeps is in scratch, ``line`` positions of data at a time, and the bytes of all."""
    spec, order = plan.spec, view.order
    met = prod(axis.parts.most_taps for axis in view.axes)
    runs = met * order.blocks_a_line + 1
    sums = tile_sums(view, spec)
    sizes = {
        "sums_at": sums * (most_tiles(view, plan.slab, spec) if plan.pass_blocks else 1),
        "bias_at": (view.axes[-1].extent if spec.transposed_gemm else plan.panels * spec.width) * F32_BYTES,
        "blocks_at": (runs + 1) * BLOCK.bytes,
        "runs_at": runs * (WINDOW_RUN if spec.window else RUN).bytes,
        "weights_at": 0 if spec.lanes_in_place else plan.panels * panel_bytes(view, spec),
        "data_at": data_bytes,
        "packed_at": 8,
    }
    if spec.step == 2:
        sizes |= {
            "line_at": 0 if spec.in_place or spec.words_as_they_lie else line * view.channels * F32_BYTES,
            "least_at": LINE_BYTES,
        }
    places, size = placed(sizes)
    waiting = {"pass_blocks": plan.pass_blocks or runs, "tile_sums": sums if plan.pass_blocks else 0}
    return {**places, **waiting}, size + 4 * LINE_BYTES
