"""Trigonometric functions of f32 numbers of any size, and their inverse functions, as maps in f64."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import NamedTuple

from convgrad.spec.elementwise.arithmetic import Condition, Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.wide import polynomial, sine_of_turned, turned

ANGLES = Maps()

_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163  # times 2^-216
_PART_BITS, _PARTS = 24, 9  # the product of a part and of an f32 number is exact in f64


def _parts() -> list[float]:
    """Return 2/pi as a sum of numbers of 24 bits, the largest first. What is left is below 2^-216.

    >>> sum(_parts()) == 2 / pi
    True
    """
    shifts = [_PART_BITS * (_PARTS - 1 - part) for part in range(_PARTS)]
    return [
        float((_TWO_OVER_PI >> shift) % (1 << _PART_BITS)) * 2.0 ** (shift - _PART_BITS * _PARTS) for shift in shifts
    ]


class _Angle(NamedTuple):
    """An angle as a number of quarter turns, 0 to 3, and a remainder from -pi/4 to pi/4."""

    quarter: Number
    remainder: Number


# pi/2 in two parts of 33 bits, whose products with up to 20 bits are exact, and the rest
_HALF_PI = 1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21
_NEAR = 2.0**20  # radians


def _near_angle(m: Operations, x: Number) -> _Angle:
    """Return an angle of x radians, for abs(x) <= _NEAR."""
    nearest, remainder = m.floor(x * (2 / pi) + 0.5), x
    for part in _HALF_PI:
        remainder = remainder - nearest * part
    return _Angle(_below_turn(m, nearest), remainder)


def _below_turn(m: Operations, quarters: Number) -> Number:
    return quarters - m.floor(quarters * 0.25) * 4.0


def _far_angle(m: Operations, x: Number) -> _Angle:
    """Return an angle of x radians: x times each part of 2/pi, without full turns, added with all roundings."""
    quarters, lost = 0.0 * x, 0.0
    for part in _parts():
        product = x * part
        term = product - m.floor(product * 0.25 + 0.5) * 4.0
        total = quarters + term
        of_term = total - quarters
        lost = lost + ((quarters - (total - of_term)) + (term - of_term))
        quarters = total
    nearest = m.floor(quarters + 0.5)
    return _Angle(_below_turn(m, nearest), ((quarters - nearest) + lost) * (pi / 2))


def _by_angle(m: Operations, function: Callable[[Operations, Number, Number], Number], x: Number) -> Number:
    """Return a function of the angle of x radians."""
    near = function(m, *_near_angle(m, x))
    return m.repeated(m.less(_NEAR, m.abs(x)), 1, lambda _: function(m, *_far_angle(m, x)), near)


def _tangent(m: Operations, quarter: Number, remainder: Number) -> Number:
    return sine_of_turned(m, quarter, remainder) / turned(m, quarter, remainder)


@ANGLES.add(0.501, wide=True)
def sin(m: Operations, x: Number) -> Number:
    """Return the sine."""
    return m.select(m.equal(x, 0.0), x, _by_angle(m, sine_of_turned, x))


@ANGLES.add(0.501, wide=True)
def cos(m: Operations, x: Number) -> Number:
    """Return the cosine."""
    return _by_angle(m, turned, x)


@ANGLES.add(0.501, wide=True)
def tan(m: Operations, x: Number) -> Number:
    """Return the tangent."""
    return m.select(m.equal(x, 0.0), x, _by_angle(m, _tangent, x))


# -- inverse functions ---------------------------------------------------------------------------------------------

_ATAN = [(-1) ** k / (2 * k + 1) for k in range(16)]  # abs(t) <= tan(pi/16): the remainder is below 2^-70


def _half_tangent(m: Operations, t: Number) -> Number:
    """Return the tangent of half the angle whose tangent is t."""
    return t / (m.sqrt(t * t + 1.0) + 1.0)


def _arc(m: Operations, x: Number) -> Number:
    """Return the angle whose tangent is x."""
    size = m.abs(x)
    is_large = m.less(1.0, size)
    t = _half_tangent(m, _half_tangent(m, m.select(is_large, 1.0 / size, size)))
    angle = t * polynomial(t * t, _ATAN) * 4.0
    angle = m.select(is_large, pi / 2 - angle, angle)
    return m.select(m.equal(x, 0.0), x, m.select(m.less(x, 0.0), -angle, angle))


@ANGLES.add(0.501, wide=True)
def atan(m: Operations, x: Number) -> Number:
    """Return the arcus tangent."""
    return _arc(m, x)


def _is_negative(m: Operations, x: Number) -> Condition:
    """Return whether a number has a minus sign, also a zero; False for NaN."""
    return m.less(m.select(m.equal(x, 0.0), 1.0 / x, x), 0.0)


def _point(m: Operations, y: Number, x: Number) -> Number:
    """Return the angle of the point (x, y)."""
    tangent = m.abs(y) / m.abs(x)
    tangent = m.select(m.equal(m.abs(y), m.abs(x)), m.select(m.equal(y, 0.0), 0.0, 1.0), tangent)
    angle = _arc(m, tangent)
    angle = m.select(_is_negative(m, x), pi - angle, angle)
    return m.select(_is_negative(m, y), -angle, angle)


@ANGLES.add(wide=True)
def atan2(m: Operations, y: Number, x: Number) -> Number:
    """Return the angle of the point (x, y)."""
    return _point(m, y, x)


@ANGLES.add(0.501, wide=True)
def asin(m: Operations, x: Number) -> Number:
    """Return the arcus sine."""
    return _point(m, x, m.sqrt((1.0 - x) * (x + 1.0)))


@ANGLES.add(0.501, wide=True)
def acos(m: Operations, x: Number) -> Number:
    """Return the arcus cosine."""
    return _point(m, m.sqrt((1.0 - x) * (x + 1.0)), x)
