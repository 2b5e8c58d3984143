"""The matrix products of a pass: C[g, m, n] = sum over k of A[g, m, k] * B[g, k, n], with k in the order of the sum.

Outputs that meet different taps belong to different products. This happens in data gradients with strides. The offset
of an element of A is the row's offset plus the term's offset. Its position along each spatial axis is such a sum, too.
The element exists if all its positions exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from convgrad.cached import cached_property
from convgrad.plan.passes import ONES, PASSES
from convgrad.plan.reach import conv_of
from convgrad.plan.regions import AxisPart, phases
from convgrad.plan.tables import Ints, Strides
from convgrad.spec.geometry import Conv
from convgrad.spec.order import SumOrder, order_of
from convgrad.spec.problem import Problem

AXES = 3  # spatial axes, at most


@dataclass(frozen=True)
class RowLoop:
    """A loop over rows; ``a`` and ``c`` are its strides in A and C in elements.

    ``step`` is the number of positions of A from an iteration to the next, along the loop's spatial axis.
    """

    extent: int = 1
    a: int = 0
    c: int = 0
    step: int = 0


@dataclass(frozen=True, eq=False)
class SumTerms:
    """The terms of a sum, one element of each array per term. Chains are numbered in each unit."""

    unit: Ints
    chain: Ints
    a: Ints  # offset in A in elements
    b: Ints  # offset in B in elements
    positions: Ints  # of A, one row per axis

    def __len__(self) -> int:
        """Return the number of terms."""
        return len(self.a)


@dataclass(frozen=True, eq=False)
class Product:
    """A matrix product. Strides and offsets are in elements; ``terms`` are those of one of ``repeats`` repetitions."""

    outer: RowLoop
    axes: tuple[RowLoop, ...]  # AXES loops
    inner: RowLoop
    columns: RowLoop  # over the columns of B; ``a`` is the stride in B
    groups: int
    group_steps: tuple[int, int, int]  # in A, B and C
    first: int  # offset of the first row in C
    extents: tuple[int, ...]  # of the positions of A, one per axis
    terms: SumTerms
    units: int
    chains: int  # per unit
    bias_step: int = 0  # from a column's bias to the next
    repeats: int = 1
    repeat_steps: tuple[int, int] = (0, 0)  # in A and B
    split: bool = False  # whether a chain has portions, whose even and odd terms have sums of their own

    @property
    def loops(self) -> tuple[RowLoop, ...]:
        """The loops over rows. The last loop is the innermost."""
        return (self.outer, *self.axes, self.inner)

    @cached_property
    def real_loops(self) -> tuple[RowLoop, ...]:
        """The loops over rows with several iterations."""
        return tuple(loop for loop in self.loops if loop.extent > 1)

    @property
    def innermost(self) -> RowLoop:
        """The innermost loop with several iterations."""
        return self.real_loops[-1] if self.real_loops else self.inner

    @cached_property
    def rows(self) -> int:
        """The number of rows of A."""
        return prod(loop.extent for loop in self.loops)

    @property
    def outputs(self) -> int:
        """The number of elements of C."""
        return self.groups * self.rows * self.columns.extent

    @cached_property
    def checked(self) -> int:
        """The number of leading axes on which some element of A does not exist; 0 if all elements exist."""
        missing = [self._misses(axis) for axis in range(AXES)]
        return AXES - missing[::-1].index(True) if any(missing) else 0

    def with_packed_b(self) -> Product:
        """Return the product with B packed: by group, term and column, so that columns are neighbours."""
        count, columns = len(self.terms), self.columns.extent
        terms = replace(self.terms, b=np.arange(count, dtype=np.int64) * columns)
        steps = (self.group_steps[0], count * columns, self.group_steps[2])
        return replace(self, terms=terms, columns=replace(self.columns, a=1), group_steps=steps)

    def _misses(self, axis: int) -> bool:
        if not len(self.terms):
            return False
        positions, loop = self.terms.positions[axis], self.axes[axis]
        low, high = int(positions.min()), int(positions.max()) + (loop.extent - 1) * loop.step
        return low < 0 or high >= self.extents[axis]


def products_of(problem: Problem, strides: tuple[Strides, ...]) -> tuple[Product, ...]:
    """Return the products of a problem; ``strides`` are those of its operands and, last, of its output, in bytes."""
    conv, names = conv_of(problem), PASSES[problem.solves_for].operands
    rank = 2 + len(conv.axes)
    size, out_size = problem.operand_format.itemsize, problem.output_format.itemsize
    strides_of: dict[str, Strides] = {
        name: _elements(steps, size, rank) for name, steps in zip(problem.operands, strides, strict=False)
    }
    strides_of[ONES] = (0,) * rank
    operands = {tensor: strides_of[name] for tensor, name in names.items()} | {"bias": strides_of.get("bias", (0,))}
    out = _elements(strides[-1], out_size, rank)
    if problem.solves_for in ("dst", "src"):
        return tuple(_positions(problem, conv, operands, out))
    return (_weights(conv, order_of(problem), operands, out),)


def count_of_products(problem: Problem) -> int:
    """Return the number of products of a problem, without computing them."""
    return prod(min(axis.stride, axis.src) for axis in conv_of(problem).axes) if problem.solves_for == "src" else 1


def _elements(strides: Strides, size: int, rank: int) -> Strides:
    """Return strides in elements, extended to the rank of a convolution. The added axes have one element."""
    return tuple(stride // size for stride in strides) + (0,) * (rank - len(strides))


def _positions(problem: Problem, conv: Conv, strides_of: Mapping[str, Strides], out: Strides) -> Iterator[Product]:
    """Yield the products of a forward or data gradient: rows are output positions, columns are output channels."""
    forward, weights = problem.solves_for == "dst", strides_of["weights"]
    data = strides_of["src" if forward else "dst"]
    columns, channels = conv.dst_channels // conv.groups, conv.src_channels // conv.groups
    by_column, by_channel, by_group = weights[0], weights[1], columns * weights[0]
    if not forward:
        columns, channels, by_column, by_channel = channels, columns, by_channel, by_column
    order, more = order_of(problem), AXES - len(conv.axes)
    inputs = [axis.src if forward else axis.dst for axis in conv.axes]
    for parts in product(*(phases(axis, problem.solves_for) for axis in conv.axes)):
        loops = [
            RowLoop(len(part.positions), part.by_position * a, part.positions.step * c, part.by_position)
            for part, a, c in zip(parts, data[2:], out[2:], strict=True)
        ]
        yield Product(
            outer=RowLoop(conv.batch, data[0], out[0]),
            axes=(*loops, *(RowLoop(),) * more),
            inner=RowLoop(),
            columns=RowLoop(columns, by_column, out[1]),
            groups=conv.groups,
            group_steps=(channels * data[1], by_group, columns * out[1]),
            first=sum(part.positions.start * c for part, c in zip(parts, out[2:], strict=True)),
            extents=(*inputs, *(1,) * more),
            terms=_of_taps(parts, conv.kernel, channels, order, data[1:], (by_channel, *weights[2:])),
            units=order.units,
            chains=order.blocks,
            bias_step=strides_of["bias"][0],
            split=order.chains == 2,
        )


def _of_taps(
    parts: tuple[AxisPart, ...],
    kernel: tuple[int, ...],
    channels: int,
    order: SumOrder,
    data: Strides,
    weights: Strides,
) -> SumTerms:
    """Return the terms of taps and channels; strides of ``data`` and ``weights`` are by channel, then by axis."""
    steps = np.indices([len(part.taps) for part in parts], np.int64).reshape(len(parts), -1)
    line, a, b = (np.zeros(steps.shape[1], np.int64) for _ in range(3))
    positions = np.zeros((AXES, len(line)), np.int64)
    for axis, (part, extent, step) in enumerate(zip(parts, kernel, steps, strict=True)):
        tap = part.taps.start + step * part.taps.step
        positions[axis] = part.input + step * part.by_tap
        line, a, b = line * extent + tap, a + positions[axis] * data[1 + axis], b + tap * weights[1 + axis]
    channel = np.minimum(order.taken(), channels - 1)
    unit = np.repeat(line // order.lines, channels)
    number = ((line % order.lines)[:, None] * order.length + np.arange(channels)).ravel()
    return SumTerms(
        unit,
        np.searchsorted(order.begins(), number, side="right") - 1,
        (a[:, None] + channel * data[0]).ravel(),
        (b[:, None] + channel * weights[0]).ravel(),
        np.repeat(positions, channels, axis=1),
    )


def _weights(conv: Conv, order: SumOrder, strides_of: Mapping[str, Strides], out: Strides) -> Product:
    """Return the product of a weight or bias gradient: rows are taps and src channels, columns are dst channels."""
    src, dst, more = strides_of["src"], strides_of["dst"], AXES - len(conv.axes)
    channels, columns = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    images = 1 if order.units > 1 else conv.batch  # if each image is a unit, the images repeat
    grid = np.indices((images, *(axis.dst for axis in conv.axes)), np.int64).reshape(1 + len(conv.axes), -1)
    positions = np.zeros((AXES, grid.shape[1]), np.int64)
    a, b = grid[0] * src[0], grid[0] * dst[0]
    for at, axis in enumerate(conv.axes):
        positions[at] = grid[1 + at] * axis.stride - axis.pad_begin
        a, b = a + positions[at] * src[2 + at], b + grid[1 + at] * dst[2 + at]
    chain = np.searchsorted(order.begins(), np.arange(grid.shape[1]), side="right") - 1
    loops = [
        RowLoop(axis.kernel, axis.dilation * by, c, axis.dilation)
        for axis, by, c in zip(conv.axes, src[2:], out[2:], strict=True)
    ]
    return Product(
        outer=RowLoop(),
        axes=(*loops, *(RowLoop(),) * more),
        inner=RowLoop(channels, src[1], out[1]),
        columns=RowLoop(columns, dst[1], out[0]),
        groups=conv.groups,
        group_steps=(channels * src[1], columns * dst[1], columns * out[0]),
        first=0,
        extents=(*(axis.src for axis in conv.axes), *(1,) * more),
        terms=SumTerms(np.zeros_like(chain), chain, a, b, positions),
        units=1,
        chains=order.blocks,
        repeats=order.units,
        repeat_steps=(src[0], dst[0]),
        split=order.chains == 2,
    )
