"""Maps of functions in f64, by IEEE operations alone: logarithms, and normal random numbers."""

from __future__ import annotations

import math

from convgrad.spec.elementwise.arithmetic import WIDE_BIAS, WIDE_SIGNIFICAND, Number, Operand, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.functions import bounded, maximum

WIDE = Maps()
NEVER = -1e30  # the logarithm of a probability of 0: infinities would give NaN

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10  # their sum is ln 2 in 86 bits
_SHIFTED = 1.5 * 2.0**WIDE_SIGNIFICAND + WIDE_BIAS  # added to k, it leaves the exponent of 2^k in the last bits
_EXP = [1 / math.factorial(k) for k in range(14)]  # |r| <= ln(2)/2: the remainder is below 2^-59
_ATANH = [2 / k for k in range(1, 24, 2)]  # |s| <= 0.172: the remainder is below 2^-60
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]  # abs(angle) <= pi/4: the remainder is below 2^-58
_SINH = [1 / math.factorial(2 * k + 1) for k in range(10)]  # abs(x) <= 1: the remainder is below 2^-65
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


def _log_of_normal(m: Operations, x: Number, less: Operand = 0.0) -> Number:
    """Return log(x) for positive normal numbers, less a whole number of log(2)."""
    fraction, power = m.significand(x)
    is_large = m.less(math.sqrt(2), fraction)
    fraction = m.select(is_large, fraction * 0.5, fraction)
    power = m.select(is_large, power + 1.0, power) - less
    return power * _LN2_HIGH + (_log_near_1(fraction - 1.0) + power * _LN2_LOW)


def log64(m: Operations, x: Number) -> Number:
    """Return log(x), with a relative error below 2^-49."""
    is_small = m.less(x, 2.0**-1000)
    value = _log_of_normal(m, m.select(is_small, x * 2.0**200, x), m.select(is_small, 200.0, 0.0))
    value = m.select(m.equal(x, 0.0), -math.inf, m.select(m.equal(x, math.inf), x, value))
    return m.select(m.less(x, 0.0), math.nan, m.select(m.equal(x, x), value, math.nan))


def exp64(m: Operations, x: Number) -> Number:
    """Return exp(x), with a relative error below 2^-50."""
    x = bounded(m, x, 800.0)
    power = m.floor(x * _LOG2_E + 0.5)
    value = polynomial((x - power * _LN2_HIGH) - power * _LN2_LOW, _EXP)
    half = m.floor(power * 0.5)  # in two steps, so that neither factor overflows
    return (value * m.power_of_two(half)) * m.power_of_two(power - half)


def decaying_exp64(m: Operations, x: Number) -> Number:
    """Return exp(x) for x <= 0, with a relative error below 2^-50; exp(-700) for smaller x."""
    x = maximum(m, x, -700.0)
    power = x * _LOG2_E + _SHIFTED
    k = power - _SHIFTED
    return polynomial((x - k * _LN2_HIGH) - k * _LN2_LOW, _EXP) * m.from_exponent(power)


@WIDE.add(0.501, wide=True)
def power(m: Operations, x: Number, exponent: Number) -> Number:
    """Return x to the power of ``exponent``, and the values of IEEE's ``pow`` for special numbers."""
    size, is_whole = m.abs(x), m.equal(m.floor(exponent), exponent)
    value = m.select(m.equal(size, 1.0), 1.0, exp64(m, exponent * log64(m, size)))
    is_even = m.equal(m.floor(exponent * 0.5) * 2.0, exponent)
    of_negative = m.select(is_whole, m.select(is_even, value, -value), value)
    result = m.select(m.less(m.select(m.equal(x, 0.0), 1.0 / x, x), 0.0), of_negative, value)
    of_root = m.select(m.equal(x, -math.inf), value, math.nan)
    result = m.select(m.less(x, 0.0), m.select(is_whole, result, of_root), result)
    return m.select(m.equal(exponent, 0.0), 1.0, m.select(m.equal(x, 1.0), 1.0, result))


def log1p64(m: Operations, x: Number) -> Number:
    """Return log(1 + x), also accurate for small x."""
    return m.select(m.less(m.abs(x), 0.25), _log_near_1(x), log64(m, 1.0 + x))


def log1p_to_2(m: Operations, x: Number) -> Number:
    """Return log(1 + x) for x from 0 to 2, also accurate for small x."""
    above_1, above_2 = m.less(math.sqrt(2) - 1, x), m.less(2 * math.sqrt(2) - 1, x)
    f = m.select(above_2, (x - 3.0) * 0.25, m.select(above_1, (x - 1.0) * 0.5, x))  # 1 + f from 3/4 to sqrt(2)
    k = m.select(above_2, 2.0, m.select(above_1, 1.0, 0.0))
    return k * _LN2_HIGH + (_log_near_1(f) + k * _LN2_LOW)


def turned(m: Operations, quarter: Number, angle: Number) -> Number:
    """Return the cosine of an angle from -pi/4 to pi/4 that is turned by 0 to 4 quarters."""
    square = angle * angle
    cosine, sine = polynomial(square, _COS), angle * polynomial(square, _SIN)
    value = m.select(m.equal(quarter, 1.0), sine, m.select(m.equal(quarter, 3.0), sine, cosine))
    # cos, -sin, -cos, sin, cos
    return m.select(m.equal(quarter, 1.0), -value, m.select(m.equal(quarter, 2.0), -value, value))


def sine_of_turned(m: Operations, quarter: Number, angle: Number) -> Number:
    """Return the sine of the same angle, which is the cosine of an angle with a quarter less."""
    return turned(m, m.select(m.equal(quarter, 0.0), 3.0, quarter - 1.0), angle)


@WIDE.add(0.501, wide=True)
def exp2(m: Operations, x: Number) -> Number:
    """Return 2^x."""
    return exp64(m, x * math.log(2))


@WIDE.add(0.501, wide=True)
def sinh(m: Operations, x: Number) -> Number:
    """Return the hyperbolic sine."""
    near = x * polynomial(x * x, _SINH)
    return m.select(m.less(m.abs(x), 1.0), near, (exp64(m, x) - exp64(m, -x)) * 0.5)


@WIDE.add(0.501, wide=True)
def cosh(m: Operations, x: Number) -> Number:
    """Return the hyperbolic cosine."""
    return (exp64(m, x) + exp64(m, -x)) * 0.5


@WIDE.add(0.501, wide=True)
def asinh(m: Operations, x: Number) -> Number:
    """Return the inverse hyperbolic sine."""
    size = m.abs(x)
    value = log1p64(m, size + size * size / (m.sqrt(size * size + 1.0) + 1.0))
    value = m.select(m.equal(size, math.inf), size, value)
    return m.select(m.equal(x, 0.0), x, m.select(m.less(x, 0.0), -value, value))


@WIDE.add(0.501, wide=True)
def acosh(m: Operations, x: Number) -> Number:
    """Return the inverse hyperbolic cosine."""
    above = x - 1.0
    return m.select(m.less(x, 1.0), math.nan, log1p64(m, above + m.sqrt(above * 2.0 + above * above)))


@WIDE.add(0.501, wide=True)
def atanh(m: Operations, x: Number) -> Number:
    """Return the inverse hyperbolic tangent."""
    return (log1p64(m, x) - log1p64(m, -x)) * 0.5


@WIDE.add(wide=True)
def logaddexp(m: Operations, x: Number, y: Number) -> Number:
    """Return log(exp(x) + exp(y))."""
    distance = m.select(m.equal(x, y), 0.0, m.abs(x - y))
    return m.select(m.less(x, y), y, x) + log1p_to_2(m, decaying_exp64(m, -distance))


@WIDE.add(wide=True)
def ctc_step(m: Operations, stay: Number, move: Number, skip: Number, may_skip: Number, emission: Number) -> Number:
    """Return the logarithm of the probability of all paths that come to a state."""
    largest, first = _ordered(m, stay, move)
    largest, second = _ordered(m, largest, m.select(m.equal(may_skip, 0.0), NEVER, skip))
    others = decaying_exp64(m, first - largest) + decaying_exp64(m, second - largest)
    return (largest + log1p_to_2(m, others)) + emission


def _ordered(m: Operations, x: Number, y: Number) -> tuple[Number, Number]:
    """Return the larger of two numbers and the other one."""
    is_less = m.less(x, y)
    return m.select(is_less, y, x), m.select(is_less, x, y)


@WIDE.add(wide=True)
def ctc_share(m: Operations, before: Number, after: Number, emission: Number, loss: Number) -> Number:
    """Return the share of the paths through a state in all paths; paths before and after it include its emission."""
    return exp64(m, before + (after - emission) + loss)


@WIDE.add(wide=True)
def normal(m: Operations, r: Number, turns: Number, mean: Number, deviation: Number) -> tuple[Number, Number]:
    """Return two normal random numbers with a mean and a deviation from two uniform ones."""
    radius, quarter = m.sqrt(_log_of_normal(m, 1.0 - r) * -2.0), m.floor(turns * 4.0 + 0.5)
    angle = (turns - quarter * 0.25) * (2 * math.pi)
    cosine, sine = turned(m, quarter, angle), sine_of_turned(m, quarter, angle)
    return radius * cosine * deviation + mean, radius * sine * deviation + mean


@WIDE.add(wide=True)
def exponential(m: Operations, r: Number, rate: Number) -> Number:
    """Return an exponential random number from a uniform one."""
    return -log1p64(m, -r) / rate


@WIDE.add(0.501, wide=True)
def log2(m: Operations, x: Number) -> Number:
    """Return the logarithm to base 2."""
    return log64(m, x) * (1 / math.log(2))


@WIDE.add(0.501, wide=True)
def log10(m: Operations, x: Number) -> Number:
    """Return the logarithm to base 10."""
    return log64(m, x) * (1 / math.log(10))


for _function in (log64, log1p64):
    WIDE.add(wide=True)(_function)
