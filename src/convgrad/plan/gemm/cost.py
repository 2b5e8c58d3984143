"""The predicted time of a GEMM, on one thread and for each division of the work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, gcd, inf, prod
from typing import Any

from convgrad.formats import FORMATS
from convgrad.plan import constants as shared
from convgrad.plan.cost import Costs, Division, Timed, on_threads_ns, pack_ns, paired_ns, share, store_ns
from convgrad.plan.forward_nest import Along, ForwardNest
from convgrad.plan.gemm import constants
from convgrad.plan.gemm.cuts import cuts, packed_times, parts_of, read_bytes
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, Operands
from convgrad.spec.problem import Problem


@dataclass(frozen=True)
class Model:
    """The parts of the cost model that differ between kernels with the loop nest of the GEMM."""

    cycles: Callable[[ForwardNest, Machine, Any, tuple[int, ...]], float]  # of all micro-tiles, for a size of blocks
    stores: bool = False  # whether ``cycles`` include stores along contiguous channels
    transposed: bool = False  # whether B and the output are lines of panels of channels-first data

    def alone(self, problem: Problem, view: ForwardNest, machine: Machine, spec: GemmSpec, operands: Operands) -> Costs:
        """Return the predicted times of a kernel on one thread, with all positions in one output block."""
        whole = tuple(axis.extent for axis in view.axes)
        return self.costs(view, _with_its_cache(machine, spec), spec, operands, whole)

    def timed(self, costs: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
        """Yield the predicted time and the cut, for each way to cut a kernel's work."""
        along, machine = tiled_axis(view.axes, costs.spec), _with_its_cache(machine, costs.spec)
        by_block: dict[tuple[int, ...], tuple[Costs, float]] = {}
        panel = read_bytes(view, costs.spec)
        (vectors, count), *last = _widths(view, costs.spec)
        panels = (count + len(last)) * vectors / (count * vectors + len(last))
        for cut in cuts(view, machine, costs.spec, threads, along):
            block = cut.loops["output_block"]
            if block not in by_block:
                size = cut.counts[-1] * prod(block) / view.positions
                by_block[block] = self.costs(view, machine, costs.spec, costs.operands, block), size
            block_costs, size = by_block[block]
            yield time_ns(block_costs, panel, view.groups, machine, cut, (1.0, panels, size)), cut

    def costs(
        self, view: ForwardNest, machine: Machine, spec: GemmSpec, operands: Operands, block: tuple[int, ...]
    ) -> Costs:
        """Return the predicted times of a kernel on one thread, for a size of output blocks in positions."""
        results = view.positions * view.groups * view.n
        store = results * (
            machine.traffic_ns(FORMATS[spec.output].itemsize)
            if self.stores and spec.out == CHANNELS
            else _store_ns(machine, spec, _line(view, block))
        )
        if self.transposed:
            store += _scattered_ns(machine, spec, results * FORMATS[spec.output].itemsize)
        cycles, b_ns = self.cycles(view, machine, spec, block), self._b_ns(view, machine, spec)
        data, *once = _a_ns(view, machine, spec, block)
        return Costs(spec, operands, cycles * machine.cycle_ns, store, data, b_ns, *once)

    def _b_ns(self, view: ForwardNest, machine: Machine, spec: GemmSpec) -> float:
        """Return the time in ns to read B from memory and to pack it."""
        k = view.groups * view.taps * view.k
        size = FORMATS[spec.operand].itemsize * k * view.n
        if spec.b.in_place:
            return machine.traffic_ns(size)
        pack = k * spec.packed_columns(view.n) * (pack_ns(machine, spec.b.contiguous) + paired_ns(spec.k_per_add))
        return pack + (_scattered_ns(machine, spec, size) if self.transposed else machine.traffic_ns(size))


def _with_its_cache(machine: Machine, spec: GemmSpec) -> Machine:
    """Return the machine that a kernel runs on: processors with tiles of AMX have a larger second cache."""
    return replace(machine, l2_bytes=constants.TILES_L2_FACTOR * machine.l2_bytes) if spec.amx_tiles else machine


def time_ns(costs: Costs, panel: int, groups: int, machine: Machine, cut: Division, uneven: tuple[float, ...]) -> float:
    """Return the time of a division of the work in ns.

    ``panel`` is the bytes of a panel of B of one of the groups. ``uneven`` is the work of the largest group, panel and
    output block, compared with the mean.
    """
    (group_parts, parts, blocks), (_, panels, all_blocks) = cut.parts, cut.counts
    compute = costs.compute_ns
    if not costs.spec.b.in_place:
        room = machine.l2_bytes * constants.PANELS_SHARE
        if panel > room and not cut.loops["pass_chains"]:
            compute *= 1 + constants.PANEL_L2_MISS_FACTOR * min((panel - room) / machine.l2_bytes, 1.0)
        if panel * cut.loops["panels"] > max(room, panel):  # each output block reads all panels from a shared cache
            read = panel * panels * groups * all_blocks
            compute += constants.PANELS_READ_FACTOR * machine.traffic_ns(read)
    packings, start = packed_times(cut), 0.0
    again = packings > parts or group_parts < groups  # otherwise a thread packs the one set of panels of its tasks once
    times = blocks if again else min(blocks, cut.threads)
    data = costs.a_ns * packings
    if cut.loops["packed_once"]:
        data = costs.once_ns + costs.again_ns * packings
        start = machine.wake_ns if cut.threads > 1 else 0.0  # threads start a second time
    packed = compute + costs.store_ns + data + costs.b_ns * times
    return on_threads_ns(machine, packed, share(cut, uneven), cut, shared.POSITIONS_IMBALANCE) + start


def _distant_cycles(view: ForwardNest, machine: Machine, spec: GemmSpec) -> float:
    """Return the cycles by which loads of B in place take longer than multiply-adds.

    A panel that exceeds half of the first cache is read from the second cache. The other half is for A, and because the
    rows of a panel are in different pages, which use few sets of the cache.
    """
    if 2 * view.k * spec.panel_row_bytes <= machine.l1_bytes:
        return 0.0
    lines = spec.panel_row_bytes / LINE_BYTES
    wait = lines * machine.l2_line_cycles * constants.DISTANT_LINE_FACTOR - spec.mr * spec.nr / 2
    return max(wait, 0.0) * view.k * view.groups * ceil(view.positions / spec.mr) * ceil(view.n / spec.width)


def _scattered_ns(machine: Machine, spec: GemmSpec, size: int) -> float:
    """Return the time to read or write ``size`` bytes of channels-first data in lines of a panel, in ns."""
    return machine.traffic_ns(size * (1 + LINE_BYTES / (spec.width * F32_BYTES)))


def _line(view: ForwardNest, block: tuple[int, ...]) -> int:
    """Return the number of contiguous output positions of an output block."""
    *_, outer, inner = view.axes
    whole = block[-1] >= inner.extent and outer.out == inner.out * inner.extent
    return min(block[-1], inner.extent) * (min(block[-2], outer.extent) if whole else 1)


def _in_squares(spec: GemmSpec, line: int) -> float:
    """Return the time to transpose a position of a line, compared with lines of whole squares."""
    return ceil(line / spec.isa.lanes) * spec.isa.lanes / line


def _store_ns(machine: Machine, spec: GemmSpec, line: int) -> float:
    """Return the time to store one output, in ns; ``line`` outputs of a block are contiguous."""
    traffic = machine.traffic_ns(FORMATS[spec.output].itemsize)
    if spec.out == SPATIAL:
        transposed = constants.COLLECTED_STORE_FACTOR * machine.store_rows_ns * _in_squares(spec, line)
        return transposed + traffic + machine.traffic_ns(shared.SEGMENT_BYTES) / line
    return store_ns(machine, spec.out)


def _a_ns(view: ForwardNest, machine: Machine, spec: GemmSpec, block: tuple[int, ...]) -> tuple[float, float, float]:
    """Return times in ns: to read or pack A by each output block, to pack it once, and to read it when it is packed.

    Neighbouring output blocks overlap in A.
    """
    inputs = prod(axis.padded_inputs if spec.padded else axis.inputs for axis in view.axes)
    channels = view.groups * view.channels
    read_inputs = inputs * prod(_halo(axis, size) for axis, size in zip(view.axes, block, strict=True))
    if view.merged > 1 and spec.scatters_panels:
        read_inputs = inputs  # blocks have few lines, so that those of the previous block are still in the cache
    read = machine.traffic_ns(FORMATS[spec.operand].itemsize) * spec.a.stride  # reads bring whole cache lines
    pack = pack_ns(machine, spec.a.contiguous) + paired_ns(spec.k_per_add)
    if spec.amx_tiles and spec.a.contiguous == CHANNELS:
        pack = constants.TILES_COPY_NS
    exponents = constants.MIN_EXPONENT_NS if spec.k_per_add == 2 else 0.0
    if spec.a.in_place:
        return read_inputs * channels * (read + exponents), 0.0, 0.0
    packed = spec.packed_k_bytes(2) / 2
    copy = machine.traffic_ns(packed)
    far = constants.FAR_COPY_FACTOR if inputs * channels * packed > machine.l2_bytes else 1.0
    once, again = inputs * channels * (read + pack + far * copy), read_inputs * channels * (copy + exponents)
    if spec.a.contiguous == SPATIAL:
        line = _line(view, block)
        pack = pack * _in_squares(spec, line) + machine.traffic_ns(shared.SEGMENT_BYTES) / line
    return read_inputs * channels * (read + pack), once, again


def _halo(axis: Along, size: int) -> float:
    """Return how often an average position of A is packed by output blocks of ``size`` positions."""
    blocks = ceil(axis.extent / size)
    return 1 + (blocks - 1) * axis.parts.reach / max(1, axis.inputs)


def crowded(view: ForwardNest) -> bool:
    """Return whether A in place has set conflicts, because positions of less than two lines use few sets of a cache."""
    few = view.axes[-1].data % constants.SET_CONFLICT_BYTES == 0 and view.k * view.data[1] < 2 * LINE_BYTES
    return view.groups > 1 and view.taps > 1 and few


def tile_cycles(view: ForwardNest, machine: Machine, spec: GemmSpec, block: tuple[int, ...]) -> float:
    """Return the cycles of all micro-tiles of all groups."""
    k = spec.filled(view.k)
    adds = k if spec.amx_tiles else chain_adds(k, spec.k_per_add, machine)
    panels = 0.0
    for vectors, count in _widths(view, spec):
        panels += count * _region_cycles(view, spec, vectors, block, adds)
    cycles, along = view.groups * panels, view.axes[-1]
    if spec.out == CHANNELS and spec.mr > rows_in_cache(along.out):
        cycles *= constants.OUTPUT_CONFLICT_FACTOR
    if spec.a.in_place and spec.a.contiguous == CHANNELS and crowded(view):
        return cycles * shared.SET_CONFLICT_FACTOR
    return cycles * constants.PAIR_SPLIT_FACTOR if spec.reads_pairs and spec.k_per_add == 1 and view.k > 1 else cycles


def rows_in_cache(step: int) -> int:
    """Return how many rows ``step`` bytes apart the first cache holds, if all have a line in the same few sets.

    >>> rows_in_cache(4096), rows_in_cache(2048), rows_in_cache(4000)
    (8, 16, 1024)
    """
    return constants.SET_WAYS * (constants.SETS_BYTES // gcd(step or LINE_BYTES, constants.SETS_BYTES))


def _widths(view: ForwardNest, spec: GemmSpec) -> list[tuple[int, int]]:
    """Return pairs (vectors, number of panels of a group). A last panel of few columns may have one vector."""
    full, remainder = divmod(view.n, spec.width)
    if not remainder:
        return [(spec.nr, full)]
    if not (spec.single_vector and remainder <= spec.isa.lanes):
        return [(spec.nr, full + 1)]
    return [(spec.nr, full), (1, 1)] if full else [(1, 1)]


def _region_cycles(view: ForwardNest, spec: GemmSpec, vectors: int, block: tuple[int, ...], adds: float) -> float:
    """Return the cycles of all regions for one panel of B. Micro-tiles run along the axis that wastes fewest cycles.

    Regions are combinations of parts of axes, and may be too many to list. So axes are added one after the other, and
    regions that waste the same number of cycles per position are added up.
    """
    work, regions, segments = {inf: 1.0}, 1, 1  # pairs of position and tap, by cycles per position
    positions = prod(block)
    for axis, size in zip(view.axes, block, strict=True):
        parts, more, beside = parts_of(axis, size, spec.padded), dict[float, float](), size < positions
        for count, meetings in parts.counted:
            here = spec.tiling(count, vectors, beside=beside)[2]
            for waste, cycles in work.items():
                smaller = min(waste, here)
                more[smaller] = more.get(smaller, 0.0) + cycles * meetings
        work, regions, segments = more, regions * len(parts), segments * parts.all_taps
    begin = shared.REGION_CYCLES * regions + shared.SEGMENT_CYCLES * segments
    compute = sum(waste * cycles for waste, cycles in work.items())
    return compute * adds + begin + constants.MICRO_TILE_ROW_CYCLES * view.positions


def tiled_axis(axes: tuple[Along, ...], spec: GemmSpec) -> int:
    """Return the axis along which micro-tiles waste the fewest cycles, or the last of nearly equal ones."""
    largest = [(axis.uncut if spec.padded else axis.parts).largest for axis in axes]
    waste = [spec.tiling(count, beside=count < prod(largest))[2] for count in largest]
    return max(a for a, w in enumerate(waste) if w <= min(waste) * constants.INNER_AXIS_FACTOR)


def _transposed_cycles(view: ForwardNest, machine: Machine, spec: GemmSpec, block: tuple[int, ...]) -> float:
    """Return the cycles of all micro-tiles of a transposed GEMM."""
    return tile_cycles(view, machine, spec, block) + (_distant_cycles(view, machine, spec) if spec.b.in_place else 0.0)


GEMM, TRANSPOSED = Model(tile_cycles), Model(_transposed_cycles, transposed=True)
