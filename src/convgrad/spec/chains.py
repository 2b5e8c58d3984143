"""The computation of sums in a given order: chains of fused multiply-adds, and reduction trees of the chains' sums."""

from __future__ import annotations

from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import F64Array
from convgrad.spec.order import FAN_IN, SPLIT_TERMS, SumOrder

AT_ONCE = 1 << 15  # sums of chains that one array operation computes, at most

Sum = TypeVar("Sum", NDArray[np.float32], F64Array)


def fma_f32(x: NDArray[np.float32], y: NDArray[np.float32], z: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return x * y + z with one rounding to f32: the product is exact in float64, and the sum is rounded to odd."""
    with np.errstate(all="ignore"):
        return sum_to_odd(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)).astype(np.float32)


def sum_to_odd(x: F64Array, y: F64Array) -> F64Array:
    """Return x + y, rounded to odd.

    If the float64 sum is inexact and its last bit is 0, the neighbouring number towards the exact sum replaces it. If
    the result is rounded again, to at most 51 bits, only this second rounding has an effect.
    """
    with np.errstate(all="ignore"):
        total = x + y
        part = total - x
        error = (x - (total - part)) + (y - part)
        even = (total.view(np.int64) & 1) == 0
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        inexact = np.isfinite(total) & (error != 0) & even
        return np.where(inexact, odd, total)


def tree(sums: list[Sum]) -> Sum:
    """Return the total of one or more sums, added by the 16-ary reduction tree."""
    while len(sums) > 1:
        parents = []
        for first in range(0, len(sums), FAN_IN):
            parent = sums[first]
            for child in sums[first + 1 : first + FAN_IN]:
                parent = parent + child
            parents.append(parent)
        sums = parents
    return sums[0]


def sum_in_order(x: NDArray[np.float32], y: NDArray[np.float32], order: SumOrder) -> NDArray[np.float32]:
    """Return the f32 sums of x * y along the last axis in the given order. This function defines the results' bits.

    The last axis has all terms, including terms on padding. Pass x = y = 0 for a term that does not exist, which has
    the same effect as skipping it.

    >>> ones = np.ones((1, 600), np.float32)
    >>> sum_in_order(ones, ones, SumOrder(1, 2, 300))
    array([600.], dtype=float32)
    """
    shape = (order.units * order.blocks, *x.shape[:-1])
    sums, totals = np.zeros((order.chains, *shape), np.float32), np.zeros(shape, np.float32)
    if order.terms == 0:
        return np.zeros(x.shape[:-1], np.float32)
    begins = (np.arange(order.units)[:, None] * order.unit_terms + order.begins()).ravel()
    lengths = np.diff(begins, append=order.terms)
    taken = (np.arange(order.units * order.lines)[:, None] * order.length + order.taken()).ravel()
    count = max(1, AT_ONCE // max(1, prod(x.shape[:-1])))
    with np.errstate(all="ignore"):
        for first in range(0, len(begins), count):  # for speed, an array operation adds a term to each of many chains
            blocks = np.arange(first, min(first + count, len(begins)))
            for term in range(lengths[blocks].max()):
                if order.chains == 2 and term % SPLIT_TERMS == 0:
                    totals[blocks] += sums[0, blocks] + sums[1, blocks]
                    sums[:, blocks] = 0
                going, chain = blocks[lengths[blocks] > term], sums[term % order.chains]
                k = taken[begins[going] + term]
                chain[going] = fma_f32(np.moveaxis(x[..., k], -1, 0), np.moveaxis(y[..., k], -1, 0), chain[going])
        totals = sums[0] if order.chains == 1 else totals + (sums[0] + sums[1])
        units: list[NDArray[np.float32]] = [
            tree(list(unit)) for unit in totals.reshape(order.units, order.blocks, *x.shape[:-1])
        ]
        return tree(units) + np.float32(0)
