"""The tables and numbers that a compiled driver reads, and functions of arrays that build tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from convgrad.cached import cached_property
from convgrad.plan.machine import LINE_BYTES

Ints = NDArray[np.int64]
Strides = tuple[int, ...]
Table = Ints | NDArray[np.int32]
ELSEWHERE = np.iinfo(np.int64).min  # an output offset that stands for a tap that another micro-tile stores


@dataclass(frozen=True)
class Schedule:
    """The arguments of a compiled driver except the addresses of a call: tables and numbers by name."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    scratch_bytes: int
    offsets: tuple[int, int] = (0, 0)  # bytes from the first element of A, of B to the driver's first
    partial_bytes: int = 0  # bytes of the partial sums, which all threads share
    counters: int = 0  # number of counters, stored before the partial sums; counters begin at 0
    packed_bytes: int = 0  # bytes of an operand that all threads pack before the first task

    @cached_property
    def table_bytes(self) -> int:
        """The size of all tables together, in bytes."""
        return sum(table.nbytes for table in self.tables.values())


def placed(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return the byte offset of each part, a multiple of a cache line, and the total size in bytes.

    >>> placed({"sums": 65, "runs": 8})
    ({'sums': 0, 'runs': 128}, 192)
    """
    at = [0, *accumulate(-(-size // LINE_BYTES) * LINE_BYTES for size in sizes.values())]
    return dict(zip(sizes, at[:-1], strict=True)), at[-1]


def distinct(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the distinct numbers, ascending, and the index of each number among them.

    ``numpy.unique`` imports numpy.ma at its first call. After a fork by another thread, it may stay unfinished.

    >>> [found.tolist() for found in distinct(np.array([7, 3, 7]))]
    [[3, 7], [1, 0, 1]]
    """
    ascending = np.sort(numbers)
    unique = ascending[np.diff(ascending, prepend=ascending[:1] - 1) > 0]
    return unique, np.searchsorted(unique, numbers)


def wrapped(number: int) -> int:
    """Return a number modulo 2**64, in the range of int64. Distances to absent elements may be outside this range.

    >>> wrapped(5), wrapped(2**63 + 5)
    (5, -9223372036854775803)
    """
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def offsets(extents: tuple[int, ...], strides: Strides) -> Ints:
    """Return the byte offsets of all elements of an array with these extents and strides, row-major.

    >>> offsets((2, 3), (10, 1)).tolist()
    [0, 1, 2, 10, 11, 12]
    """
    offsets_so_far = np.zeros(1, np.int64)
    for extent, stride in zip(extents, strides, strict=True):
        offsets_so_far = (offsets_so_far[:, None] + np.arange(extent, dtype=np.int64) * stride).ravel()
    return offsets_so_far


def numbered(counts: Ints) -> tuple[Ints, Ints]:
    """Return for each element of lists with these lengths the number of its list, and its number in the list.

    >>> [numbers.tolist() for numbers in numbered(np.array([2, 0, 3]))]
    [[0, 0, 2, 2, 2], [0, 1, 0, 1, 2]]
    """
    lists = np.repeat(np.arange(len(counts)), counts)
    return lists, np.arange(len(lists)) - np.repeat(np.cumsum(counts) - counts, counts)


def merged(entries: Ints, step: int, lists: Ints) -> tuple[Ints, Ints]:
    """Merge entries (byte offset, positions) that are adjacent in memory and in the same list.

    Positions are ``step`` bytes apart. ``lists`` are the numbers of the entries' lists; return those that are left.

    >>> [left.tolist() for left in merged(np.array([[0, 2], [8, 2], [32, 2], [40, 2]]), 4, np.array([0, 0, 0, 1]))]
    [[[0, 4], [32, 2], [40, 2]], [0, 0, 1]]
    """
    if not len(entries):
        return entries, lists
    apart = (entries[1:, 0] != entries[:-1, 0] + entries[:-1, 1] * step) | (lists[1:] != lists[:-1])
    starts = np.flatnonzero(np.append(True, apart))
    return np.stack([entries[starts, 0], np.add.reduceat(entries[:, 1], starts)], 1), lists[starts]


def evenly(count: int, into: int) -> list[tuple[int, int]]:
    """Return (begin, end) of ``into`` parts of ``range(count)`` whose lengths differ by at most 1, without empty parts.

    >>> evenly(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, remainder = divmod(count, into)
    ends = [size * i + min(i, remainder) for i in range(into + 1)]
    return [(a, b) for a, b in pairwise(ends) if b > a]
