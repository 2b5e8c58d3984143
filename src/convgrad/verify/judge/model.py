"""A model of a sum's error: its variance, from two numbers a and b of the sum's tree and two numbers of its terms.

A sum is a tree of additions. Node v rounds a partial sum s_v, with an error of at most u |s_v|. The error of the whole
sum is about the sum of these rounding errors. If rounding errors are independent, with mean 0 and mean square
c u^2 s_v^2, the variance of their sum is c u^2 sum s_v^2. If terms are in exchangeable order, a node over k of the n
terms has on average

    E s_v^2 = (k/n)^2 S^2 + k (n - k) / (n (n - 1)) (Q - S^2/n)

where S is the sum of the products and Q the sum of their squares. So two numbers describe any tree: a = sum of (k/n)^2
over its nodes and b = sum of k (n - k) / (n (n - 1)):

    V = c u^2 (a S^2 + b (Q - S^2/n) + Q)

The last term, Q, is for the roundings of the products.

| order                    | a                               | b                               |
|--------------------------|---------------------------------|---------------------------------|
| any: at most one chain's | (n + 1) (2n + 1) / (6n)         | (n + 1) / 6                     |
| rounding depth h         | h                               | h                               |
| blocks                   | sum over the chains and joins   | sum over the chains and joins   |
"""

from __future__ import annotations

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import Format
from convgrad.verify.declared import Declared

# The mean square of a rounding error of a partial sum s, divided by (u s)^2.
# This ratio is 1/3 averaged over a binade, 0.154 for log-uniform sums weighted by size, 0.143 to 0.2 for linear growth.
ROUNDING = 0.2


def tree(declared: Declared, terms: F64Array) -> tuple[F64Array, F64Array]:
    """Return the coefficients a and b of the variance for the declared order; they are at most those of one chain.

    ``terms`` has the number of terms of each element.

    >>> from convgrad.formats import F32
    >>> tree(Declared(F32), np.array([1.0, 2.0]))
    (array([1.  , 1.25]), array([0.33333333, 0.5       ]))
    """
    a, b = (terms + 1) * (2 * terms + 1) / (6 * terms), (terms + 1) / 6
    if declared.height is not None:
        return np.minimum(a, declared.height), np.minimum(b, declared.height)
    if declared.blocks:
        max_a, max_b = _blocks(np.array(declared.blocks, np.float64))
        return np.minimum(a, max_a), np.minimum(b, max_b)
    return a, b


def _blocks(sizes: F64Array) -> tuple[float, float]:
    """Return the coefficients a and b of the variance for chains of these sizes, added one after the other."""
    total = sizes.sum()
    squares = (sizes * (sizes + 1) * (2 * sizes + 1) / 6).sum() / total**2
    shares = (sizes * (sizes + 1) / 2).sum() / total
    shares_added = np.cumsum(sizes)[1:] / total
    a = squares + (shares_added**2).sum()
    return float(a), float(shares - squares + (shares_added * (1 - shares_added)).sum()) + 1.0


def partial_sums(a: F64Array, b: F64Array, total: F64Array, spread: F64Array) -> F64Array:
    """Return the expected sum of squares of all partial sums of exchangeable terms; ``spread`` is Q - S^2/n."""
    energy: F64Array = a * np.square(total) + b * spread
    return energy


def last_place(values: F64Array, fmt: Format) -> F64Array:
    """Return the distance between neighbouring numbers of a format at each value.

    >>> from convgrad.formats import BF16, F16
    >>> last_place(np.array([1.0, 1.99, -2.0]), BF16).tolist(), float(last_place(np.array([0.0]), F16)[0]) == F16.tiny
    ([0.0078125, 0.0078125, 0.015625], True)
    """
    exponent = np.frexp(values)[1]
    lowest = fmt.min_exponent - fmt.significand_bits + 1
    place: F64Array = np.ldexp(1.0, np.where(values == 0, lowest, np.maximum(exponent - fmt.significand_bits, lowest)))
    return place


def cell(values: F64Array, fmt: Format) -> tuple[F64Array, F64Array]:
    """Return the ends of the interval of numbers that round to these values of a format.

    >>> from convgrad.formats import BF16
    >>> [end.tolist() for end in cell(np.array([1.0, -1.0]), BF16)]
    [[0.998046875, -1.00390625], [1.00390625, -0.998046875]]
    """
    above = last_place(values, fmt) / 2
    below = last_place(np.nextafter(np.abs(values), 0), fmt) / 2  # the distance is half as large below a power of two
    outward, inward = np.abs(values) + above, np.abs(values) - below
    positive = values >= 0
    return np.where(positive, inward, -outward), np.where(positive, outward, -inward)
