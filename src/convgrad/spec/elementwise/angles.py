"""Sine and cosine of f32 numbers of any size, as maps in f64."""

from __future__ import annotations

from math import pi
from typing import NamedTuple

from convgrad.spec.elementwise.arithmetic import Number, Operations
from convgrad.spec.elementwise.definition import Maps
from convgrad.spec.elementwise.wide import turned

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


def _angle(m: Operations, x: Number) -> _Angle:
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
    return _Angle(nearest - m.floor(nearest * 0.25) * 4.0, ((quarters - nearest) + lost) * (pi / 2))


@ANGLES.add(0.501, wide=True)
def sin(m: Operations, x: Number) -> Number:
    """Return the sine."""
    quarter, remainder = _angle(m, x)
    before = m.select(m.equal(quarter, 0.0), 3.0, quarter - 1.0)  # sin(x) = cos(x - pi/2)
    return m.select(m.equal(x, 0.0), x, turned(m, before, remainder))


@ANGLES.add(0.501, wide=True)
def cos(m: Operations, x: Number) -> Number:
    """Return the cosine."""
    return turned(m, *_angle(m, x))
