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

from convgrad.formats import F32
from convgrad.plan import constants
from convgrad.plan.forward.nest import OPERAND, Along, ForwardNest
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, Chosen, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.order import APART_RESULTS, FAN_IN
from convgrad.spec.problem import Problem

KN2ROW = "kn2row"  # the body
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
        return KN2ROW

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
        return f"{one.operand} to {self.output}, tile {one.mr}x{one.nr} of {one.isa}"


@dataclass(frozen=True, kw_only=True)
class Kn2rowPlan(Chosen):
    """How a forward or a data gradient of few results is computed."""

    spec: Kn2rowSpec
    slab: tuple[int, int]  # outputs along the axis of lines, and along the last, that are computed at a time
    chunk: int  # positions of the data whose products are computed at a time
    block: int  # tiles of rows under all of those before the next
    parts: tuple[int]  # of all slabs: a task is one

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        lanes, rows = self.operands
        return f"{self.strategy}: {self.spec}, rows from {rows} and taps, lanes from {lanes} (packed)"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        lines, last = self.slab
        return f"{self.tasks} parts of {lines} lines of {last} outputs; {self.chunk} positions of data packed at a time"


def line_axis(view: ForwardNest) -> int:
    """Return the first axis with taps, but the last: those before are images."""
    last = len(view.axes) - 1
    return next((at for at, axis in enumerate(view.axes[:last]) if not axis.identity), last - 1)


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why not; nothing where it applies."""
    if view.groups > 1:
        return "there are several groups"
    if view.n > APART_RESULTS:
        return f"a position has {view.n} results; at most {APART_RESULTS} are summed tap by tap"
    if view.order.lines != 1 or view.taps > MOST_TAPS:
        return "its order is not tap by tap, or there are too many taps"
    if any(phase.by_position != 1 for phase in view.axes[-1].phases):
        return "neighbouring outputs do not meet neighbouring positions"
    return ""


def products(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[Kn2rowSpec, Operands]]:
    """Yield the kernels, one for each width of a tile."""
    for most, vectors in isa.micro_tiles:
        yield _spec(problem, view, isa, most, vectors), (OPERAND[problem.solves_for], "weights")


def rows_of(view: ForwardNest) -> int:
    """Return the rows of all products: taps times results."""
    return view.taps * view.n


def _spec(problem: Problem, view: ForwardNest, isa: Isa, most: int, vectors: int) -> Kn2rowSpec:
    operand, output = problem.operand_format, problem.output_format
    rows, last = rows_of(view), view.axes[-1]
    high = min(
        range(max(1, most - constants.FEWER_ROWS_POSITIONS), most + 1), key=lambda h: (tiles(rows, h, vectors)[2], -h)
    )
    size, written = operand.dtype.itemsize, output.dtype.itemsize
    _, _, term = view.weights
    taps = tap_lines(view)[-1][1]
    # The product reads weights as its data, taps in place of positions, and data as its weights, positions as results.
    weights = CHANNELS if term == size or view.k == 1 else SPATIAL if taps == size else STRIDED
    data = CHANNELS_IN if view.data[1] == size else CHANNELS_OUT if last.data == size else STRIDED
    if last.out == view.n * written and (view.out[1] == written or view.n == 1):
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
    low, end = axis.parts.in_blocks(size).reached
    begin = np.minimum.accumulate(np.where(low < end, low, axis.met)[::-1])[::-1]
    high = np.maximum.accumulate(end)
    return list(map(range, np.minimum(begin, high).tolist(), high.tolist()))
