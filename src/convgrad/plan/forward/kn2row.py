"""Few results: the products of all taps at every position of the data, which outputs then gather tap by tap.

Where the order sums tap by tap, the sum of a tap depends on the position that it meets alone. So taps times results
are rows of full tiles, whose lanes are positions of the data, each read once; an output adds those of the taps that it
meets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from convgrad.formats import F32, FORMATS
from convgrad.plan import constants
from convgrad.plan.cost import PACK_NS
from convgrad.plan.forward.cost import WEIGHTS_NS
from convgrad.plan.forward.heights import tiles
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.view import OPERAND, Along, ForwardNest
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, STRIDED, Chosen
from convgrad.spec.order import APART_RESULTS, FAN_IN, height_of
from convgrad.spec.problem import Problem

PRODUCTS = "products"  # the body
FINISH_NS = {CHANNELS: constants.ORDERED_NS, SPATIAL: constants.ORDERED_NS, STRIDED: constants.FINISH_NONE_NS}
MOST_TAPS = FAN_IN**3  # gathered through three levels of the tree
VECTORS = 4  # of outputs that gather at a time


@dataclass(frozen=True)
class Kn2rowSpec:
    """What a kernel of products is specialised on: that of the products, f32, and how outputs lie."""

    product: ForwardSpec  # rows are taps times results, lanes positions of the data
    output: str
    axes: int
    line: int  # the first axis with taps; what its positions have, inner axes, is a line
    out: str  # CHANNELS: channels, then positions of the last axis, are contiguous; SPATIAL: those positions alone
    activation: str = ""  # of outputs, before their rounding

    @property
    def body(self) -> str:
        """Which nest it runs in."""
        return PRODUCTS

    @property
    def isa(self) -> Isa:
        """The instruction set."""
        return self.product.isa

    @property
    def across(self) -> int:
        """Outputs of a phase that gather at a time."""
        return VECTORS * self.isa.lanes

    def __str__(self) -> str:
        one = self.product
        return f"{one.operand} to {self.output}, tile {one.rows}x{one.vectors} of {one.isa}"


@dataclass(frozen=True, kw_only=True)
class Kn2rowPlan(Chosen):
    """How a forward or a data gradient of few results is computed."""

    spec: Kn2rowSpec
    slab: tuple[int, int]  # outputs along the axis of lines, and along the last, that are computed at a time
    chunk: int  # positions of the data whose products are computed at a time
    block: int  # tiles of rows under all of those before the next
    parts: int  # of all slabs: a task is one

    @property
    def tasks(self) -> int:
        """How many there are."""
        return self.parts

    @property
    def words(self) -> str:
        """Strategy, kernel and layouts in one line."""
        lanes, rows = self.operands
        return f"{self.strategy}: {self.spec}, rows from {rows} and taps, lanes from {lanes} (packed)"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        lines, last = self.slab
        return f"{self.parts} parts of {lines} lines of {last} outputs; {self.chunk} positions of data packed at a time"


def line_axis(view: ForwardNest) -> int:
    """Return the first axis with taps, but the last: those before are images."""
    last = len(view.axes) - 1
    return next((at for at, axis in enumerate(view.axes[:last]) if not axis.even), last - 1)


def products(problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Iterator[Kn2rowPlan]:
    """Yield the plans of products for a problem that allows them: one for each width of a tile."""
    last = view.axes[-1]
    apart = view.groups == 1 and view.results <= APART_RESULTS and view.order.lines == 1 and view.taps <= MOST_TAPS
    if not apart or any(phase.by_position != 1 for phase in last.phases):
        return
    for most, vectors in machine.isa.tiles:
        spec = _spec(problem, view, machine.isa, most, vectors)
        slab, chunk = _slab(view, machine, spec, threads)
        kept = kept_lines(view, spec, slab[0]) * line_positions(view, spec, slab[1])
        if kept * rows_of(view) * F32_BYTES <= constants.SLAB_BYTES:
            yield _planned(problem, view, machine, threads, spec, slab, chunk)


def rows_of(view: ForwardNest) -> int:
    """Return the rows of all products: taps times results."""
    return view.taps * view.results


def _spec(problem: Problem, view: ForwardNest, isa: Isa, most: int, vectors: int) -> Kn2rowSpec:
    operand, output = problem.operand_format, problem.output_format
    rows, last = rows_of(view), view.axes[-1]
    high = min(range(max(1, most - constants.FEWER_HEIGHTS), most + 1), key=lambda h: (tiles(rows, h, vectors)[2], -h))
    size, written = operand.dtype.itemsize, output.dtype.itemsize
    _, _, term = view.weights
    taps = tap_lines(view)[-1][1]
    # The product reads weights as its data, taps in place of positions, and data as its weights, positions as results.
    weights = CHANNELS if term == size or view.terms == 1 else SPATIAL if taps == size else STRIDED
    data = CHANNELS_IN if view.data[1] == size else CHANNELS_OUT if last.data == size else STRIDED
    if last.out == view.results * written and (view.out[1] == written or view.results == 1):
        out = CHANNELS
    else:
        out = SPATIAL if last.out == written else STRIDED
    product = ForwardSpec(
        isa, operand.name, F32.name, high, vectors, vectors > 1, 1, weights, data, CHANNELS, False, False, True
    )
    return Kn2rowSpec(product, output.name, len(view.axes), line_axis(view), out)


def slab_count(view: ForwardNest, spec: Kn2rowSpec, slab: tuple[int, int]) -> int:
    """Return how many slabs of such a size there are."""
    images = prod(axis.extent for axis in view.axes[: spec.line])
    return images * ceil(view.axes[spec.line].extent / slab[0]) * ceil(view.axes[-1].extent / slab[1])


def kept_lines(view: ForwardNest, spec: Kn2rowSpec, along: int) -> int:
    """Return of how many lines of the data products are kept."""
    return max(map(len, reached(view.axes[spec.line], along)))


def line_positions(view: ForwardNest, spec: Kn2rowSpec, across: int) -> int:
    """Return how many positions of the data a line has, of a slab of so many outputs."""
    return prod(axis.met for axis in view.axes[spec.line + 1 : -1]) * max(map(len, reached(view.axes[-1], across)))


def tap_lines(view: ForwardNest) -> list[tuple[int, int]]:
    """Return the loops over taps, as counts and bytes of weights: one if taps are evenly apart."""
    if view.tap_step is not None:
        return [*[(1, 0)] * (len(view.axes) - 1), (view.taps, view.tap_step)]
    return [(axis.kernel, axis.weights) for axis in view.axes]


def reached(axis: Along, size: int) -> list[range]:
    """Return the positions of the data that slabs need or that are still there: neither end ever goes back."""
    low, end = axis.parts.in_slabs(size).reached
    begin = np.minimum.accumulate(np.where(low < end, low, axis.met)[::-1])[::-1]
    high = np.maximum.accumulate(end)
    return list(map(range, np.minimum(begin, high).tolist(), high.tolist()))


def _planned(
    problem: Problem,
    view: ForwardNest,
    machine: Machine,
    threads: int,
    spec: Kn2rowSpec,
    slab: tuple[int, int],
    chunk: int,
) -> Kn2rowPlan:
    """Return the plan of one kernel."""
    one = spec.product
    height, many, _ = tiles(rows_of(view), one.rows, one.vectors)
    block = max(1, int(machine.l2_bytes * constants.PACKED_SHARE) // (height * view.terms * F32_BYTES))
    count = slab_count(view, spec, slab)
    parts = 1 if threads == 1 else min(count, 4 * threads)
    time = _time_ns(view, machine, spec, slab, parts) * ceil(parts / threads) / parts
    if threads > 1:
        time = time * (1 + constants.UNEVEN_BOXES * threads / parts) + constants.WAKE_NS
    return Kn2rowPlan(
        strategy=PRODUCTS, spec=spec, operands=(OPERAND[problem.solves_for], "weights"), slab=slab, chunk=chunk,
        block=min(many, block), parts=parts, threads=min(threads, parts), error_height=height_of(problem),
        time_ms=(time + constants.CALL_NS) / 1e6,
    )  # fmt: skip


def _slab(view: ForwardNest, machine: Machine, spec: Kn2rowSpec, threads: int) -> tuple[tuple[int, int], int]:
    """Return how many outputs are computed at a time, and from how many positions of the data packed at a time.

    Products of as many lines as fit in the cache; a line is cut where one alone does not.
    """
    lines, last, width = view.axes[spec.line], view.axes[-1], spec.product.width
    stride, phases = len(last.phases), len(lines.phases)
    inner = prod(axis.met for axis in view.axes[spec.line + 1 : -1])
    room = max(
        constants.LEAST_PRODUCTS, int(machine.l2_bytes * constants.PRODUCTS_SHARE) // (rows_of(view) * F32_BYTES)
    )
    across = min(last.extent, ceil(last.extent / ceil(last.met * inner / room) / stride) * stride)
    in_line = line_positions(view, spec, across)
    together = max(1, min(room // max(1, in_line), ceil(lines.extent / phases / threads)))
    packed = max(width, int(machine.l2_bytes * constants.PACKED_SHARE) // (view.terms * F32_BYTES))
    chunk = ceil(min(packed, max(1, together * in_line)) / width) * width
    return (min(lines.extent, phases * together), across), chunk


def _time_ns(view: ForwardNest, machine: Machine, spec: Kn2rowSpec, slab: tuple[int, int], parts: int) -> float:
    """Return one thread's time: arithmetic and packs of what slabs reach, each part's own lines, what is gathered."""
    one, rows = spec.product, rows_of(view)
    lines, last = (reached(view.axes[at], size) for at, size in zip((spec.line, -1), slab, strict=True))
    inner = prod(axis.met for axis in view.axes[spec.line + 1 : -1])
    images = prod(axis.extent for axis in view.axes[: spec.line])
    fresh = max((each.stop for each in lines), default=0) - min((each.start for each in lines), default=0)
    again = max(0, parts - images) * max(0, max(map(len, lines)) - fresh // len(lines))
    met = (images * fresh + again) * inner * sum(map(len, last))
    met = max(met, slab_count(view, spec, slab) * one.width)  # lanes of a slab without a position are packed too
    _, _, cycles = tiles(rows, one.rows, one.vectors)
    compute = met * rows * view.terms * cycles / one.width * 2 * one.isa.lanes / machine.fma_per_ns
    read = WEIGHTS_NS[one.weights] + FORMATS[one.operand].dtype.itemsize / machine.bytes_per_ns
    outputs = view.positions * view.results
    adds = view.met_taps * view.results / one.isa.lanes * constants.PRODUCT_NS + outputs * FINISH_NS[spec.out]
    return compute + met * view.terms * read + adds + rows * view.terms * PACK_NS[one.data] * parts
