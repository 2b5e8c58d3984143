"""Queries to a function: the number of leaves under the join of two terms, for many pairs per call.

The join of two terms is their lowest common ancestor in the tree of a sum: the addition that brings them together.
All n terms of a sum are 1, except one +M and one -M, where M is so large that additions to it are lost. Ones that are
added to +M or -M before these two cancel are lost, and all other ones are counted. So n - result is the number of
leaves under the join of +M and -M in the tree of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.verify.probe.masks import Masks, masked_by

Int = NDArray[np.int64]

RESOLUTIONS = (24, 11, 8, 4)  # significand bits of formats to which sums or results may be rounded
MAX_VALUES = 2**24  # maximum number of terms of all columns of a call


class Impossible(Exception):
    """The error if no tree of additions explains the function's results; the message has the contradiction."""


@dataclass
class Asker:
    """Queries to ``function``, which returns a canonical result for given operands, with a count of the calls.

    Call ``open`` first. The sums of ``columns`` have the same order; ``others`` are the remaining columns. If ones can
    be counted up to ``resolution`` only, the terms are split into ``parts``, and each part is counted separately.
    """

    function: Callable[[tuple[Array, ...]], F64Array]
    masks: Masks
    calls: int = 0
    columns: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    others: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    resolution: int = 0
    parts: int = 1

    @property
    def terms(self) -> int:
        """The number n of terms of a sum."""
        return int(self.masks.terms.size)

    def open(self, bits: int) -> None:
        """Check that the function counts ones up to ``2^bits``, and find the columns that share an order.

        Raises Impossible if counts are wrong, or if fewer than half of the columns share an order.
        """
        n = self.terms
        width = min(self.masks.columns, max(1, MAX_VALUES // n))
        self.columns = np.linspace(0, self.masks.columns - 1, width).astype(np.int64)
        term, mask = self.masks.values
        self.resolution = int(min(n, 2**bits, mask / term / 2**26))  # a mask must hide all terms in f32 sums
        ones = self.resolution - 1 + self.resolution % 2  # odd, so that it needs at least the bits of smaller counts
        if not self._counted(ones):
            raise Impossible(f"{ones} terms of 1 do not have the sum {ones}")
        self.parts = -(-n // self.resolution)
        if n < 3:
            return
        some = [(0, n - 1), (0, 1), (n // 2, (n // 2 + 1) % n), (n // 3, 2 * n // 3)]
        pairs = np.array([pair for pair in some if pair[0] != pair[1]])
        answers = np.array([self._joins(np.repeat(pair[None], self.columns.size, 0)) for pair in pairs])
        if (answers[:2] == 2).all():
            hides = masked_by(self.masks.problem.operand_format)
            raise Impossible(f"sums are kept in more bits than a mask of {hides} hides, or they are compensated")
        same = [(answers == answers[:, [column]]).all(axis=0) for column in range(self.columns.size)]
        chosen = max(same, key=lambda columns: int(columns.sum()))
        if 2 * chosen.sum() < self.columns.size:
            raise Impossible("channels do not share an order: fewer than half of them have equal results")
        self.columns, self.others = self.columns[chosen], self.columns[~chosen]

    def joins(self, pairs: Int) -> Int:
        """Return the number of leaves under the join (lowest common ancestor) of each pair of terms."""
        sizes: Int = self._joins(pairs)
        return sizes

    def random(self, seed: int = 3) -> tuple[F64Array, F64Array]:
        """Return random terms, one row per column, and the function's sums of these terms."""
        term, _ = self.masks.values
        dtype = self.masks.problem.operand_format.dtype
        shape = (self.columns.size, self.terms)
        values = np.random.default_rng(seed).standard_normal(shape).astype(dtype).astype(np.float64)
        return values, self._sums(self.columns, values) * term

    def steady(self) -> bool:
        """Return whether three equal calls of the function give equal results."""
        n = self.terms
        values = np.full((self.masks.columns, n), self.masks.values[0])
        values[:, 0], values[:, n // 2] = self.masks.values[1], -self.masks.values[1]
        columns = np.arange(self.masks.columns)
        first = self._sums(columns, values)
        return all(np.array_equal(first, self._sums(columns, values), equal_nan=True) for _ in range(2))

    def _counted(self, ones: int) -> bool:
        """Return whether the sum of this number of evenly spread ones is correct in every column."""
        if ones < 1:
            return True
        values = np.zeros(self.terms)
        values[np.arange(ones) * self.terms // ones] = self.masks.values[0]
        return bool((self._sums(self.columns, np.repeat(values[None], self.columns.size, 0)) == ones).all())

    def _joins(self, pairs: Int) -> Int:
        n, parts, width = self.terms, self.parts, self.columns.size
        part_of = np.arange(n) % parts
        sizes = np.bincount(part_of)
        term, mask = self.masks.values
        kind = self.masks.problem.operand_format.dtype
        joins = np.full(len(pairs), 2, np.int64)
        for begin in range(0, len(pairs) * parts, width):
            pair, part = np.divmod(np.arange(begin, min(begin + width, len(pairs) * parts)), parts)
            live = part_of == part[:, None]
            i, j = pairs[pair].T
            row = np.arange(pair.size)
            live[row, i] = live[row, j] = False
            values = np.where(live, kind.type(term), kind.type(0))
            values[row, i], values[row, j] = mask, -mask
            ones = sizes[part] - (part_of[i] == part) - (part_of[j] == part)
            got = self._sums(self.columns[: pair.size], values)
            strange = ~((got >= 0) & (got <= ones) & (got == np.rint(got)))
            if strange.any():
                at = int(np.argmax(strange))
                raise Impossible(f"ones and masks at terms {i[at]} and {j[at]} add up to {got[at]:.9g}, not a count")
            np.add.at(joins, pair, (ones - got).astype(np.int64))
        return joins

    def _sums(self, columns: Int, values: Array) -> F64Array:
        """Return the function's sums of ``values`` in these columns, divided by the value of a term."""
        self.calls += 1
        result = self.function(self.masks.operands(columns, values))
        got: F64Array = np.array([result[self.masks.elements[column]] for column in columns])
        return got / self.masks.values[0]
