"""The cost of kernels of weight and bias gradients, alone and under a cut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod

from convgrad.plan import constants
from convgrad.plan.backward_weights.cuts import cuts, lines_held
from convgrad.plan.backward_weights.lines import meetings
from convgrad.plan.backward_weights.nest import View, per_group
from convgrad.plan.backward_weights.recipe import STRIP, KernelSpec, Read
from convgrad.plan.backward_weights.taps import of_tiles
from convgrad.plan.cost import PACK_NS, STORE_NS, Costs, Cut, cycle_ns, on_threads_ns, traffic_ns
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED, TAPS, Operands
from convgrad.plan.tiling import step_cycles
from convgrad.spec.geometry import Axis
from convgrad.spec.problem import Problem

PACK_PAIRS_NS = {CHANNELS: constants.PACK_PAIRS_CHANNELS_NS, SPATIAL: constants.PACK_PAIRS_SPATIAL_NS}


# -- weight and bias gradients ---------------------------------------------------------------------------------------


def costs(problem: Problem, view: View, machine: Machine, spec: KernelSpec, operands: Operands) -> Costs:
    """Return what a kernel costs on a problem where nothing is cut."""
    store = _store_ns(problem, view, spec, operands)
    if spec.body == STRIP:
        return Costs(spec, operands, _strip_ns(problem, view, machine, spec), store, 0.0, 0.0)
    conv, (a, b) = view.conv, operands
    elements = {
        "src": conv.batch * conv.src_channels * prod(min(axis.src, axis.span) for axis in conv.axes),
        "dst": conv.batch * conv.positions * conv.dst_channels,
    }
    read_ns = traffic_ns(machine, problem.operand_format.dtype.itemsize)  # each part of the weights reads all again
    pack_a, pack_b = (_pack_ns(spec, read) + read_ns for read in (spec.rows, spec.lanes))
    compute = _tile_ns(view, machine, spec, operands)
    return Costs(spec, operands, compute, store, pack_a * elements[a], pack_b * elements[b])


def timed(one: Costs, problem: Problem, view: View, machine: Machine, threads: int) -> Iterator[tuple[float, Cut]]:
    """Yield the ways to cut a kernel's work, and what each takes."""
    for cut in cuts(view, machine, one.spec, one.operands, threads, problem.operand_format.dtype.itemsize):
        yield _time_ns(one, problem, view, machine, cut), cut


def _time_ns(one: Costs, problem: Problem, view: View, machine: Machine, cut: Cut) -> float:
    """Return the time under a cut: each part of A packs all of B again, and cache blocks overlap in src."""
    spec, largest, size = one.spec, cut.largest, problem.operand_format.dtype.itemsize
    in_order = SPATIAL in (spec.rows.contiguous, spec.lanes.contiguous) or (spec.body == STRIP and cut.parts[0] == 1)
    piece = largest[0] * spec.groups_a_panel * min(per_group(view).values()) * size
    apart = 1.0 if view.conv.groups == 1 or in_order else 1 + constants.SEGMENT_BYTES / piece
    halo = _halo(view, cut.loops["slice_blocks"])
    a, b = (halo if tensor == "src" else 1.0 for tensor in one.operands)
    _, a_parts, b_parts, taps, _ = cut.parts
    compute = one.compute_ns * apart if spec.body == STRIP else one.compute_ns
    alone = compute + one.store_ns + apart * taps * (a * one.a_ns * b_parts + b * one.b_ns * a_parts)
    images = min(1.0, largest[4] * view.blocks[1] / view.conv.batch)
    share = prod(largest[:4]) / prod(cut.counts[:4]) * images
    time = on_threads_ns(alone, share, cut, constants.IMBALANCE)
    time += traffic_ns(machine, cut.shared_bytes * (1 / cut.threads + constants.REMOTE_READ_FACTOR))
    if cut.own_bytes * cut.threads + cut.shared_bytes > constants.MAX_SCRATCH_BYTES:
        time *= constants.SCRATCH_FACTOR
    return time


def _tile_ns(view: View, machine: Machine, spec: KernelSpec, operands: Operands) -> float:
    conv, isa, tile = view.conv, spec.isa, spec.tile
    channels, (rows, lanes) = per_group(view), operands
    if spec.groups_in_lanes:
        widths = [(ceil(channels[lanes] / tile.vectors), tile.vectors)]
    else:
        full, rest = divmod(channels[lanes], spec.width)
        widths = [(full, tile.vectors)]
        if rest:
            widths.append((1, min(1 << (ceil(rest / isa.lanes) - 1).bit_length(), tile.vectors)))
    if tile.taps == 1 and not spec.groups_in_lanes:
        line = conv.positions if view.pointwise else conv.axes[-1].dst
        terms = conv.batch * conv.positions / line * chain_adds(line, spec.step, machine) * conv.taps
        passed = 1 if spec.compact else spec.step
        cycles = terms * sum(n * _dense_cycles(tile.rows, v, isa.lanes, conv.taps, passed) for n, v in widths)
        if spec.rows.in_place and conv.taps > 1 and channels[rows] > constants.SET_CONFLICT_CHANNELS:
            cycles *= constants.SET_CONFLICT_FACTOR
    else:
        cycles = sum(n * _taps_cycles(view, machine, spec, v) for n, v in widths)
    return ceil(conv.groups / spec.groups_a_panel) * ceil(channels[rows] / tile.rows) * cycles * cycle_ns(machine)


def _dense_cycles(rows: int, vectors: int, lanes: int, taps: int, passed: int) -> float:
    """Return cycles a step: two FMAs or loads each cycle, a sum's own latency, and lines from L2.

    A single tap reads each line once, more taps find it in L1 again. A step over words of every position passes by as
    many lines as it takes terms, and is no faster than those come.
    """
    lines = constants.L2_LINE_CYCLES * (rows + vectors * lanes) * F32_BYTES / LINE_BYTES
    step = step_cycles(rows, vectors) + lines / min(taps, constants.MAX_TAPS_IN_L1)
    return step if passed == 1 else max(step, lines * passed)


def _taps_cycles(view: View, machine: Machine, spec: KernelSpec, vectors: int) -> float:
    """Return cycles for all positions and taps of a tile of several taps: FMAs or loads, lines, segments, joins."""
    conv, tile = view.conv, spec.tile
    inner = conv.axes[-1]
    sums = tile.taps * tile.rows * vectors
    loads = tile.rows * (tile.taps if spec.rows.moves else 1) + vectors * (1 if spec.rows.moves else tile.taps)
    position = max(sums / 2, constants.TAPS_LOAD_CYCLES * loads, constants.MIN_STEP_CYCLES) + constants.STEP_CYCLES
    passed = (spec.step - 1) * (tile.rows + vectors * spec.isa.lanes) * F32_BYTES / LINE_BYTES
    position += constants.L2_LINE_CYCLES * passed / constants.MAX_TAPS_IN_L1
    if sums > constants.GROUP_REGISTER_SHARE * spec.isa.registers and spec.groups_in_lanes:
        position *= constants.GROUP_REGISTER_FACTOR
    lines = conv.batch * _outer_meetings(conv.axes[:-1], tile.outer_taps)
    tiles = ceil(inner.kernel / tile.inner_taps)
    padded = sum(p > 0 for p in (inner.pad_begin, inner.pad_end)) * min(tile.inner_taps - 1, inner.dst)
    begin = (
        constants.LINE_START_CYCLES + constants.SEGMENT_CYCLES * (1 + padded) + 0.5 * position * min(padded, inner.dst)
    )
    blocks, images = view.blocks
    joins = conv.batch * blocks / images * ceil(prod(a.kernel for a in conv.axes[:-1]) / tile.outer_taps)
    return tiles * (
        lines * (position * chain_adds(inner.dst, spec.step, machine) + begin) + joins * constants.COMBINE_CYCLES * sums
    )


@lru_cache(maxsize=256)
def _outer_meetings(axes: tuple[Axis, ...], taps: int) -> int:
    """Return how many pairs there are of a row of dst and a tile of outer taps, of which the one that most meet."""
    met = meetings(axes)
    return int(met[of_tiles(len(met), taps)].max(1).sum())


def _strip_ns(problem: Problem, view: View, machine: Machine, spec: KernelSpec) -> float:
    """Return the time of strips: positions, edges, strips to begin; what is read where it lies comes from memory."""
    conv, tile, inner = view.conv, spec.tile, view.conv.axes[-1]
    loads = tile.outer_taps * (spec.slide or tile.inner_taps) + 1
    position = (
        max(tile.taps / 2, constants.UNALIGNED_LOAD_CYCLES * loads, constants.MIN_STEP_CYCLES) + constants.STEP_CYCLES
    )
    outer = ceil(prod(axis.kernel for axis in conv.axes[:-1]) / tile.outer_taps)
    tiles = outer * ceil(inner.kernel / tile.inner_taps)
    rows = conv.batch * prod(axis.dst for axis in conv.axes[:-1])
    edges = min(inner.dst, ceil((inner.pad_begin + inner.pad_end) / inner.stride))
    strip = (constants.LINE_START_CYCLES + tile.taps) * ceil(inner.dst / constants.DEPTHWISE_POSITIONS)
    edge = constants.LINE_START_CYCLES + constants.BORDER_TAP_CYCLES * tile.taps
    cycles = rows * (inner.dst * position + edges * edge + strip)
    compute = ceil(conv.groups / spec.isa.lanes) * tiles * cycles * cycle_ns(machine)
    met = conv.batch * (conv.positions + prod(min(a.src, a.dst * a.stride + a.effective_kernel) for a in conv.axes))
    read = traffic_ns(machine, met * conv.groups * problem.operand_format.dtype.itemsize)
    held = lines_held(machine.l1_bytes, view.dst_strides[-1])
    if min(inner.dst, constants.DEPTHWISE_POSITIONS) * (tile.outer_taps + 1) > held:
        compute *= constants.DEPTHWISE_REREAD_FACTOR
    if tiles > 1:
        compute *= constants.DEPTHWISE_REREAD_FACTOR
    return compute + read


def _store_ns(problem: Problem, view: View, spec: KernelSpec, operands: Operands) -> float:
    """Return what rounding and storing the weights takes."""
    conv, channels, (dst, src, *taps) = view.conv, per_group(view), view.weights_strides
    next_row, next_lane = ({"src": src, "dst": dst}[tensor] for tensor in operands)
    if spec.groups_in_lanes:
        next_lane = channels["dst"] * dst
    line = conv.taps if spec.tile.taps == 1 else spec.tile.taps
    next_tap = next((step for step in reversed(taps) if step), 0) if line >= constants.MIN_STORE_LINE else 0
    size, ways = problem.output_format.dtype.itemsize, {CHANNELS: next_lane, SPATIAL: next_row, TAPS: next_tap}
    way = next((name for name, step in ways.items() if step == size), STRIDED)
    return STORE_NS[way] * conv.dst_channels * channels["src"] * conv.taps


def _pack_ns(spec: KernelSpec, read: Read) -> float:
    """Return what packing an element takes."""
    if read.in_place:
        return 0.0
    spread = read.items if spec.groups_in_lanes and read.contiguous == CHANNELS else 0
    if spec.compact:
        return PACK_PAIRS_NS[read.contiguous]
    paired = constants.PACK_PAIR_NS if spec.step == 2 else 0
    return PACK_NS[read.contiguous] + constants.PACK_SPREAD_NS * spread + paired


def _halo(view: View, slice_blocks: int) -> float:
    """Return how often chunks of an image read a value of src: their rows overlap by the kernel's extent."""
    outer = view.conv.axes[:-1]
    if not slice_blocks or not outer:
        return 1.0
    blocks, _ = view.blocks
    rows = max(1, round(slice_blocks * prod(a.dst for a in outer) / blocks))  # of dst, at a time
    chunks = prod(a.dst for a in outer) / rows
    read = 1.0
    for axis in reversed(outer):
        extent = min(axis.dst, rows)
        read *= min(axis.src, (extent - 1) * axis.stride + axis.effective_kernel)
        rows = max(1, rows // axis.dst)
    return max(1.0, chunks * read / max(1, prod(a.src for a in outer)))
