"""Average pooling to a given size, and linear interpolation, along one axis after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor

from convgrad.torch.training.row import SECTIONS, SEQUENTIAL, formatted, row
from convgrad.torch.training.sums import count, rounded, total


def _cells(extents: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield the places of all outputs, and the range of positions of each along every axis."""
    for place in product(*map(range, sizes)):
        axes = zip(place, extents, sizes, strict=True)
        yield place, tuple([slice(at * n // m, -(-(at + 1) * n // m)) for at, n, m in axes])


@row(
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    formula="sum of the positions of a cell / their number",
    order=SECTIONS,
    bound="h v sum(abs(self)) / count + u abs(result)",
)
def adaptive_average(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """Return the means over cells that divide each image."""
    axes = len(output_size)
    means = torch.empty((*self.shape[:-axes], *output_size), dtype=self.dtype)
    dims = tuple(range(-axes, 0))
    for place, cell in _cells(self.shape[-axes:], output_size):
        positions = self[(..., *cell)]
        means[(..., *place)] = rounded(total(positions, dims) / count(positions, dims), self.dtype)
    return formatted(means, self)


def _adaptive_average_backward(axes: int, grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of adaptive average pooling along the last ``axes`` axes."""
    gradient = torch.zeros(self.shape, dtype=torch.float32)
    dims = tuple(range(-axes, 0))
    for place, cell in _cells(self.shape[-axes:], grad_output.shape[-axes:]):
        positions = gradient[(..., *cell)]
        positions += (grad_output[(..., *place)].float() / count(positions, dims))[(..., *[None] * axes)]
    return formatted(gradient, self)


for _axes in (2, 3):
    row(
        f"_adaptive_avg_pool{_axes}d_backward",
        formula="sum of grad_output / count over the cells that contain a position, in row-major order",
        order=SEQUENTIAL,
        bound="(number of cells + 1) u sum(abs(grad_output) / count)",
    )(partial(_adaptive_average_backward, _axes))


# -- linear interpolation ------------------------------------------------------------------------------------------

_WEIGHTS = "lower * (1 - t) + upper * t, first along the first axis; t is computed in f64 and rounded to f32"


def _neighbours(
    extent: int, size: int, align_corners: bool, scale: float | None
) -> tuple[list[int], list[int], Tensor, Tensor]:
    """Return the lower and upper neighbour of each output along an axis, and the weights of both."""
    if align_corners:
        step = (extent - 1) / (size - 1) if size > 1 else 0.0
        places = [at * step for at in range(size)]
    else:
        step = 1 / scale if scale else extent / size
        places = [max((at + 0.5) * step - 0.5, 0.0) for at in range(size)]
    lower = [min(int(place), extent - 1) for place in places]
    upper = [min(at + 1, extent - 1) for at in lower]
    weights = torch.tensor([place - at for place, at in zip(places, lower, strict=True)], dtype=torch.float32)
    return lower, upper, 1 - weights, weights


def _linear(self: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Tensor:
    """Return an image that is interpolated linearly, along each spatial axis in turn."""
    x = self.float()
    if min(output_size) < 1:
        raise RuntimeError(f"upsample: the output must have one position or more per axis; got {list(output_size)}")
    for axis, (size, scale) in enumerate(zip(output_size, _scales(scales, output_size), strict=True), 2):
        lower, upper, below, above = _neighbours(x.shape[axis], size, align_corners, scale)
        shape = [-1 if dim == axis else 1 for dim in range(x.dim())]
        first, second = x.index_select(axis, torch.tensor(lower)), x.index_select(axis, torch.tensor(upper))
        x = first * below.reshape(shape) + second * above.reshape(shape)
    return formatted(x, self)


def _linear_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
) -> Tensor:
    """Return the gradient of linear interpolation, along the spatial axes in reverse order."""
    g, scales = grad_output.float(), _scales(scales, output_size)
    for axis in range(g.dim() - 1, 1, -1):
        lower, upper, below, above = _neighbours(input_size[axis], g.shape[axis], align_corners, scales[axis - 2])
        shape = [-1 if dim == axis else 1 for dim in range(g.dim())]
        parts = (lower, g * below.reshape(shape)), (upper, g * above.reshape(shape))
        gradient = g.new_zeros([input_size[axis] if dim == axis else n for dim, n in enumerate(g.shape)])
        for at in range(g.shape[axis]):
            for places, part in parts:
                gradient.select(axis, places[at]).add_(part.select(axis, at))
        g = gradient
    return formatted(g, grad_output)


def _scales(scales: Sequence[float | None], sizes: Sequence[int]) -> tuple[float | None, ...]:
    return (*scales, *[None] * (len(sizes) - len(scales)))


for _name in ("linear1d", "bilinear2d", "trilinear3d"):
    row(f"upsample_{_name}", formula=_WEIGHTS, bound="4 u abs(neighbours) per axis")(_linear)
    row(
        f"upsample_{_name}_backward",
        formula="sum of grad_output * weight over the outputs of a position, first along the last axis",
        order=SEQUENTIAL,
        bound="(number of outputs + 3) u sum(abs(grad_output)) per axis",
    )(_linear_backward)
