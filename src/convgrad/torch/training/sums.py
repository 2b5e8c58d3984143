"""Sums, means, variances and norms over dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from convgrad.torch.training.channels import ChannelProgram, ChannelView
from convgrad.torch.training.row import SECTIONS, SUMMED, TYPE_CURE, UnservedError, row

Sums = TypeVar("Sums", Tensor, NDArray[np.float64])

Dims = int | Sequence[int] | None
Dtype: TypeAlias = torch.dtype | None
Out: TypeAlias = Tensor | None
_DEPTH = "h v sum(abs(self)) + u abs(result)"


def total(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the sums over dimensions, all by default, in f64."""
    return moments(x, None, dims, keepdim, plain=True, products=False)[0]


def products(x: Tensor, y: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the sums of x * y over dimensions, all by default, in f64."""
    return moments(x, y, dims, keepdim, plain=False, products=True)[0]


def moments(
    x: Tensor, y: Tensor | None, dims: Dims, keepdim: bool, *, plain: bool = True, products: bool = True
) -> tuple[Tensor, ...]:
    """Return the sums of x over dimensions if ``plain``, and those of its products with y, or with itself, in f64."""
    program, (view, other) = ChannelProgram(x.numel()), _arranged(x, y, dims)
    others = () if other is None else (other,)
    name = "products" if others else "squares"
    results = program.sums_of(name, view, *others, plain=plain, products=products, combined=False)
    program.run()
    shape = _shape(x, dims, keepdim)
    return tuple([torch.from_numpy(np.ascontiguousarray(result)).reshape(shape) for result in results])


def _rounded_sums(x: Tensor, dims: Dims, keepdim: bool, dtype: torch.dtype, number: float = 1.0) -> Tensor:
    """Return the sums over dimensions, divided by a number, in a type."""
    x = x if x.dtype in SUMMED else x.float()
    program = ChannelProgram(x.numel())
    (results,) = program.sums_of("squares", _arranged(x, None, dims)[0], products=False, combined=False)
    result = program.rounded(results, dtype, number)
    program.run()
    return result.reshape(_shape(x, dims, keepdim))


def _shape(x: Tensor, dims: Dims, keepdim: bool) -> list[int]:
    """Return the shape of sums over dimensions."""
    reduced = _reduced(x, dims)
    return [1 if dim in reduced else x.shape[dim] for dim in range(x.dim()) if keepdim or dim not in reduced]


def count(x: Tensor, dims: Dims) -> int:
    """Return the number of elements of each sum over dimensions."""
    return math.prod(x.shape[dim] for dim in _reduced(x, dims))


def _reduced(x: Tensor, dims: Dims) -> list[int]:
    rank = x.dim()
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return list(range(rank))
    limit, reduced = max(rank, 1), []
    for dim in [dims] if isinstance(dims, int) else dims:
        if not -limit <= dim < limit:
            expected = f"expected to be in range of [{-limit}, {limit - 1}]"
            raise IndexError(f"Dimension out of range ({expected}, but got {dim})")
        if dim % limit in reduced:
            raise RuntimeError(f"dim {dim % limit} appears multiple times in the list of dims")
        reduced.append(dim % limit)
    return sorted(reduced) if rank else []


def _arranged(x: Tensor, y: Tensor | None, dims: Dims) -> tuple[ChannelView, Tensor | None]:
    """Return tensors whose positions are the reduced dimensions in row-major order.

    The kept dimensions are images and channels. If x is contiguous with the reduced dimensions before the last kept
    ones, as in channels last, it is not copied.
    """
    reduced = _reduced(x, dims)
    kept = [dim for dim in range(x.dim()) if dim not in reduced]
    terms = math.prod(x.shape[dim] for dim in reduced)
    for split in range(len(kept), -1, -1):
        order = (*kept[:split], *reduced, *kept[split:])
        if (view := x.permute(order)).is_contiguous():
            break
    else:
        split, order = len(kept), (*kept, *reduced)
        view = x.permute(order).contiguous()
    other = None if y is None else y.permute(order).contiguous()
    images, channels = (math.prod(x.shape[dim] for dim in some) for some in (kept[:split], kept[split:]))
    if split == len(kept):
        return ChannelView(view, (1, images, terms), False), other
    return ChannelView(view, (images, channels, terms), True), other


def _served(dtype: torch.dtype) -> torch.dtype:
    """Return the type of a sum; raise if no order is specified for it."""
    if dtype not in SUMMED:
        raise UnservedError(f"has no specified order for {dtype}", TYPE_CURE)
    return dtype


def _stated(dtype: Dtype, out: Out) -> Dtype:
    """Return the type that a caller states: ``dtype``, or else that of ``out``."""
    return dtype if dtype is not None or out is None else out.dtype


def rounded(wide: Tensor, dtype: torch.dtype) -> Tensor:
    """Return f64 numbers rounded to f32, and then to a type."""
    return wide.to(torch.float32).to(dtype)


@row("sum", "sum.dim_IntList", formula="sum of self", order=SECTIONS, bound=_DEPTH)
def sums(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Dtype = None, out: Out = None) -> Tensor:
    """Return the sums over dimensions. They have the type of ``out`` if no other type is given."""
    dtype = _stated(dtype, out)
    if dtype is not None and not dtype.is_floating_point:
        return self.to(dtype).sum(dim, keepdim)
    return _rounded_sums(self, dim, keepdim, _served(dtype or self.dtype))


@row("mean", "mean.dim", formula="sum / count", order=SECTIONS, bound="h v sum(abs(self)) / count + u abs(result)")
def mean(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Dtype = None, out: Out = None) -> Tensor:
    """Return the means over dimensions. They have the type of ``out`` if no other type is given."""
    return _rounded_sums(self, dim, keepdim, _served(_stated(dtype, out) or self.dtype), float(count(self, dim)))


def variance(plain: Sums, squares: Sums, number: int, free: float) -> tuple[Sums, Sums]:
    """Return means, and variances for ``free`` degrees of freedom, from f64 sums: arrays of NumPy or tensors."""
    middle = plain / number
    return middle, (squares - plain * middle).clip(0) / free


def _spread(self: Tensor, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Return means and variances over dimensions in f64."""
    number = count(self, dim)
    free = max(0, number - (1 if correction is None else correction))
    plain, squares = moments(self, None, dim, keepdim)
    middle, spread = variance(plain, squares, number, free)
    return middle, spread


_VAR = "s = sum of self; max(0, sum of self * self - s * (s / count)) / max(0, count - correction), in f64"
_VAR_BOUND = "2 h v (sum of self * self) / (count - correction) + u result"


@row("var.correction", formula=_VAR, order=SECTIONS, bound=_VAR_BOUND)
def var(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the variances over dimensions."""
    return rounded(_spread(self, dim, correction, keepdim)[1], self.dtype)


@row("var_mean.correction", formula=_VAR, order=SECTIONS, bound=_VAR_BOUND)
def var_mean(
    self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variances and the means over dimensions."""
    middle, spread = _spread(self, dim, correction, keepdim)
    return rounded(spread, self.dtype), rounded(middle, self.dtype)


@row(
    "std.correction",
    formula="sqrt of var.correction, in f64",
    order=SECTIONS,
    bound="half that of var, relative, + u result",
)
def std(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the standard deviations over dimensions."""
    return _root(_spread(self, dim, correction, keepdim)[1], self.dtype)


def _root(squares: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the IEEE square roots of f64 numbers, rounded to f32, and then to a type."""
    return rounded(torch.from_numpy(np.asarray(np.sqrt(squares.numpy()))), dtype)


def _is_maximum(self: Tensor, ord: float = 2, *_: object, **__: object) -> bool:
    return math.isinf(ord)


@row(
    "linalg_vector_norm",
    formula="ord 2: sqrt of the sum of self * self; ord 1: the sum of abs(self)",
    order=SECTIONS,
    bound="(h v + u) result",
    passed_on=_is_maximum,
)
def vector_norm(
    self: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the norms over dimensions, of order 1 or 2."""
    if ord not in (1, 2):
        raise UnservedError(f"computes only the orders 1, 2 and infinity; got {ord}", "Use one of these orders")
    to = _served(dtype or self.dtype)
    if ord == 1:
        return rounded(total(self.abs(), dim, keepdim), to)
    return _root(moments(self, None, dim, keepdim, plain=False)[0], to)
