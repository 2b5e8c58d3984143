"""Sums of products in float64, and the figures that bound their rounding errors.

The figures of an output element are the sum of products as two numbers, sum |x||y|, sum (xy)^2, and the number of
nonzero products. BLAS adds a chunk of at most ``CHUNK`` products, in any order, with or without FMA. The addition of
chunks is compensated: its rounding errors are added up as well.
"""

from __future__ import annotations

import math
from itertools import product
from types import EllipsisType

import numpy as np

from convgrad.array_types import F64Array, Selection

CHUNK = 256  # products that BLAS adds in an unknown order
ALONE = 1 << 18  # the largest number of products of a matrix product for which OpenBLAS uses one thread


class Sums:
    """The figures of output elements, arrays of ``shape``; nonzero products are counted if ``counted`` is true."""

    def __init__(self, shape: tuple[int, ...], counted: bool) -> None:
        self.high, self.low, self.magnitude, self.squares = (np.zeros(shape) for _ in range(4))
        self.nonzero = np.zeros(shape) if counted else None
        self.chunk = self.joins = self.adds = 0  # most products of a chunk; numbers of chunks and of calls of BLAS
        self._part, self._pending = np.zeros(shape), 0

    def add(self, x: F64Array, y: F64Array, at: Selection | EllipsisType = ...) -> None:
        """Add the matrix products of x [group, row, term] and y [group, term, column] to the elements at ``at``."""
        kinds = [(x, y, self._part), (np.abs(x), np.abs(y), self.magnitude), (x * x, y * y, self.squares)]
        if self.nonzero is not None:
            kinds.append(((x != 0).astype(np.float64), (y != 0).astype(np.float64), self.nonzero))
        for begin in range(0, x.shape[-1], CHUNK):
            terms = slice(begin, min(begin + CHUNK, x.shape[-1]))
            self._make_room(terms.stop - begin)
            for a, b, sums in kinds:
                target = sums[at]
                target += _products(a[..., terms], b[:, terms]).reshape(target.shape)
            self.adds += 1

    def _make_room(self, terms: int) -> None:
        if self._pending + terms > CHUNK:
            self.join()
        self._pending += terms
        self.chunk = max(self.chunk, self._pending)

    def join(self) -> None:
        """Add the current chunk's sum to ``high``, and the rounding error of this addition to ``low``."""
        if self._pending:
            self.high, missed = two_sum(self.high, self._part)
            self.low += missed
            self._part.fill(0.0)
            self._pending = 0
            self.joins += 1


def two_sum(a: F64Array, b: F64Array) -> tuple[F64Array, F64Array]:
    """Return a + b rounded to nearest, and the exact rounding error (Knuth's TwoSum).

    >>> [float(part) for part in two_sum(np.float64(1), np.float64(2**-60))] == [1.0, 2**-60]
    True
    """
    total = a + b
    other = total - a
    missed: F64Array = (a - (total - other)) + (b - other)
    return total, missed


def _products(x: F64Array, y: F64Array) -> F64Array:
    """Return the matrix products x @ y; if each sum has one product, elementwise multiplication gives the same.

    OpenBLAS computes blocks of ``ALONE`` products on the calling thread. These sums are so short that a second thread
    gains little, but a thread that waits for a core of a busy machine would delay each of them by milliseconds.
    """
    rows, terms, columns = *x.shape[-2:], y.shape[-1]
    if terms == 1 or rows * terms * columns <= ALONE:
        return x * y if terms == 1 else x @ y
    height = min(rows, math.isqrt(ALONE // terms))
    width = ALONE // terms // height
    products = np.empty((*x.shape[:-1], columns))
    for row, column in product(range(0, rows, height), range(0, columns, width)):
        block = ..., slice(row, row + height), slice(column, column + width)
        np.matmul(x[..., block[1], :], y[..., block[2]], out=products[block])
    return products
