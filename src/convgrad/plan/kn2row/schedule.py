"""A plan of kn2row as tables and numbers, and the records by which the compiled driver reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from convgrad.plan.forward_nest import Along, ForwardNest
from convgrad.plan.gemm.schedule import CHAIN, PAIRS, SEGMENT, of_axes
from convgrad.plan.kn2row.spec import Kn2rowPlan, output_block_count, reached, rows_of, stored_outputs, tap_loops
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import add_condition
from convgrad.plan.recipe import CHANNELS_OUT, F32_BYTES
from convgrad.plan.records import Record, addresses
from convgrad.plan.regions import Parts
from convgrad.plan.tables import Ints, Schedule, Table, evenly, placed, wrapped
from convgrad.plan.tiling import tiles
from convgrad.plan.tree import levels_of

TABLES = addresses("inner_blocks", "phases", "segments", "chains")  # after those of the GEMM
NUMBERS = Record(
    "chain_count",  # accumulation chains per tap
    "row_count", "row_bytes", "height",  # number of rows of A, bytes of a row of A, rows of a micro-tile
    "micro_tiles", "a_block",  # micro-tiles of all rows, micro-tiles of a block of A
    "cache_block",  # input positions that are packed at a time
    "phase_count",  # phases of the last axis
    "tile_prefetch", "k_prefetch",  # bytes of B to prefetch per micro-tile, per k
    "lines",  # number of lines of the ring buffer of tap sums
    "tap_bytes_out", "result_bytes",  # bytes of tap sums: from a tap to the next, from an output channel to the next
    "stream_bytes",  # bytes of summed outputs from a (phase, output channel) to the next
    "out_step",  # bytes from a position of the output to the next along the last axis
    "accumulates",  # whether old values are added to the outputs; ``accumulate`` is 0 for the GEMM
    # byte offsets in scratch: the end of the lines done, the ring buffer, and lists and sums of a row of outputs
    "done_at", "tap_sums_at", "outer_at", "entries_at", "nodes_at", "streams_at", "ordered_at", "no_bias_at",
)  # fmt: skip
# The GEMM of tap sums is transposed: A is the weights, and B is the data. Arguments of a GEMM are named as if A were
# the data, so the names of these strides are those of the other operand:
# - "data_k" and "weights_group" are strides of the weights (A): of k, and of output channels.
# - "weights_n" and "weights_k" are strides of the data (B): of positions along the last axis, and of k.
# - "axis0" is the axis of the rows of A, which are taps.
# But the addresses "data" and "weights" are those of the data and of the weights.
ALONG = Record(  # an axis of the data
    "data", "out",  # bytes from a position to the next: of the data in memory, of the output
    "taps", "tap",  # number of taps; bytes of weights from a tap to the next
    "blocks", "first_block",  # the number of output blocks or images; bytes to the first row of OUTPUT_BLOCK, if any
    "place",  # the byte stride of tap sums
    "fused",  # whether the positions of the next axis continue those of this axis with the same stride
)  # fmt: skip
TASK = Record("output_block", "output_blocks")
OUTPUT_BLOCK = Record("part", "parts", "first", "end")  # the block's rows of PART and its input positions
PART = Record("count", "out", "out_step", "input", "input_step", "taps", "tap", "tap_step", "tap_input")
INNER_BLOCK = Record(  # a part of an output block along the last axis
    "phase", "first", "count",  # the first row of PHASE; first input position, number of input positions
    "out", "outputs", "phase_outputs",  # bytes to the first output, number of outputs, outputs per phase
)  # fmt: skip
# The input position of the first output through the first tap is counted from the block's first input position.
PHASE = Record("input", "taps", "tap", "tap_step", "tap_input")
OUTER = Record("place", "number")  # a tap of all axes except the last: offset of its tap sums, and its number
ENTRY = Record("at", "input")  # a tap: offset of its tap sums, and the input position of the first output
NODE = Record("number", "taps")  # a node of the reduction tree: its number, and how many of its taps exist
assert OUTER.bytes.bit_count() == NODE.bytes.bit_count() == 1, "the kernel counts rows by shifts"


@cache
def arguments(axes: int) -> Record:
    """Return the arguments of a kernel for a number of axes. The arguments of its GEMM, with one axis, are first."""
    return sum((ALONG.within(f"data_axis{axis}") for axis in range(axes)), of_axes(1) + TABLES + NUMBERS) + PAIRS


def schedule(view: ForwardNest, plan: Kn2rowPlan, accumulates: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest."""
    spec, gemm = plan.spec, plan.spec.product
    last_axis, parts, output_blocks = view.axes[-1], list[Ints](), list[dict[str, int]]()
    for at, size in enumerate(plan.output_block[:-1], spec.line):
        inputs, cut = reached(view.axes[at], size), view.axes[at].parts.in_blocks(size)
        output_blocks += [
            {"part": (sum(map(len, parts)) + first) * PART.bytes, "parts": count, "first": e.start, "end": e.stop}
            for first, count, e in zip(cut.begins.tolist(), cut.lengths.tolist(), inputs, strict=True)
        ]
        # Lines keep their numbers in the ring buffer.
        starts = [0 if at == spec.line else positions.start for positions in inputs]
        parts.append(_parts(view, at, cut.parts, np.repeat(starts, cut.lengths)))
    inner_blocks, phases = _inner_blocks(last_axis, plan.output_block[-1], _unit(view, len(view.axes) - 1))
    chain_count = view.order.blocks_a_line
    segments = [
        {
            "data": gemm.packed_k_bytes(first),
            "weights": gemm.packed_k_bytes(first) * gemm.width,
            "count": gemm.filled(min(gemm.leaf_terms, view.k - first)),
        }
        for first in range(0, chain_count * gemm.leaf_terms, gemm.leaf_terms)
    ]
    chains = [{"number": at, "segments": 1, "segment": at * SEGMENT.bytes} for at in range(chain_count)]
    count = output_block_count(view, spec, plan.output_block)
    tasks = [{"output_block": first, "output_blocks": end - first} for first, end in evenly(count, *plan.parts)]
    tables: dict[str, Table] = {
        "tasks": TASK.rows(tasks),
        "output_blocks": OUTPUT_BLOCK.rows(output_blocks),
        "parts": np.concatenate(parts),
        "inner_blocks": INNER_BLOCK.rows(inner_blocks),
        "phases": PHASE.rows(phases),
        "segments": SEGMENT.rows(segments),
        "chains": CHAIN.rows([*chains, {"number": -1, "segments": 0, "segment": 0}]),
    }
    numbers = _numbers(view, plan, inner_blocks)
    numbers |= {
        "task_count": len(tasks),
        "phase_count": len(last_axis.phases),
        "chain_count": chain_count,
        "accumulates": int(accumulates),
    }
    if gemm.k_per_add == 2:
        add_condition(tables, numbers)
    return Schedule(tables, numbers, numbers.pop("scratch"))


def _unit(view: ForwardNest, at: int) -> int:
    """Return the step between the row-major numbers of neighbouring taps of axis ``at``."""
    return prod(inner.kernel for inner in view.axes[at + 1 :])


def _parts(view: ForwardNest, at: int, parts: Parts, starts: Ints) -> Ints:
    """Return rows of PART for axis ``at``. A part counts input positions from its number in ``starts``."""
    out, unit = view.axes[at].out, _unit(view, at)
    return PART.table(
        len(parts),
        count=parts.count,
        out=parts.first * wrapped(out),
        out_step=parts.step * out,
        input=parts.input - starts,
        input_step=parts.by_position,
        taps=parts.taps,
        tap=parts.tap * unit,
        tap_step=parts.tap_step * unit,
        tap_input=parts.by_tap,
    )


def _inner_blocks(last_axis: Along, size: int, unit: int) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """Return rows of INNER_BLOCK and of PHASE for output blocks of ``size`` positions."""
    blocks, phases = list[dict[str, int]](), list[dict[str, int]]()
    stride = last_axis.phases.step
    for begin, inputs in zip(range(0, last_axis.extent, size), reached(last_axis, size), strict=True):
        count = min(size, last_axis.extent - begin)
        phase_outputs = -(-count // stride)
        blocks.append(
            {
                "phase": len(phases) * PHASE.bytes,
                "first": inputs.start,
                "count": len(inputs),
                "out": begin * last_axis.out,
                "outputs": count,
                "phase_outputs": phase_outputs,
            }
        )
        for phase in last_axis.phases:
            first = phase.input + begin // stride * phase.by_position - inputs.start
            existing = _touching(first, phase.by_tap, len(phase.taps), phase_outputs, len(inputs))
            taps = phase.taps[existing.start : existing.stop] if existing else range(0)
            low = first + existing.start * phase.by_tap if existing else 0
            phases.append(
                {
                    "input": low,
                    "taps": len(taps),
                    "tap": taps.start * unit,
                    "tap_step": taps.step * unit,
                    "tap_input": phase.by_tap,
                }
            )
    return blocks, phases


def _touching(first: int, by_tap: int, taps: int, positions: int, extent: int) -> range:
    """Return the taps through which any of ``positions`` neighbouring outputs reads the input.

    The first output meets the input position ``first`` through tap 0. The input has positions 0 to ``extent``.

    >>> _touching(-3, 1, 9, 2, 4), _touching(3, -1, 9, 2, 4)
    (range(2, 7), range(0, 5))
    """
    low, end = (1 - positions - first, extent - first) if by_tap > 0 else (first - extent + 1, first + positions)
    return range(max(0, -(-low // abs(by_tap))), min(taps, -(-end // abs(by_tap))))


@dataclass(frozen=True)
class RingBuffer:
    """The ring buffer of a thread: the tap sums of some lines, as [output channel][tap][line][position of inner axes].

    ``blocks`` are the input positions whose tap sums each output block needs, along the axis of lines and inner axes.
    """

    blocks: list[list[range]]
    lines: int  # the number of lines
    strides: list[int]  # bytes from a position to the next along the same axes
    tap_bytes: int  # bytes from a tap to the next, an odd number of cache lines

    @classmethod
    def of(cls, view: ForwardNest, plan: Kn2rowPlan) -> RingBuffer:
        """Return the ring buffer of a plan."""
        axes = zip(view.axes[plan.spec.line :], plan.output_block, strict=True)
        blocks = [reached(axis, size) for axis, size in axes]
        extents = [max(map(len, inputs)) for inputs in blocks]
        strides = [max(1, prod(extents[at + 1 :])) * F32_BYTES for at in range(len(extents))]
        lines = max(1, extents[0])
        tap_bytes = -(-(lines * strides[0] + 1) // LINE_BYTES) // 2 * 2 * LINE_BYTES + LINE_BYTES
        return cls(blocks, lines, strides, tap_bytes)


def _numbers(view: ForwardNest, plan: Kn2rowPlan, inner_blocks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Return the values of the GEMM's arguments and of NUMBERS, and a thread's scratch in bytes as "scratch"."""
    ring = RingBuffer.of(view, plan)
    max_inputs = max(block["count"] for block in inner_blocks)
    _, max_outputs = stored_outputs(view, plan.spec, plan.output_block[-1])
    return {
        **_scratch(view, plan, ring, max_inputs, max_outputs),
        **_gemm_numbers(view, plan),
        **_prefetch(view, plan),
        **_data_axes(view, plan, ring),
        "lines": ring.lines,
        "tap_bytes_out": ring.tap_bytes,
        "result_bytes": ring.tap_bytes * view.taps,
        "stream_bytes": max_outputs * F32_BYTES,
        "out_step": view.axes[-1].out,
    }


def _levels(view: ForwardNest) -> int:
    """Return the number of levels of the reduction tree of a tap sum."""
    return max(1, levels_of(view.order.blocks))


def _panel_bytes(view: ForwardNest, plan: Kn2rowPlan) -> int:
    """Return the bytes of a packed panel of B. A panel of bf16 pairs has its minimum exponent after it."""
    gemm = plan.spec.product
    return gemm.width * gemm.packed_k_bytes(view.k) + LINE_BYTES * (gemm.k_per_add == 2)


def _scratch(
    view: ForwardNest, plan: Kn2rowPlan, ring: RingBuffer, max_inputs: int, max_outputs: int
) -> dict[str, int]:
    """Return the byte offsets of a thread's arrays in scratch, and the bytes of scratch as "scratch".

    A block of the last axis has at most ``max_inputs`` input positions, and each of its phases ``max_outputs`` outputs.
    Loads of tap sums may begin before the ring buffer or end after it, so there is room on both sides.
    """
    gemm, rows = plan.spec.product, rows_of(view)
    streams, room = len(view.axes[-1].phases) * view.n, (max_inputs + 2 * max_outputs) * F32_BYTES
    sizes = {
        "packed_at": 8,
        "done_at": 8,
        "no_bias_at": 4,
        "bias_at": view.n * F32_BYTES,
        "sums_at": _levels(view) * gemm.tile_bytes,
        "a_at": rows * gemm.packed_row_bytes(view.k),
        "b_at": -(-plan.cache_block // gemm.width) * _panel_bytes(view, plan),
        "outer_at": prod(axis.kernel for axis in view.axes[:-1]) * OUTER.bytes,
        "entries_at": view.taps * ENTRY.bytes,
        "nodes_at": (view.taps + 1) * NODE.bytes,
        "streams_at": streams * max_outputs * F32_BYTES,
        "ordered_at": (streams * max_outputs + gemm.isa.lanes) * F32_BYTES,
        "tap_sums_at": rows * ring.tap_bytes + 2 * room,
    }
    if gemm.k_per_add == 2:
        sizes["min_at"] = LINE_BYTES
    offsets, size = placed(sizes)
    offsets["tap_sums_at"] += -(-room // LINE_BYTES) * LINE_BYTES
    return {**offsets, "scratch": size + 4 * LINE_BYTES}


def _gemm_numbers(view: ForwardNest, plan: Kn2rowPlan) -> dict[str, int]:
    """Return the arguments of the GEMM, whose A is the weights and whose B is the data, and its loops."""
    gemm, rows, last_axis = plan.spec.product, rows_of(view), view.axes[-1]
    _, n_stride, k_stride = view.weights
    height, many, _ = tiles(rows, gemm.mr, gemm.nr)
    row_bytes = gemm.packed_row_bytes(view.k)
    return {
        "n": view.n,
        "k": view.k,
        "channels": view.channels,
        "taps": 1,
        "levels": _levels(view),
        "weights_group": n_stride,
        "weights_n": last_axis.data,
        "weights_k": view.data[1],
        "data_k": k_stride,
        "a_k": F32_BYTES // gemm.k_per_add,
        "b_k": gemm.width * F32_BYTES // gemm.k_per_add,
        "panel_bytes": _panel_bytes(view, plan),
        "out_n": view.out[1],
        "bias_n": view.bias,
        "accumulate": 0,
        "axis0.kernel": 1,
        "axis0.tap": 0,
        "axis0.data": tap_loops(view)[-1][1],
        "axis0.step": row_bytes,
        "row_count": rows,
        "row_bytes": row_bytes,
        "height": height,
        "micro_tiles": many,
        "a_block": plan.block,
        "cache_block": plan.cache_block,
    }


def _prefetch(view: ForwardNest, plan: Kn2rowPlan) -> dict[str, int]:
    """Return the bytes of B to prefetch per micro-tile and per k: the next cache block, if channels are contiguous."""
    gemm, of_k = plan.spec.product, 0
    if gemm.b.contiguous != CHANNELS_OUT:
        _, many, _ = tiles(rows_of(view), gemm.mr, gemm.nr)
        of_k = -(-gemm.width * view.axes[-1].data // (many * view.k) // LINE_BYTES) * LINE_BYTES
    return {"tile_prefetch": of_k * view.k, "k_prefetch": of_k}


def _data_axes(view: ForwardNest, plan: Kn2rowPlan, ring: RingBuffer) -> dict[str, int]:
    """Return the values of ALONG for all axes."""
    images = view.axes[: plan.spec.line]
    steps, fused = [view.axes[-1].data], [False]  # from the last axis outwards; a single position can have any stride
    for axis, inner, inputs in zip(view.axes[-2::-1], view.axes[:0:-1], ring.blocks[:0:-1], strict=False):
        line = steps[-1] * inner.inputs
        steps.append(axis.data if axis.inputs > 1 else line)
        fused.append(steps[-1] == line and all(len(numbers) == inner.inputs for numbers in inputs))
    columns = [(axis.data, axis.extent, 0, 0, False) for axis in images]
    first_blocks = [sum(map(len, ring.blocks[:at])) * OUTPUT_BLOCK.bytes for at in range(len(ring.blocks))]
    columns += zip(steps[::-1], map(len, ring.blocks), first_blocks, ring.strides, fused[::-1], strict=True)
    numbers = dict[str, int]()
    for at, (axis, (taps, tap), column) in enumerate(zip(view.axes, tap_loops(view), columns, strict=True)):
        values = dict(zip(("data", "blocks", "first_block", "place", "fused"), map(int, column), strict=True))
        numbers |= ALONG.values(f"data_axis{at}", out=axis.out, taps=taps, tap=tap, **values)
    return numbers
