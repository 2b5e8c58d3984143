"""Shared products: equal products are rounded alike, so the errors of sums that share products are correlated.

A partial sum is a multiple of its last place. Adding p therefore rounds p to a multiple of this last place, and the
error is the same for all sums with this last place. If all weights of a filter are 1/9, neighbouring windows share most
of their products and most of their errors. If one operand is 0 or 1 and the other 0.1, all nonzero products are equal.
Products that are repeated in one sum increase its variance. Products that several sums share reduce the number of
independent errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.spec.problem import Problem

VALUES = 2**18  # number of values of an operand that are searched for equal values; larger operands are sampled


def repeats(products: F64Array) -> F64Array:
    """Return the factor by which repeated products increase the variance of each element's error; at least 1.

    ``products`` has the axes [element, axes...]. A product that occurs m times in a sum of n products has the same
    rounding error m times, so the sum of m^2 over distinct products replaces n. An equal product of the opposite sign
    cancels one of these errors.

    >>> repeats(np.array([[0.1, 0.1, 0.1, 0.1], [0.1, -0.1, 0.2, 0.3]])).tolist()
    [4.0, 1.0]
    """
    rows = np.sort(np.abs(flat := products.reshape(len(products), -1)), axis=1)
    if not np.any((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] > 0)):
        return np.ones(len(flat))
    return np.array([_repeats(row[row != 0]) for row in flat])


def _repeats(row: F64Array) -> float:
    number = np.unique(np.abs(row), return_inverse=True)[1]
    return max(1.0, float(np.square(np.bincount(number, np.sign(row))).sum()) / max(1, row.size))


def shared(problem: Problem, operands: Sequence[Array], products: float, leaning: float, bits: int) -> float:
    """Return how many elements have one common error on average, at least 1, for this number of nonzero products.

    Products are alike if their factors are equal to ``bits`` significand bits, because the sums' last places are so
    coarse that they cannot tell the products apart.

    Two products are equal in two cases. In the first case, both use one element of an operand, and equal values of the
    other operand. In the second case, both use equal values of both operands, at any indices. Their rounding errors
    then have the same sign only if most terms of the sums have one sign: ``leaning`` is the mean (S / A)^2.
    """
    factors = [np.ravel(operand) for name, operand in zip(problem.operands, operands, strict=True) if name != "bias"]
    sizes = [max(1, int(np.count_nonzero(factor))) for factor in factors]
    equal = [_equal(factor, bits) for factor in factors]
    if len(factors) == 1:
        return 1.0 + products * equal[0] * leaning
    (x, y), (same_x, same_y) = sizes, equal
    return 1.0 + products * (same_y / x + same_x / y + same_x * same_y * leaning)


def _equal(values: Array, bits: int) -> float:
    """Return the probability that two nonzero values have the same magnitude, rounded to significand bits."""
    if values.size > VALUES:
        drawn = np.sort(np.random.default_rng(0).integers(values.size, size=VALUES))
        values = values[drawn[np.append(True, drawn[1:] != drawn[:-1])]]  # np.unique takes ten times as long
    live = np.abs(values[values != 0].astype(np.float64))
    fraction, exponent = np.frexp(live)
    live = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent)
    counts = np.unique(live, return_counts=True)[1].astype(np.float64)
    pairs = max(1, live.size * (live.size - 1))
    return float((counts * (counts - 1)).sum() / pairs)
