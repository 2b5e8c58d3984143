"""Images that are sampled at the positions of a grid, linearly or at the nearest position, and the gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from convgrad.torch.kernels import LAST, is_channels_last
from convgrad.torch.training.row import SECTIONS, UnservedError, row

_LINEAR, _NEAREST = range(2)
_ZEROS, _BORDER, _REFLECTION = range(3)
_BOUND = "8 u times the largest neighbour, per axis, and the rounding of a position"


class _Axis(NamedTuple):
    """Positions along an axis: the place below each, the distance from it, and the position's slope of the grid."""

    place: Tensor
    distance: Tensor
    slope: Tensor


class _Corner(NamedTuple):
    """A neighbour of each position: its number in the image, whether it is in the image, and its distances."""

    number: Tensor
    is_inside: Tensor
    sides: tuple[int, ...]


def _axis(grid: Tensor, size: int, linear: bool, padding: int, align_corners: bool) -> _Axis:
    """Return the positions of numbers from -1 to 1 along an axis of ``size`` places."""
    x = (grid + 1) / 2 * (size - 1) if align_corners else ((grid + 1) * size - 1) / 2
    slope = torch.full_like(x, ((size - 1) if align_corners else size) / 2)
    if padding == _REFLECTION:
        low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
        moved = x - low
        slope = torch.where(moved < 0, -slope, slope)
        moved = moved.abs()
        flips = (moved / span).floor() if span else torch.zeros_like(moved)
        remainder = torch.fmod(moved, span) if span else torch.zeros_like(moved)
        is_even = flips / 2 == (flips / 2).floor()
        slope = torch.where(is_even, slope, -slope)
        x = torch.where(is_even, remainder + low, span - remainder + low)
    if padding != _ZEROS:
        slope = torch.where((x > 0) & (x < size - 1), slope, 0)
        x = torch.where(x > 0, x, 0).clamp(max=size - 1)  # 0 for NaN
    below = x.floor() if linear else x.round()
    place = torch.where((below > -2) & (below < size + 1), below, -2)  # also for NaN, and beyond integers
    return _Axis(place.long(), x - below, slope)


class _Samples:
    """Positions of a grid in images (N, C, X...), for results (N, C, Y...)."""

    def __init__(self, input: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> None:
        if mode not in (_LINEAR, _NEAREST):
            raise UnservedError("computes no bicubic interpolation", 'Use mode="bilinear" or mode="nearest"')
        self.sizes, self.linear = input.shape[2:], mode == _LINEAR
        columns = reversed(grid.float().unbind(-1))  # the grid begins with the last axis
        self.axes = [
            _axis(column, size, self.linear, padding, align_corners)
            for column, size in zip(columns, self.sizes, strict=True)
        ]
        self.values = input.float().flatten(2)

    def corners(self) -> Iterator[_Corner]:
        """Yield the neighbours in row-major order."""
        for sides in product((0, 1) if self.linear else (0,), repeat=len(self.axes)):
            number, is_inside = (
                torch.zeros_like(self.axes[0].place),
                torch.ones_like(self.axes[0].place, dtype=torch.bool),
            )
            for axis, size, side in zip(self.axes, self.sizes, sides, strict=True):
                at = axis.place + side
                is_inside = is_inside & (at >= 0) & (at < size)
                number = number * size + at
            yield _Corner(torch.where(is_inside, number, 0).flatten(1), is_inside.flatten(1), sides)

    def weight(self, sides: Sequence[int], without: int | None = None) -> Tensor:
        """Return the product of a corner's weights along the axes, or of its derivative along the axis ``without``."""
        result = torch.ones_like(self.axes[0].distance)
        for number, (axis, side) in enumerate(zip(self.axes, sides, strict=True)):
            if number == without:
                result = result * (1 if side else -1)
            elif self.linear:
                result = result * (axis.distance if side else 1 - axis.distance)
        return result.flatten(1)

    def of_corner(self, corner: _Corner) -> Tensor:
        """Return the values at a neighbour; 0 outside of the image."""
        places = corner.number.unsqueeze(1).expand(-1, self.values.shape[1], -1)
        return torch.where(corner.is_inside.unsqueeze(1), self.values.gather(2, places), 0)


def _formatted(result: Tensor, like: Tensor) -> Tensor:
    """Return a result in the type and the memory format of a tensor."""
    last = LAST.get(result.dim()) if is_channels_last(like) else None
    return result.to(like.dtype).contiguous(memory_format=last or torch.contiguous_format)


def _sampled(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Return the values of images at the positions of a grid."""
    samples = _Samples(input, grid, interpolation_mode, padding_mode, align_corners)
    total = input.new_zeros((*input.shape[:2], prod(grid.shape[1:-1])), dtype=torch.float32)
    for corner in samples.corners():
        weight = torch.where(corner.is_inside, samples.weight(corner.sides), 0)
        total = total + samples.of_corner(corner) * weight.unsqueeze(1)
    return _formatted(total.reshape(*input.shape[:2], *grid.shape[1:-1]), input)


def _sampled_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor]:
    """Return the gradients of the images and of the grid."""
    samples = _Samples(input, grid, interpolation_mode, padding_mode, align_corners)
    g, images = grad_output.float().flatten(2), input.shape[0]
    pixels = prod(input.shape[2:])
    of_input = torch.zeros((images * pixels, input.shape[1]))
    slopes = [torch.zeros_like(axis.distance).flatten(1) for axis in samples.axes]
    of_image = (torch.arange(images) * pixels).unsqueeze(1)
    for corner in samples.corners():
        if output_mask[0]:
            terms = torch.where(corner.is_inside.unsqueeze(1), g * samples.weight(corner.sides).unsqueeze(1), 0)
            terms = terms.transpose(1, 2).flatten(0, 1)
            of_input = of_input.index_add(0, (corner.number + of_image).flatten(), terms)
        if samples.linear:
            dot = (g * samples.of_corner(corner)).sum(1)
            slopes = [total + dot * samples.weight(corner.sides, axis) for axis, total in enumerate(slopes)]
    of_grid = [total.view_as(axis.slope) * axis.slope for total, axis in zip(slopes, samples.axes, strict=True)]
    gradient = of_input.reshape(images, *input.shape[2:], input.shape[1]).movedim(-1, 1)
    return (
        _formatted(gradient, input) if output_mask[0] else None,
        torch.stack(of_grid[::-1], -1).to(grid.dtype),
    )


for _axes in (2, 3):
    row(
        f"grid_sampler_{_axes}d",
        formula="sum of value * weight over the neighbours in row-major order; a weight is a product along the axes",
        bound=_BOUND,
    )(_sampled)
    row(
        f"grid_sampler_{_axes}d_backward",
        formula="sum of grad_output * weight over neighbours, then positions; for the grid, sum over channels first",
        order=SECTIONS,
        bound="(number of terms + 8) u sum(abs(terms))",
    )(_sampled_backward)
