"""What a kernel costs on a forward or a data gradient, and under a cut of it, in terms of ``constants.py``."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, prod

from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.plan.cost import PACK_NS
from convgrad.plan.forward import grouped_stencil
from convgrad.plan.forward.cuts import Cut, panels_of, parts_of, read_bytes
from convgrad.plan.forward.heights import tiles
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.view import Along, ForwardNest
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS

FINISH_NS = {CHANNELS: constants.FINISH_LANES_NS, SPATIAL: constants.FINISH_ROWS_NS, STRIDED: constants.FINISH_NONE_NS}
WEIGHTS_NS = {
    CHANNELS_OUT: constants.PACK_CHANNELS_NS,
    CHANNELS_IN: constants.PACK_SPATIAL_NS,
    TAPS: constants.PACK_TAPS_NS,
    STRIDED: constants.PACK_STRIDED_NS,
}


@dataclass(frozen=True)
class Costs:
    """What a kernel costs on a problem: arithmetic, output, packing the data slab by slab and all weights once."""

    spec: ForwardSpec
    compute_ns: float
    finish_ns: float
    data_ns: float
    weights_ns: float

    @property
    def alone_ns(self) -> float:
        """One thread's time where nothing is cut."""
        return self.compute_ns + self.finish_ns + self.data_ns + self.weights_ns


def costs(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...] = ()) -> Costs:
    """Return what a kernel costs by slabs of such a size, or as if all were one."""
    cycle_ns = 2 * machine.isa.lanes / machine.fma_per_ns
    size = slab or tuple(axis.extent for axis in view.axes)
    if spec.window:
        return _of_window(view, machine, spec, size, grouped_stencil.cycles(view, spec, size) * cycle_ns)
    full, rest = divmod(view.results, spec.width)
    widths = [spec.vectors] * full
    if rest:
        widths.append(1 if spec.narrow and rest <= spec.isa.lanes else spec.vectors)
    of_width = {v: _box_cycles(view, spec.rows, v, size, spec.step) for v in set(widths)}
    compute = view.groups * sum(map(of_width.__getitem__, widths)) * cycle_ns
    if spec.in_place and spec.data != CHANNELS:
        compute *= constants.TERMS_APART
    elif spec.in_place and crowded(view):
        compute *= constants.IN_PLACE_CROWDED
    elif spec.in_pairs and spec.step == 1:
        compute *= constants.WORDS
    results = view.positions * view.groups * view.results
    finish = results * FINISH_NS[spec.out]
    data = _read_ns(view, machine, spec, size)
    paired = constants.PAIR_NS if spec.step == 2 else 0.0
    weights = view.groups * view.taps * view.terms * len(widths) * spec.width * (WEIGHTS_NS[spec.weights] + paired)
    if spec.lanes_in_place:
        weights = 0.0
    return Costs(spec, compute, finish, data, weights)


def crowded(view: ForwardNest) -> bool:
    """Tell whether what positions of a group meet crowds few sets of the first cache, where taps meet it again."""
    last = view.axes[-1]
    few = (
        view.groups > 1
        and last.data % constants.CROWDED_BYTES == 0
        and view.terms * view.data[1] < constants.CROWDED_BYTES
    )
    return few and view.taps > 1


def _of_window(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...], compute: float) -> Costs:
    """Return what a window costs: where results lie together, it stores them itself."""
    results = view.positions * view.results
    stored = FORMATS[spec.output].dtype.itemsize / machine.bytes_per_ns
    rows = constants.WINDOW_FINISH_NS * max(1.0, spec.isa.lanes / spec.rows)  # squares of few rows are as long
    finish = results * {CHANNELS: stored, SPATIAL: rows, STRIDED: FINISH_NS[STRIDED]}[spec.out]
    weights = view.taps * view.terms * view.results * WEIGHTS_NS[spec.weights]
    return Costs(spec, compute, finish, _read_ns(view, machine, spec, slab), weights)


def _read_ns(view: ForwardNest, machine: Machine, spec: ForwardSpec, slab: tuple[int, ...]) -> float:
    """Return the time to read all data, and to pack it where it is packed: once, and again what slabs share."""
    met = prod(axis.met * _halo(axis, size) for axis, size in zip(view.axes, slab, strict=True))
    elements = met * view.groups * view.channels
    read = FORMATS[spec.operand].dtype.itemsize / machine.bytes_per_ns
    looked = {1: 0.0, 2: constants.LEAST_NS if spec.in_place else constants.PAIR_NS}[spec.step]
    return elements * (read + looked + (0.0 if spec.in_place else PACK_NS[spec.data]))


def time_ns(one: Costs, view: ForwardNest, machine: Machine, cut: Cut, threads: int) -> float:
    """Return the time under a cut: a thread, or a task, packs the weights it needs, each part of results all data."""
    (groups, parts, slabs), panels = cut.parts, panels_of(view, one.spec)
    compute = one.compute_ns
    if not one.spec.lanes_in_place and not cut.pass_blocks:
        over = read_bytes(view, one.spec) / machine.l2_bytes - constants.PANELS_SHARE
        compute *= 1 + constants.PANEL_FROM_FAR * min(max(0.0, over), 1.0)
    chunks = ceil(panels / parts / cut.panels)  # that a thread packs for each task, if several
    times = slabs if chunks > 1 else min(slabs, threads)
    alone = compute + one.finish_ns + one.data_ns * (parts * chunks) + one.weights_ns * times
    share = _largest(view.groups, groups) * _largest(panels, parts)
    share *= _largest(cut.slabs, slabs) if slabs <= threads else 1 / slabs
    time = alone * ceil(cut.tasks / threads) * share
    if min(threads, cut.tasks) > 1:
        time = time * (1 + constants.UNEVEN_BOXES * threads / cut.tasks) + constants.WAKE_NS
    return time + constants.CALL_NS


def _largest(count: int, parts: int) -> float:
    """Return the share of the largest of so many parts."""
    return ceil(count / parts) / count


def _halo(axis: Along, size: int) -> float:
    """Return how often slabs of so many positions have a position of the operand packed."""
    slabs = ceil(axis.extent / size)
    return 1 + (slabs - 1) * axis.parts.reach / max(1, axis.met)


def _box_cycles(view: ForwardNest, rows: int, vectors: int, slab: tuple[int, ...], step: int) -> float:
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
    begin = constants.BOX_CYCLES * boxes + constants.LIST_CYCLES * runs
    terms = view.terms // step + view.terms % step
    compute = sum(waste * found for waste, found in work.items())
    return compute * terms + begin + constants.ROW_CYCLES * view.positions


def runs_along(axes: tuple[Along, ...], rows: int, vectors: int) -> int:
    """Return the axis that wastes least where the most work is: the last of such."""
    waste = [tiles(axis.parts.largest, rows, vectors)[2] for axis in axes]
    return max(a for a, w in enumerate(waste) if w <= min(waste) * constants.ALONG_LAST)
