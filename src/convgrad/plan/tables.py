"""What a plan becomes: the tables and numbers that a compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.view import Ints

Table = Ints | NDArray[np.int32]


@dataclass(frozen=True)
class Schedule:
    """Tables and numbers of the driver's arguments, by name; all but the addresses of one call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    scratch_bytes: int
    offsets: tuple[int, int] = (0, 0)  # bytes from the first element of rows and lanes to where the driver begins
    partial_bytes: int = 0  # of partial sums, which all threads share,
    counters: int = 0  # words before them that begin as 0

    @cached_property
    def table_bytes(self) -> int:
        """The bytes of all tables."""
        return sum(table.nbytes for table in self.tables.values())


def placed(sizes: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Return where pieces of such sizes begin, each with a line of the caches, and the bytes of all.

    >>> placed({"sums": 65, "runs": 8})
    ({'sums': 0, 'runs': 128}, 192)
    """
    at = [0, *accumulate(-(-size // LINE_BYTES) * LINE_BYTES for size in sizes.values())]
    return dict(zip(sizes, at[:-1], strict=True)), at[-1]
