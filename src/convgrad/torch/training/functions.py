"""Elementary functions: exp, log, tanh and sigmoid in f64 by IEEE operations alone, then one rounding."""

from __future__ import annotations

import math

import torch

from convgrad.torch.training.row import ELEMENTWISE, PROMOTE, Function, Tensor, common_type, in_blocks, row

NEAREST = "0.501 ulp"
_F64 = torch.float64
_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2 in 86 bits
_EXP = [1 / math.factorial(k) for k in range(14)]  # |r| <= ln(2)/2: the remainder is below 2^-59
_ATANH = [2 / k for k in range(1, 24, 2)]  # |s| <= 0.172: the remainder is below 2^-60
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]  # abs(angle) <= pi/4: the remainder is below 2^-58
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]
_FRACTION, _ONE, _BIAS = (1 << 52) - 1, 1023 << 52, 1023


def exp64(x: Tensor) -> Tensor:
    """Return exp of f64 numbers, with a relative error below 2^-50."""
    x = x.clamp(-800.0, 800.0)
    power = (x * _LOG2_E + 0.5).floor()
    remainder = (x - power * _LN2_HIGH) - power * _LN2_LOW
    value = polynomial(remainder, _EXP)
    half = (power * 0.5).floor()  # in two steps, so that neither factor overflows
    return (value * _two_to(half)) * _two_to(power - half)


def log64(x: Tensor) -> Tensor:
    """Return log of f64 numbers, with a relative error below 2^-49."""
    subnormal = (x < 2.0**-1000) & (x > 0)
    scaled = torch.where(subnormal, x * 2.0**200, x)
    bits = scaled.contiguous().view(torch.int64)
    fraction = ((bits & _FRACTION) | _ONE).view(_F64)
    large = fraction > math.sqrt(2)
    fraction = torch.where(large, fraction * 0.5, fraction)
    power = ((bits >> 52) - _BIAS + large.to(torch.int64) - 200 * subnormal.to(torch.int64)).to(_F64)
    value = power * _LN2_HIGH + (_atanh(fraction - 1) + power * _LN2_LOW)
    value = torch.where(x == 0, -math.inf, torch.where(x == math.inf, x, value))
    return torch.where(x >= 0, value, math.nan)


def log1p64(x: Tensor) -> Tensor:
    """Return log(1 + x) of f64 numbers, also accurate for small x."""
    return torch.where(x.abs() < 0.25, _atanh(x.clamp(-0.25, 0.25)), log64(1 + x))


def sigmoid64(x: Tensor) -> Tensor:
    """Return 1/(1 + exp(-x)) of f64 numbers."""
    return sigmoids64(x)[0]


def sigmoids64(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sigmoids of x and of -x, of f64 numbers."""
    e = exp64(-x.abs())
    small, large, negative = e / (1 + e), 1 / (1 + e), x < 0
    return torch.where(negative, small, large), torch.where(negative, large, small)


def tanh64(x: Tensor) -> Tensor:
    """Return tanh of f64 numbers: by a series below 0.02, else by exp."""
    size = x.abs()
    e = exp64(2 * size.clamp(max=30.0))
    square = size * size
    series = size * polynomial(square, [1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835])
    return torch.where(size < 0.02, series, (e - 1) / (e + 1)).copysign(x)


def cos64(turns: Tensor) -> Tensor:
    """Return the cosine of an angle in turns, from 0 to 1, in f64."""
    quarter = (turns * 4 + 0.5).floor()
    angle = (turns - quarter * 0.25) * (2 * math.pi)
    square = angle * angle
    cosine, sine = polynomial(square, _COS), angle * polynomial(square, _SIN)
    odd = (quarter.to(torch.int64) & 1) == 1
    negative = (quarter == 1) | (quarter == 2)  # quarters 0 to 4: cos, -sin, -cos, sin, cos
    value = torch.where(odd, sine, cosine)
    return torch.where(negative, -value, value)


def polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    """Return a polynomial by Horner's rule; the coefficients begin with that of x^0."""
    value = torch.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value.mul_(x).add_(coefficient)
    return value


def _atanh(f: Tensor) -> Tensor:
    """Return log(1 + f) = 2 atanh(f/(2 + f)) for f from -0.3 to 0.42."""
    s = f / (2 + f)
    return s * polynomial(s * s, _ATANH)


def _two_to(power: Tensor) -> Tensor:
    return ((power.to(torch.int64) + _BIAS) << 52).view(_F64)


def map64(name: str, formula: str, function: Function, integers: str = PROMOTE) -> None:
    """Add the row of a function of one tensor that is computed in f64 and rounded once."""

    @in_blocks
    def rounded(self: Tensor) -> Tensor:
        return function(self.to(_F64)).to(self.dtype)

    row(name, formula=f"{formula} in f64, then rounded", bound=NEAREST, integers=integers)(rounded)


for _name, _function in {"exp": exp64, "log": log64, "log1p": log1p64, "sigmoid": sigmoid64, "tanh": tanh64}.items():
    map64(_name, f"{_name}(self)", _function)


@row("sigmoid_backward", formula="(grad_output * (1 - output)) * output", bound="3 u abs(result)", types=ELEMENTWISE)
def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of sigmoid from its output."""
    to, (g, y) = common_type(grad_output, output)
    return ((g * (1 - y)) * y).to(to)


@row("tanh_backward", formula="grad_output * (1 - output * output)", bound="2 u abs(grad_output)", types=ELEMENTWISE)
def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """Return the gradient of tanh from its output."""
    to, (g, y) = common_type(grad_output, output)
    return (g * (1 - y * y)).to(to)


@row(
    "log_sigmoid_forward",
    formula="min(self, 0) - log1p(exp(-abs(self))) in f64, then rounded",
    bound=NEAREST,
)
def log_sigmoid(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(sigmoid(self)), and an empty buffer."""
    x = self.to(_F64)
    return (x.clamp(max=0) - log1p64(exp64(-x.abs()))).to(self.dtype), self.new_empty(0)


@row("log_sigmoid_backward", formula="grad_output * sigmoid(-self) in f64, then rounded", bound=NEAREST)
def log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    """Return the gradient of log_sigmoid."""
    return (grad_output.to(_F64) * sigmoid64(-self.to(_F64))).to(grad_output.dtype)
