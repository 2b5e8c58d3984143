"""What kernels of forwards and data gradients cost, and under a cut of them: what they add to ``plan/cost.py``."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf, prod

from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.plan.cost import PACK_NS, STORE_NS, Costs, Cut, cycle_ns, on_threads_ns, traffic_ns
from convgrad.plan.forward.cuts import claimed, cuts, kn2row_cuts, parts_of, read_bytes
from convgrad.plan.forward.kn2row import Kn2rowSpec, reached, rows_of, slab_count
from convgrad.plan.forward.nest import Along, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.machine import Machine
from convgrad.plan.pairs import chain_adds
from convgrad.plan.recipe import CHANNELS, SPATIAL, STRIDED, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.problem import Problem

Timed = Iterator[tuple[float, Cut]]  # ways to cut a kernel's work, and what each takes


def alone(problem: Problem, view: ForwardNest, machine: Machine, spec: ForwardSpec, operands: Operands) -> Costs:
    """Return what a kernel costs as if all positions were one output block."""
    return costs(view.seen(spec), machine, spec, operands, tuple(axis.extent for axis in view.seen(spec).axes))


def timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the ways to cut a kernel's work: costs depend on the size of output blocks, data is packed by them."""
    view = view.seen(one.spec)
    along = runs_along(view.axes, one.spec.rows, one.spec.vectors)
    in_slabs: dict[tuple[int, ...], Costs] = {}
    for cut in cuts(view, machine, one.spec, threads, along):
        slab = cut.loops["slab"]
        if slab not in in_slabs:
            in_slabs[slab] = costs(view, machine, one.spec, one.operands, slab)
        yield time_ns(in_slabs[slab], view, machine, cut), cut


def time_ns(one: Costs, view: ForwardNest, machine: Machine, cut: Cut) -> float:
    """Return the time under a cut: a thread, or a task, packs the weights it needs, each part of results all data."""
    (_, parts, slabs), (_, panels, _) = cut.parts, cut.counts
    compute = one.compute_ns
    if not one.spec.lanes_in_place and not cut.loops["pass_blocks"]:
        over = read_bytes(view, one.spec) / machine.l2_bytes - constants.PANELS_SHARE
        compute *= 1 + constants.PANEL_L2_MISS_FACTOR * min(max(0.0, over), 1.0)
    chunks = ceil(panels / parts / cut.loops["panels"])  # that a thread packs for each task, if several
    times = slabs if chunks > 1 else min(slabs, cut.threads)
    packed = compute + one.store_ns + one.a_ns * (parts * chunks) + one.b_ns * times
    return on_threads_ns(packed, _share(cut), cut, constants.POSITIONS_IMBALANCE)


def _share(cut: Cut) -> float:
    """Return the share of the largest task; of the last parts, which threads claim, as if all were alike."""
    share = 1.0
    for count, parts in zip(cut.counts, cut.parts, strict=True):
        largest = -(-count // parts) / count
        share *= largest
    return share if parts <= cut.threads else share / largest / parts


# -- outer products, and grouped stencils ------------------------------------------------------------------------------


def costs(view: ForwardNest, machine: Machine, spec: ForwardSpec, operands: Operands, slab: tuple[int, ...]) -> Costs:
    """Return what a kernel costs on its view by output blocks of such a size."""
    results, window = view.positions * view.groups * view.results, spec.window
    store = results * (_window_store_ns(machine, spec) if window else STORE_NS[spec.out])
    if window:
        cycles, packed = _window_cycles(view, machine, spec, slab), view.results
    else:
        cycles, packed = _tile_cycles(view, machine, spec, slab), ceil(view.results / spec.width) * spec.width
    paired = constants.PACK_PAIR_NS if spec.step == 2 else 0.0
    weights = view.groups * view.taps * view.terms * packed * (PACK_NS[spec.weights] + paired)
    if spec.lanes_in_place:
        weights = 0.0
    return Costs(spec, operands, cycles * cycle_ns(machine), store, _read_ns(view, machine, spec, slab), weights)


def _window_store_ns(machine: Machine, spec: ForwardSpec) -> float:
    """Return what an output of a window costs: where results lie together, it stores them itself."""
    if spec.out == CHANNELS:
        return traffic_ns(machine, FORMATS[spec.output].dtype.itemsize)
    if spec.out == SPATIAL:  # squares of few rows are as long
        return constants.GROUPED_STORE_NS * max(1.0, spec.isa.lanes / spec.rows)
    return STORE_NS[spec.out]


def _read_ns(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...]) -> float:
    """Return the time to read all data, and to pack it where it is packed: once, and again what slabs share."""
    met = prod(axis.met * _halo(axis, size) for axis, size in zip(view.axes, slab, strict=True))
    elements = met * view.groups * view.channels
    read = traffic_ns(machine, FORMATS[spec.operand].dtype.itemsize)
    looked = {1: 0.0, 2: constants.MIN_EXPONENT_NS if spec.in_place else constants.PACK_PAIR_NS}[spec.step]
    return elements * (read + looked + (0.0 if spec.in_place else PACK_NS[spec.data]))


def _halo(axis: Along, size: int) -> float:
    """Return how often slabs of so many positions have a position of the operand packed."""
    slabs = ceil(axis.extent / size)
    return 1 + (slabs - 1) * axis.parts.reach / max(1, axis.met)


def crowded(view: ForwardNest) -> bool:
    """Tell whether what positions of a group meet crowds few sets of the first cache, where taps meet it again."""
    last = view.axes[-1]
    few = (
        view.groups > 1
        and last.data % constants.SET_CONFLICT_BYTES == 0
        and view.terms * view.data[1] < constants.SET_CONFLICT_BYTES
    )
    return few and view.taps > 1


def _tile_cycles(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...]) -> float:
    """Return the cycles of the tiles of all panels."""
    full, rest = divmod(view.results, spec.width)
    widths = [spec.vectors] * full
    if rest:
        widths.append(1 if spec.narrow and rest <= spec.isa.lanes else spec.vectors)
    adds = chain_adds(view.terms, spec.step, machine)
    of_width = {v: _box_cycles(view, spec.rows, v, slab, adds) for v in set(widths)}
    cycles = view.groups * sum(map(of_width.__getitem__, widths))
    if spec.in_place and spec.data == CHANNELS and crowded(view):
        return cycles * constants.SET_CONFLICT_FACTOR
    return cycles * constants.PAIR_SPLIT_FACTOR if spec.in_pairs and spec.step == 1 else cycles


def _box_cycles(view: ForwardNest, rows: int, vectors: int, slab: tuple[int, ...], adds: float) -> float:
    """Return the cycles of all boxes under one panel: tiles run along the axis of each that wastes least.

    Boxes are products of the axes' parts, and so is most of what they cost: only what is wasted is not, so parts of an
    axis that waste alike are counted together.
    """
    work, boxes, runs = {inf: 1.0}, 1, 1  # multiply-adds a term of the boxes that waste so much
    for axis, size in zip(view.axes, slab, strict=True):
        parts, more = parts_of(axis, size), dict[float, float]()
        for count, meetings in parts.counted:
            here = tiles(count, rows, vectors)[2]
            for waste, found in work.items():
                least = min(waste, here)
                more[least] = more.get(least, 0.0) + found * meetings
        work, boxes, runs = more, boxes * len(parts), runs * parts.all_taps
    begin = constants.REGION_CYCLES * boxes + constants.SEGMENT_CYCLES * runs
    compute = sum(waste * found for waste, found in work.items())
    return compute * adds + begin + constants.MICRO_TILE_ROW_CYCLES * view.positions


def runs_along(axes: tuple[Along, ...], rows: int, vectors: int) -> int:
    """Return the axis that wastes least where the most work is: the last of such."""
    waste = [tiles(axis.parts.largest, rows, vectors)[2] for axis in axes]
    return max(a for a, w in enumerate(waste) if w <= min(waste) * constants.INNER_AXIS_FACTOR)


def _window_cycles(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...]) -> float:
    """Return the cycles of all windows of a view whose groups are merged, by slabs of such a size."""
    *outer, last = (parts_of(axis, size) for axis, size in zip(view.axes, slab, strict=True))
    positions = prod(axis.extent for axis in view.axes[:-1])
    rows_of_taps = prod(parts.meetings for parts in outer)
    panels = ceil(view.results / spec.width)
    found = 0.0
    for (count, taps), parts in last.alike:
        rows, each, _ = tiles(count, spec.rows, spec.vectors)
        many = each * parts
        found += many * positions * (constants.GROUPED_CYCLES + constants.GROUPED_ROW_CYCLES * rows * spec.vectors)
        if taps:
            found += many * rows_of_taps * _row_cycles(machine, spec, rows, taps)
    boxes = prod(len(parts) for parts in (*outer, last))
    assert spec.window is not None
    if spec.window.groups == spec.isa.lanes and spec.in_place and panels > 1:
        found *= constants.GROUPED_ALONE_FACTOR
    return found * panels + constants.REGION_CYCLES * boxes


def _row_cycles(machine: Machine, spec: ForwardSpec, rows: int, taps: int) -> float:
    """Return the cycles of a row of taps: two multiply-adds or loads each, and a vector spread over its lanes each."""
    window = spec.window
    assert window is not None
    found = 0.0
    for size in window.sizes:
        times, taps = divmod(taps, size)
        terms = window.terms // spec.step
        products = rows * size * terms * spec.vectors
        adds = products / terms * chain_adds(window.terms, spec.step, machine)
        met = min(window.reach(rows, size), rows * size) * spec.vectors
        held = spec.holds(window, rows, size, spec.vectors)
        of_a_vector = ceil(window.groups * terms / spec.vectors / spec.isa.lanes)
        loads = met * of_a_vector + (0 if held else products)
        spread = met * terms * of_a_vector if window.results * window.terms > 1 else 0
        found += times * (max(adds / 2, loads * constants.LOAD_CYCLES) + spread)
    return found + constants.SEGMENT_CYCLES


# -- kn2row, and the spatial stencil ---------------------------------------------------------------------------------


def kn2row_alone(problem: Problem, view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands) -> Costs:
    """Return what kn2row costs as if all positions were one output block."""
    return _kn2row_costs(view, machine, spec, operands, (view.axes[spec.line].extent, view.axes[-1].extent), 1)


def kn2row_timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the way to cut kn2row: each part packs all weights."""
    for cut in kn2row_cuts(view, machine, one.spec, threads):
        (parts,) = cut.parts
        each = _kn2row_costs(view, machine, one.spec, one.operands, cut.loops["slab"], parts)
        packed = each.alone_ns + each.a_ns * (parts - 1)
        yield on_threads_ns(packed, _share(cut), cut, constants.POSITIONS_IMBALANCE), cut


def _kn2row_costs(
    view: ForwardNest, machine: Machine, spec: Kn2rowSpec, operands: Operands, slab: tuple[int, int], parts: int
) -> Costs:
    """Return the costs of what output blocks reach, each part's own lines among them, and of what is gathered."""
    one, rows = spec.product, rows_of(view)
    lines, last = (reached(view.axes[at], size) for at, size in zip((spec.line, -1), slab, strict=True))
    inner = prod(axis.met for axis in view.axes[spec.line + 1 : -1])
    images = prod(axis.extent for axis in view.axes[: spec.line])
    fresh = max((each.stop for each in lines), default=0) - min((each.start for each in lines), default=0)
    again = max(0, parts - images) * max(0, max(map(len, lines)) - fresh // len(lines))
    met = (images * fresh + again) * inner * sum(map(len, last))
    met = max(met, slab_count(view, spec, slab) * one.width)  # lanes of a slab without a position are packed too
    _, _, cycles = tiles(rows, one.rows, one.vectors)
    compute = met * rows * view.terms * cycles / one.width * cycle_ns(machine)
    read = PACK_NS[one.weights] + traffic_ns(machine, FORMATS[one.operand].dtype.itemsize)
    store = STORE_NS[STRIDED if spec.out == STRIDED else CHANNELS]
    adds = (
        view.met_taps * view.results / one.isa.lanes * constants.KN2ROW_ADD_NS + view.positions * view.results * store
    )
    return Costs(spec, operands, compute, adds, rows * view.terms * PACK_NS[one.data], met * view.terms * read)


def stencil_costs(
    problem: Problem, view: ForwardNest, machine: Machine, spec: SpatialStencilSpec, operands: Operands
) -> Costs:
    """Return what a spatial stencil costs: loads and multiply-adds of whole tiles, lists of taps, what is stored."""
    lines, last = view.axes[-2], view.axes[-1]
    outer = prod(axis.extent for axis in view.axes[:-2])
    tiles_along = sum(ceil(len(phase.positions) / spec.lines) for phase in lines.phases)
    taps = view.taps / len(lines.phases) * view.terms
    many = view.groups * outer * tiles_along * ceil(last.extent / spec.across) * ceil(view.results / spec.results)
    vectors = spec.lines * spec.vectors
    vector = constants.UNALIGNED_LOAD_CYCLES + constants.SPATIAL_FMA_CYCLES * spec.results
    term = vectors * vector + spec.lines * constants.SPATIAL_LINE_CYCLES
    cycles = many * taps * (term + constants.SPATIAL_VECTOR_CYCLES * (spec.vectors - 1) + constants.STEP_CYCLES)
    listed = tiles_along * taps * constants.SEGMENT_CYCLES
    store = view.positions * view.groups * view.results * STORE_NS[CHANNELS]
    return Costs(spec, operands, (cycles + listed) * cycle_ns(machine), store, 0.0, 0.0)


def stencil_timed(one: Costs, problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Timed:
    """Yield the way to cut a spatial stencil: parts of the groups."""
    cut = Cut((view.groups,), (claimed(view.groups, threads),), threads, {})
    yield on_threads_ns(one.alone_ns, _share(cut), cut, constants.POSITIONS_IMBALANCE), cut
