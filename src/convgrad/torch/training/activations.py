"""Activations and their gradients in f64 by IEEE operations, then one rounding: SiLU, GELU, ELU, softplus, erf."""

from __future__ import annotations

import math

import torch

from convgrad.torch.training.functions import NEAREST, exp64, log1p64, map64, polynomial, sigmoid64, sigmoids64
from convgrad.torch.training.row import PASS, Tensor, UnservedError, common_type, in_blocks, row

_F64 = torch.float64
_SHIFT = 3.75
# exp(z^2) erfc(z) (1 + 2z) as a polynomial of t = (z - 3.75)/(z + 3.75), for z from 0 to 15: a relative error of 4e-16.
_ERFC = [
    1.2375126308378275, -0.14024059858555118, 0.0035854154854768243, 0.08227673849063313, -0.10880393014195743,
    0.09230432114380764, -0.05869339859958036, 0.028362277668716865, -0.00974657924058831,
    0.0017556239419823723, 0.000293710058381765, -0.0002901467674602068, 5.16696054655634e-05,
    2.2374901291929486e-05, -1.1505512083248566e-05, -9.97214393985202e-07, 1.8385632253122847e-06,
    3.339671429998741e-08, -2.858266410694608e-07, -6.174621430848777e-08,
]  # fmt: skip
_ERF = [(-1) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(14)]  # abs(x) <= 0.5: a remainder below 2^-62
_EXPM1 = [1 / math.factorial(k) for k in range(1, 14)]  # abs(x) <= 0.25: a remainder below 2^-62
_TANH_SCALE, _CUBE = 2 * math.sqrt(2 / math.pi), 0.044715  # of the approximation of GELU by tanh


def _erfc64(z: Tensor) -> Tensor:
    """Return erfc of f64 numbers that are at least 0, with a relative error below 2^-44."""
    near = z.clamp(max=15.0)
    t = (near - _SHIFT) / (near + _SHIFT)
    return torch.where(z > 15.0, 0.0, exp64(-(near * near)) * (polynomial(t, _ERFC) / (1 + 2 * near)))


def erf64(x: Tensor) -> Tensor:
    """Return erf of f64 numbers: by a series below 0.5, else by erfc."""
    size = x.abs()
    small = size.clamp(max=0.5)
    series = small * (2 / math.sqrt(math.pi)) * polynomial(small * small, _ERF)
    return torch.where(size < 0.5, series, 1 - _erfc64(size)).copysign(x)


def expm1_64(x: Tensor) -> Tensor:
    """Return exp(x) - 1 of f64 numbers, also accurate for small x."""
    small = x.clamp(-0.25, 0.25)
    return torch.where(x.abs() < 0.25, small * polynomial(small, _EXPM1), exp64(x) - 1)


def _normal64(x: Tensor) -> Tensor:
    """Return the normal distribution function of f64 numbers; small values have a small relative error, too."""
    half = 0.5 * _erfc64(x.abs() * math.sqrt(0.5))
    return torch.where(x < 0, half, 1 - half)


map64("erf", "erf(self)", erf64)
map64("expm1", "exp(self) - 1", expm1_64)
map64("silu", "self * sigmoid(self)", lambda x: x * sigmoid64(x), integers=PASS)  # PyTorch has none of integers


@row(
    "silu_backward",
    formula="grad_output * (sigmoid(self) * (1 + self * sigmoid(-self))) in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of SiLU."""
    to, (g, x) = common_type(grad_output, self)
    x = x.to(_F64)
    s, other = sigmoids64(x)
    return (g.to(_F64) * (s * (1 + x * other))).to(to)


def _by_tanh(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise UnservedError(f"takes approximate none or tanh; got {approximate}")
    return approximate == "tanh"


@row(
    "gelu",
    formula='self * P(self), P the normal distribution function; with approximate="tanh", '
    "self * sigmoid(2 sqrt(2/pi) (self + 0.044715 self^3)); in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return GELU."""
    x = self.to(_F64)
    share = sigmoid64(_TANH_SCALE * (x + _CUBE * (x * x * x))) if _by_tanh(approximate) else _normal64(x)
    return (x * share).to(self.dtype)


@row(
    "gelu_backward",
    formula="grad_output * (P(self) + self * p(self)), p the normal density; "
    'with approximate="tanh", the derivative of that formula; in f64, then rounded',
    bound=f"{NEAREST}, where the derivative is not near 0",
)
@in_blocks
def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the gradient of GELU."""
    to, (g, given) = common_type(grad_output, self)
    x = given.to(_F64)
    square = x * x
    if _by_tanh(approximate):
        inner = _TANH_SCALE * (x + _CUBE * (square * x))
        s, other = sigmoids64(inner)
        slope = s + x * (s * other) * (_TANH_SCALE * (1 + 3 * _CUBE * square))
    else:
        slope = _normal64(x) + x * (exp64(-0.5 * square) / math.sqrt(2 * math.pi))
    return (g.to(_F64) * slope).to(to)


@row(
    "elu",
    formula="(exp(self * input_scale) - 1) * (alpha * scale) if self <= 0, else self * scale, in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Return ELU, or SELU or CELU for other scales."""
    x = self.to(_F64)
    negative = expm1_64(x.clamp(max=0) * input_scale) * (alpha * scale)
    return torch.where(x <= 0, negative, x * scale).to(self.dtype)


@row("celu", formula="elu(self, alpha, 1, 1/alpha)", bound=NEAREST)
def celu(self: Tensor, alpha: float = 1) -> Tensor:
    """Return CELU."""
    return elu(self, alpha, 1, 1 / alpha)


@row(
    "elu_backward",
    formula="grad_output * scale for positive elements, else grad_output * input_scale * (result + alpha * scale), or "
    "* alpha * scale * exp(self * input_scale); in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Tensor:
    """Return the gradient of ELU from its result, or from its input."""
    to, (g, given) = common_type(grad_output, self_or_result)
    x, g = given.to(_F64), g.to(_F64)
    coefficient = alpha * scale
    negative = x + coefficient if is_result else coefficient * exp64(x.clamp(max=0) * input_scale)
    return torch.where(x <= 0, g * (input_scale * negative), g * scale).to(to)


@row(
    "softplus",
    formula="self if self * beta > threshold, else log1p(exp(self * beta)) / beta, in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return softplus."""
    x = self.to(_F64)
    scaled = x * beta
    return torch.where(scaled > threshold, x, log1p64(exp64(scaled.clamp(max=threshold))) / beta).to(self.dtype)


@row(
    "softplus_backward",
    formula="grad_output if self * beta > threshold, else grad_output * sigmoid(self * beta), in f64, then rounded",
    bound=NEAREST,
)
@in_blocks
def softplus_backward(grad_output: Tensor, self: Tensor, beta: float, threshold: float) -> Tensor:
    """Return the gradient of softplus."""
    to, (g, x) = common_type(grad_output, self)
    scaled, g = x.to(_F64) * beta, g.to(_F64)
    return torch.where(scaled > threshold, g, g * sigmoid64(scaled)).to(to)
