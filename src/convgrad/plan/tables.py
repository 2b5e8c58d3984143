"""What a plan becomes: the tables and numbers that a compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.view import Ints

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
