"""kn2row (kernel to row: a GEMM with a row per tap): forwards and data gradients of few output channels.

A tap sum is the sum over k of a tap's products at one input position. If the order of the sum is tap by tap, one dense
GEMM computes all tap sums. Rows of its A are taps times output channels, and columns of its B are input positions. Each
output adds the tap sums of its taps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from convgrad.formats import F32
from convgrad.plan import constants
from convgrad.plan.forward_nest import OPERAND, Along, ForwardNest
from convgrad.plan.gemm.spec import TransposedGemmSpec
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import k_per_add_choices
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, Chosen, Operand, Operands
from convgrad.plan.tiling import tiles
from convgrad.spec.order import APART_RESULTS, FAN_IN
from convgrad.spec.problem import Problem

KN2ROW = "kn2row"  # the name of the loop nest
MAX_TAPS = FAN_IN**3  # the maximum number of leaves of a reduction tree with three levels
VECTORS = 4  # vectors of outputs that are summed at a time


@dataclass(frozen=True)
class Kn2rowSpec:
    """The specification of a kernel: the GEMM of the tap sums, and the strides of the output."""

    product: TransposedGemmSpec  # the GEMM of tap sums in f32
    output: str  # the number format of the output
    axes: int  # the number of axes
    line: int  # the axis of lines (``line_axis``): a line is one of its positions with those of inner axes of a block
    out: str  # the contiguous axis of the output: CHANNELS (positions with all channels), SPATIAL, STRIDED
    activation: str = ""  # applied to outputs before rounding; "" for none

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return KN2ROW

    @property
    def isa(self) -> Isa:
        """The instruction set of the kernel."""
        return self.product.isa

    @property
    def tile_outputs(self) -> int:
        """The number of outputs of a phase that are summed at a time."""
        return VECTORS * self.isa.lanes

    @property
    def k_per_add(self) -> int:
        """The number of k per multiply-add of the GEMM: 1, or 2 for bf16 pairs."""
        return self.product.k_per_add

    def __str__(self) -> str:
        gemm = self.product
        pairs = ", bf16 pairs" if self.k_per_add == 2 else ""
        return f"{gemm.operand} to {self.output}, micro-tile {gemm.mr}x{gemm.nr} of {gemm.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class Kn2rowPlan(Chosen):
    """The plan of a forward or a data gradient of few output channels."""

    spec: Kn2rowSpec
    output_block: tuple[int, ...]  # the size of an output block along the axis of lines and along each inner axis
    cache_block: int  # input positions that are packed at a time
    block: int  # micro-tiles of A that are multiplied with all packed panels of B before the next ones
    parts: tuple[int]  # into how many parts the list of output blocks is divided; a task is one part

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the operands, as one line of text."""
        b, a = self.operands
        return f"{self.strategy}: {self.spec}, A from {a} and taps (packed), B from {b} (packed)"

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        lines, *inner = self.output_block
        line = "x".join(map(str, inner))
        return f"{self.tasks} parts of {lines} lines of {line} outputs; {self.cache_block} positions packed at a time"


def line_axis(view: ForwardNest) -> int:
    """Return the axis of lines: the first axis, except the last one, that is not an identity.

    Axes before the axis of lines are images.
    """
    last = len(view.axes) - 1
    return next((at for at, axis in enumerate(view.axes[:last]) if not axis.identity), last - 1)


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why kn2row does not support a problem, or the empty string if it does."""
    if view.groups > 1:
        return "there are several groups"
    if view.n > APART_RESULTS:
        return f"there are {view.n} output channels; at most {APART_RESULTS} are summed tap by tap"
    if view.order.lines != 1 or view.taps > MAX_TAPS:
        return f"the order of the sums is not tap by tap, or there are more than {MAX_TAPS} taps"
    if view.axes[-1].phases.by_position != 1:
        return "neighbouring outputs do not read neighbouring inputs"
    return ""


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[Kn2rowSpec, Operands]]:
    """Yield the kn2row kernels, one for each micro-tile of the instruction set."""
    for k_per_add in k_per_add_choices(problem, isa):
        for rows, vectors in isa.micro_tiles_of(k_per_add, view.order.chains):
            # With two chains, a pair has k and k + 2, so bf16 pairs need multiples of four k.
            if k_per_add <= view.k and (view.k % 4 == 0 or k_per_add * view.order.chains < 4):
                yield _spec(problem, view, isa, rows, vectors, k_per_add), (OPERAND[problem.solves_for], "weights")


def rows_of(view: ForwardNest) -> int:
    """Return the number of rows of A: taps times output channels."""
    return view.taps * view.n


def _spec(problem: Problem, view: ForwardNest, isa: Isa, max_rows: int, vectors: int, k_per_add: int) -> Kn2rowSpec:
    operand, output = problem.operand_format, problem.output_format
    rows, last_axis = rows_of(view), view.axes[-1]
    heights = range(max(1, max_rows - constants.FEWER_ROWS_POSITIONS), max_rows + 1)
    mr = min(heights, key=lambda height: (tiles(rows, height, vectors)[2], -height))
    size, stored = operand.itemsize, output.itemsize
    _, _, of_k = view.weights
    taps = tap_loops(view)[-1][1]
    # The GEMM is transposed. A is the weights, whose taps are its positions. B is the data, and its N is positions.
    a = Operand(CHANNELS if of_k == size or view.k == 1 else SPATIAL if taps == size else STRIDED)
    b = Operand(CHANNELS_IN if view.data[1] == size else CHANNELS_OUT if last_axis.data == size else STRIDED)
    if last_axis.out == view.n * stored and (view.out[1] == stored or view.n == 1):
        out = CHANNELS
    else:
        out = SPATIAL if last_axis.out == stored else STRIDED
    product = TransposedGemmSpec(
        isa,
        operand.name,
        F32.name,
        mr=mr,
        nr=vectors,
        single_vector=vectors > 1,
        axes=1,
        a=a,
        b=b,
        out=CHANNELS,  # the columns of the GEMM, which are positions here, are contiguous in a row of tap sums
        k_per_add=k_per_add,
        chains=view.order.chains,
    )
    return Kn2rowSpec(product, output.name, len(view.axes), line_axis(view), out)


def output_block_count(view: ForwardNest, spec: Kn2rowSpec, output_block: tuple[int, ...]) -> int:
    """Return the number of output blocks of all images, if a block has the size ``output_block``."""
    images = prod(axis.extent for axis in view.axes[: spec.line])
    along = zip(view.axes[spec.line :], output_block, strict=True)
    return images * prod(ceil(axis.extent / size) for axis, size in along)


def max_reached(axes: Sequence[Along], block: Sequence[int]) -> int:
    """Return the maximum number of input positions that an output block of size ``block`` needs along ``axes``."""
    return prod(max(map(len, reached(axis, size))) for axis, size in zip(axes, block, strict=True))


def stored_outputs(view: ForwardNest, spec: Kn2rowSpec, size: int) -> tuple[int, int]:
    """Return the phases of the last axis, and the outputs of each that scratch has room for in blocks of ``size``."""
    last_axis = view.axes[-1]
    of_phase = ceil(min(size, last_axis.extent) / last_axis.phases.step)
    return len(last_axis.phases), ceil(of_phase / spec.tile_outputs) * spec.tile_outputs


def tap_loops(view: ForwardNest) -> list[tuple[int, int]]:
    """Return the loops over taps, as pairs (count, stride in bytes). One loop suffices if all taps have one stride."""
    if view.tap_step is not None:
        return [*[(1, 0)] * (len(view.axes) - 1), (view.taps, view.tap_step)]
    return [(axis.kernel, axis.weights) for axis in view.axes]


def reached(axis: Along, size: int) -> list[range]:
    """Return for each output block the input positions whose tap sums it needs.

    Bounds never decrease, because the ring buffer of lines keeps what the next block needs.
    """
    low, end = axis.parts.in_blocks(size).reached
    begin = np.minimum.accumulate(np.where(low < end, low, axis.inputs)[::-1])[::-1]
    high = np.maximum.accumulate(end)
    return list(map(range, np.minimum(begin, high).tolist(), high.tolist()))
