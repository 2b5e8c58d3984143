"""The predicted time of kernels of forwards and data gradients, on one thread and for each division of the work."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, gcd, inf, prod

from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.plan.cost import Costs, Cut, on_threads_ns, pack_ns, store_ns
from convgrad.plan.forward.cuts import claimed, cuts, kn2row_cuts, packed_times, parts_of, read_bytes
from convgrad.plan.forward.kn2row import Kn2rowSpec, output_block_count, reached, rows_of
from convgrad.plan.forward.nest import Along, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec, seen
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.problem import Problem

Timed = Iterator[tuple[float, Cut]]  # the predicted time in ns of each cut, and the cut


def alone(problem: Problem, view: ForwardNest, machine: Machine, spec: ForwardSpec, operands: Operands) -> Costs:
    """Return the predicted times of a kernel on one thread, with all positions in one output block."""
    return costs(view.seen(spec), machine, spec, operands, tuple(axis.extent for axis in view.seen(spec).axes))


def timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the predicted time and the cut, for each way to cut a kernel's work."""
    view = view.seen(one.spec)
    along = tiled_axis(view.axes, one.spec.mr, one.spec.nr)
    by_block: dict[tuple[int, ...], tuple[Costs, float]] = {}
    panel = read_bytes(view, one.spec)
    widths = _widths(view, one.spec)
    panels = len(widths) * max(widths) / sum(widths)
    for cut in cuts(view, machine, one.spec, threads, along):
        block = cut.loops["output_block"]
        if block not in by_block:
            size = cut.counts[-1] * prod(block) / view.positions
            by_block[block] = costs(view, machine, one.spec, one.operands, block), size
        found, size = by_block[block]
        yield time_ns(found, panel, view.groups, machine, cut, (1.0, panels, size)), cut


def time_ns(
    one: Costs, panel: int, groups: int, machine: Machine, cut: Cut, uneven: tuple[float, ...]
) -> float:  # fmt: skip
    """Return the time of a division of the work in ns.

    ``panel`` is the bytes of a panel of B of one of the groups. ``uneven`` is the work of the largest group, panel and
    output block, compared with the mean.
    """
    (group_parts, parts, blocks), (_, panels, all_blocks) = cut.parts, cut.counts
    compute = one.compute_ns
    if not one.spec.b_in_place and not cut.loops["pass_chains"]:
        room = machine.l2_bytes * constants.PANELS_SHARE
        if panel > room:
            compute *= 1 + constants.PANEL_L2_MISS_FACTOR * min((panel - room) / machine.l2_bytes, 1.0)
        if panel * cut.loops["panels"] > max(room, panel):  # each output block reads all panels from a shared cache
            read = panel * panels * groups * all_blocks
            compute += constants.PANELS_READ_FACTOR * machine.traffic_ns(read)
    packings, start = packed_times(cut), 0.0
    again = packings > parts or group_parts < groups  # otherwise a thread packs the one set of panels of its tasks once
    times = blocks if again else min(blocks, cut.threads)
    data = one.a_ns * packings
    if cut.loops["packed_once"]:
        data = one.once_ns + one.again_ns * packings
        start = machine.wake_ns if cut.threads > 1 else 0.0  # threads start a second time
    packed = compute + one.store_ns + data + one.b_ns * times
    return on_threads_ns(machine, packed, _share(cut, uneven), cut, constants.POSITIONS_IMBALANCE) + start


def _share(cut: Cut, uneven: tuple[float, ...] = (1.0,)) -> float:
    """Return the largest task's share of the work. Parts of output blocks count as equal if they outnumber threads.

    ``uneven`` is the work of the largest unit of each dimension, compared with the mean.
    """
    share = 1.0
    for count, parts, factor in zip(cut.counts, cut.parts, uneven, strict=True):
        largest = -(-count // parts) / count * factor if parts > 1 else 1.0
        share *= largest
    return share if parts <= cut.threads else share / largest / parts


# -- outer products, and grouped stencils ------------------------------------------------------------------------------


def costs(view: ForwardNest, machine: Machine, spec: ForwardSpec, operands: Operands, block: tuple[int, ...]) -> Costs:
    """Return the predicted times of a kernel on one thread, for a size of output blocks in positions."""
    results, stencil = view.positions * view.groups * view.n, spec.stencil
    store = results * _store_ns(machine, spec, _line(view, block))
    if stencil:
        cycles, packed = _stencil_cycles(view, machine, spec, block), view.n
    else:
        cycles, packed = _tile_cycles(view, machine, spec, block), ceil(view.n / spec.width) * spec.width
    if spec.transposed_gemm:
        store += _scattered_ns(machine, spec, results * FORMATS[spec.output].dtype.itemsize)
        cycles += _distant_cycles(view, machine, spec) if spec.b_in_place else 0.0
    weights, (data, *once) = _b_ns(view, machine, spec, packed), _a_ns(view, machine, spec, block)
    return Costs(spec, operands, cycles * machine.cycle_ns, store, data, weights, *once)


def _b_ns(view: ForwardNest, machine: Machine, spec: ForwardSpec, packed: int) -> float:
    """Return the time in ns to read B from memory and to pack it, with ``packed`` columns per group."""
    k = view.groups * view.taps * view.k
    size = FORMATS[spec.operand].dtype.itemsize * k * view.n
    pack = 0.0 if spec.b_in_place else k * packed * (pack_ns(machine, spec.weights) + _paired_ns(spec))
    if spec.transposed_gemm and not spec.b_in_place:
        return pack + _scattered_ns(machine, spec, size)
    return pack + machine.traffic_ns(size)


def _distant_cycles(view: ForwardNest, machine: Machine, spec: ForwardSpec) -> float:
    """Return the cycles by which loads of B in place take longer than multiply-adds.

    A panel that exceeds half of the first cache is read from the second cache. The other half is for A, and because the
    rows of a panel are in different pages, which use few sets of the cache.
    """
    if 2 * view.k * spec.panel_row_bytes <= machine.l1_bytes:
        return 0.0
    lines = spec.panel_row_bytes / LINE_BYTES
    wait = lines * machine.l2_line_cycles * constants.DISTANT_LINE_FACTOR - spec.mr * spec.nr / 2
    return max(wait, 0.0) * view.k * view.groups * ceil(view.positions / spec.mr) * ceil(view.n / spec.width)


def _scattered_ns(machine: Machine, spec: ForwardSpec, size: int) -> float:
    """Return the time to read or write ``size`` bytes of channels-first data in lines of a panel, in ns."""
    return machine.traffic_ns(size * (1 + LINE_BYTES / (spec.width * F32_BYTES)))


def _line(view: ForwardNest, block: tuple[int, ...]) -> int:
    """Return the number of contiguous output positions of an output block."""
    *_, outer, inner = view.axes
    whole = block[-1] >= inner.extent and outer.out == inner.out * inner.extent
    return min(block[-1], inner.extent) * (min(block[-2], outer.extent) if whole else 1)


def _in_squares(spec: ForwardSpec, line: int) -> float:
    """Return the time to transpose a position of a line, compared with lines of whole squares."""
    return ceil(line / spec.isa.lanes) * spec.isa.lanes / line


def _store_ns(machine: Machine, spec: ForwardSpec, line: int) -> float:
    """Return the time to store one output, in ns; ``line`` outputs of a block are contiguous."""
    traffic = machine.traffic_ns(FORMATS[spec.output].dtype.itemsize)
    if spec.out == SPATIAL:
        transposed = constants.COLLECTED_STORE_FACTOR * machine.store_rows_ns * _in_squares(spec, line)
        return transposed + traffic + machine.traffic_ns(constants.SEGMENT_BYTES) / line
    return traffic if spec.stencil and spec.out == CHANNELS else store_ns(machine, spec.out)


def _paired_ns(spec: ForwardSpec) -> float:
    """Return the additional time to pack one value in ns, if it is packed in bf16 pairs."""
    return constants.PACK_PAIR_NS if spec.step == 2 else 0.0


def _a_ns(view: ForwardNest, machine: Machine, spec: ForwardSpec, block: tuple[int, ...]) -> tuple[float, float, float]:
    """Return times in ns: to read or pack A by each output block, to pack it once, and to read it when it is packed.

    Neighbouring output blocks overlap in A.
    """
    all_met, channels = prod(axis.met for axis in view.axes), view.groups * view.channels
    met = all_met * prod(_halo(axis, size) for axis, size in zip(view.axes, block, strict=True))
    read = machine.traffic_ns(FORMATS[spec.operand].dtype.itemsize) * spec.stride  # reads bring whole cache lines
    pack = pack_ns(machine, spec.data)
    exponents = constants.MIN_EXPONENT_NS if spec.step == 2 else 0.0
    if spec.a_in_place:
        return met * channels * (read + exponents), 0.0, 0.0
    packed = spec.position_bytes(2) / 2
    copy = machine.traffic_ns(packed)
    far = constants.FAR_COPY_FACTOR if all_met * channels * packed > machine.l2_bytes else 1.0
    once, again = all_met * channels * (read + pack + far * copy), met * channels * (copy + exponents)
    if spec.data == SPATIAL:
        line = _line(view, block)
        pack = pack * _in_squares(spec, line) + machine.traffic_ns(constants.SEGMENT_BYTES) / line
    return met * channels * (read + pack + _paired_ns(spec)), once, again


def _halo(axis: Along, size: int) -> float:
    """Return how often an average position of A is packed by output blocks of ``size`` positions."""
    blocks = ceil(axis.extent / size)
    return 1 + (blocks - 1) * axis.parts.reach / max(1, axis.met)


def crowded(view: ForwardNest) -> bool:
    """Return whether A in place has set conflicts, because positions of less than two lines use few sets of a cache."""
    few = view.axes[-1].data % constants.SET_CONFLICT_BYTES == 0 and view.k * view.data[1] < 2 * LINE_BYTES
    return view.groups > 1 and view.taps > 1 and few


def _tile_cycles(view: ForwardNest, machine: Machine, spec: ForwardSpec, block: tuple[int, ...]) -> float:
    """Return the cycles of all micro-tiles of all groups."""
    adds, widths = chain_adds(spec.filled(view.k), spec.step, machine), _widths(view, spec)
    of_width = {v: _region_cycles(view, spec.mr, v, block, adds) for v in set(widths)}
    cycles = view.groups * sum(map(of_width.__getitem__, widths))
    if spec.a_in_place and spec.data == CHANNELS and crowded(view):
        return cycles * constants.SET_CONFLICT_FACTOR
    return cycles * constants.PAIR_SPLIT_FACTOR if spec.reads_pairs and spec.step == 1 and view.k > 1 else cycles


def _widths(view: ForwardNest, spec: ForwardSpec) -> list[int]:
    """Return the number of vectors of each panel of a group. A last panel of few columns may have one vector."""
    full, last = divmod(view.n, spec.width)
    widths = [spec.nr] * full
    if last:
        widths.append(1 if spec.single_vector and last <= spec.isa.lanes else spec.nr)
    return widths


def _region_cycles(view: ForwardNest, rows: int, vectors: int, block: tuple[int, ...], adds: float) -> float:
    """Return the cycles of all regions for one panel of B. Micro-tiles run along the axis that wastes fewest cycles.

    Regions are combinations of parts of axes, and may be too many to list. So axes are added one after the other, and
    regions that waste the same number of cycles per position are added up.
    """
    work, regions, segments = {inf: 1.0}, 1, 1  # pairs of position and tap, by cycles per position
    for axis, size in zip(view.axes, block, strict=True):
        parts, more = parts_of(axis, size), dict[float, float]()
        for count, meetings in parts.counted:
            here = tiles(count, rows, vectors)[2]
            for waste, found in work.items():
                smaller = min(waste, here)
                more[smaller] = more.get(smaller, 0.0) + found * meetings
        work, regions, segments = more, regions * len(parts), segments * parts.all_taps
    begin = constants.REGION_CYCLES * regions + constants.SEGMENT_CYCLES * segments
    compute = sum(waste * found for waste, found in work.items())
    return compute * adds + begin + constants.MICRO_TILE_ROW_CYCLES * view.positions


def tiled_axis(axes: tuple[Along, ...], rows: int, vectors: int) -> int:
    """Return the axis along which micro-tiles waste the fewest cycles, or the last of several such axes."""
    waste = [tiles(axis.parts.largest, rows, vectors)[2] for axis in axes]
    return max(a for a, w in enumerate(waste) if w <= min(waste) * constants.INNER_AXIS_FACTOR)


def _stencil_cycles(view: ForwardNest, machine: Machine, spec: ForwardSpec, block: tuple[int, ...]) -> float:
    """Return the cycles of the grouped stencil on a nest with merged groups, for a size of output blocks."""
    *outer, last = (parts_of(axis, size) for axis, size in zip(view.axes, block, strict=True))
    positions = prod(axis.extent for axis in view.axes[:-1])
    rows_of_taps = prod(parts.meetings for parts in outer)
    panels = ceil(view.n / spec.width)
    found = 0.0
    for (count, taps), parts in last.alike:
        rows, each, _ = tiles(count, spec.mr, spec.nr)
        many = each * parts
        found += many * positions * (constants.GROUPED_CYCLES + constants.GROUPED_ROW_CYCLES * rows * spec.nr)
        if taps:
            found += many * rows_of_taps * _row_cycles(machine, spec, rows, taps)
    regions = prod(len(parts) for parts in (*outer, last))
    assert spec.stencil is not None
    if spec.stencil.groups == spec.isa.lanes and spec.a_in_place and panels > 1:
        found *= constants.GROUPED_ALONE_FACTOR
    return found * panels + constants.REGION_CYCLES * regions


def _row_cycles(machine: Machine, spec: ForwardSpec, rows: int, taps: int) -> float:
    """Return the cycles of a micro-tile of the grouped stencil for one row of taps."""
    stencil = spec.stencil
    assert stencil is not None
    found = 0.0
    for size in stencil.sizes:
        times, taps = divmod(taps, size)
        k_steps = stencil.in_channels // spec.step
        products = rows * size * k_steps * spec.nr
        adds = products / k_steps * chain_adds(stencil.in_channels, spec.step, machine)
        met = min(stencil.reach(rows, size), rows * size) * spec.nr
        held = spec.holds(stencil, rows, size, spec.nr)
        of_a_vector = ceil(stencil.groups * k_steps / spec.nr / spec.isa.lanes)
        loads = met * of_a_vector + (0 if held else products)
        spread = met * k_steps * of_a_vector if stencil.out_channels * stencil.in_channels > 1 else 0
        found += times * (max(adds / 2, loads * constants.LOAD_CYCLES) + spread)
    return found + constants.SEGMENT_CYCLES


# -- kn2row, and the spatial stencil ---------------------------------------------------------------------------------


def kn2row_alone(problem: Problem, view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands) -> Costs:
    """Return the predicted times of kn2row on one thread, with all positions in one output block."""
    return _kn2row_costs(view, machine, spec, operands, tuple(axis.extent for axis in view.axes[spec.line :]), 1)


def kn2row_timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the predicted time and the cut of kn2row, if there is one. Each part of the output packs all weights."""
    for cut in kn2row_cuts(view, machine, one.spec, threads):
        (parts,) = cut.parts
        each = _kn2row_costs(view, machine, one.spec, one.operands, cut.loops["output_block"], parts)
        packed = each.alone_ns + each.a_ns * (parts - 1)
        yield on_threads_ns(machine, packed, _share(cut), cut, constants.POSITIONS_IMBALANCE), cut


def _kn2row_costs(
    view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands, output_block: tuple[int, ...], parts: int
) -> Costs:
    """Return the predicted times of kn2row for a size of output blocks: the GEMM, packing, and the sums of taps."""
    one, rows = spec.product, rows_of(view)
    lines, *inner = (reached(axis, size) for axis, size in zip(view.axes[spec.line :], output_block, strict=True))
    images = prod(axis.extent for axis in view.axes[: spec.line])
    fresh = max((each.stop for each in lines), default=0) - min((each.start for each in lines), default=0)
    rings = images * prod(map(len, inner))  # times that a ring buffer starts with the first line
    again = (parts - gcd(parts, rings)) * max(0, max(map(len, lines)) - fresh // len(lines))  # lines at bounds of parts
    met = images * (fresh + again / rings) * prod(sum(map(len, blocks)) for blocks in inner)
    met = max(met, output_block_count(view, spec, output_block) * one.width)  # an output block packs at least one panel
    _, _, cycles = tiles(rows, one.mr, one.nr)
    compute = met * rows * chain_adds(one.filled(view.k), one.step, machine) * cycles / one.width * machine.cycle_ns
    paired = _paired_ns(one)
    read = pack_ns(machine, one.weights) + paired + machine.traffic_ns(FORMATS[one.operand].dtype.itemsize)
    store = store_ns(machine, STRIDED if spec.out == STRIDED else CHANNELS)
    adds = view.met_taps * view.n / one.isa.lanes * constants.KN2ROW_ADD_NS + view.positions * view.n * store
    a_ns, b_ns = rows * view.k * (pack_ns(machine, one.data) + paired), met * view.k * read
    return Costs(spec, operands, compute, adds, a_ns, b_ns)


def stencil_costs(
    problem: Problem, view: ForwardNest, machine: Machine, spec: SpatialStencilSpec, operands: Operands
) -> Costs:
    """Return the predicted times of a spatial stencil on one thread. The time to pack weights is neglected."""
    view = seen(view)
    lines, last, footprint = view.axes[-2], view.axes[-1], spec.footprint
    pieces = ceil(last.extent / spec.across) * ceil(view.n / spec.results)
    size = FORMATS[spec.operand].dtype.itemsize
    loaded = len(footprint.loads(spec.isa.lanes, spec.vectors)) * ceil(footprint.apart * size / F32_BYTES) * view.k
    k_adds = spec.k_steps * (machine.pair_adds if spec.step == 2 else 1.0)
    used = sum(taps.number for taps in footprint.last) * k_adds * spec.results
    stored = spec.results * spec.lines * spec.vectors * len(footprint.last) * constants.SPATIAL_STORE_CYCLES
    outer_taps = prod(axis.parts.meetings / axis.extent for axis in view.axes[:-2])  # of a position, on average
    cycles = 0.0
    for phase, part in enumerate(lines.phases):
        rows = footprint.rows(phase, spec.lines)
        adds = sum(map(len, rows.values())) * used
        read = len(rows) * loaded * machine.vector_load_cycles + adds * constants.SPATIAL_WEIGHT_CYCLES
        tile = max(adds * spec.vectors / 2, read) * outer_taps + stored + constants.SPATIAL_TILE_CYCLES
        cycles += ceil(len(part.positions) / spec.lines) * tile
    outer = view.groups * prod(axis.extent for axis in view.axes[:-2])
    met = outer * lines.met * last.met * view.k * size
    out = view.positions * view.groups * view.n * FORMATS[spec.output].dtype.itemsize
    traffic = machine.traffic_ns(met + out)
    return Costs(spec, operands, outer * pieces * cycles * machine.cycle_ns, traffic, 0.0, 0.0)


def stencil_timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the predicted time and the cut of a spatial stencil: parts of the groups."""
    groups = seen(view).groups
    cut = Cut((groups,), (claimed(groups, threads),), threads, {})
    yield on_threads_ns(machine, one.alone_ns, _share(cut), cut, constants.POSITIONS_IMBALANCE), cut
