"""Shared products: equal products are rounded alike, so the errors of sums that share products are correlated.

A sum is a multiple of its grid's spacing, so adding p to it loses round(p) - p on that grid, for any sum. If all
weights of a filter are 1/9, the windows of neighbours share most of their products and most of their errors. If one
operand is 0 or 1 and the other 0.1, all products are equal. Two effects are counted. Products that are repeated in one
sum increase its variance. Products that several sums share reduce the number of independent errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.problem import Problem

F64Array = NDArray[np.float64]

VALUES = 2**18  # the most values of an operand that are searched for equal values


def repeats(products: F64Array) -> F64Array:
    """Return the factor on the variance of each element's error, from products [element, axes...]; at least 1.

    A product that occurs m times in a sum of n products loses the same amount m times: sum m^2 replaces n. An equal
    product of the other sign cancels one of these losses.

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
    """Return how many elements share one error on average, if ``products`` of all products are not 0; at least 1.

    Two products are equal in two cases. They may share one element of an operand and have equal values of the other.
    Or they have equal values of both operands, at any places. In the second case their losses agree in sign only if
    the sums lean to one side: ``leaning`` is the mean (S / A)^2.
    """
    factors = [np.ravel(one) for name, one in zip(problem.operands, operands, strict=True) if name != "bias"]
    sizes = [max(1, int(np.count_nonzero(one))) for one in factors]
    equal = [_equal(one) for one in factors]
    if len(factors) == 1:
        return 1.0 + products * equal[0] * leaning
    (x, y), (same_x, same_y) = sizes, equal
    return 1.0 + products * (same_y / x + same_x / y + same_x * same_y * leaning)


def _equal(values: NDArray[Any]) -> float:
    """Return the probability that two nonzero values have the same magnitude."""
    if values.size > VALUES:
        drawn = np.sort(np.random.default_rng(0).integers(values.size, size=VALUES))
        values = values[drawn[np.append(True, drawn[1:] != drawn[:-1])]]  # np.unique takes ten times as long
    live = np.abs(values[values != 0].astype(np.float64))
    counts = np.unique(live, return_counts=True)[1].astype(np.float64)
    pairs = max(1, live.size * (live.size - 1))
    return float((counts * (counts - 1)).sum() / pairs)
