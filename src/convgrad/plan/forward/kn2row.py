"""kn2row: forwards and data gradients of few results, from the sums of each tap at each position of the data.

If the order sums tap by tap, the sum of a tap depends only on the position of the data. So one dense GEMM computes all
tap sums: rows of A are taps times results, columns of B are positions of the data. An output adds the sums of its taps.
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
from convgrad.plan.pairs import steps
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, Chosen, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.order import APART_RESULTS, FAN_IN
from convgrad.spec.problem import Problem

KN2ROW = "kn2row"  # the body
MAX_TAPS = FAN_IN**3  # three levels of the reduction tree
VECTORS = 4  # of outputs that are summed at a time


@dataclass(frozen=True)
class Kn2rowSpec:
    """The specification of a kernel: the GEMM of the tap sums, and the strides of the output."""

    product: ForwardSpec  # the GEMM: A is taps times results, B positions of the data; tap sums are f32
    output: str
    axes: int
    line: int  # the first axis with taps: a line is a position of it, and all of the inner axes
    out: str  # CHANNELS: channels, then positions of the last axis, are contiguous; SPATIAL: those positions alone
    activation: str = ""  # of outputs, before their rounding

    @property
    def body(self) -> str:
        """The loop nest that the kernel runs in."""
        return KN2ROW

    @property
    def isa(self) -> Isa:
        """The instruction set."""
        return self.product.isa

    @property
    def across(self) -> int:
        """Outputs of a phase that are summed at a time."""
        return VECTORS * self.isa.lanes

    @property
    def step(self) -> int:
        """How many k a multiply-add takes."""
        return self.product.step

    def __str__(self) -> str:
        one = self.product
        pairs = ", bf16 pairs" if self.step == 2 else ""
        return f"{one.operand} to {self.output}, micro-tile {one.mr}x{one.nr} of {one.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class Kn2rowPlan(Chosen):
    """How a forward or a data gradient of few results is computed."""

    spec: Kn2rowSpec
    output_block: tuple[int, int]  # the output block: outputs along the axis of lines, and along the last axis
    cache_block: int  # the cache block: positions of the data that are packed at a time
    block: int  # micro-tiles of A that meet all packed panels of B before the next do
    parts: tuple[int]  # of all output blocks: a task is one part

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        b, a = self.operands
        return f"{self.strategy}: {self.spec}, A from {a} and taps (packed), B from {b} (packed)"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        lines, last = self.output_block
        return f"{self.tasks} parts of {lines} lines of {last} outputs; {self.cache_block} positions packed at a time"


def line_axis(view: ForwardNest) -> int:
    """Return the first axis with taps, but not the last axis: axes before it are images."""
    last = len(view.axes) - 1
    return next((at for at, axis in enumerate(view.axes[:last]) if not axis.identity), last - 1)


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return a reason against kn2row, or the empty string."""
    if view.groups > 1:
        return "there are several groups"
    if view.n > APART_RESULTS:
        return f"a position has {view.n} results; at most {APART_RESULTS} are summed tap by tap"
    if view.order.lines != 1 or view.taps > MAX_TAPS:
        return "its order is not tap by tap, or there are too many taps"
    if any(phase.by_position != 1 for phase in view.axes[-1].phases):
        return "neighbouring outputs do not meet neighbouring positions"
    return ""


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[Kn2rowSpec, Operands]]:
    """Yield the kernels, one for each micro-tile of the instruction set."""
    for step in steps(problem, isa):
        for rows, vectors in isa.micro_tiles_of(step):
            if step <= view.k:
                yield _spec(problem, view, isa, rows, vectors, step), (OPERAND[problem.solves_for], "weights")


def rows_of(view: ForwardNest) -> int:
    """Return the rows of A: taps times results."""
    return view.taps * view.n


def _spec(problem: Problem, view: ForwardNest, isa: Isa, max_rows: int, vectors: int, step: int) -> Kn2rowSpec:
    operand, output = problem.operand_format, problem.output_format
    rows, last = rows_of(view), view.axes[-1]
    heights = range(max(1, max_rows - constants.FEWER_ROWS_POSITIONS), max_rows + 1)
    mr = min(heights, key=lambda height: (tiles(rows, height, vectors)[2], -height))
    size, stored = operand.dtype.itemsize, output.dtype.itemsize
    _, _, of_k = view.weights
    taps = tap_lines(view)[-1][1]
    # The GEMM is a transposed one: its data are the weights, with taps as positions; its weights are the data.
    weights = CHANNELS if of_k == size or view.k == 1 else SPATIAL if taps == size else STRIDED
    data = CHANNELS_IN if view.data[1] == size else CHANNELS_OUT if last.data == size else STRIDED
    if last.out == view.n * stored and (view.out[1] == stored or view.n == 1):
        out = CHANNELS
    else:
        out = SPATIAL if last.out == stored else STRIDED
    product = ForwardSpec(
        isa, operand.name, F32.name, mr, vectors, vectors > 1, 1, weights, data, CHANNELS, False,
        transposed_gemm=True, step=step,
    )  # fmt: skip
    return Kn2rowSpec(product, output.name, len(view.axes), line_axis(view), out)


def output_block_count(view: ForwardNest, spec: Kn2rowSpec, output_block: tuple[int, int]) -> int:
    """Return the number of output blocks of a size."""
    images = prod(axis.extent for axis in view.axes[: spec.line])
    return images * ceil(view.axes[spec.line].extent / output_block[0]) * ceil(view.axes[-1].extent / output_block[1])


def ring_lines(view: ForwardNest, spec: Kn2rowSpec, along: int) -> int:
    """Return the lines of the data whose tap sums an output block needs: the size of the ring."""
    return max(map(len, reached(view.axes[spec.line], along)))


def line_positions(view: ForwardNest, spec: Kn2rowSpec, across: int) -> int:
    """Return the positions of a line of the data that an output block of some outputs needs."""
    return prod(axis.met for axis in view.axes[spec.line + 1 : -1]) * max(map(len, reached(view.axes[-1], across)))


def tap_lines(view: ForwardNest) -> list[tuple[int, int]]:
    """Return the loops over taps, as counts and steps in bytes: one loop if all taps have one stride."""
    if view.tap_step is not None:
        return [*[(1, 0)] * (len(view.axes) - 1), (view.taps, view.tap_step)]
    return [(axis.kernel, axis.weights) for axis in view.axes]


def reached(axis: Along, size: int) -> list[range]:
    """Return the positions of the data that each output block needs or still has: neither end ever goes back."""
    low, end = axis.parts.in_blocks(size).reached
    begin = np.minimum.accumulate(np.where(low < end, low, axis.met)[::-1])[::-1]
    high = np.maximum.accumulate(end)
    return list(map(range, np.minimum(begin, high).tolist(), high.tolist()))
