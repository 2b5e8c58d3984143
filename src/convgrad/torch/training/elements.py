"""Operators that compute each element by itself: sums with a factor, square roots, interpolation, powers."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from convgrad.torch.training.row import (
    ELEMENTWISE,
    PROMOTE,
    SERVE,
    Function,
    common_type,
    positive_zeros,
    result_type,
    row,
    stored,
)
from convgrad.torch.training.tensors import elements, is_served

# Among zeros of both signs, PyTorch chooses by the place in memory and the number of threads.
positive_zeros("maximum", "minimum", "fmax", "fmin", formula="the larger or smaller of self and other, + 0.0")
positive_zeros("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor", formula="self limited by min and max, + 0.0")
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

_SUM = "u abs(factor * other) + u abs(result)"


def _without_factor(*_: Tensor, alpha: float = 1, **__: object) -> bool:
    return alpha == 1


@row("add.Tensor", formula="self + (alpha * other)", bound=_SUM, types=ELEMENTWISE, passed_on=_without_factor)
def add(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self + alpha*other, with two roundings."""
    if is_served(self, other):
        return elements("add", self, other, alpha, out=out)
    to, (x, y) = common_type(self, other)
    return stored(torch.add, x, y * alpha, to, out)


@row("sub.Tensor", formula="self - (alpha * other)", bound=_SUM, types=ELEMENTWISE, passed_on=_without_factor)
def sub(self: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self - alpha*other, with two roundings."""
    if torch.bool in (self.dtype, other.dtype):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
    if is_served(self, other):
        return elements("subtract", self, other, alpha, out=out)
    to, (x, y) = common_type(self, other)
    return stored(torch.sub, x, y * alpha, to, out)


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
        to, (x, y, w) = common_type(self, end, weight)
        difference = y - x
        return torch.where(w.abs() < 0.5, x + difference * w, y - difference * (1 - w)).to(to)
    if is_served(self, end):
        low = abs(weight) < 0.5
        return elements("lerp_low" if low else "lerp_high", self, end, weight if low else 1 - weight, out=out)
    to, (x, y) = common_type(self, end)
    if abs(weight) < 0.5:
        return stored(torch.add, x, (y - x) * weight, to, out)
    return stored(torch.sub, y, (y - x) * (1 - weight), to, out)


@row(
    "addcmul",
    formula="self + (value * tensor1) * tensor2",
    bound="2 u abs(value * tensor1 * tensor2) + u abs(result)",
    types=ELEMENTWISE,
)
def addcmul(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1, out: Tensor | None = None) -> Tensor:
    """Return self + value*tensor1*tensor2, with a rounding after each operation."""
    if is_served(self, tensor1, tensor2):
        return elements("addcmul", self, tensor1, tensor2, value, out=out)
    to, (x, y, z) = common_type(self, tensor1, tensor2)
    return stored(torch.add, x, (y if value == 1 else y * value) * z, to, out)


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
    if is_served(self, tensor1, tensor2):
        return elements("addcdiv", self, tensor1, tensor2, value, out=out)
    to, (x, y, z) = common_type(self, tensor1, tensor2)
    return stored(torch.add, x, (y if value == 1 else y * value) / z, to, out)


@row("sqrt", formula="the square root of IEEE 754", bound="u abs(result)", types=ELEMENTWISE, integers=PROMOTE)
def sqrt(self: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the square root. On CPUs, torch.sqrt is one ulp off for a fifth of all f32 numbers."""
    if is_served(self):
        return elements("sqrt", self, out=out)
    to, (x,) = common_type(self)
    root = torch.empty_like(x)
    with np.errstate(invalid="ignore"):
        np.sqrt(x.detach().numpy(), out=root.numpy())
    return root.to(to)


@row("rsqrt", formula="1 / sqrt(self)", bound="2 u abs(result)", types=ELEMENTWISE, integers=PROMOTE)
def rsqrt(self: Tensor) -> Tensor:
    """Return the reciprocal of the square root, with two roundings."""
    to, (x,) = common_type(self)
    return (1 / sqrt(x)).to(to)


def _are_integers(self: Tensor | float, other: Tensor | float, **_: Tensor) -> bool:
    return not any(
        isinstance(value, float) or (isinstance(value, Tensor) and value.is_floating_point()) for value in (self, other)
    )


def _divided(self: Tensor | float, other: Tensor | float) -> tuple[torch.dtype, Tensor, Tensor]:
    """Return the type of a remainder, the remainder with the sign of ``self``, and the divisor, in a wider type.

    PyTorch's is NaN for a large quotient if it divides several numbers at once.
    """
    to = (
        result_type(self, other)
        if isinstance(self, Tensor) and isinstance(other, Tensor)
        else torch.result_type(self, other)
    )
    numbers = [
        value if isinstance(value, Tensor) else torch.tensor(float(value), dtype=torch.float64).to(to)
        for value in (self, other)
    ]
    _, (x, y) = common_type(*numbers)
    with np.errstate(invalid="ignore"):
        left = np.fmod(x.detach().numpy(), y.detach().numpy())
    return to, torch.from_numpy(np.asarray(left)), y


@row(
    "fmod.Tensor",
    "fmod.Scalar",
    formula="self - n other, n = self / other without its fraction; exact",
    bound="0",
    types=ELEMENTWISE,
    integers=SERVE,
    passed_on=_are_integers,
)
def fmod(self: Tensor, other: Tensor | float) -> Tensor:
    """Return the remainder with the sign of self."""
    to, left, _ = _divided(self, other)
    return left.to(to)


@row(
    "remainder.Tensor",
    "remainder.Scalar",
    "remainder.Scalar_Tensor",
    formula="r = fmod(self, other); r + other if r is not 0 and has another sign than other, else r",
    bound="u abs(result)",
    types=ELEMENTWISE,
    integers=SERVE,
    passed_on=_are_integers,
)
def remainder(self: Tensor | float, other: Tensor | float) -> Tensor:
    """Return the remainder with the sign of other."""
    to, left, y = _divided(self, other)
    return torch.where((left != 0) & ((left < 0) != (y < 0)), left + y, left).to(to)


_POWERS: dict[float, Function] = {
    0: torch.ones_like,
    1: lambda x: x.clone(),
    2: lambda x: x * x,
    3: lambda x: (x * x) * x,
    4: lambda x: (x * x) * (x * x),
    0.25: lambda x: sqrt(sqrt(x)),
    0.5: sqrt,
    0.75: lambda x: sqrt(x) * sqrt(sqrt(x)),
    1.5: lambda x: x * sqrt(x),
    -0.25: lambda x: 1 / sqrt(sqrt(x)),
    -0.75: lambda x: 1 / (sqrt(x) * sqrt(sqrt(x))),
    -1.25: lambda x: 1 / (x * sqrt(sqrt(x))),
    -0.5: rsqrt,
    -1.5: lambda x: 1 / (x * sqrt(x)),
    -1: lambda x: 1 / x,
    -2: lambda x: 1 / (x * x),
    -3: lambda x: 1 / ((x * x) * x),
}


def _is_of_integers(self: Tensor, exponent: float, **_: object) -> bool:
    return not self.is_floating_point() and isinstance(exponent, int)


@row(
    "pow.Tensor_Scalar",
    formula="products, sqrt and division for the exponents "
    f"{', '.join(f'{power:g}' for power in sorted(_POWERS))}; else as pow.Tensor_Tensor, but not of f64",
    bound="5 u abs(result)",
    types=ELEMENTWISE,
    integers=PROMOTE,
    passed_on=_is_of_integers,
)
def power(self: Tensor, exponent: float) -> Tensor:
    """Return self**exponent; products, square roots and divisions compute it for some exponents."""
    if exponent not in _POWERS:
        return elements("power", self, exponent)
    to, (x,) = common_type(self)
    if abs(exponent) != 0.5 and exponent % 1:  # unlike square roots, other powers of -inf and -0 are those of inf and 0
        x = torch.where(x == -math.inf, math.inf, x) + 0.0
    raised: Tensor = _POWERS[exponent](x)
    return raised.to(to)
