"""Elementary functions in f32: an argument reduction, a polynomial by fused multiply-adds, and a reconstruction.

Each function takes the arithmetic ``m`` and numbers, and is executed by NumPy or emitted as code. The polynomials
minimize the largest relative error on their intervals; the comments give this error before roundings.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

from convgrad.spec.elementwise.arithmetic import BIAS, NEAREST_INTEGER, Condition, Number, Operand, Operations

_LOG2_E = float.fromhex("0x1.715476p+0")
_LN2_HIGH, _LN2_LOW = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")  # 16 bits, so k * high is exact
_SMALLEST_NORMAL, _LARGEST_ARGUMENT = 2.0**-126, 88.75
_UNDERFLOW = -109.0  # 109 times exp of it is less than half of the smallest number, so that products are 0 below it

_EXP = tuple(  # (exp(r) - 1 - r) / r^2 for abs(r) <= ln(2)/2: exp has a relative error of 2^-29
    float.fromhex(c)
    for c in ("0x1p-1", "0x1.555554p-3", "0x1.55548cp-5", "0x1.111274p-7", "0x1.6d8e6ep-10", "0x1.9f077ap-13")
)
_SHIFT = 32  # a power of two that exp of a negative number does without, so that the others are normal numbers
_SHIFTED = NEAREST_INTEGER + BIAS + _SHIFT  # added to k, it leaves the exponent of 2^(k + shift) in the last bits
_EXP_OF_HALF = tuple(  # exp(r/2) 2^-shift for abs(r) <= ln(2), with a relative error of 2^-28
    float.fromhex(c) * 2.0 ** -(_SHIFT + power)
    for power, c in enumerate(
        ("1", "1", "0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558aep-5", "0x1.123982p-7", "0x1.6a4f28p-10")
    )
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
_TAIL, _TAIL_DIVISOR = (  # exp(a^2/2) P(-a), P the normal distribution function, as a quotient of two polynomials
    tuple(float.fromhex(c) for c in row)  # for a from 0 to 14.8, with a relative error of 2^-26
    for row in (
        ("0x1.81beaap+5", "0x1.5291a4p+5", "0x1.1b5cf6p+4", "0x1.f74840p+1", "0x1.98857cp-2"),
        ("0x1.81beaap+6", "0x1.432ca8p+7", "0x1.d084e2p+6", "0x1.6b07b2p+5", "0x1.3b6798p+3", "1"),
    )
)
_SQUARED = 2.0**-60  # squares of smaller numbers may underflow, and are too small to change a sum with 1
_ERF_LIMIT, _TAIL_LIMIT = 0.9, 14.8  # exp(-14.8^2/2) is below exp(_UNDERFLOW)
_ROOT_2, _DENSITY = float.fromhex("0x1.6a09e6p+0"), float.fromhex("0x1.988454p-2")  # sqrt(2) and 1/sqrt(2 pi)


def polynomial(m: Operations, x: Number, coefficients: tuple[float, ...]) -> Number:
    """Return a polynomial by Horner's rule with fused multiply-adds; the coefficients begin with that of x^0."""
    *lower, largest = coefficients
    value = x + lower.pop() if largest == 1 else m.fma(largest, x, lower.pop())
    for coefficient in reversed(lower):
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


def _reduced(m: Operations, x: Number, low: Operand = 0.0, *, magic: float) -> tuple[Number, Number]:
    """Return r and k + magic with x + low = r + k ln(2), for x from -109 to 88.75, and a small ``low``."""
    power = m.fma(x, _LOG2_E, magic)
    k = power - magic
    r = m.fma(k, -_LN2_LOW, m.fma(k, -_LN2_HIGH, x))
    return r if isinstance(low, float) else r + low, power


def _exp_of_remainder(m: Operations, r: Number, factor: float = 1.0) -> Number:
    """Return exp(r) times a power of two, for abs(r) <= ln(2)/2."""
    return m.fma(polynomial(m, r, tuple(c * factor for c in _EXP)), r * r, r * factor) + factor


def exp(m: Operations, x: Number) -> Number:
    """Return exp(x)."""
    x = minimum(m, x, _LARGEST_ARGUMENT)
    is_zero, is_negative = m.less(x, _UNDERFLOW), m.less(x, 0.0)
    r, power = _reduced(m, m.select(is_zero, _UNDERFLOW, x), magic=NEAREST_INTEGER + BIAS)
    factor = m.select(is_zero, 0.0, m.select(is_negative, 2.0**-_SHIFT, 2.0))
    return _exp_of_remainder(m, r) * factor * m.from_exponent(power + m.select(is_negative, float(_SHIFT), -1.0))


class Decay(NamedTuple):
    """exp(x) for x <= 0 as the product of a number and a power of two, both normal.

    Multiply by one of them last, because a subnormal exp has few bits. ``value`` is 0 where products are, because a
    multiplication that underflows is slow on some processors.
    """

    value: Number
    power: Number


def _decay(m: Operations, x: Number, low: Operand = 0.0) -> Decay:
    """Return exp(x + low) for x <= 0."""
    is_zero = m.less(x, _UNDERFLOW)
    r, power = _reduced(m, m.select(is_zero, _UNDERFLOW, x), low, magic=_SHIFTED)
    return Decay(m.select(is_zero, 0.0, _exp_of_remainder(m, r, 2.0**-_SHIFT)), m.from_exponent(power))


def _decay_of_square(m: Operations, a: Number) -> Decay:
    """Return exp(-a^2/2) for a from 0 to 14.8, from twice the usual r because a^2 need not be rounded for it."""
    power = m.fma(a * a, -0.5 * _LOG2_E, _SHIFTED)
    k = power - _SHIFTED
    twice = m.fma(k, -2 * _LN2_LOW, m.fma(-a, a, k * (-2 * _LN2_HIGH)))
    value = m.select(m.less(a, _TAIL_LIMIT), polynomial(m, twice, _EXP_OF_HALF), 0.0)
    return Decay(value, m.from_exponent(power))


def decaying_exp(m: Operations, x: Number) -> Number:
    """Return exp(x) for x <= 0."""
    value, power = _decay(m, x)
    return value * power


def expm1(m: Operations, x: Number) -> Number:
    """Return exp(x) - 1, also accurate for small x."""
    r, power = _reduced(m, minimum(m, maximum(m, x, -25.0), _LARGEST_ARGUMENT), magic=NEAREST_INTEGER + BIAS - 1)
    half = m.from_exponent(power)  # 2^(k - 1), because 2^128 would overflow
    value = m.fma(m.fma(polynomial(m, r, _EXP), r * r, r), half, half - 0.5) * 2.0
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
    return maximum(m, x, 0.0) + _log1p_of_share(m, decaying_exp(m, -m.abs(x)))


class Shares(NamedTuple):
    """The sigmoids of x and of -x."""

    share: Number
    other: Number


def shares(m: Operations, x: Number, low: Operand = 0.0) -> Shares:
    """Return the sigmoids of x + low and of its negative."""
    value, power = _decay(m, -m.abs(x), _against(m, x, low))
    e, is_negative = value * power, m.less(x, 0.0)
    small, large = e / (e + 1.0), 1.0 / (e + 1.0)
    return Shares(m.select(is_negative, small, large), m.select(is_negative, large, small))


def _against(m: Operations, x: Number, low: Operand) -> Operand:
    """Return ``low`` with the sign that belongs to -abs(x)."""
    return low if isinstance(low, float) else m.select(m.less(x, 0.0), low, -low)


def share_of(m: Operations, factor: Number, x: Number, low: Operand = 0.0) -> Number:
    """Return factor * sigmoid(x + low); factors below -109 count as -109, where the result is -0."""
    factor = product_above(m, factor, _UNDERFLOW)
    value, power = _decay(m, -m.abs(x), _against(m, x, low))
    return m.select(m.less(x, 0.0), (factor * power) * value, factor) / (value * power + 1.0)


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
    value, power = _decay(m, -m.abs(x))
    x, is_negative = product_above(m, x, _UNDERFLOW), m.less(x, 0.0)
    numerator, denominator = _tanh_of_softplus(m, value * power, is_negative)
    scaled = m.select(is_negative, x * power, x) * (numerator / denominator)
    return m.select(is_negative, scaled * value, scaled)


def mish_slope(m: Operations, x: Number) -> Number:
    """Return the derivative of ``mish`` for x from -150 to 150."""
    e, is_negative = decaying_exp(m, -m.abs(x)), m.less(x, 0.0)
    numerator, denominator = _tanh_of_softplus(m, e, is_negative)
    size = m.select(is_negative, e, maximum(m, e, _SQUARED))
    change = x * (4.0 * (size * (1.0 + size)) * m.select(is_negative, 1.0, size)) / (denominator * denominator)
    return m.select(is_negative, e * numerator, numerator) / denominator + change


def sigmoid(m: Operations, x: Number) -> Number:
    """Return 1/(1 + exp(-x))."""
    e = decaying_exp(m, -m.abs(x))
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
    tail = _tail(m, size * _ROOT_2)
    far = m.fma(tail.value, tail.power * -2.0, 1.0)
    return m.copysign(m.select(m.less(size, _ERF_LIMIT), near, far), x)


class Tail(NamedTuple):
    """The normal distribution function at -a, and exp(-a^2/2); both are multiplied by ``power``."""

    a: Number
    value: Number
    exponential: Number
    power: Number


def _tail(m: Operations, a: Number) -> Tail:
    """Return the tail of the normal distribution below -a, for a >= 0, with a small relative error."""
    a = minimum(m, a, _TAIL_LIMIT)
    value, power = _decay_of_square(m, a)
    return Tail(a, value * (polynomial(m, a, _TAIL) / polynomial(m, a, _TAIL_DIVISOR)), value, power)


class Normal(NamedTuple):
    """The normal distribution function and its density."""

    distribution: Number
    density: Number


def normal(m: Operations, x: Number) -> Normal:
    """Return the normal distribution function and its density at x."""
    tail = _tail(m, m.abs(x))
    below = tail.value * tail.power
    return Normal(m.select(m.less(x, 0.0), below, 1.0 - below), tail.exponential * tail.power * _DENSITY)


def normal_share_of(m: Operations, x: Number) -> Number:
    """Return x times the normal distribution function at x: x or 0, less its size times the tail's function."""
    tail = _tail(m, m.abs(x))
    return m.fma(-tail.a * tail.power, tail.value, m.select(m.less(0.0, x), x, x * 0.0))
