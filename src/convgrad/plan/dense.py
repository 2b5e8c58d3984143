"""Dense weight gradients by outer-product tiles: what they apply to, the plans there are, and what each costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, IN_PLACE, POSITIONS, STRIDED, KernelSpec, Plan, Tile
from convgrad.plan.schedule import F32_BYTES, levels_of
from convgrad.plan.view import View, collapsed, pieces
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem

NAME = "dense weights"
SCRATCH_BYTES = 64 << 20  # of all threads
PACK_NS = {CHANNELS: 0.16, POSITIONS: 0.3, STRIDED: 1.5, IN_PLACE: 0.0}  # an element, in cache
FINISH_NS = {True: 0.3, False: 3.0}  # a weight: its lanes next to each other in the output, or not


@dataclass(frozen=True)
class _Cost:
    """A tile on one problem: time of its arithmetic and of its packs."""

    compute_ns: float
    finish_ns: float
    row_pack_ns: float
    lane_pack_ns: float

    def of(self, row_parts: int, lane_parts: int, threads: int) -> float:
        """Return the time when the weights are cut in parts: each part of the rows packs all lanes again."""
        total = self.compute_ns + self.finish_ns + self.row_pack_ns * lane_parts + self.lane_pack_ns * row_parts
        return total / threads


def layout(strides: tuple[int, ...], extents: tuple[int, ...], size: int) -> str:
    """Return how a (N, C, X...) array lies, by what is next to what; one channel lies as you like."""
    if strides[1] == size or extents[1] == 1:
        return CHANNELS
    return POSITIONS if strides[-1] == size else STRIDED


def plans(problem: Problem, view: View, machine: Machine, threads: int) -> list[Plan]:
    """Return the plans of a dense weight gradient, the cheapest first."""
    found = [
        _plan(problem, view, machine, threads, rows, spec)
        for rows, (most_rows, vectors) in product(("src", "dst"), machine.isa.tiles)
        for spec in _specs(problem, view, machine, rows, most_rows, vectors)
    ]
    return sorted(found, key=lambda plan: plan.time_ms)


def _specs(problem: Problem, view: View, machine: Machine, rows: str, most_rows: int, vectors: int) -> list[KernelSpec]:
    conv = view.conv
    lanes = "dst" if rows == "src" else "src"
    shapes = {"src": conv.src_shape, "dst": conv.dst_shape}
    size = problem.operand_format.dtype.itemsize
    lies = {t: layout(view.strides(t), shapes[t], size) for t in shapes}
    channels = shapes[rows][1] // conv.groups
    most_rows = min(most_rows, channels)
    specs = []
    for count in range(max(1, most_rows - 5), most_rows + 1):
        tile = Tile(count, vectors)
        names = (problem.operand_format.name, problem.output_format.name)
        row_layouts = [lies[rows]]
        if _readable_in_place(problem, view, rows, lies[rows]):
            row_layouts.append(IN_PLACE)
        specs += [KernelSpec(machine.isa, *names, tile, lie, lies[lanes]) for lie in row_layouts]
    return specs


def _readable_in_place(problem: Problem, view: View, rows: str, lies: str) -> bool:
    """Tiles can read rows where they are if f32 channels are neighbours and positions of a row one step apart."""
    if problem.operand_format.name != "f32" or lies != CHANNELS:
        return False
    extents = tuple(a.dst for a in view.conv.axes)
    return not view.pointwise or collapsed(extents, view.strides(rows)[2:]) is not None


def _cost(problem: Problem, view: View, machine: Machine, rows: str, spec: KernelSpec) -> _Cost:
    conv, isa, tile = view.conv, machine.isa, spec.tile
    per_group = {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}
    lanes = "dst" if rows == "src" else "src"
    cycle_ns = 2 * isa.lanes / machine.fma_per_ns
    full, rest = divmod(per_group[lanes], spec.width)
    widths = [(full, tile.vectors)]
    if rest:
        widths.append((1, min(1 << (ceil(rest / isa.lanes) - 1).bit_length(), tile.vectors)))
    cycles = sum(n * _tile_cycles(tile.rows, v, isa.lanes, conv.taps) for n, v in widths)
    if spec.row_layout == IN_PLACE and conv.taps > 1 and per_group[rows] > 64:
        cycles *= 1.15  # strided lines crowd the sets of a cache
    terms = conv.batch * conv.positions * conv.taps * conv.groups
    compute = terms * ceil(per_group[rows] / tile.rows) * cycles * cycle_ns
    elements = {
        "src": conv.batch * conv.src_channels * min(_sources(view), conv.positions * conv.taps),
        "dst": conv.batch * conv.dst_channels * conv.positions,
    }
    contiguous = view.weights_strides[0 if lanes == "dst" else 1] == problem.output_format.dtype.itemsize
    weights = conv.dst_channels * per_group["src"] * conv.taps
    finish = FINISH_NS[contiguous] * weights
    return _Cost(
        compute, finish, PACK_NS[spec.row_layout] * elements[rows], PACK_NS[spec.lane_layout] * elements[lanes]
    )


def _sources(view: View) -> int:
    positions = 1
    for axis in view.conv.axes:
        positions *= axis.src
    return positions


def _tile_cycles(rows: int, vectors: int, lanes: int, taps: int) -> float:
    """Return cycles a position: two FMAs or loads each cycle, a sum's own latency of four, and lines from L2.

    The constants are fitted to measurements; a single tap reads each line once, more taps find it in L1 again.
    """
    lines = (rows + vectors * lanes) * F32_BYTES / 64
    return max(rows * vectors / 2, 0.58 * (rows + 2 * vectors), 4.0) + 0.3 + 1.2 * lines / min(taps, 8)


def _plan(problem: Problem, view: View, machine: Machine, threads: int, rows: str, spec: KernelSpec) -> Plan:
    conv = view.conv
    lanes = "dst" if rows == "src" else "src"
    per_group = {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}
    row_panels, lane_panels = ceil(per_group[rows] / spec.tile.rows), ceil(per_group[lanes] / spec.width)
    cost = _cost(problem, view, machine, rows, spec)
    best = None
    for row_parts, lane_parts in _splits(row_panels, lane_panels, conv.groups, threads):
        tasks = conv.groups * row_parts * lane_parts
        most = ceil(row_panels / row_parts) * ceil(lane_panels / lane_parts)
        rounds = ceil(tasks / threads) * most / (row_panels * lane_panels * conv.groups)
        shape = _chunk(view, machine, rows, spec, ceil(row_panels / row_parts), ceil(lane_panels / lane_parts))
        time = cost.of(row_parts, lane_parts, 1) * rounds + 2000.0 * (threads > 1)
        time *= 1 + 10 * (shape[2] * threads > SCRATCH_BYTES)
        if best is None or time < best[0]:
            best = (time, row_parts, lane_parts, shape)
    assert best is not None
    time, row_parts, lane_parts, (slice_blocks, chunk_images, scratch) = best
    return Plan(
        NAME, spec, rows, slice_blocks, chunk_images, row_parts, lane_parts, conv.groups, threads, scratch,
        height_of(problem), time / 1e6,
    )  # fmt: skip


def _splits(row_panels: int, lane_panels: int, groups: int, threads: int) -> list[tuple[int, int]]:
    """Return the ways to cut the weights that keep threads busy; more than two tasks a thread are not needed."""
    counts = [1] if threads == 1 else [n for n in range(1, 4 * threads + 1) if n * groups <= max(4 * threads, groups)]
    counts += [8, 16, 32, 64]
    return [
        (r, lanes)
        for r in counts
        for lanes in counts
        if r <= row_panels and lanes <= lane_panels and (r * lanes <= max(64, 4 * threads))
    ]


def _chunk(
    view: View, machine: Machine, rows: str, spec: KernelSpec, row_panels: int, lane_panels: int
) -> tuple[int, int, int]:
    """Return (blocks a slice or 0 for whole images, images a chunk, scratch bytes) of a part of the weights."""
    conv = view.conv
    cutting = pieces(view)
    packed_rows = 0 if spec.row_layout == IN_PLACE else spec.tile.rows
    inner = conv.axes[-1]
    stretch = {"src": _sources(view) / conv.positions, "dst": 1.0}  # source positions a destination position
    lanes = "dst" if rows == "src" else "src"
    pair = (spec.tile.rows * stretch[rows] + spec.width * stretch[lanes]) * F32_BYTES
    both = (packed_rows * row_panels * stretch[rows] + spec.width * lane_panels * stretch[lanes]) * F32_BYTES
    everything = conv.batch * conv.positions
    levels = max(1, levels_of(cutting.blocks) + levels_of(-(-conv.batch // cutting.images_a_block)))
    tile_bytes = levels * spec.tile.rows * spec.width * F32_BYTES
    if cutting.blocks == 1 and pair * everything <= machine.l2_bytes // 2 and both * everything <= 8 << 20:
        return 0, conv.batch, int(both * everything) + tile_bytes
    sums = tile_bytes * row_panels * lane_panels * conv.taps
    budget = max(machine.l2_bytes // 4, machine.l2_bytes // 2 - sums // levels)
    room = budget / max(1.0, (spec.tile.rows * row_panels * stretch[rows] + spec.width * lane_panels) * F32_BYTES)
    if cutting.blocks == 1:
        images = max(1, int(room / conv.positions) // cutting.images_a_block) * cutting.images_a_block
        images = min(images, -(-conv.batch // cutting.images_a_block) * cutting.images_a_block)
        return 0, images, int(both * images * conv.positions) + sums
    block = conv.positions / cutting.blocks
    halo = inner.kernel * inner.dilation
    blocks = max(1, min(int(room / block), cutting.blocks))
    return blocks, 1, int(both * (blocks * block + halo)) + sums
