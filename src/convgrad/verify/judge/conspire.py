"""Kappa: the ratio of an order's squared partial sums to their expectation for terms in exchangeable order.

Data has structure along axes, and the orders of sums follow the same axes. If the first half of the images is positive
and the second half negative, a chain over the images has much larger partial sums than a chain in random order. The
kappa of an element is the largest sum of its squared partial sums, divided by the expectation for exchangeable terms.
The maximum is over chains along every order of the axes, from either end, in 2 and in 8 parts, and in 8 and 16
interleaved lanes. Kappa is 1 to 2 on ordinary data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, permutations
from math import prod

import numpy as np

from convgrad.array_types import F64Array
from convgrad.verify.judge.model import partial_sums

PARTS, LANES = (2, 8), (8, 16)
AT_ONCE = 2**17  # products that are processed together, so that temporary arrays fit in a cache
PERMUTED = 3  # up to this number of axes, all axis orders are tried; beyond, each axis is innermost and outermost once


def conspiracies(products: F64Array) -> F64Array:
    """Return kappa of each element, from products [element, axes...]; at least 1.

    >>> halves = np.repeat([1.0, -1.0], 100).reshape(1, 2, 100)
    >>> float(conspiracies(halves)[0].round(1))
    101.0
    """
    count = max(1, AT_ONCE // max(1, prod(products.shape[1:])))
    rows = [_of(products[first : first + count]) for first in range(0, len(products), count)]
    return np.concatenate(rows)


def _of(products: F64Array) -> F64Array:
    flat = products.reshape(len(products), -1)
    total, squares, live = flat.sum(1), np.square(flat).sum(1), np.maximum(np.count_nonzero(flat, axis=1), 1)
    spread = np.maximum(squares - np.square(total) / live, 0)
    exchangeable = partial_sums((live + 1) * (2 * live + 1) / (6 * live), (live + 1) / 6, total, spread)
    orders = list(_orders(products))
    if len(orders) * flat.size <= AT_ONCE:
        maximum = _energy(np.concatenate(orders)).reshape(len(orders), -1).max(0)
    else:
        maximum = np.array([_energy(rows) for rows in orders]).max(0)
    kappa: F64Array = np.maximum(1.0, maximum / np.where(exchangeable > 0, exchangeable, 1.0))
    return kappa


def _orders(products: F64Array) -> Iterator[F64Array]:
    """Yield the products of each element in each order of their axes, as rows."""
    squeezed = products.reshape(len(products), *(extent for extent in products.shape[1:] if extent > 1))
    axes = range(1, squeezed.ndim)
    if len(axes) <= PERMUTED:
        orders = set(permutations(axes))
    else:
        others = [(axis, tuple(other for other in axes if other != axis)) for axis in axes]
        orders = {order for axis, following in others for order in ((axis, *following), (*following, axis))}
    for order in sorted(orders):
        yield squeezed.transpose(0, *order).reshape(len(products), -1)


def _energy(rows: F64Array) -> F64Array:
    """Return each row's largest sum of squared partial sums over all chains, parts and lanes; zeros do not count."""
    live = None if rows.all() else (rows != 0).astype(np.float64)
    sums = np.cumsum(rows, 1)
    maximum = np.maximum(_squares(sums, live), _squares(sums[:, -1:] - sums + rows, live))
    for parts in PARTS:
        cuts = [rows.shape[1] * part // parts for part in range(parts + 1)]
        apart = sums.copy()
        for begin, end in pairwise(cuts[1:]):
            apart[:, begin:end] -= sums[:, begin - 1 : begin] if begin else 0.0
        maximum = np.maximum(maximum, _squares(apart, live))
    for lanes in LANES:
        if rows.shape[1] >= 4 * lanes:
            length = rows.shape[1] // lanes * lanes  # the remainder is too short to matter
            own = np.cumsum(rows[:, :length].reshape(len(rows), -1, lanes), 1).reshape(len(rows), -1)
            maximum = np.maximum(maximum, _squares(own, None if live is None else live[:, :length]))
    return maximum


def _squares(sums: F64Array, live: F64Array | None) -> F64Array:
    """Return each row's sum of squares; ``live`` is a mask of the elements to sum, or None for all."""
    total: F64Array = np.einsum("ij,ij->i", sums, sums) if live is None else np.einsum("ij,ij,ij->i", sums, sums, live)
    return total
