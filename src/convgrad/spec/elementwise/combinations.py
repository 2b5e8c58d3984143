"""Linear combinations of positions along an axis, as of interpolation, and a slow execution with the same bits.

A sum takes the products position * weight of its terms one after another, and rounds each product and each sum to f32.
It starts with +0, or else with -0, which does not change the first product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Table:
    """The terms of each result, in memory for generated code: ``numbers`` has a column per result.

    The rows are the number of terms, then the positions of the first terms, of the second terms and so on, and then the
    f32 weights in the same order.
    """

    numbers: NDArray[np.int32]

    @property
    def results(self) -> int:
        """The number of results."""
        return len(self.numbers[0])

    @property
    def terms(self) -> int:
        """The largest number of terms of a result."""
        return len(self.numbers) // 2

    @property
    def positions(self) -> NDArray[np.int32]:
        """The positions (terms, results)."""
        return self.numbers[1 : 1 + self.terms]

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights (terms, results)."""
        return self.numbers[1 + self.terms :].view(np.float32)


def ranks_of(owners: Integers) -> Integers:
    """Return how many earlier elements are equal to each element."""
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners)
    ranks = np.empty_like(owners)
    ranks[order] = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def table_of(results: int, owners: Integers, positions: Integers, weights: NDArray[np.float32] | float) -> Table:
    """Return the table of terms in their order; ``owners`` are their results."""
    counts, ranks = np.bincount(owners, minlength=results), ranks_of(owners)
    table = Table(np.zeros((1 + 2 * int(counts.max(initial=0)), results), np.int32))
    table.numbers[0], table.positions[ranks, owners], table.weights[ranks, owners] = counts, positions, weights
    return table


def start_of(from_zero: bool) -> float:
    """Return the start of a sum."""
    return 0.0 if from_zero else -0.0


def combined(x: NDArray[np.float32], table: Table, from_zero: bool) -> NDArray[np.float32]:
    """Return the combinations (outer, results, columns) of positions of an array (outer, positions, columns)."""
    total = np.full((len(x), table.results, x.shape[2]), start_of(from_zero), np.float32)
    for term, (places, weights) in enumerate(zip(table.positions, table.weights, strict=True)):
        is_there = (table.numbers[0] > term)[:, None]
        total = np.where(is_there, total + x[:, places] * weights[:, None], total)
    return total
