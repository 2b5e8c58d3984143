"""Maps of functions in f64, by IEEE operations alone: logarithms, and normal random numbers."""

from __future__ import annotations

import math

from convgrad.spec.elementwise.arithmetic import Number, Operand, Operations
from convgrad.spec.elementwise.definition import Maps

WIDE = Maps()

LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2 in 86 bits
_ATANH = [2 / k for k in range(1, 24, 2)]  # |s| <= 0.172: the remainder is below 2^-60
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]  # abs(angle) <= pi/4: the remainder is below 2^-58
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(9)]


def polynomial(x: Number, coefficients: list[float]) -> Number:
    """Return a polynomial by Horner's rule, with two roundings per coefficient; they begin with that of x^0."""
    value: Operand = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _log_near_1(f: Number) -> Number:
    """Return log(1 + f) = 2 atanh(f/(2 + f)) for f from -0.3 to 0.42."""
    s = f / (2.0 + f)
    return s * polynomial(s * s, _ATANH)


def log64(m: Operations, x: Number) -> Number:
    """Return log(x), with a relative error below 2^-49."""
    is_small = m.less(x, 2.0**-1000)
    fraction, power = m.significand(m.select(is_small, x * 2.0**200, x))
    is_large = m.less(math.sqrt(2), fraction)
    fraction = m.select(is_large, fraction * 0.5, fraction)
    power = m.select(is_large, power + 1.0, power) - m.select(is_small, 200.0, 0.0)
    value = power * LN2_HIGH + (_log_near_1(fraction - 1.0) + power * LN2_LOW)
    value = m.select(m.equal(x, 0.0), -math.inf, m.select(m.equal(x, math.inf), x, value))
    return m.select(m.less(x, 0.0), math.nan, m.select(m.equal(x, x), value, math.nan))


def log1p64(m: Operations, x: Number) -> Number:
    """Return log(1 + x), also accurate for small x."""
    return m.select(m.less(m.abs(x), 0.25), _log_near_1(x), log64(m, 1.0 + x))


def _cos64(m: Operations, turns: Number) -> Number:
    """Return the cosine of an angle in turns, from 0 to 1."""
    quarter = m.floor(turns * 4.0 + 0.5)
    angle = (turns - quarter * 0.25) * (2 * math.pi)
    square = angle * angle
    cosine, sine = polynomial(square, _COS), angle * polynomial(square, _SIN)
    value = m.select(m.equal(quarter, 1.0), sine, m.select(m.equal(quarter, 3.0), sine, cosine))
    # quarters 0 to 4: cos, -sin, -cos, sin, cos
    return m.select(m.equal(quarter, 1.0), -value, m.select(m.equal(quarter, 2.0), -value, value))


@WIDE.add(wide=True)
def normal(m: Operations, r: Number, s: Number, mean: Number, deviation: Number) -> Number:
    """Return a normal random number with a mean and a deviation from two uniform ones."""
    return (m.sqrt(log64(m, 1.0 - r) * -2.0) * _cos64(m, s)) * deviation + mean


@WIDE.add(wide=True)
def exponential(m: Operations, r: Number, rate: Number) -> Number:
    """Return an exponential random number from a uniform one."""
    return -log1p64(m, -r) / rate


for _function in (log64, log1p64):
    WIDE.add(wide=True)(_function)
