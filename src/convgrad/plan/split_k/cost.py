"""The predicted time of kernels of weight and bias gradients, on one thread and for each division of the work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod

from convgrad.plan import constants as shared
from convgrad.plan.cost import Costs, Division, on_threads_ns, pack_ns, store_ns
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED, TAPS, Operands
from convgrad.plan.split_k import constants
from convgrad.plan.split_k.cuts import cuts, lines_held
from convgrad.plan.split_k.nest import WeightsNest, per_group
from convgrad.plan.split_k.recipe import DEPTHWISE, SplitKOperand, SplitKSpec
from convgrad.plan.split_k.segments import existing_rows
from convgrad.plan.split_k.taps import of_tiles
from convgrad.plan.tiling import step_cycles
from convgrad.spec.geometry import Axis
from convgrad.spec.order import BLOCK
from convgrad.spec.problem import Problem

PAGE_BYTES = 4096
PACK_PAIRS_NS = {CHANNELS: constants.PACK_PAIRS_CHANNELS_NS, SPATIAL: constants.PACK_PAIRS_SPATIAL_NS}


def costs(problem: Problem, nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands) -> Costs:
    """Return the predicted times of a kernel on one thread, if the work is not divided."""
    store = stored_ns(problem, nest, machine, spec, operands)
    if spec.body == DEPTHWISE:
        return Costs(spec, operands, _depthwise_ns(problem, nest, machine, spec), store, 0.0, 0.0)
    conv, (a, b) = nest.conv, operands
    elements = {
        "src": conv.batch * conv.src_channels * prod(min(axis.src, axis.span) for axis in conv.axes),
        "dst": conv.batch * conv.positions * conv.dst_channels,
    }
    read_ns = machine.traffic_ns(problem.operand_format.itemsize)  # packing reads memory
    pack_a, pack_b = (_pack_ns(machine, spec, operand) + read_ns for operand in (spec.a, spec.b))
    compute = _compute_ns(nest, machine, spec, operands)
    return Costs(spec, operands, compute, store, pack_a * elements[a], pack_b * elements[b])


def timed(
    costs: Costs, problem: Problem, nest: WeightsNest, machine: Machine, threads: int
) -> Iterator[tuple[float, Division]]:
    """Yield the predicted time in ns of each way to cut a kernel's work, and the cut."""
    for cut in cuts(nest, machine, costs.spec, costs.operands, threads, problem.operand_format.itemsize):
        yield _time_ns(costs, problem, nest, machine, cut), cut


def _time_ns(costs: Costs, problem: Problem, nest: WeightsNest, machine: Machine, cut: Division) -> float:
    """Return the time of a division of the work in ns. Each part of A packs B again; cache blocks overlap in src."""
    spec, largest, size = costs.spec, cut.largest, problem.operand_format.itemsize
    chains = cut.loops["chains_a_cache_block"]
    if SPATIAL in (spec.a.contiguous, spec.b.contiguous):
        in_order, piece = chains == 0, chains * BLOCK
    else:
        in_order = nest.conv.groups == 1 or (spec.body == DEPTHWISE and cut.parts[0] == 1)
        piece = largest[0] * spec.groups_a_panel * min(per_group(nest).values())
    strided = 1.0 if in_order else 1 + shared.SEGMENT_BYTES / (piece * size)
    halo = _halo(nest, chains)
    a, b = (halo if tensor == "src" else 1.0 for tensor in costs.operands)
    _, a_parts, b_parts, taps, _ = cut.parts
    compute = costs.compute_ns * strided if spec.body == DEPTHWISE else costs.compute_ns
    if spec.a.in_place:
        pages, read = _met_in_place(nest, costs.operands, cut)
        if pages > constants.MAX_PAGES:
            compute *= machine.pages_factor
        if read > constants.IN_PLACE_SHARE * machine.l2_bytes:
            compute *= constants.IN_PLACE_L2_MISS_FACTOR
    alone = compute + costs.store_ns + strided * taps * (a * costs.a_ns * b_parts + b * costs.b_ns * a_parts)
    images = min(1.0, largest[4] * nest.images_a_chain / nest.conv.batch)
    share = prod(largest[:4]) / prod(cut.counts[:4]) * images
    time = on_threads_ns(machine, alone, share, cut, constants.IMBALANCE)
    time += machine.traffic_ns(cut.shared_bytes * (1 / cut.threads + constants.REMOTE_READ_FACTOR))
    if cut.thread_bytes * cut.threads + cut.shared_bytes > shared.MAX_SCRATCH_BYTES:
        time *= constants.SCRATCH_FACTOR
    return time


def _met_in_place(nest: WeightsNest, operands: Operands, cut: Division) -> tuple[float, float]:
    """Return the memory pages, and the bytes of cache lines, that a panel of A in place touches in a cache block."""
    chains = cut.loops["chains_a_cache_block"]
    images = chains / nest.chains if chains else cut.loops["images_a_cache_block"]
    positions = prod(axis.src for axis in nest.conv.axes) if operands[0] == "src" else nest.conv.positions
    pages: float = nest.conv.positions * images * min(1.0, abs(nest.strides(operands[0])[-1]) / PAGE_BYTES)
    return pages, positions * images * constants.IN_PLACE_LINES * LINE_BYTES


def _compute_ns(nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands) -> float:
    """Return the time of all micro-tiles in ns. Micro-tiles of the last channels of B may be narrower."""
    conv, isa, micro_tile = nest.conv, spec.isa, spec.micro_tile
    channels, (a, b) = per_group(nest), operands
    if spec.groups_in_lanes:
        widths = [(ceil(channels[b] / micro_tile.nr), micro_tile.nr)]
    else:
        full, remainder = divmod(channels[b], spec.width)
        widths = [(full, micro_tile.nr)]
        if remainder:
            widths.append((1, min(1 << (ceil(remainder / isa.lanes) - 1).bit_length(), micro_tile.nr)))
    if micro_tile.taps == 1 and not spec.groups_in_lanes:
        row = conv.positions if nest.pointwise else conv.axes[-1].dst
        steps = conv.batch * conv.positions / row * chain_adds(row, spec.k_per_add, machine) * conv.taps
        passed = 1 if spec.compact else spec.k_per_add
        cycles = steps * sum(n * _dense_cycles(machine, micro_tile.mr, nr, conv.taps, passed) for n, nr in widths)
        if spec.a.in_place and conv.taps > 1 and channels[a] > constants.SET_CONFLICT_CHANNELS:
            cycles *= shared.SET_CONFLICT_FACTOR
    else:
        cycles = sum(n * _taps_cycles(nest, machine, spec, nr) for n, nr in widths)
    return ceil(conv.groups / spec.groups_a_panel) * ceil(channels[a] / micro_tile.mr) * cycles * machine.cycle_ns


def _dense_cycles(machine: Machine, mr: int, nr: int, taps: int, passed: int) -> float:
    """Return the cycles of a micro-tile's step of K, including the cache lines that it reads from L2.

    The first tap reads a line from L2, and further taps read it from L1. A step over ``passed`` positions takes at
    least the time to read the lines of all of them.
    """
    lines = machine.l2_line_cycles * (mr + nr * machine.isa.lanes) * F32_BYTES / LINE_BYTES
    step = step_cycles(mr, nr) + lines / min(taps, constants.MAX_TAPS_IN_L1)
    return step if passed == 1 else max(step, lines * passed)


def _taps_cycles(nest: WeightsNest, machine: Machine, spec: SplitKSpec, nr: int) -> float:
    """Return the cycles of all taps for one panel of A and one panel of B, over the whole batch."""
    conv, micro_tile = nest.conv, spec.micro_tile
    inner = conv.axes[-1]
    sums = micro_tile.taps * micro_tile.mr * nr
    loads = micro_tile.mr * (micro_tile.taps if spec.a.moves else 1) + nr * (1 if spec.a.moves else micro_tile.taps)
    position = max(sums / 2, shared.LOAD_CYCLES * loads, shared.MIN_STEP_CYCLES) + shared.STEP_CYCLES
    passed = (spec.k_per_add - 1) * (micro_tile.mr + nr * spec.isa.lanes) * F32_BYTES / LINE_BYTES
    position += machine.l2_line_cycles * passed / constants.MAX_TAPS_IN_L1
    if sums > constants.TAPS_REGISTER_SHARE * spec.isa.registers:
        position *= constants.TAPS_REGISTER_FACTOR
    if spec.groups_in_lanes:  # whole vectors of A and B are read from L2, but those of earlier positions from L1
        fresh = micro_tile.outer_taps * min(inner.stride, micro_tile.inner_taps)
        vectors = micro_tile.mr * fresh + nr if spec.a.moves else micro_tile.mr + nr * fresh
        lines = vectors * spec.isa.lanes * F32_BYTES / LINE_BYTES
        position = max(position, constants.GROUP_LINE_FACTOR * machine.l2_line_cycles * lines)
    segments = conv.batch * _segments_of_tiles(conv.axes[:-1], micro_tile.outer_taps)
    tiles = ceil(inner.kernel / micro_tile.inner_taps)
    padded = sum(p > 0 for p in (inner.pad_begin, inner.pad_end)) * min(micro_tile.inner_taps - 1, inner.dst)
    begin = constants.LINE_START_CYCLES + shared.SEGMENT_CYCLES * (1 + padded) + 0.5 * position * min(padded, inner.dst)
    pushes = (
        conv.batch
        * nest.chains
        / nest.images_a_chain
        * ceil(prod(a.kernel for a in conv.axes[:-1]) / micro_tile.outer_taps)
    )
    return tiles * (
        segments * (position * chain_adds(inner.dst, spec.k_per_add, machine) + begin)
        + pushes * constants.COMBINE_CYCLES * sums
    )


@lru_cache(maxsize=256)
def _segments_of_tiles(axes: tuple[Axis, ...], taps: int) -> int:
    """Return the number of rows of dst that micro-tiles of ``taps`` outer taps process, summed over micro-tiles."""
    rows = existing_rows(axes)
    return int(rows[of_tiles(len(rows), taps)].max(1).sum())


def _depthwise_ns(problem: Problem, nest: WeightsNest, machine: Machine, spec: SplitKSpec) -> float:
    """Return the time of the direct depthwise kernel in ns: multiply-adds, border positions, and reads from memory."""
    conv, micro_tile, inner = nest.conv, spec.micro_tile, nest.conv.axes[-1]
    loads = micro_tile.outer_taps * (spec.slide or micro_tile.inner_taps) + 1
    position = (
        max(
            micro_tile.taps / 2,
            constants.DEPTHWISE_LOAD_FACTOR * machine.vector_load_cycles * loads,
            shared.MIN_STEP_CYCLES,
        )
        + shared.STEP_CYCLES
    )
    outer = ceil(prod(axis.kernel for axis in conv.axes[:-1]) / micro_tile.outer_taps)
    tiles = outer * ceil(inner.kernel / micro_tile.inner_taps)
    rows = conv.batch * prod(axis.dst for axis in conv.axes[:-1])
    edges = min(inner.dst, ceil((inner.pad_begin + inner.pad_end) / inner.stride))
    begin = (constants.LINE_START_CYCLES + micro_tile.taps) * ceil(inner.dst / constants.DEPTHWISE_POSITIONS)
    edge = constants.LINE_START_CYCLES + constants.BORDER_TAP_CYCLES * micro_tile.taps
    cycles = rows * (inner.dst * position + edges * edge + begin)
    compute = ceil(conv.groups / spec.isa.lanes) * tiles * cycles * machine.cycle_ns
    elements = conv.batch * (
        conv.positions + prod(min(a.src, a.dst * a.stride + a.effective_kernel) for a in conv.axes)
    )
    read = machine.traffic_ns(elements * conv.groups * problem.operand_format.itemsize)
    held = lines_held(machine.l1_bytes, nest.dst_strides[-1])
    if min(inner.dst, constants.DEPTHWISE_POSITIONS) * (micro_tile.outer_taps + 1) > held:
        compute *= constants.DEPTHWISE_REREAD_FACTOR
    if tiles > 1:
        compute *= constants.DEPTHWISE_REREAD_FACTOR
    return compute + read


def stored_ns(problem: Problem, nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands) -> float:
    """Return the time to round and store the weights, in ns."""
    conv, channels, (dst, src, *taps) = nest.conv, per_group(nest), nest.weights_strides
    next_a, next_b = ({"src": src, "dst": dst}[tensor] for tensor in operands)
    if spec.groups_in_lanes:
        next_b = channels["dst"] * dst
    line = conv.taps if spec.micro_tile.taps == 1 else spec.micro_tile.taps
    next_tap = next((step for step in reversed(taps) if step), 0) if line >= constants.MIN_STORE_LINE else 0
    size, ways = problem.output_format.itemsize, {CHANNELS: next_b, SPATIAL: next_a, TAPS: next_tap}
    way = next((name for name, step in ways.items() if step == size), STRIDED)
    return store_ns(machine, way) * conv.dst_channels * channels["src"] * conv.taps


def _pack_ns(machine: Machine, spec: SplitKSpec, operand: SplitKOperand) -> float:
    """Return the time to pack one element of an operand in ns, or 0 if it is read in place."""
    if operand.in_place:
        return 0.0
    spread = operand.width if spec.groups_in_lanes and operand.contiguous == CHANNELS else 0
    if spec.compact:
        return PACK_PAIRS_NS[operand.contiguous]
    paired = shared.PACK_PAIR_NS if spec.k_per_add == 2 else 0
    return pack_ns(machine, operand.contiguous) + constants.PACK_SPREAD_NS * spread + paired


def _halo(nest: WeightsNest, chains_a_cache_block: int) -> float:
    """Return how often a value of src is read on average. Cache blocks of an image overlap by the kernel's extent."""
    outer = nest.conv.axes[:-1]
    if not chains_a_cache_block or not outer:
        return 1.0
    rows = max(1, round(chains_a_cache_block * prod(a.dst for a in outer) / nest.chains))  # dst rows per block
    cache_blocks = prod(a.dst for a in outer) / rows
    read = 1.0
    for axis in reversed(outer):
        extent = min(axis.dst, rows)
        read *= min(axis.src, (extent - 1) * axis.stride + axis.effective_kernel)
        rows = max(1, rows // axis.dst)
    return max(1.0, cache_blocks * read / max(1, prod(a.src for a in outer)))
