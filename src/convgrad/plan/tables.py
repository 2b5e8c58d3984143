"""The tables and numbers that a compiled driver reads, and array functions to build them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.machine import LINE_BYTES

Ints = NDArray[np.int64]
Strides = tuple[int, ...]
Table = Ints | NDArray[np.int32]


@dataclass(frozen=True)
class Schedule:
    """The tables and numbers among the driver's arguments, by name: all but the addresses of a call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    scratch_bytes: int
    offsets: tuple[int, int] = (0, 0)  # bytes from the first element of A and of B to where the driver begins
    partial_bytes: int = 0  # partial sums, which all threads share
    counters: int = 0  # integers before the partial sums that begin as 0

    @cached_property
    def table_bytes(self) -> int:
        """The bytes of all tables."""
        return sum(table.nbytes for table in self.tables.values())


def placed(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the offsets of parts of such sizes, each on a cache line, and the bytes of all.

    >>> placed({"sums": 65, "runs": 8})
    ({'sums': 0, 'runs': 128}, 192)
    """
    at = [0, *accumulate(-(-size // LINE_BYTES) * LINE_BYTES for size in sizes.values())]
    return dict(zip(sizes, at[:-1], strict=True)), at[-1]


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, ascending, and the index of each number among them.

    ``numpy.unique`` loads numpy.ma at its first call, and a fork by another thread could interrupt that.

    >>> [found.tolist() for found in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    ascending = np.sort(numbers)
    found = ascending[np.diff(ascending, prepend=ascending[:1] - 1) > 0]
    return found, np.searchsorted(found, numbers)


def wrapped(number: int) -> int:
    """Return a distance in bytes modulo 2**64, as addresses are: a distance to an absent element may be larger.

    >>> wrapped(5), wrapped(2**63 + 5)
    (5, -9223372036854775803)
    """
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def offsets(extents: tuple[int, ...], strides: Strides) -> Ints:
    """Return the byte offset of every index of some axes, row-major.

    >>> offsets((2, 3), (10, 1)).tolist()
    [0, 1, 2, 10, 11, 12]
    """
    found = np.zeros(1, np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        found = (found[:, None] + np.arange(extent, dtype=np.int64) * stride).ravel()
    return found


def merged(entries: Ints, step: int) -> Ints:
    """Merge (byte offset, positions) entries that continue one another.

    >>> merged(np.array([[0, 2], [8, 2], [32, 2]]), 4).tolist()
    [[0, 4], [32, 2]]
    """
    if not len(entries):
        return entries
    starts = np.r_[True, entries[1:, 0] != entries[:-1, 0] + entries[:-1, 1] * step]
    return np.stack([entries[starts, 0], np.add.reduceat(entries[:, 1], np.flatnonzero(starts))], 1)


def evenly(count: int, into: int) -> list[tuple[int, int]]:
    """Divide a range into parts that are as equal as possible.

    >>> evenly(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, remainder = divmod(count, into)
    ends = [size * i + min(i, remainder) for i in range(into + 1)]
    return [(a, b) for a, b in pairwise(ends) if b > a]
