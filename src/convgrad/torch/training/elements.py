"""Operators that compute each element by itself: sums with a factor, square roots, interpolation, remainders."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from convgrad.spec.elementwise.powers import power_name
from convgrad.torch.training.row import (
    ELEMENTWISE,
    PROMOTE,
    SERVE,
    positive_zeros,
    result_type,
    row,
)
from convgrad.torch.training.tensors import elements

# Among zeros of both signs, PyTorch chooses by the place in memory and the number of threads.
positive_zeros(
    "amax",
    "amin",
    "max",
    "min",
    "aminmax",
    "_aminmax",
    "_aminmax.dim",
    formula="the largest or smallest of self, + 0.0",
)
positive_zeros("median", "nanmedian", formula="the median of all elements of self, + 0.0")
positive_zeros("avg_pool2d", formula="the means of windows, as PyTorch computes them, + 0.0")


def _choose(name: str, *others: str, formula: str) -> None:
    """Add the row of the larger or smaller of two tensors, which is a map named like the first operator."""

    def choose(self: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
        return elements(name, self, other, out=out)

    row(name, *others, formula=f"{formula}, + 0.0", bound="0", types=ELEMENTWISE)(choose)


_choose("maximum", "clamp_min.Tensor", formula="the larger operand, or NaN")
_choose("minimum", "clamp_max.Tensor", formula="the smaller operand, or NaN")
_choose("fmax", formula="the larger operand, or the one that is not NaN")
_choose("fmin", formula="the smaller operand, or the one that is not NaN")


@row(
    "clamp.Tensor",
    formula="the smaller of max and the larger of min and self, + 0.0",
    bound="0",
    types=ELEMENTWISE,
)
def clamp(self: Tensor, min: Tensor | None = None, max: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return self limited by tensors."""
    if min is not None and max is not None:
        return elements("clamp", self, min, max, out=out)
    return elements("minimum", self, max, out=out) if min is None else elements("maximum", self, min, out=out)


_SUM = "u abs(factor * other) + u abs(result)"


def _without_factor(*_: Tensor, alpha: float = 1, **__: object) -> bool:
    return alpha == 1


@row("add.Tensor", formula="self + (alpha * other)", bound=_SUM, types=ELEMENTWISE, passed_on=_without_factor)
def add(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self + alpha*other, with two roundings."""
    return elements("add", self, other, alpha, out=out)


@row("sub.Tensor", formula="self - (alpha * other)", bound=_SUM, types=ELEMENTWISE, passed_on=_without_factor)
def sub(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self - alpha*other, with two roundings."""
    if torch.bool in (self.dtype, other.dtype):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    return elements("subtract", self, other, alpha, out=out)


@row("rsub.Tensor", formula="other - (alpha * self)", bound=_SUM, types=ELEMENTWISE, passed_on=_without_factor)
def rsub(self: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:
    """Return other - alpha*self, with two roundings."""
    return sub(other, self, alpha=alpha)


@row(
    "lerp.Scalar",
    "lerp.Tensor",
    formula="self + weight * (end - self) if abs(weight) < 0.5, else end - (end - self) * (1 - weight)",
    bound="3 u (abs(self) + abs(end))",
    types=ELEMENTWISE,
)
def lerp(self: Tensor, end: Tensor, weight: float | Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the value between two tensors, with a rounding after each operation."""
    if isinstance(weight, torch.Tensor):
        return elements("lerp", self, end, weight, out=out)
    low = abs(weight) < 0.5
    return elements("lerp_low" if low else "lerp_high", self, end, weight if low else 1 - weight, out=out)


@row(
    "addcmul",
    formula="self + (value * tensor1) * tensor2",
    bound="2 u abs(value * tensor1 * tensor2) + u abs(result)",
    types=ELEMENTWISE,
)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self + value*tensor1*tensor2, with a rounding after each operation."""
    return elements("addcmul", self, tensor1, tensor2, value, out=out)


@row(
    "addcdiv",
    formula="self + (value * tensor1) / tensor2",
    bound="2 u abs(value * tensor1 / tensor2) + u abs(result)",
    types=ELEMENTWISE,
)
def addcdiv(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self + value*tensor1/tensor2, with a rounding after each operation."""
    if not (tensor1.is_floating_point() or tensor2.is_floating_point()):
        raise RuntimeError("Integer division with addcdiv is not supported.")
    return elements("addcdiv", self, tensor1, tensor2, value, out=out)


@row("sqrt", formula="the square root of IEEE 754", bound="u abs(result)", types=ELEMENTWISE, integers=PROMOTE)
def sqrt(self: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the square root. On CPUs, torch.sqrt is one ulp off for a fifth of all f32 numbers."""
    return elements("sqrt", self, out=out)


@row("rsqrt", formula="1 / sqrt(self)", bound="2 u abs(result)", types=ELEMENTWISE, integers=PROMOTE)
def rsqrt(self: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the reciprocal of the square root, with two roundings."""
    return elements(power_name(-0.5), self, out=out)


def are_integers(self: Tensor | float, other: Tensor | float, **_: object) -> bool:
    """Return whether two operands are integers, which ATen computes exactly."""
    return not any(
        isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point()) for value in (self, other)
    )


def _divided(name: str, self: Tensor | float, other: Tensor | float) -> Tensor:
    """Return a remainder by the map ``name``, or by NumPy in f64. A number is first rounded to the result's type.

    PyTorch's is NaN for a large quotient if it divides several numbers at once.
    """
    if isinstance(self, Tensor) and isinstance(other, Tensor):
        to = result_type(self, other)
    else:
        to = torch.result_type(self, other)
        self, other = _in_type(self, to), _in_type(other, to)
    if to != torch.float64:
        return elements(name, self, other)
    x, y = (torch.as_tensor(value, dtype=to).detach() for value in (self, other))
    with np.errstate(invalid="ignore"):
        left = torch.from_numpy(np.asarray(np.fmod(x.numpy(), y.numpy())))
    has_other_sign = (left != 0) & ((left < 0) != (y < 0))
    return torch.where(has_other_sign, left + y, left) if name == "remainder" else left


def _in_type(value: Tensor | float, dtype: torch.dtype) -> Tensor | float:
    """Return a number rounded to a type, a tensor of floats as it is, or integers in this type."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else value.to(dtype)
    return float(torch.tensor(float(value), dtype=torch.float64).to(dtype))


@row(
    "fmod.Tensor",
    "fmod.Scalar",
    formula="self - n other, n = self / other without its fraction; exact",
    bound="0",
    types=ELEMENTWISE,
    integers=SERVE,
    passed_on=are_integers,
)
def fmod(self: Tensor, other: Tensor | float) -> Tensor:
    """Return the remainder with the sign of self."""
    return _divided("fmod", self, other)


@row(
    "remainder.Tensor",
    "remainder.Scalar",
    "remainder.Scalar_Tensor",
    formula="r = fmod(self, other); r + other if r is not 0 and has another sign than other, else r",
    bound="u abs(result)",
    types=ELEMENTWISE,
    integers=SERVE,
    passed_on=are_integers,
)
def remainder(self: Tensor | float, other: Tensor | float) -> Tensor:
    """Return the remainder with the sign of other."""
    return _divided("remainder", self, other)
