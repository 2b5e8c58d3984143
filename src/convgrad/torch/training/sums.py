"""Sums, means, variances and norms over dimensions, by the kernels of bias gradients and depthwise weight gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from convgrad.torch import kernels
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.training.elements import sqrt
from convgrad.torch.training.row import ROW_MAJOR, SUMMED, Tensor, UnservedError, row

Dims = int | Sequence[int] | None
_DEPTH = "h u sum(abs(self)), where h is the rounding depth"


def channel_sums(x: Tensor) -> Tensor:
    """Return the f32 sums of a tensor (N, C, X...) per channel."""
    return kernels.bias_gradient(x) if x.numel() else x.new_zeros(x.shape[1])


def channel_products(x: Tensor, y: Tensor) -> Tensor:
    """Return the f32 sums of x * y per channel, for tensors (N, C, X...)."""
    channels, axes = x.shape[1], x.dim() - 2
    if not x.numel():
        return x.new_zeros(channels)
    ones, zeros = (1,) * axes, (0,) * axes
    layer = OpAttributes(ones, zeros, zeros, None, ones, channels, False)
    return kernels.weight_gradient(x, y, None, ones, layer).reshape(channels)


def scaled_channels(x: Tensor, factor: Tensor, term: Tensor | None = None) -> Tensor:
    """Return x * factor + term for a tensor (N, C, X...) with a factor and a term per channel: two roundings."""
    channels, axes = x.shape[1], x.dim() - 2
    if not x.numel():
        return torch.empty_like(x)
    ones, zeros = (1,) * axes, (0,) * axes
    last = x.stride(1) == 1 and channels > 1
    layer = OpAttributes(ones, zeros, zeros, None, ones, channels, last)
    return kernels.forward(x, factor.reshape(channels, 1, *ones), term, layer)


def total(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the f32 sums over dimensions, all by default."""
    rows, shape = _rows(x.float(), dims, keepdim)
    return channel_sums(rows).reshape(shape)


def products(x: Tensor, y: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the f32 sums of x * y over dimensions, all by default."""
    (left, shape), (right, _) = _rows(x.float(), dims, keepdim), _rows(y.float(), dims, keepdim)
    return channel_products(left, right).reshape(shape)


def count(x: Tensor, dims: Dims) -> int:
    """Return the number of elements of each sum over dimensions."""
    return math.prod(x.shape[dim] for dim in _reduced(x, dims))


def _reduced(x: Tensor, dims: Dims) -> list[int]:
    rank = x.dim()
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return list(range(rank))
    return sorted(dim % max(rank, 1) for dim in ([dims] if isinstance(dims, int) else dims)) if rank else []


def _rows(x: Tensor, dims: Dims, keepdim: bool) -> tuple[Tensor, list[int]]:
    """Return a tensor as (1, sums, terms of a sum), and the shape of the sums."""
    reduced = _reduced(x, dims)
    kept = [dim for dim in range(x.dim()) if dim not in reduced]
    terms = math.prod(x.shape[dim] for dim in reduced)
    rows = x.permute((*kept, *reduced)).reshape(1, math.prod(x.shape[dim] for dim in kept), terms)
    shape = [1 if dim in reduced else x.shape[dim] for dim in range(x.dim()) if keepdim or dim not in reduced]
    return rows, shape


def _served(dtype: torch.dtype) -> torch.dtype:
    """Return the type of a sum; raise if no order is specified for it."""
    if dtype not in SUMMED:
        raise UnservedError(f"has no specified order for {dtype}")
    return dtype


@row("sum", "sum.dim_IntList", formula="sum of self", order=ROW_MAJOR, bound=_DEPTH)
def sums(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the sums over dimensions."""
    if dtype is not None and not dtype.is_floating_point:
        return self.to(dtype).sum(dim, keepdim)
    return total(self, dim, keepdim).to(_served(dtype or self.dtype))


@row("mean", "mean.dim", formula="sum / count", order=ROW_MAJOR, bound=f"({_DEPTH}) / count + u abs(result)")
def mean(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return the means over dimensions."""
    return (total(self, dim, keepdim) / count(self, dim)).to(_served(dtype or self.dtype))


def moments(self: Tensor, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return the f32 variances and means over dimensions."""
    x, number = self.float(), count(self, dim)
    middle = total(x, dim, True) / number
    difference = x - middle
    free = max(0, number - (1 if correction is None else correction))
    squares = products(difference, difference, dim, keepdim)
    return squares / free, middle if keepdim else middle.reshape(squares.shape)


_VAR = "m = mean; sum of (self - m) * (self - m), / max(0, count - correction)"
_VAR_BOUND = "(h + 5) u result + (error of m)^2 count / (count - correction)"


@row("var.correction", formula=_VAR, order=ROW_MAJOR, bound=_VAR_BOUND)
def var(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the variances over dimensions."""
    return moments(self, dim, correction, keepdim)[0].to(self.dtype)


@row("var_mean.correction", formula=_VAR, order=ROW_MAJOR, bound=_VAR_BOUND)
def var_mean(
    self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variances and the means over dimensions."""
    spread, middle = moments(self, dim, correction, keepdim)
    return spread.to(self.dtype), middle.to(self.dtype)


@row("std.correction", formula=f"sqrt of: {_VAR}", order=ROW_MAJOR, bound="half that of var, relative, + u result")
def std(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the standard deviations over dimensions."""
    return sqrt(moments(self, dim, correction, keepdim)[0]).to(self.dtype)


def _is_maximum(self: Tensor, ord: float = 2, *_: object, **__: object) -> bool:
    return math.isinf(ord)


@row(
    "linalg_vector_norm",
    formula="ord 2: sqrt of the sum of self * self; ord 1: the sum of abs(self)",
    order=ROW_MAJOR,
    bound="(h + 2) u result",
    passed_on=_is_maximum,
)
def vector_norm(
    self: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the norms over dimensions, of order 1 or 2."""
    if ord not in (1, 2):
        raise UnservedError(f"computes only the orders 1, 2 and infinity; got {ord}")
    found = sqrt(products(self, self, dim, keepdim)) if ord == 2 else total(self.abs(), dim, keepdim)
    return found.to(_served(dtype or self.dtype))
