"""Average pooling to a given size, and interpolation, along one axis after another.

Each result is a linear combination of positions. Its terms are in a table, which depends only on the kind of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convgrad.engines.tensors import rows_of_task
from convgrad.spec.elementwise.combinations import Integers, Table, ranks_of, table_of
from convgrad.torch.kernels import LAST, is_channels_last, threads_of_call
from convgrad.torch.training.channels import (
    CHANNEL_ELEMENTS,
    TASKS_PER_THREAD,
    ChannelProgram,
    ChannelView,
    constant_array,
)
from convgrad.torch.training.row import SECTIONS, SEQUENTIAL, row
from convgrad.torch.training.tensors import allocated, constant

_TABLES = 16  # that are remembered; each has a few numbers per position of an image
Sizes = tuple[int, ...]


class _Images(NamedTuple):
    """A memory format of images: their channels are columns if these are contiguous, or else images of one column."""

    lead: Sizes  # the extents before the spatial ones
    is_last: bool  # whether channels are contiguous
    number: int
    columns: int

    @classmethod
    def like(cls, x: Tensor, axes: int) -> _Images:
        """Return the memory format of images with so many spatial axes."""
        lead = tuple(x.shape[:-axes])
        is_last = len(lead) == 2 and is_channels_last(x)
        return cls(lead, is_last, *(lead if is_last else (prod(lead), 1)))

    def dense(self, x: Tensor) -> Tensor:
        """Return images in this memory format."""
        return x.contiguous(memory_format=LAST[x.dim()] if self.is_last else torch.contiguous_format)

    def empty(self, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return new images with these spatial extents; contiguous ones if these have the same order in memory."""
        is_last = self.is_last and self.columns > 1 and prod(sizes) > 1
        memory = LAST[len(self.lead) + len(sizes)] if is_last else torch.contiguous_format
        return allocated(torch.empty((*self.lead, *sizes), dtype=dtype, memory_format=memory))

    def program(self, positions: int) -> ChannelProgram:
        """Return a program for images with at most so many positions. If there are many images, none needs another."""
        elements = positions * self.columns
        is_enough = elements <= CHANNEL_ELEMENTS and self.number >= TASKS_PER_THREAD * threads_of_call()
        return ChannelProgram(self.number * elements, rows_of_task(elements) if is_enough else 0)


# -- adaptive pooling ------------------------------------------------------------------------------------------------


def _overlaps(extents: Sizes, sizes: Sizes) -> tuple[Integers, Integers, Integers]:
    """Return the cells and the positions of all overlaps in row-major order, and how many positions each cell has."""
    cells, positions = np.zeros((2, 1), np.int64)
    for extent, size in zip(extents, sizes, strict=True):
        numbers = np.arange(size)
        begins, ends = numbers * extent // size, -(-(numbers + 1) * extent // size)
        cell = np.repeat(numbers, ends - begins)
        position = np.arange(len(cell)) + (begins - np.cumsum(ends - begins) + ends - begins)[cell]
        cells, positions = (cells[:, None] * size + cell).ravel(), (positions[:, None] * extent + position).ravel()
    return cells, positions, np.bincount(cells, minlength=prod(sizes))


@lru_cache(_TABLES)
def _cells(extents: Sizes, sizes: Sizes) -> tuple[Table, Integers]:
    """Return the table that copies the positions of each cell, with zeros up to the largest cell, and the counts."""
    cells, positions, counts = _overlaps(extents, sizes)
    largest = int(counts.max(initial=0))
    return table_of(len(counts) * largest, cells * largest + ranks_of(cells), positions, 1), counts


def _adaptive_average(axes: int, self: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means over cells that divide each image along the last ``axes`` axes."""
    if len(output_size) != axes or 0 in self.shape[-axes:]:
        raise RuntimeError(f"adaptive_avg_pool{axes}d: got {tuple(self.shape)} and an output_size of {[*output_size]}")
    images, extents = _Images.like(self, axes), tuple(self.shape[-axes:])
    result = images.empty(output_size, self.dtype)
    if not result.numel():
        return result
    table, counts = _cells(extents, tuple(output_size))
    program, x, cells = ChannelProgram(self.numel()), images.dense(self), len(counts)
    if cells > 1:
        copies = allocated(torch.empty(images.number * table.results * images.columns, dtype=self.dtype))
        shape = images.number, 1, prod(extents), images.columns
        x = program.combined(x, shape, table, copies, from_zero=True)
    rows, divisors = images.number * cells, constant_array(np.tile(counts.astype(np.float64), images.number))
    vectors, of_rows = ((rows, images.columns), divisors[:, None]) if images.is_last else ((1, rows), divisors[None])
    view = ChannelView(x, (*vectors, table.results // cells), images.is_last)
    (sums,) = program.sums_of("squares", view, products=False, combined=False)
    program.coefficients("mean", vectors, [sums, of_rows], 0, targets=[result.as_strided((result.numel(),), (1,))])
    program.run()
    return result


@lru_cache(_TABLES)
def _cells_backward(extents: Sizes, sizes: Sizes) -> tuple[Table, Tensor]:
    """Return the table that adds the cells of each position, and the counts of the cells."""
    cells, positions, counts = _overlaps(extents, sizes)
    return table_of(prod(extents), positions, cells, 1), torch.from_numpy(counts.astype(np.float32))


def _adaptive_average_backward(axes: int, grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of adaptive average pooling along the last ``axes`` axes."""
    if grad_output.shape[:-axes] != self.shape[:-axes]:
        shapes = tuple(grad_output.shape), tuple(self.shape)
        raise RuntimeError(f"adaptive_avg_pool{axes}d: grad_output and self must have the same channels; got {shapes}")
    images, extents = _Images.like(self, axes), tuple(self.shape[-axes:])
    gradient = images.empty(extents, self.dtype)
    if not gradient.numel():
        return gradient
    table, counts = _cells_backward(extents, tuple(grad_output.shape[-axes:]))
    program, g, cells = ChannelProgram(self.numel()), images.dense(grad_output), len(counts)
    rows = (images.number, cells, images.columns) if images.is_last else (1, images.number, cells)
    vectors = ((constant(counts),), ()) if images.is_last else ((), (constant(counts),))
    parts = allocated(torch.empty(g.numel(), dtype=torch.float32))
    view, (coefficients, columns) = ChannelView(g, rows, False), vectors
    program.mapped("quotient", view, g, coefficients=coefficients, columns=columns, out=parts)
    program.combined(parts, (images.number, 1, cells, images.columns), table, gradient, from_zero=True)
    program.run()
    return gradient


for _axes in (2, 3):
    row(
        f"_adaptive_avg_pool{_axes}d",
        formula="sum of the positions of a cell / their number",
        order=SECTIONS,
        bound="h v sum(abs(self)) / count + u abs(result)",
    )(partial(_adaptive_average, _axes))
    row(
        f"_adaptive_avg_pool{_axes}d_backward",
        formula="sum of grad_output / count over the cells that contain a position, in row-major order",
        order=SEQUENTIAL,
        bound="(number of cells + 1) u sum(abs(grad_output) / count)",
    )(partial(_adaptive_average_backward, _axes))


# -- interpolation -------------------------------------------------------------------------------------------------

Scales = Sequence[float | None]
_Floats = NDArray[np.float64]
_Terms = tuple[Integers, NDArray[np.float32]]  # the neighbours of each output along an axis, and their weights
_MAX_STEP = 2.0**31  # more than any axis has, so that positions are integers of 64 bits
_CUBIC, _CUBIC_OF_MEANS = -0.75, -0.5  # PyTorch's slopes of the cubic weight at a distance of 1


def _step(extent: int, size: int, align_corners: bool, scale: float | None) -> float:
    """Return the distance of two outputs."""
    if align_corners:
        return (extent - 1) / (size - 1) if size > 1 else 0.0
    return min(1 / scale, _MAX_STEP) if scale is not None and scale > 0 else extent / size


def _places(extent: int, size: int, align_corners: bool, scale: float | None) -> _Floats:
    """Return where the outputs are; those beyond the end of the axis are at its end."""
    step, numbers = _step(extent, size, align_corners, scale), np.arange(float(size))
    return numbers * step if align_corners else np.minimum((numbers + 0.5) * step - 0.5, extent)


def _cubic(distance: _Floats, slope: float) -> _Floats:
    """Return the cubic weight at a distance."""
    x = np.abs(distance)
    near = ((slope + 2) * x - (slope + 3)) * x * x + 1
    far = ((slope * x - 5 * slope) * x + 8 * slope) * x - 4 * slope
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _of_lines(extent: int, size: int, align_corners: bool, scale: float | None) -> _Terms:
    """Return the neighbours below and above, weighted linearly."""
    places = np.maximum(_places(extent, size, align_corners, scale), 0)
    lower = np.minimum(places.astype(np.int64), extent - 1)
    above = (places - lower).astype(np.float32)
    return np.stack([lower, np.minimum(lower + 1, extent - 1)], 1), np.stack([1 - above, above], 1)


def _of_cubics(extent: int, size: int, align_corners: bool, scale: float | None) -> _Terms:
    """Return two neighbours below and two above; those beyond an edge are the edge."""
    places = _places(extent, size, align_corners, scale)
    neighbours = np.floor(places).astype(np.int64)[:, None] + np.arange(-1, 3)
    weights = _cubic(places[:, None] - neighbours, _CUBIC)
    return neighbours.clip(0, extent - 1), weights.astype(np.float32)


def _of_means(
    radius: int, weight: Callable[[_Floats], _Floats], extent: int, size: int, align_corners: bool, scale: float | None
) -> _Terms:
    """Return the neighbours whose weighted mean is an output (antialias); smaller images have more neighbours."""
    step = _step(extent, size, align_corners, scale)
    wider, centers = max(step, 1.0), (np.arange(size) + 0.5) * step
    begins, ends = (np.trunc(centers + sign * radius * wider + 0.5).astype(np.int64) for sign in (-1, 1))
    begins, ends = begins.clip(0, extent), ends.clip(0, extent)
    neighbours = begins[:, None] + np.arange(max(int((ends - begins).max()), 1))
    weights = np.where(neighbours < ends[:, None], weight((neighbours - centers[:, None] + 0.5) / wider), 0)
    totals = weights.sum(1, keepdims=True)
    weights /= np.where(totals, totals, 1)  # an output beyond the image has no neighbours
    return neighbours.clip(0, extent - 1), weights.astype(np.float32)


_KINDS: dict[str, Callable[[int, int, bool, float | None], _Terms]] = {
    "linear": _of_lines,
    "cubic": _of_cubics,
    "linear_aa": partial(_of_means, 1, lambda x: np.maximum(1 - np.abs(x), 0)),
    "cubic_aa": partial(_of_means, 2, lambda x: _cubic(x, _CUBIC_OF_MEANS)),
}


@lru_cache(_TABLES)
def _neighbours(kind: str, extent: int, size: int, align_corners: bool, scale: float | None, backward: bool) -> Table:
    """Return the table of the neighbours of each output along an axis, or of its transpose."""
    neighbours, weights = _KINDS[kind](extent, size, align_corners, scale)
    is_term = weights != 0  # 0 times infinity would be NaN
    is_term[:, 0] |= ~is_term.any(1)
    outputs, inputs, factors = np.nonzero(is_term)[0], neighbours[is_term], weights[is_term]
    if backward:
        return table_of(extent, inputs, outputs, factors)
    return table_of(size, outputs, inputs, factors)


def _along_axes(
    kind: str, x: Tensor, sizes: Sequence[int], align_corners: bool, scales: Scales, backward: bool
) -> Tensor:
    """Return an image that is interpolated to some extents along each spatial axis in turn, or the gradient of that."""
    axes, scales = len(sizes), (*scales, *[None] * (len(sizes) - len(scales)))
    images, extents, dtype = _Images.like(x, axes), [*x.shape[-axes:]], x.dtype
    if min(*sizes, *extents) < 1:
        raise RuntimeError(f"upsample: images must have one position or more per axis; got {extents} and {[*sizes]}")
    if not x.numel():
        return images.empty(sizes, dtype)
    program, x = images.program(prod(map(max, extents, sizes))), images.dense(x)
    order = [*reversed(range(axes))] if backward else range(axes)
    for axis in order:
        own = (sizes[axis], extents[axis]) if backward else (extents[axis], sizes[axis])
        table = _neighbours(kind, *own, align_corners, scales[axis], backward)
        shape = images.number, prod(extents[:axis]), extents[axis], prod(extents[axis + 1 :]) * images.columns
        extents[axis] = sizes[axis]
        out = images.empty(extents, dtype if axis == order[-1] else torch.float32)
        x = program.combined(x, shape, table, out, from_zero=backward)
    program.run()
    return x


def _interpolated(
    kind: str, self: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None
) -> Tensor:
    """Return an image that is interpolated along each spatial axis in turn."""
    return _along_axes(kind, self, output_size, align_corners, scales, backward=False)


def _interpolated_backward(
    kind: str,
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Tensor:
    """Return the gradient of interpolation, along the spatial axes in reverse order."""
    return _along_axes(kind, grad_output, input_size[2:], align_corners, scales, backward=True)


_AXIS_BY_AXIS = "without weights of 0, first along the first axis; weights are computed in f64 and rounded to f32"
for _kind, _names, _formula, _error in (
    ("linear", ("linear1d", "bilinear2d", "trilinear3d"), "lower * (1 - t) + upper * t", "4 u abs(neighbours)"),
    ("cubic", ("bicubic2d",), "sum of 4 neighbours * weight", "7 u sum(abs(neighbours * weight))"),
    ("linear_aa", ("bilinear2d_aa",), "sum of neighbours * weight", "(neighbours + 3) u sum(abs(neighbours * weight))"),
    ("cubic_aa", ("bicubic2d_aa",), "sum of neighbours * weight", "(neighbours + 3) u sum(abs(neighbours * weight))"),
):
    for _name in (f"{'_' * _kind.endswith('aa')}upsample_{name}" for name in _names):
        row(_name, formula=f"{_formula}, {_AXIS_BY_AXIS}", order=SEQUENTIAL, bound=f"{_error} per axis")(
            partial(_interpolated, _kind)
        )
        row(
            f"{_name}_backward",
            formula="sum of grad_output * weight over the outputs of a position, first along the last axis",
            order=SEQUENTIAL,
            bound="(number of outputs + 3) u sum(abs(grad_output * weight)) per axis",
        )(partial(_interpolated_backward, _kind))
