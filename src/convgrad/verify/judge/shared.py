"""Shared products: equal products are rounded alike, so errors of sums that share them are no strangers to each other.

A sum lies on its grid, so adding p to it loses round(p) - p on that grid, whatever the sum is. Of a filter whose
weights are all 1/9 the windows of neighbours share most of their products, and most of their errors; where one operand
is 0 or 1 and the other 0.1 all products are one. Both are counted: how often a product comes again in its own sum, by
which the variance grows, and how many elements' errors are in the mean one, by which fewer of them count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.problem import Problem

F64Array = NDArray[np.float64]

VALUES = 2**18  # of an operand, at most, among which equal ones are looked for


def repeats(products: F64Array) -> F64Array:
    """Return by how much the variance of elements' errors rises, of products [element, axes...]; at least 1.

    A product that comes m times in a sum of n loses m times the same: sum m^2 takes the place of n. One with the
    other sign wins it back.

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


def shared(problem: Problem, operands: Sequence[NDArray[Any]], products: float, leaning: float) -> float:
    """Return how many elements' errors are in the mean one, of so many products that are not 0; at least 1.

    Two products are equal where both have the same value of one operand, at one place, and equal ones of the other; or
    equal ones of both, at any places: then they have the sign of their sums only so far as these lean, which is
    (S / A)^2.
    """
    factors = [np.ravel(one) for name, one in zip(problem.operands, operands, strict=True) if name != "bias"]
    sizes = [max(1, int(np.count_nonzero(one))) for one in factors]
    equal = [_equal(one) for one in factors]
    if len(factors) == 1:
        return 1.0 + products * equal[0] * leaning
    (x, y), (same_x, same_y) = sizes, equal
    return 1.0 + products * (same_y / x + same_x / y + same_x * same_y * leaning)


def _equal(values: NDArray[Any]) -> float:
    """Return the probability that two values, neither of them 0, have the same size."""
    if values.size > VALUES:
        drawn = np.sort(np.random.default_rng(0).integers(values.size, size=VALUES))
        values = values[drawn[np.append(True, drawn[1:] != drawn[:-1])]]  # np.unique takes ten times as long
    live = np.abs(values[values != 0].astype(np.float64))
    counts = np.unique(live, return_counts=True)[1].astype(np.float64)
    pairs = max(1, live.size * (live.size - 1))
    return float((counts * (counts - 1)).sum() / pairs)
