"""Weight gradients by outer-product tiles: what a kernel costs on a problem, and the cheapest loops around it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd, prod
from operator import le

import numpy as np

from convgrad.plan.joins import levels_of
from convgrad.plan.lines import meetings, tap_share
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import CHANNELS, F32_BYTES, IN_PLACE, POSITIONS, STRIDED, KernelSpec, Parts, Plan, Tile
from convgrad.plan.schedule import inner_step
from convgrad.plan.taps import SHORTEST_LINE, starts
from convgrad.plan.view import View, blocks_of, collapsed, per_group
from convgrad.spec.geometry import Axis
from convgrad.spec.order import BLOCK, height_of
from convgrad.spec.problem import Problem

FEW = 1 << 16  # multiply-adds: below, a kernel that other layers use too is as good, and need not be compiled
SCRATCH_BYTES = 64 << 20  # of all threads
PACK_NS = {CHANNELS: 0.08, POSITIONS: 0.2, STRIDED: 1.5, IN_PLACE: 0.0}  # an element, in cache
SPREAD_NS = 0.015  # more for each channel of a group that lanes are picked from
ALL_BYTES = 8 << 20  # of packed operands, where all are packed at once
MOST_AGAIN = 16  # times that tables of places have what an image meets, where each slice of it meets much of it
L2_WAYS = 16
WAKE_NS = 15_000.0  # a thread that waits is there in 3 microseconds, one that sleeps in 50 to 150
UNEVEN = 0.1
CALL_NS = 20_000.0  # checks, and the way into compiled code
APART_BYTES = 96.0  # what reading a piece of memory of its own costs, as bytes of a longer one
# A weight, by what lies next to each other in the output: the first that does, as finish.py has it; or nothing.
FINISH_NS = {"lanes": 0.3, "rows": 0.65, "taps": 0.4, "": 1.0}
FEW_SUMS = 0.65  # of the registers: beyond, tiles of groups are slower
MOST_APART = 256  # bytes from a position to the next where lanes are read in place: farther, few sets of L1 hold all
REMOTE = 5.0  # how much longer it takes to read what another core has written
WHOLE: Parts = (1, 1, 1, 1, 1)
RUN_CYCLES, SEGMENT_CYCLES, JOIN_CYCLES = 12.0, 8.0, 1.5  # to begin a run, a segment; to join a vector of sums


@dataclass(frozen=True)
class Kernel:
    """A kernel on a problem: which operand its rows are from, time of its arithmetic and of its packs."""

    spec: KernelSpec
    rows: str
    compute_ns: float
    finish_ns: float
    row_pack_ns: float
    lane_pack_ns: float

    @property
    def lanes(self) -> str:
        """The operand that its lanes are from."""
        return "dst" if self.rows == "src" else "src"

    def of(self, parts: Parts = WHOLE, halo: float = 1.0, apart: float = 0.0) -> float:
        """Return one thread's time when all is cut in parts: each part of the rows packs all lanes again.

        ``halo`` is how often src is read because chunks overlap, ``apart`` what short pieces of memory cost more.
        """
        _, rows, lanes, taps, _ = parts
        row_pack, lane_pack = self.row_pack_ns, self.lane_pack_ns
        if self.rows == "src":
            row_pack *= halo
        else:
            lane_pack *= halo
        compute = self.compute_ns * (1 + apart) if self.spec.groups_in_place else self.compute_ns
        return compute + self.finish_ns + (1 + apart) * taps * (row_pack * lanes + lane_pack * rows)


def layout(view: View, tensor: str, size: int) -> str:
    """Return how a (N, C, X...) array lies, by what is next to what; one channel lies as you like."""
    shape = view.conv.src_shape if tensor == "src" else view.conv.dst_shape
    if view.strides(tensor)[1] == size or shape[1] == 1:
        return CHANNELS
    return POSITIONS if inner_step(view, tensor) == size else STRIDED


def kernel(problem: Problem, view: View, machine: Machine, rows: str, spec: KernelSpec) -> Kernel:
    """Return a kernel with what it costs on a problem."""
    conv, isa, tile = view.conv, machine.isa, spec.tile
    channels, lanes = per_group(view), "dst" if rows == "src" else "src"
    cycle_ns = 2 * isa.lanes / machine.fma_per_ns
    if spec.groups_in_lanes:
        widths = [(ceil(channels[lanes] / tile.vectors), tile.vectors)]
    else:
        full, rest = divmod(channels[lanes], spec.width)
        widths = [(full, tile.vectors)]
        if rest:
            widths.append((1, min(1 << (ceil(rest / isa.lanes) - 1).bit_length(), tile.vectors)))
    terms = conv.batch * conv.positions
    if tile.taps == 1 and not spec.groups_in_lanes:
        cycles = terms * conv.taps * sum(n * _dense_cycles(tile.rows, v, isa.lanes, conv.taps) for n, v in widths)
        if spec.row_layout == IN_PLACE and conv.taps > 1 and channels[rows] > 64:
            cycles *= 1.15  # strided lines crowd the sets of a cache
    else:
        cycles = sum(n * _taps_cycles(view, spec, v) for n, v in widths)
    compute = ceil(conv.groups / spec.groups_a_panel) * ceil(channels[rows] / tile.rows) * cycles * cycle_ns
    elements = {
        "src": conv.batch * conv.src_channels * prod(min(axis.src, _span(axis)) for axis in conv.axes),
        "dst": terms * conv.dst_channels,
    }
    read_ns = problem.operand_format.dtype.itemsize / machine.bytes_per_ns  # each part of the weights reads all again
    row_pack, lane_pack = (
        PACK_NS[lies] + (SPREAD_NS * spread if lies == CHANNELS else 0.0) + read_ns
        for lies, spread in zip((spec.row_layout, spec.lane_layout), spec.group_channels, strict=True)
    )
    finish = finish_ns(problem, view, spec, lanes)
    return Kernel(spec, rows, compute, finish, row_pack * elements[rows], lane_pack * elements[lanes])


def finish_ns(problem: Problem, view: View, spec: KernelSpec, lanes: str) -> float:
    """Return what rounding and writing the weights takes; ``lanes`` is the operand that lanes are from."""
    conv, channels, (dst, src, *taps) = view.conv, per_group(view), view.weights_strides
    next_lane, next_row = (dst, src) if lanes == "dst" else (src, dst)
    if spec.groups_in_lanes:
        next_lane = channels["dst"] * dst
    line = conv.taps if spec.tile.taps == 1 else spec.tile.taps
    next_tap = next((step for step in reversed(taps) if step), 0) if line >= SHORTEST_LINE else 0
    size, ways = problem.output_format.dtype.itemsize, {"lanes": next_lane, "rows": next_row, "taps": next_tap}
    way = next((name for name, step in ways.items() if step == size), "")
    return FINISH_NS[way] * conv.dst_channels * channels["src"] * conv.taps


def _span(axis: Axis) -> int:
    """Return how many source positions lie from the first that an axis may meet to the last."""
    return (axis.dst - 1) * axis.stride + axis.effective_kernel


def _dense_cycles(rows: int, vectors: int, lanes: int, taps: int) -> float:
    """Return cycles a position: two FMAs or loads each cycle, a sum's own latency of four, and lines from L2.

    The constants are fitted to measurements; a single tap reads each line once, more taps find it in L1 again.
    """
    lines = (rows + vectors * lanes) * F32_BYTES / LINE_BYTES
    return max(rows * vectors / 2, 0.58 * (rows + 2 * vectors), 4.0) + 0.3 + 1.2 * lines / min(taps, 8)


def _taps_cycles(view: View, spec: KernelSpec, vectors: int) -> float:
    """Return cycles for all positions and taps of a tile of several taps: FMAs or loads, lines, segments, joins."""
    conv, tile = view.conv, spec.tile
    inner = conv.axes[-1]
    sums = tile.taps * tile.rows * vectors
    loads = tile.rows * (tile.taps if spec.taps_on_rows else 1) + vectors * (1 if spec.taps_on_rows else tile.taps)
    position = max(sums / 2, 0.52 * loads, 4.0) + 0.3
    if sums > FEW_SUMS * spec.isa.registers and spec.groups_in_lanes:
        position *= 1.1
    lines = conv.batch * _outer_meetings(conv.axes[:-1], tile.outer_taps)
    tiles = len(starts(inner.kernel, tile.inner_taps))
    padded = sum(p > 0 for p in (inner.pad_begin, inner.pad_end)) * min(tile.inner_taps - 1, inner.dst)
    begin = RUN_CYCLES + SEGMENT_CYCLES * (1 + padded) + 0.5 * position * min(padded, inner.dst)
    blocks, together = blocks_of(conv)
    joins = conv.batch * blocks / together * len(starts(_outer_taps(conv.axes[:-1]), tile.outer_taps))
    return tiles * (lines * (position * inner.dst + begin) + joins * JOIN_CYCLES * sums)


def _outer_taps(axes: tuple[Axis, ...]) -> int:
    return prod(a.kernel for a in axes)


@lru_cache(maxsize=256)
def _outer_meetings(axes: tuple[Axis, ...], together: int) -> int:
    """Return how many pairs there are of a row of dst and a tile of outer taps, of which the one that most meet."""
    met = meetings(axes)
    return int(met[np.add.outer(starts(len(met), together), np.arange(together))].max(1).sum())


def plan(problem: Problem, view: View, machine: Machine, threads: int, name: str, chosen: Kernel) -> Plan:
    """Return the plan of one kernel: the cheapest of one thread and all, over the ways to cut the weights."""
    spec, rows = chosen.spec, chosen.rows
    channels = per_group(view)
    _, together = blocks_of(view.conv)
    units = ceil(view.conv.batch / together)
    whole = (
        ceil(view.conv.groups / spec.groups_a_panel),
        ceil(channels[rows] / spec.tile.rows),
        ceil(channels[chosen.lanes] / spec.lane_channels),
        len(starts(_outer_taps(view.conv.axes[:-1]), spec.tile.outer_taps))
        * len(starts(view.conv.axes[-1].kernel, spec.tile.inner_taps)),
        units,
    )
    unit_bytes = prod(whole[:4]) * spec.tile_bytes
    size = problem.operand_format.dtype.itemsize
    lies = (spec.row_layout, spec.lane_layout)
    found = []
    for used in {1, threads}:
        for parts in _splits((whole[0], *(min(n, 64) for n in whole[1:4]), whole[4]), used):
            tasks = prod(parts)
            largest = tuple(map(ceil, (n / p for n, p in zip(whole, parts, strict=True))))
            chunk = _chunk(view, machine, rows, spec, largest, size)
            piece = largest[0] * spec.groups_a_panel * min(channels.values()) * size
            whole_rows = view.conv.groups == 1 or (parts[0] == 1 and spec.groups_in_place) or POSITIONS in lies
            apart = 0.0 if whole_rows else APART_BYTES / piece
            share = prod(largest[:4]) / prod(whole[:4]) * min(1.0, largest[4] * together / view.conv.batch)
            time = chosen.of(parts, _halo(view, chunk), apart) * ceil(tasks / used) * share
            if used > 1:  # threads take time to wake, and seldom run alike
                time = time * (1 + UNEVEN * used / tasks) + WAKE_NS
            kept = unit_bytes * units if parts[-1] > 1 else 0  # written by all, read by one
            time += kept * (1 / used + REMOTE) / machine.bytes_per_ns
            if chunk.scratch_bytes * used + kept > SCRATCH_BYTES:
                time *= 10
            found.append((time, used, parts, tasks, chunk, kept))
    time, used, parts, tasks, chunk, kept = min(found, key=lambda one: one[0])
    return Plan(
        name, spec, rows, chunk.blocks, chunk.images, parts, min(used, tasks), chunk.scratch_bytes, kept,
        height_of(problem), (time + CALL_NS) / 1e6,
    )  # fmt: skip


def readable_in_place(problem: Problem, view: View, tensor: str) -> bool:
    """Tiles can read an operand where it is if f32 channels are neighbours and positions of a row one step apart."""
    size = problem.operand_format.dtype.itemsize
    if problem.operand_format.name != "f32" or layout(view, tensor, size) != CHANNELS:
        return False
    extents = tuple(a.dst for a in view.conv.axes)
    return not view.pointwise or collapsed(extents, view.strides(tensor)[2:]) is not None


def lanes_in_place(problem: Problem, view: View, isa: Isa, lanes: str, vectors: int) -> bool:
    """Tiles can read lanes where they are in whole panels only, and should where positions lie close together."""
    whole = per_group(view)[lanes] % (vectors * isa.lanes) == 0
    return whole and abs(inner_step(view, lanes)) <= MOST_APART and readable_in_place(problem, view, lanes)


def _halo(view: View, chunk: _Chunk) -> float:
    """Return how often chunks of an image read a value of src: their rows overlap by the kernel's extent."""
    outer = view.conv.axes[:-1]
    if not chunk.blocks or not outer:
        return 1.0
    blocks, _ = blocks_of(view.conv)
    rows = max(1, round(chunk.blocks * prod(a.dst for a in outer) / blocks))  # of dst, at a time
    chunks = prod(a.dst for a in outer) / rows
    read = 1.0
    for axis in reversed(outer):
        extent = min(axis.dst, rows)
        read *= min(axis.src, (extent - 1) * axis.stride + axis.effective_kernel)
        rows = max(1, rows // axis.dst)
    return max(1.0, chunks * read / max(1, prod(a.src for a in outer)))


@lru_cache(maxsize=1024)
def _splits(whole: Parts, threads: int) -> list[Parts]:
    """Return the ways to cut the weights: groups first, the rest where that is not enough for the threads; or images.

    Groups that lie next to each other stay together where they can: what is read then lies together too.
    """
    groups = whole[0]
    enough = 4 * threads if threads > 1 else 1
    found = [(min(groups, n * threads), 1, 1, 1) for n in (1, 2, 4, 8, 16, 64)] + [(groups, 1, 1, 1)]
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if n * groups <= enough]
    found += [(groups, r, c, k) for r in counts for c in counts for k in counts if groups * r * c * k <= enough]
    found += [(groups, 16, 16, 1), (groups, 64, 64, 1)]
    weights = [(*c, 1) for c in dict.fromkeys(found) if c[1:] == (1, 1, 1) or all(map(le, c, whole))]
    images = (threads, 2 * threads, 4 * threads) if threads > 1 else ()
    return weights + [(1, 1, 1, 1, n) for n in images if n <= whole[-1]]


@dataclass(frozen=True)
class _Chunk:
    """What a task packs at a time: blocks of one image, or, where ``blocks`` is 0, whole images."""

    blocks: int
    images: int
    scratch_bytes: int


def lines_held(cache_bytes: int, ways: int, pitch: int) -> int:
    """Return how many lines a pitch apart a cache holds: those a power of two apart share few of its sets."""
    sets = cache_bytes // (ways * LINE_BYTES)
    return ways * sets // gcd(sets, max(1, abs(pitch) // LINE_BYTES))


def _chunk(view: View, machine: Machine, rows: str, spec: KernelSpec, part: tuple[int, ...], size: int) -> _Chunk:
    """Return what a part of the weights packs at a time: all, if two panels fit L2, else what fits beside its sums.

    Several groups are packed one after the other out of what lies together: ``size`` bytes a value, which fits L2 too.
    Groups in lanes are all packed at once.
    """
    conv, (groups, row_panels, lane_panels, taps, units) = view.conv, part
    blocks, together = blocks_of(conv)
    batch = min(conv.batch, units * together)
    levels = max(1, levels_of(blocks) + levels_of(-(-conv.batch // together)))
    tile_bytes = levels * spec.tile_bytes
    if spec.groups_in_place:  # nothing is packed; chains wait beside the sums
        return _Chunk(0, batch if blocks == 1 else 1, (levels + 1) * spec.tile_bytes * groups * taps)
    sources = prod(axis.src for axis in conv.axes)
    stretch = {"src": sources / conv.positions, "dst": 1.0}  # source positions a destination position
    row_bytes = spec.row_bytes * stretch[rows]  # a position of a panel
    lane_bytes = spec.lane_bytes * stretch["dst" if rows == "src" else "src"]
    channels = per_group(view)
    read = 0.0
    if spec.groups_in_lanes:
        row_panels_packed, lane_panels_packed = groups, groups
    else:
        row_panels_packed, lane_panels_packed = row_panels, lane_panels
        read = sum(channels[t] * stretch[t] for t in channels) * size * groups if groups > 1 else 0.0
    row_packed = 0.0 if spec.row_layout == IN_PLACE else row_bytes * row_panels_packed
    lane_read = lane_bytes * lane_panels_packed
    packed = row_packed + (0.0 if spec.lane_layout == IN_PLACE else lane_read)
    everything = batch * conv.positions
    fits = (
        packed if spec.groups_in_lanes else row_bytes + lane_bytes
    ) * everything <= machine.l2_bytes // 2 and packed * everything <= ALL_BYTES
    if spec.row_layout == IN_PLACE:
        fits = fits and everything <= 2 * lines_held(machine.l2_bytes, L2_WAYS, view.strides(rows)[-1])
    fits = fits and read * everything <= machine.l2_bytes // 2
    if blocks == 1 and fits:
        return _Chunk(0, batch, int(packed * everything) + tile_bytes * taps)
    sums = tile_bytes * groups * row_panels * lane_panels * taps
    budget = max(machine.l2_bytes // 4, machine.l2_bytes // 2 - sums // levels)
    held = row_packed
    if spec.row_layout == IN_PLACE:  # other channels lie between, and crowd the sets of a cache
        held = channels[rows] * stretch[rows] * F32_BYTES
    room = budget / max(1.0, held + lane_read + read)  # positions
    if blocks == 1:
        images = max(1, int(room / conv.positions) // together) * together
        images = min(images, units * together)
        return _Chunk(0, images, int(packed * images * conv.positions) + sums)
    block = conv.positions / blocks
    taken = max(1, min(int(room / block), blocks))
    least = ceil(blocks * tap_share(conv.axes[:-1]) / MOST_AGAIN)
    if least > taken:  # whole rows, where those are longer than a block
        a_row = ceil(conv.axes[-1].dst / BLOCK)
        taken = ceil(least / a_row) * a_row
    return _Chunk(taken, 1, int(packed * taken * block) + sums)


def balanced(count: int, most: int) -> int:
    """Return the size of a tile that covers ``count`` in as few tiles as ``most`` does, as evenly as can be.

    >>> balanced(7, 4), balanced(9, 4), balanced(3, 8)
    (4, 3, 3)
    """
    return ceil(count / ceil(count / min(count, most)))


def taps_tiles(view: View, rows: int, vectors: int, room: int, fixed: int) -> list[Tile]:
    """Return the tiles of some rows and vectors with as many taps as registers hold: ``room`` sums of all."""
    *outer, inner = view.conv.axes
    most = room // (rows * vectors)
    if inner.dilation > 1:  # each tap needs an address of its own, and rows as much padding as the taps reach
        most = min(most, fixed, inner.src // inner.dilation + 1)
    if most < 1:
        return []
    k = balanced(inner.kernel, most)
    tiles = [Tile(rows, vectors, 1, k)]
    count = _outer_taps(tuple(outer))
    if k == inner.kernel and count > 1:
        tiles += [
            Tile(rows, vectors, u, k) for u in sorted({balanced(count, n) for n in (2, 3, 4, 5)}) if 1 < u <= most // k
        ]
    return tiles
