"""Dense weight gradients by outer-product tiles: what they apply to, the plans there are, and what each costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil, gcd, prod

from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, IN_PLACE, POSITIONS, STRIDED, KernelSpec, Plan, Tile
from convgrad.plan.schedule import F32_BYTES, inner_step, levels_of
from convgrad.plan.view import View, blocks_of, collapsed
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem

NAME = "dense weights"
SCRATCH_BYTES = 64 << 20  # of all threads
PACK_NS = {CHANNELS: 0.16, POSITIONS: 0.3, STRIDED: 1.5, IN_PLACE: 0.0}  # an element, in cache
ALL_BYTES = 8 << 20  # of packed operands, where all are packed at once
LINE_BYTES, L2_WAYS = 64, 16
WAKE_NS = 50_000.0
UNEVEN = 0.1
FINISH_NS = {True: 0.3, False: 1.0}  # a weight: its lanes next to each other in the output, or not


@dataclass(frozen=True)
class _Cost:
    """A tile on one problem: time of its arithmetic and of its packs."""

    compute_ns: float
    finish_ns: float
    row_pack_ns: float
    lane_pack_ns: float

    def of(self, parts: tuple[int, int, int]) -> float:
        """Return one thread's time when rows, lanes and taps are cut: each part of the rows packs all lanes again."""
        rows, lanes, taps = parts
        return self.compute_ns + self.finish_ns + taps * (self.row_pack_ns * lanes + self.lane_pack_ns * rows)


def layout(view: View, tensor: str, size: int) -> str:
    """Return how a (N, C, X...) array lies, by what is next to what; one channel lies as you like."""
    shape = view.conv.src_shape if tensor == "src" else view.conv.dst_shape
    if view.strides(tensor)[1] == size or shape[1] == 1:
        return CHANNELS
    return POSITIONS if inner_step(view, tensor) == size else STRIDED


def plans(problem: Problem, view: View, machine: Machine, threads: int, most: int | None) -> list[Plan]:
    """Return the plans of a dense weight gradient, the cheapest first: of ``most`` kernels, or of all there are."""
    kernels = [
        (_cost(problem, view, machine, rows, spec), rows, spec)
        for rows, (most_rows, vectors) in product(("src", "dst"), machine.isa.tiles)
        for spec in _specs(problem, view, machine, rows, most_rows, vectors)
    ]
    kernels.sort(key=lambda one: one[0].of((1, 1, 1)))
    found = [_plan(problem, view, machine, threads, *one) for one in kernels[:most]]
    return sorted(found, key=lambda plan: plan.time_ms)


def _specs(problem: Problem, view: View, machine: Machine, rows: str, most_rows: int, vectors: int) -> list[KernelSpec]:
    lanes, size = _other(rows), problem.operand_format.dtype.itemsize
    lies = {tensor: layout(view, tensor, size) for tensor in ("src", "dst")}
    most_rows = min(most_rows, _per_group(view)[rows])
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
    per_group, lanes = _per_group(view), _other(rows)
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
    read_ns = problem.operand_format.dtype.itemsize / machine.bytes_per_ns  # each part of the weights reads all again
    row_pack, lane_pack = PACK_NS[spec.row_layout] + read_ns, PACK_NS[spec.lane_layout] + read_ns
    return _Cost(compute, finish, row_pack * elements[rows], lane_pack * elements[lanes])


def _per_group(view: View) -> dict[str, int]:
    conv = view.conv
    return {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}


def _other(tensor: str) -> str:
    return "dst" if tensor == "src" else "src"


def _sources(view: View) -> int:
    return prod(axis.src for axis in view.conv.axes)


def _tile_cycles(rows: int, vectors: int, lanes: int, taps: int) -> float:
    """Return cycles a position: two FMAs or loads each cycle, a sum's own latency of four, and lines from L2.

    The constants are fitted to measurements; a single tap reads each line once, more taps find it in L1 again.
    """
    lines = (rows + vectors * lanes) * F32_BYTES / LINE_BYTES
    return max(rows * vectors / 2, 0.58 * (rows + 2 * vectors), 4.0) + 0.3 + 1.2 * lines / min(taps, 8)


def _plan(
    problem: Problem, view: View, machine: Machine, threads: int, cost: _Cost, rows: str, spec: KernelSpec
) -> Plan:
    """Return the plan of one kernel: the cheapest of one thread and all, over the ways to cut the weights."""
    groups, per_group = view.conv.groups, _per_group(view)
    row_panels = ceil(per_group[rows] / spec.tile.rows)
    lane_panels = ceil(per_group[_other(rows)] / spec.width)
    whole = (row_panels, lane_panels, view.conv.taps)
    found = []
    for used in {1, threads}:
        for parts in _splits(whole, groups, used):
            tasks = groups * prod(parts)
            largest = tuple(map(ceil, (n / p for n, p in zip(whole, parts, strict=True))))
            chunk = _chunk(view, machine, rows, spec, largest)
            time = cost.of(parts) * ceil(tasks / used) * prod(largest) / (prod(whole) * groups)
            if used > 1:  # threads take time to wake, and seldom run alike
                time = time * (1 + UNEVEN * used / tasks) + WAKE_NS
            if chunk.scratch_bytes * used > SCRATCH_BYTES:
                time *= 10
            found.append((time, used, parts, tasks, chunk))
    time, used, parts, tasks, chunk = min(found, key=lambda one: one[0])
    return Plan(
        NAME, spec, rows, chunk.blocks, chunk.images, groups, parts, min(used, tasks), chunk.scratch_bytes,
        height_of(problem), time / 1e6,
    )  # fmt: skip


def _splits(whole: tuple[int, int, int], groups: int, threads: int) -> list[tuple[int, int, int]]:
    """Return the ways to cut the weights of a group: some for threads, more to bound the scratch of a task."""
    enough = max(1, ceil(4 * threads / groups)) if threads > 1 else 1
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if n <= enough]
    cuts = [(r, c, k) for r in counts for c in counts for k in counts if r * c * k <= enough]
    cuts += [(16, 16, 1), (64, 64, 1)]
    return [c for c in cuts if c == (1, 1, 1) or all(p <= n for p, n in zip(c, whole, strict=True))]


@dataclass(frozen=True)
class _Chunk:
    """What a task packs at a time: blocks of one image, or, where ``blocks`` is 0, whole images."""

    blocks: int
    images: int
    scratch_bytes: int


def _lines_held(machine: Machine, pitch: int) -> int:
    """Return how many lines a pitch apart the second cache holds: those a power of two apart share few of its sets."""
    sets = machine.l2_bytes // (L2_WAYS * LINE_BYTES)
    return L2_WAYS * sets // gcd(sets, max(1, pitch // LINE_BYTES))


def _chunk(view: View, machine: Machine, rows: str, spec: KernelSpec, part: tuple[int, ...]) -> _Chunk:
    """Return what a part of the weights packs at a time: all, if two panels fit L2, else what fits beside its sums."""
    conv, (row_panels, lane_panels, taps) = view.conv, part
    blocks, together = blocks_of(conv)
    stretch = {"src": _sources(view) / conv.positions, "dst": 1.0}  # source positions a destination position
    row_bytes = spec.tile.rows * stretch[rows] * F32_BYTES  # a position of a panel
    lane_bytes = spec.width * stretch[_other(rows)] * F32_BYTES
    packed = (0 if spec.row_layout == IN_PLACE else row_bytes * row_panels) + lane_bytes * lane_panels
    everything = conv.batch * conv.positions
    levels = max(1, levels_of(blocks) + levels_of(-(-conv.batch // together)))
    tile_bytes = levels * spec.tile.rows * spec.width * F32_BYTES
    fits = (row_bytes + lane_bytes) * everything <= machine.l2_bytes // 2 and packed * everything <= ALL_BYTES
    if spec.row_layout == IN_PLACE:
        fits = fits and everything <= 2 * _lines_held(machine, abs(view.strides(rows)[-1]))
    if blocks == 1 and fits:
        return _Chunk(0, conv.batch, int(packed * everything) + tile_bytes * taps)
    sums = tile_bytes * row_panels * lane_panels * taps
    budget = max(machine.l2_bytes // 4, machine.l2_bytes // 2 - sums // levels)
    held = row_bytes * row_panels
    if spec.row_layout == IN_PLACE:  # other channels lie between, and crowd the sets of a cache
        held = _per_group(view)[rows] * stretch[rows] * F32_BYTES
    room = budget / max(1.0, held + lane_bytes * lane_panels)  # positions
    if blocks == 1:
        images = max(1, int(room / conv.positions) // together) * together
        images = min(images, -(-conv.batch // together) * together)
        return _Chunk(0, images, int(packed * images * conv.positions) + sums)
    block = conv.positions / blocks
    taken = max(1, min(int(room / block), blocks))
    return _Chunk(taken, 1, int(packed * taken * block) + sums)
