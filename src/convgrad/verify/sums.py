"""Sums of products in float64, and the figures that bound their error.

The figures are S in two parts, sum |x||y|, sum (xy)^2, and the number of products that are not 0. BLAS adds a chunk of
at most ``CHUNK`` terms, in any order, fused or not. Chunks are added without an error: as a rounded sum, and the
rounding error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F64Array = NDArray[np.float64]

CHUNK = 256  # terms that BLAS adds in an unknown order


class Sums:
    """The sums of output elements, of ``shape``; ``counted``: products that are not 0 are counted."""

    def __init__(self, shape: tuple[int, ...], counted: bool) -> None:
        self.high, self.low, self.magnitude, self.squares = (np.zeros(shape) for _ in range(4))
        self.nonzero = np.zeros(shape) if counted else None
        self.chunk = self.joins = self.adds = 0  # the longest chunk's terms, the chunks, the additions to other sums
        self._part, self._pending = np.zeros(shape), 0

    def add(self, x: F64Array, y: F64Array, at: Any = ...) -> None:
        """Add the products of x (group, row, term) and y (group, term, column) to the elements at an index."""
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
        """Add the last chunk to the sum, without an error."""
        if self._pending:
            self.high, missed = two_sum(self.high, self._part)
            self.low += missed
            self._part.fill(0.0)
            self._pending = 0
            self.joins += 1


def two_sum(a: F64Array, b: F64Array) -> tuple[F64Array, F64Array]:
    """Return a + b rounded, and the exact rounding error (Knuth).

    >>> [float(part) for part in two_sum(np.float64(1), np.float64(2**-60))] == [1.0, 2**-60]
    True
    """
    total = a + b
    other = total - a
    missed: F64Array = (a - (total - other)) + (b - other)
    return total, missed


def _products(x: F64Array, y: F64Array) -> F64Array:
    """Return the matrix products, by plain multiplication if there is one term."""
    products: F64Array = x * y if x.shape[-1] == 1 else x @ y
    return products
