"""Elementary functions in f32: an argument reduction, a polynomial by fused multiply-adds, and a reconstruction.

Each function takes the arithmetic ``m`` and numbers, and is executed by NumPy or emitted as code. The polynomials
minimize the largest relative error on their intervals; the comments give this error before roundings.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from convgrad.spec.elementwise.arithmetic import NEAREST_INTEGER, Condition, Number, Operand, Operations

_LOG2_E = float.fromhex("0x1.715476p+0")
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")  # 16 bits, so k * high is exact
_SMALLEST_NORMAL, _LARGEST_ARGUMENT = 2.0**-126, 88.75
_UNDERFLOW = -109.0  # 109 times exp of it is less than half of the smallest number, so that products are 0 below it

_EXP = tuple(  # (exp(r) - 1 - r) / r^2 for abs(r) <= ln(2)/2: exp has a relative error of 2^-29
    float.fromhex(c)
    for c in ("0x1p-1", "0x1.555554p-3", "0x1.55548cp-5", "0x1.111274p-7", "0x1.6d8e6ep-10", "0x1.9f077ap-13")
)
_LOG = tuple(  # (log(1 + f) - f + f^2/2) / f^3 for 1 + f from sqrt(1/2) to sqrt(2): log has a relative error of 2^-28
    float.fromhex(c)
    for c in (
        *("0x1.555548p-2", "-0x1.000006p-2", "0x1.99a4b6p-3", "-0x1.555c4cp-3", "0x1.23376ap-3"),
        *("-0x1.fc2218p-4", "0x1.e6f066p-4", "-0x1.de3bb0p-4", "0x1.145736p-4"),
    )
)
_ERF = tuple(  # erf(x)/x - 1 as a polynomial of x^2, for abs(x) <= 0.9: erf has a relative error of 2^-30
    float.fromhex(c)
    for c in (
        *("0x1.06eba8p-3", "-0x1.812744p-2", "0x1.ce2e54p-4", "-0x1.b81524p-6", "0x1.550a46p-8"),
        *("-0x1.aca394p-11", "0x1.6510c6p-14"),
    )
)
_SHIFT = 4.0
_TAIL = tuple(  # exp(a^2/2) P(-a) (a + 4), P the normal distribution function, as a polynomial of (a - 4)/(a + 4)
    float.fromhex(c)  # for a from 0 to 14.5, with a relative error of 2^-24
    for c in (
        *("0x1.82b4bcp-1", "-0x1.373e3ap-1", "0x1.8c6dbap-2", "-0x1.7dff04p-3", "0x1.eec818p-5", "-0x1.ee54f4p-8"),
        *("-0x1.c99c7ap-9", "0x1.ad271ap-10", "0x1.667cb0p-13", "-0x1.d1b05ep-13", "-0x1.848cb4p-15"),
    )
)
_SQUARED = 2.0**-60  # squares of smaller numbers may underflow, and are too small to change a sum with 1
_ERF_LIMIT, _TAIL_LIMIT = 0.9, 14.8  # exp(-14.8^2/2) is below exp(_UNDERFLOW)
_ROOT_2, _DENSITY = float.fromhex("0x1.6a09e6p+0"), float.fromhex("0x1.988454p-2")  # sqrt(2) and 1/sqrt(2 pi)


def polynomial(m: Operations, x: Number, coefficients: tuple[float, ...]) -> Number:
    """Return a polynomial by Horner's rule with fused multiply-adds; the coefficients begin with that of x^0."""
    value: Operand = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = m.fma(value, x, coefficient)
    return value


def maximum(m: Operations, x: Number, limit: float) -> Number:
    """Return the larger of a number and a constant, or NaN."""
    return m.select(m.less(x, limit), limit, x)


def product_above(m: Operations, x: Number, limit: float) -> Number:
    """Return the larger of x and ``limit``, but NaN for -infinity, whose product with 0 is NaN."""
    return m.select(m.equal(x, -inf), nan, maximum(m, x, limit))


def minimum(m: Operations, x: Number, limit: float) -> Number:
    """Return the smaller of a number and a constant, or NaN."""
    return m.select(m.less(limit, x), limit, x)


def bounded(m: Operations, x: Number, limit: float) -> Number:
    """Return the nearest number from -limit to limit, or NaN."""
    return minimum(m, maximum(m, x, -limit), limit)


class Exponential(NamedTuple):
    """exp(x) as a product of three numbers. The last two are powers of two, so only a subnormal product is rounded.

    Multiply by ``remainder`` last, because a subnormal exp has few bits; ``value * half`` is exact. ``value`` is 0
    where products are, because a multiplication that underflows is slow on some processors.
    """

    value: Number
    half: Number
    remainder: Number


def _reduced(m: Operations, x: Number, low: Operand = 0.0) -> Exponential:
    """Return exp(x + low) with ``value`` - 1 in place of ``value``, for x from -109 to 88.75, and a small ``low``."""
    power = m.fma(x, _LOG2_E, NEAREST_INTEGER)
    k = power - NEAREST_INTEGER
    r = m.fma(k, -_LN2_LOW, m.fma(k, -_LN2_HIGH, x))
    if not isinstance(low, float):
        r = r + low
    return Exponential(m.fma(polynomial(m, r, _EXP), r * r, r), *m.powers_of_two(power))


def exp(m: Operations, x: Number) -> Number:
    """Return exp(x)."""
    return bounded_exp(m, minimum(m, x, _LARGEST_ARGUMENT))


def exponential(m: Operations, x: Number, low: Operand = 0.0) -> Exponential:
    """Return exp(x + low) for x up to 88.75."""
    is_zero = m.less(x, _UNDERFLOW)
    above, half, remainder = _reduced(m, m.select(is_zero, _UNDERFLOW, x), low)
    return Exponential(m.select(is_zero, 0.0, above + 1.0), half, remainder)


def bounded_exp(m: Operations, x: Number) -> Number:
    """Return exp(x) for x up to 88.75."""
    value, half, remainder = exponential(m, x)
    return value * half * remainder


def expm1(m: Operations, x: Number) -> Number:
    """Return exp(x) - 1, also accurate for small x."""
    above, half, remainder = _reduced(m, minimum(m, maximum(m, x, -25.0), _LARGEST_ARGUMENT))
    power = (half * 0.5) * remainder  # 2^(k - 1), because 2^128 would overflow
    value = m.fma(above, power, power - 0.5) * 2.0
    return m.select(m.less(m.abs(x), 2.0**-25), x, value)


def log(m: Operations, x: Number) -> Number:
    """Return log(x)."""
    is_subnormal = m.less(x, _SMALLEST_NORMAL)
    significand, k = m.split(m.select(is_subnormal, x * 2.0**24, x))
    value = _log_of_split(m, significand - 1.0, k - m.select(is_subnormal, 24.0, 0.0))
    value = m.select(m.less(x, inf), value, x + x)  # infinity and NaN
    value = m.select(m.equal(x, 0.0), -inf, value)
    return m.select(m.less(x, 0.0), nan, value)


def _log_of_split(m: Operations, f: Number, k: Number) -> Number:
    """Return log((1 + f) * 2^k)."""
    square = f * f
    remainder = m.fma(square, -0.5, m.fma(polynomial(m, f, _LOG) * f, square, k * _LN2_LOW))
    return m.fma(k, _LN2_HIGH, f + remainder)


def log1p(m: Operations, x: Number) -> Number:
    """Return log(1 + x), also accurate for small x."""
    total = x + 1.0
    lost = m.select(m.less(x, 1.0), x - (total - 1.0), (x - total) + 1.0)  # 1 + x - total
    value = log(m, total) + m.select(m.less(total, inf), lost / total, 0.0)
    return m.select(m.less(m.abs(x), 2.0**-25), x, m.select(m.equal(total, 0.0), -inf, value))


def _log1p_of_share(m: Operations, e: Number) -> Number:
    """Return log(1 + e) for e from 0 to 1."""
    total = e + 1.0
    lost = e - (total - 1.0)
    significand, k = m.split(total)
    value = _log_of_split(m, significand - 1.0, k) + lost / total
    return m.select(m.less(e, 2.0**-25), e, value)


def softplus(m: Operations, x: Number) -> Number:
    """Return log(1 + exp(x))."""
    return maximum(m, x, 0.0) + _log1p_of_share(m, bounded_exp(m, -m.abs(x)))


class Shares(NamedTuple):
    """The sigmoids of x and of -x."""

    share: Number
    other: Number


def shares(m: Operations, x: Number, low: Operand = 0.0) -> Shares:
    """Return the sigmoids of x + low and of its negative."""
    value, half, remainder = exponential(m, -m.abs(x), _against(m, x, low))
    e, is_negative = value * half * remainder, m.less(x, 0.0)
    small, large = e / (e + 1.0), 1.0 / (e + 1.0)
    return Shares(m.select(is_negative, small, large), m.select(is_negative, large, small))


def _against(m: Operations, x: Number, low: Operand) -> Operand:
    """Return ``low`` with the sign that belongs to -abs(x)."""
    return low if isinstance(low, float) else m.select(m.less(x, 0.0), low, -low)


def share_of(m: Operations, factor: Number, x: Number, low: Operand = 0.0) -> Number:
    """Return factor * sigmoid(x + low); factors below -109 count as -109, where the result is -0."""
    factor = product_above(m, factor, _UNDERFLOW)
    value, half, remainder = exponential(m, -m.abs(x), _against(m, x, low))
    part = value * half
    return m.select(m.less(x, 0.0), factor * part * remainder, factor) / (part * remainder + 1.0)


class Quotient(NamedTuple):
    """A number as a quotient."""

    numerator: Number
    denominator: Number


def _tanh_of_softplus(m: Operations, e: Number, is_negative: Condition) -> Quotient:
    """Return tanh(log(1 + exp(x))) from e = exp(-abs(x)); for negative x, the numerator is without its factor e."""
    twice, larger = e * 2.0, maximum(m, e, _SQUARED)
    square = larger * larger
    numerator = m.select(is_negative, e, twice) + m.select(is_negative, 2.0, 1.0)
    return Quotient(numerator, m.select(is_negative, (square + twice) + 2.0, (square * 2.0 + twice) + 1.0))


def mish(m: Operations, x: Number) -> Number:
    """Return x * tanh(log(1 + exp(x))); numbers below -109 count as -109, where the result is -0."""
    value, half, remainder = exponential(m, -m.abs(x))
    x = product_above(m, x, _UNDERFLOW)
    part, is_negative = value * half, m.less(x, 0.0)
    numerator, denominator = _tanh_of_softplus(m, part * remainder, is_negative)
    return m.select(is_negative, x * part * numerator / denominator * remainder, x * (numerator / denominator))


def mish_slope(m: Operations, x: Number) -> Number:
    """Return the derivative of ``mish`` for x from -150 to 150."""
    e, is_negative = bounded_exp(m, -m.abs(x)), m.less(x, 0.0)
    numerator, denominator = _tanh_of_softplus(m, e, is_negative)
    size = m.select(is_negative, e, maximum(m, e, _SQUARED))
    change = x * (4.0 * (size * (1.0 + size)) * m.select(is_negative, 1.0, size)) / (denominator * denominator)
    return m.select(is_negative, e * numerator, numerator) / denominator + change


def sigmoid(m: Operations, x: Number) -> Number:
    """Return 1/(1 + exp(-x))."""
    e = bounded_exp(m, -m.abs(x))
    return m.select(m.less(x, 0.0), e, 1.0) / (e + 1.0)


def tanh(m: Operations, x: Number) -> Number:
    """Return tanh(x)."""
    u = expm1(m, minimum(m, m.abs(x), 10.0) * 2.0)
    return m.copysign(u / (u + 2.0), x)


def erf(m: Operations, x: Number) -> Number:
    """Return the error function."""
    size = m.abs(x)
    square = x * x
    near = m.fma(polynomial(m, square, _ERF), size, size)
    tail = lower_tail(m, size * _ROOT_2)
    far = 1.0 - tail.value * tail.remainder * 2.0
    return m.copysign(m.select(m.less(size, _ERF_LIMIT), near, far), x)


class Tail(NamedTuple):
    """The normal distribution function at -a, and exp(-a^2/2); both are multiplied by ``remainder``."""

    value: Number
    exponential: Number
    remainder: Number


def lower_tail(m: Operations, a: Number) -> Tail:
    """Return the tail of the normal distribution below -a, for a >= 0, with a small relative error."""
    a = minimum(m, a, _TAIL_LIMIT)
    square = a * a
    value, half, remainder = exponential(m, square * -0.5, m.fma(a, a, -square) * -0.5)
    part, inverse = value * half, 1.0 / (a + _SHIFT)
    return Tail(part * (polynomial(m, (a - _SHIFT) * inverse, _TAIL) * inverse), part, remainder)


class Normal(NamedTuple):
    """The normal distribution function and its density."""

    distribution: Number
    density: Number


def normal(m: Operations, x: Number) -> Normal:
    """Return the normal distribution function and its density at x."""
    tail = lower_tail(m, m.abs(x))
    below = tail.value * tail.remainder
    return Normal(m.select(m.less(x, 0.0), below, 1.0 - below), tail.exponential * tail.remainder * _DENSITY)


def normal_share_of(m: Operations, x: Number) -> Number:
    """Return x times the normal distribution function at x."""
    tail, x = lower_tail(m, m.abs(x)), product_above(m, x, -2 * _TAIL_LIMIT)
    return m.select(m.less(x, 0.0), x * tail.value * tail.remainder, x * (1.0 - tail.value * tail.remainder))
