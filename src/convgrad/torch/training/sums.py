"""Sums, means, variances and norms over dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from convgrad.spec.elementwise.sums import CHAINS, SECTION
from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.training.channels import ChannelProgram, ChannelView
from convgrad.torch.training.row import SECTIONS, SUMMED, TYPE_CURE, UnservedError, row

Dims = int | Sequence[int] | None
Dtype: TypeAlias = torch.dtype | None
Out: TypeAlias = Tensor | None
_DEPTH = "h v sum(abs(self)) + u abs(result)"


def total(x: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the sums over dimensions, all by default, in f64."""
    return _in_f64(x, None, dims, keepdim)


def products(x: Tensor, y: Tensor, dims: Dims = None, keepdim: bool = False) -> Tensor:
    """Return the sums of x * y over dimensions, all by default, in f64."""
    return _in_f64(x, y, dims, keepdim)


def _in_f64(x: Tensor, y: Tensor | None, dims: Dims, keepdim: bool) -> Tensor:
    program, (view, other, combined) = ChannelProgram(x.numel()), _arranged(x, y, dims)
    name, others = ("squares", ()) if other is None else ("products", (other,))
    is_plain = other is None
    (result,) = program.sums_of(name, view, *others, plain=is_plain, products=not is_plain, combined=combined)
    program.run()
    return torch.from_numpy(np.ascontiguousarray(result)).reshape(_shape(x, dims, keepdim))


def _from_sums(
    name: str, x: Tensor, dims: Dims, keepdim: bool, dtypes: Sequence[torch.dtype], numbers: Sequence[float] = ()
) -> list[Tensor]:
    """Return the results of a map in f64 on sums of x, sums of squares, or both, over dimensions, and on numbers."""
    x = x if x.dtype in SUMMED else x.float()
    program, (view, _, combined) = ChannelProgram(x.numel()), _arranged(x, None, dims)
    plain, squares = (of in MAPS[name].operands for of in ("total", "squares"))
    sums = program.sums_of("squares", view, plain=plain, products=squares, combined=combined)
    operands = *[total.reshape(-1) for total in sums], *numbers
    results = program.coefficients(name, (sums[0].size,), operands, 0, dtypes)
    program.run()
    shape = _shape(x, dims, keepdim)
    return [result.reshape(shape) for result in results]


def _shape(x: Tensor, dims: Dims, keepdim: bool) -> list[int]:
    """Return the shape of sums over dimensions."""
    reduced = _reduced(x, dims)
    return [1 if dim in reduced else x.shape[dim] for dim in range(x.dim()) if keepdim or dim not in reduced]


def count(x: Tensor, dims: Dims) -> int:
    """Return the number of elements of each sum over dimensions."""
    return math.prod(x.shape[dim] for dim in _reduced(x, dims))


def axis_of(x: Tensor, dim: int) -> int:
    """Return the number of a dimension, which may count from the last one."""
    limit: int = max(x.dim(), 1)
    if not -limit <= dim < limit:
        expected = f"expected to be in range of [{-limit}, {limit - 1}]"
        raise IndexError(f"Dimension out of range ({expected}, but got {dim})")
    return dim % limit


def _reduced(x: Tensor, dims: Dims) -> list[int]:
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return list(range(x.dim()))
    reduced = [axis_of(x, dim) for dim in ([dims] if isinstance(dims, int) else dims)]
    for axis in reduced:
        if reduced.count(axis) > 1:
            raise RuntimeError(f"dim {axis} appears multiple times in the list of dims")
    return sorted(reduced) if x.dim() else []


def _arranged(x: Tensor, y: Tensor | None, dims: Dims) -> tuple[ChannelView, Tensor | None, bool]:
    """Return tensors whose positions are the reduced dimensions in row-major order, and whether to combine images.

    The kept dimensions are images and channels. If x is contiguous with the reduced dimensions before the last kept
    ones, as in channels last, it is not copied. Nor is it if the first and the last dimensions are reduced, so that
    the first ones are images, and their sections are those of all positions.
    """
    reduced = _reduced(x, dims)
    kept = [dim for dim in range(x.dim()) if dim not in reduced]
    terms = math.prod(x.shape[dim] for dim in reduced)
    for split in range(len(kept), -1, -1):
        order = (*kept[:split], *reduced, *kept[split:])
        if (view := x.permute(order)).is_contiguous():
            break
    else:
        first, last = (kept[0], kept[-1] + 1) if kept else (0, 0)
        images, channels, positions = (
            math.prod(part) for part in (x.shape[:first], x.shape[first:last], x.shape[last:])
        )
        are_sections_whole = math.gcd(positions, SECTION) in (positions, SECTION) and positions % CHAINS == 0
        if x.is_contiguous() and last - first == len(kept) and are_sections_whole:
            return ChannelView(x, (images, channels, positions), False), None if y is None else y.contiguous(), True
        split, order = len(kept), (*kept, *reduced)
        view = x.permute(order).contiguous()
    other = None if y is None else y.permute(order).contiguous()
    images, channels = (math.prod(x.shape[dim] for dim in some) for some in (kept[:split], kept[split:]))
    if split == len(kept):
        return ChannelView(view, (1, images, terms), False), other, False
    return ChannelView(view, (images, channels, terms), True), other, False


def served(dtype: torch.dtype) -> torch.dtype:
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
    return _from_sums("mean", self, dim, keepdim, [served(dtype or self.dtype)], [1.0])[0]


@row("dot", "vdot", formula="sum of self * other", order=SECTIONS, bound="h v sum(abs(products)) + u abs(result)")
def dot(self: Tensor, other: Tensor) -> Tensor:
    """Return the inner product of two vectors."""
    return rounded(products(self, other), self.dtype)


@row("nansum", formula="sum of self without NaN", order=SECTIONS, bound=_DEPTH)
def nansum(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Dtype = None, out: Out = None) -> Tensor:
    """Return the sums over dimensions of all elements that are not NaN."""
    return sums(torch.where(self.isnan(), 0, self), dim, keepdim, dtype=dtype, out=out)


@row("trace", formula="sum of the diagonal of self", order=SECTIONS, bound=_DEPTH)
def trace(self: Tensor) -> Tensor:
    """Return the sum of the diagonal of a matrix."""
    return sums(self.diagonal())


@row("mean", "mean.dim", formula="sum / count", order=SECTIONS, bound="h v sum(abs(self)) / count + u abs(result)")
def mean(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Dtype = None, out: Out = None) -> Tensor:
    """Return the means over dimensions. They have the type of ``out`` if no other type is given."""
    to = served(_stated(dtype, out) or self.dtype)
    return _from_sums("mean", self, dim, keepdim, [to], [float(count(self, dim))])[0]


def _free(x: Tensor, dims: Dims, correction: float | None) -> list[float]:
    """Return the number of elements of each sum, and the degrees of freedom."""
    number = count(x, dims)
    return [float(number), float(max(0, number - (1 if correction is None else correction)))]


_VAR = "s = sum of self; max(0, sum of self * self - s * (s / count)) / max(0, count - correction), in f64"
_VAR_BOUND = "2 h v (sum of self * self) / (count - correction) + u result"


@row("var.correction", formula=_VAR, order=SECTIONS, bound=_VAR_BOUND)
def var(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the variances over dimensions."""
    return _from_sums("variance", self, dim, keepdim, [self.dtype], _free(self, dim, correction))[0]


@row("var_mean.correction", formula=_VAR, order=SECTIONS, bound=_VAR_BOUND)
def var_mean(
    self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the variances and the means over dimensions."""
    free = _free(self, dim, correction)
    variances, means = _from_sums("variance", self, dim, keepdim, [self.dtype] * 2, free)
    return variances, means


@row(
    "std.correction",
    formula="sqrt of var.correction, in f64",
    order=SECTIONS,
    bound="half that of var, relative, + u result",
)
def std(self: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Tensor:
    """Return the standard deviations over dimensions."""
    return _from_sums("deviation", self, dim, keepdim, [self.dtype], _free(self, dim, correction))[0]


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
    to = served(dtype or self.dtype)
    if ord == 1:
        return rounded(total(self.abs(), dim, keepdim), to)
    return _from_sums("root", self, dim, keepdim, [to])[0]
