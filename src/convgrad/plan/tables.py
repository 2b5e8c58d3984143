"""What a plan becomes: the tables and numbers that a compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.view import Ints, wrapped

Table = Ints | NDArray[np.int32]


@dataclass(frozen=True)
class Schedule:
    """Tables and numbers of the driver's arguments, by name; all but the addresses of one call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    offsets: tuple[int, int]  # bytes from the first element of rows and lanes to where the driver begins
    scratch_bytes: int
    kept_bytes: int  # of sums of units, which all threads share,
    counters: int  # words before them that begin as 0
    table_bytes: int


def table_of(rows: Sequence[Sequence[int]]) -> Ints:
    """Return rows of integers as a table that kernels read: of 64 bits, wrapped around."""
    return np.array([[wrapped(word) for word in row] for row in rows], np.int64)


def columns_of(columns: Sequence[Ints | int], count: int) -> Ints:
    """Return a table of so many rows from its columns; what is the same in all rows is one number.

    >>> columns_of([np.arange(2), 1 << 63], 2).tolist()
    [[0, -9223372036854775808], [1, -9223372036854775808]]
    """
    table = np.empty((count, len(columns)), np.int64)
    for at, column in enumerate(columns):
        table[:, at] = column if isinstance(column, np.ndarray) else wrapped(column)
    return table


def placed(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return where pieces of such sizes begin, each with a line of the caches, and the bytes of all.

    >>> placed({"sums": 65, "runs": 8})
    ({'sums': 0, 'runs': 128}, 192)
    """
    at = [0, *accumulate(-(-size // LINE_BYTES) * LINE_BYTES for size in sizes.values())]
    return dict(zip(sizes, at[:-1], strict=True)), at[-1]
