"""The exact sum of one element's terms: the nearest float64 number, and the sign of the rounding error."""

from __future__ import annotations

from fractions import Fraction
from math import copysign, fsum, inf, nextafter

import numpy as np

from convgrad.array_types import F64Array
from convgrad.verify.terms import Terms

_SPLITTER = 2.0**27 + 1
_SAFE = 2.0**450  # products of magnitudes from 1 / _SAFE to _SAFE, and their rounding errors, fit in float64


def exact_sum(terms: Terms) -> tuple[float, float]:
    """Return the sum of the terms rounded to nearest, and a number with the sign of the exact sum minus this result.

    >>> exact_sum(Terms(np.array([1.0, 1.0]), np.array([1.0, 2**-60]))) == (1.0, 2**-60)
    True
    """
    x, y = terms.x.ravel(), terms.y.ravel()
    if not all(map(_is_safe, (x, y, np.array(terms.added)))):
        return _of_fractions(terms)
    values = [*_products(x, y), *terms.added]
    nearest = fsum(values)
    values.append(-nearest)
    return nearest, fsum(values)


def to_odd(nearest: float, remainder: float) -> float:
    """Return the exact sum rounded to odd, from the results of ``exact_sum``.

    A sum that is a float64 number stays the same. Any other sum becomes the one of its two float64 neighbours whose
    last bit is 1. Rounding the result to at most 51 bits gives the correctly rounded sum.

    >>> to_odd(1.0, 1e-30) == 1 + 2**-52, to_odd(1.0, -1e-30) == 1 - 2**-53, to_odd(1.0, 0.0)
    (True, True, 1.0)
    """
    if remainder == 0 or int(np.float64(nearest).view(np.uint64)) & 1:
        return nearest
    return nextafter(nearest, copysign(inf, remainder))


def _is_safe(values: F64Array) -> bool:
    sizes = np.abs(values)
    return bool(np.all((sizes == 0) | ((sizes >= 1 / _SAFE) & (sizes <= _SAFE))))


def _products(x: F64Array, y: F64Array) -> list[float]:
    """Return numbers that add up to the products: float64 products and their errors (Veltkamp, Dekker)."""
    products = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    missed = b * d - (((products - a * c) - b * c) - a * d)
    return [*products.tolist(), *missed[missed != 0].tolist()]


def _halves(x: F64Array) -> tuple[F64Array, F64Array]:
    """Return two numbers of at most 26 bits whose sum is x, for each x."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def _of_fractions(terms: Terms) -> tuple[float, float]:
    pairs = zip(terms.x.ravel().tolist(), terms.y.ravel().tolist(), strict=True)
    total = sum((Fraction(x) * Fraction(y) for x, y in pairs), sum(map(Fraction, terms.added), Fraction()))
    try:
        nearest = float(total)
    except OverflowError:
        return inf if total > 0 else -inf, 0.0
    remainder = total - Fraction(nearest)
    return nearest, float((remainder > 0) - (remainder < 0))
