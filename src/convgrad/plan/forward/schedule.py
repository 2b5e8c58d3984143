"""The tables of integers that the compiled driver of a forward or a data gradient reads. They grow with axes only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.forward.cuts import levels, max_tiles, panel_bytes, panels_of, waiting_bytes
from convgrad.plan.forward.nest import Along, ForwardNest
from convgrad.plan.forward.recipe import ForwardPlan, ForwardSpec
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import PAIR_BYTES, add_condition
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.regions import Blocks, Parts
from convgrad.plan.tables import Ints, Schedule, Table, distinct, evenly, placed, wrapped
from convgrad.plan.tiling import tiles
from convgrad.plan.tree import levels_of
from convgrad.spec.order import FAN_IN

# The operands of a call. A missing bias is a null pointer, and stands for -0.0.
CALL = FLAGS + addresses("data", "weights", "out", "bias")
TABLES = addresses("tasks", "output_blocks", "parts")
NUMBERS = Record(
    "task_count",
    "n", "k", "channels", "taps",  # n and k of a group; channels of a packed position of A; taps of the filter
    "data_group", "data_k", "out_group", "out_n",  # byte strides
    "weights_group", "weights_n", "weights_k", "bias_n",
    "tap_chains",  # chains that the k of a tap are cut into
    "number_step", "number_share",  # a chain's number is (tap * step + its number in the tap) / share
    "levels",  # of the reduction tree
    "pass_chains", "waiting_bytes",  # chains of a pass; bytes of a micro-tile's sums that wait between passes
    "a_k",  # bytes of A from one k to the next, where micro-tiles read it
    "b_tap", "b_k",  # of B from one tap and one k to the next
    "panels", "panel_bytes", "weights_panel",  # packed at a time; bytes of one; of weights from one to the next
    "a_at", "b_at", "bias_at", "segments_at", "chains_at", "sums_at", "packed_at",  # offsets in scratch
    "accumulate",
)  # fmt: skip
ALONG = Record(  # an axis
    "extent", "met",  # positions of the output, of the operand
    "blocks", "block",  # how many output blocks, and bytes to the row of the first
    "kernel", "tap",  # taps, and bytes of weights from one to the next
    "given", "step",  # bytes of A from a position to the next: in memory, and where micro-tiles read it
)  # fmt: skip
PAIRS = Record(  # kernels of bf16 pairs
    "min_sum", "paths",  # the smallest sum of minimum exponents; counts of panels by how their k were taken
    "min_at",  # in scratch: the minimum of A in an output block
    addresses=("paths",),
)  # fmt: skip
TASK = Record("group", "groups", "panel", "panels", "block", "blocks")
OUTPUT_BLOCK = Record("part", "parts", "first", "count")  # along an axis: rows of PART, in bytes; positions of A
PART = Record(  # of an axis: a region is a product of one part of each
    "count", "out", "out_step",  # positions; bytes of the output at the first, and to the next
    "met", "met_step",  # the position of A that the first meets by its first tap; to what the next meets
    "data", "data_step",  # the same in bytes
    "taps", "tap", "tap_step", "tap_data",  # count, numbers in the filter, bytes of A from one to the next
    "first_bias", "bias",  # bytes to the bias of the first position, and to the next, in a transposed GEMM
    "mr", "tiles", "waste",  # rows of micro-tiles along this axis, how many, and cycles per position in 1024ths
)  # fmt: skip
SEGMENT = Record("data", "weights", "count")  # byte offsets in A and in B; k
STENCIL_SEGMENT = SEGMENT + Record("first")  # taps of a row of the filter, and which of the row is the first
CHAIN = Record("number", "segments", "segment")  # its number, how many segments, and bytes to the first

MAX_WEIGHED = 1 << 20  # output blocks whose work is weighed; of more, all count alike
NOT_ALONG = 512  # 1024ths of a cycle per position: micro-tiles run along a contiguous axis unless another saves more


@cache
def of_axes(axes: int) -> Record:
    """Return the arguments of a kernel of so many axes: those that a micro-tile reads."""
    return sum((ALONG.within(f"axis{axis}") for axis in range(axes)), CALL + TABLES + NUMBERS)


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of the output-stationary nest of so many axes."""
    return of_axes(axes) + PAIRS


def schedule(view: ForwardNest, plan: ForwardPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    spec = plan.spec
    view = view.seen(spec)
    cut = [axis.parts.in_blocks(size) for axis, size in zip(view.axes, plan.output_block, strict=True)]
    reached = [_reached(axis, each) for axis, each in zip(view.axes, cut, strict=True)]
    room = [int(counts.max()) for _, counts in reached]  # positions of A along each axis, in any output block
    blocks, parts, axes = _axes(view, spec, cut, reached, _steps(view, spec, room))
    tables: dict[str, Table] = {
        "tasks": _tasks(view, plan, list(map(_work, cut))),
        "output_blocks": blocks,
        "parts": parts,
    }
    packed = 0 if spec.a_in_place else prod(room) * spec.position_bytes(view.channels)
    scratch, size = _scratch(view, plan, packed)
    numbers = {
        "task_count": len(tables["tasks"]),
        "n": view.n, "k": view.k, "channels": view.channels, "taps": view.taps,
        "data_group": view.data[0], "data_k": view.data[1],
        "out_group": view.out[0], "out_n": view.out[1],
        "weights_group": view.weights[0], "weights_n": view.weights[1], "weights_k": view.weights[2],
        "a_k": _a_k(view, spec),
        "bias_n": view.bias, "panels": plan.panels, "accumulate": int(accumulates),
        **_numbering(view), **_b_steps(view, spec), **scratch, **axes,
    }  # fmt: skip
    if spec.step == 2:
        add_condition(tables, numbers)
    return Schedule(tables, numbers, size)


def _axes(
    view: ForwardNest, spec: ForwardSpec, cut: Sequence[Blocks], reached: Sequence[tuple[Ints, Ints]],
    steps: Sequence[int],
) -> tuple[Ints, Ints, dict[str, int]]:  # fmt: skip
    """Return rows of OUTPUT_BLOCK and of PART, and the numbers, of all axes."""
    blocks, parts, numbers = list[Ints](), list[Ints](), dict[str, int]()
    for at, axis in enumerate(view.axes):
        begins, (first, count), part = cut[at].begins, reached[at], sum(map(len, parts))
        numbers |= ALONG.values(
            f"axis{at}", extent=axis.extent, met=axis.met, blocks=len(begins),
            block=sum(map(len, blocks)) * OUTPUT_BLOCK.bytes, kernel=axis.kernel, tap=axis.weights, given=axis.data,
            step=steps[at],
        )  # fmt: skip
        unit = prod(inner.kernel for inner in view.axes[at + 1 :])
        contiguous = spec.out != SPATIAL or at == len(view.axes) - 1
        blocks.append(
            OUTPUT_BLOCK.table(
                len(begins), part=(part + begins) * PART.bytes, parts=cut[at].lengths, first=first, count=count
            )
        )
        parts.append(_rows(cut[at].parts, axis, steps[at], unit, spec, contiguous))
    return np.concatenate(blocks), np.concatenate(parts), numbers


def _steps(view: ForwardNest, spec: ForwardSpec, room: Sequence[int]) -> list[int]:
    """Return the bytes of A from one position of each axis to the next, where micro-tiles read it."""
    if spec.a_in_place:
        return [axis.data for axis in view.axes]
    return [prod(room[at + 1 :]) * spec.position_bytes(view.channels) for at in range(len(room))]


def _reached(axis: Along, cut: Blocks) -> tuple[Ints, Ints]:
    """Return the first existing position of A that each output block meets, and how many it is to the last."""
    low, end = cut.reached
    low, end = np.maximum(low, 0), np.minimum(end, axis.met)
    there = low < end
    return np.where(there, low, 0), np.where(there, end - low, 0)


def _rows(parts: Parts, axis: Along, step: int, unit: int, spec: ForwardSpec, contiguous: bool) -> Ints:
    """Return rows of PART."""
    counts, which = distinct(parts.count)
    along = 0 if contiguous else NOT_ALONG
    found = [tiles(count, spec.mr, spec.nr) for count in counts.tolist()]
    rows = [(mr, many, int(1024 * waste) + along) for mr, many, waste in found]
    mr, many, waste = np.array(rows, np.int64)[which].T
    first_bias, bias = (F32_BYTES * parts.first, F32_BYTES) if spec.transposed_gemm and axis.extent > 1 else (0, 0)
    return PART.table(
        len(parts),
        count=parts.count, out=parts.first * wrapped(axis.out), out_step=parts.step * axis.out,
        met=parts.met, met_step=parts.by_position,
        data=np.where(parts.taps > 0, parts.met * wrapped(step), 0), data_step=parts.by_position * step,
        taps=parts.taps, tap=np.where(parts.taps > 0, parts.tap * unit, 0), tap_step=parts.tap_step * unit,
        tap_data=parts.by_tap * step, first_bias=first_bias, bias=bias, mr=mr, tiles=many, waste=waste,
    )  # fmt: skip


def _work(cut: Blocks) -> Ints:
    """Return the work of output blocks of an axis: pairs of position and tap, and a little for each position."""
    return np.add.reduceat(cut.parts.count * (4 * cut.parts.taps + 1), cut.begins)


def _tasks(view: ForwardNest, plan: ForwardPlan, work: Sequence[Ints]) -> Ints:
    """Return rows of TASK: groups and panels cut as evenly as possible, output blocks in parts that grow smaller.

    The first parts are large, because one thread then reads neighbouring data. The last parts are small, so that all
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
    """Return after which output block some shares of all work are done. The work of a block is a product over axes."""
    weights = np.ones(1)
    for each in work:
        weights = np.multiply.outer(weights, each.astype(float)).ravel()
    total = np.concatenate([[0.0], np.cumsum(weights)])
    ends: Ints = np.searchsorted(total, total[-1] * done, side="left")
    return ends


def _bounds(ends: Ints, parts: int, count: int) -> list[int]:
    """Return the bounds of so many parts of a range, none of them empty, that are closest to some ends.

    >>> _bounds(np.array([1, 1, 4]), 4, 4)
    [0, 1, 2, 3, 4]
    """
    number = np.arange(1, parts)
    ends = np.maximum.accumulate(ends - number) + number
    return [0, *np.clip(ends, number, count - parts + number).tolist(), count]


def _numbering(view: ForwardNest) -> dict[str, int]:
    """Return the numbers that give a chain's number from a tap and a part of its k.

    Where chains are of several taps, such as four of 3x3 taps of 64 channels, the step is 1 and the share is 4.
    """
    order = view.order
    if order.units > 1:
        step, share = FAN_IN ** levels_of(order.blocks), 1
    else:
        step, share = order.blocks_a_line, order.lines_a_block
    return {
        "tap_chains": order.blocks_a_line, "number_step": step, "number_share": share,
        "levels": levels(view),
    }  # fmt: skip


def _a_k(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return the bytes of A from one k to the next, where micro-tiles read it.

    Kernels of contiguous channels do not use the stride of the nest: a single channel has any stride, and if this is
    that of positions, neighbouring taps would seem to continue one segment.
    """
    if spec.step == 2:
        return PAIR_BYTES // 2
    if not spec.a_in_place:
        return F32_BYTES
    return spec.operand_bytes if spec.data == CHANNELS else view.data[1]


def _b_steps(view: ForwardNest, spec: ForwardSpec) -> dict[str, int]:
    """Return the bytes of B from one tap, one k, one panel to the next."""
    group, n, k = view.weights
    if spec.b_in_place:
        panel = spec.width * n
        return {"b_tap": view.tap_step or 0, "b_k": k, "panel_bytes": panel, "weights_panel": panel}
    return {
        "b_tap": spec.pitch * spec.position_bytes(view.k), "b_k": spec.pitch * F32_BYTES // spec.step,
        "panel_bytes": panel_bytes(view, spec),
        "weights_panel": spec.stencil.groups * group if spec.stencil else spec.width * n,
    }  # fmt: skip


def _scratch(view: ForwardNest, plan: ForwardPlan, data_bytes: int) -> tuple[dict[str, int], int]:
    """Return the offsets of a task's arrays in scratch, and the bytes of all."""
    spec, order = plan.spec, view.order
    segments = prod(axis.parts.max_taps for axis in view.axes) * order.blocks_a_line + 1
    sums = waiting_bytes(view, spec)
    sizes = {
        "sums_at": sums * (max_tiles(view, plan.output_block, spec) if plan.pass_chains else 1),
        "bias_at": (view.axes[-1].extent if spec.transposed_gemm else plan.panels * spec.width) * F32_BYTES,
        "chains_at": (segments + 1) * CHAIN.bytes,
        "segments_at": segments * (STENCIL_SEGMENT if spec.stencil else SEGMENT).bytes,
        "b_at": 0 if spec.b_in_place else plan.panels * panel_bytes(view, spec),
        "a_at": data_bytes,
        "packed_at": 8,
    }
    if spec.step == 2:
        sizes["min_at"] = LINE_BYTES
    places, size = placed(sizes)
    waiting = {"pass_chains": plan.pass_chains or segments, "waiting_bytes": sums if plan.pass_chains else 0}
    return {**places, **waiting}, size + 4 * LINE_BYTES
