"""Tasks: parts of the weights times parts of the batch, and where the sums wait that tasks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import Parts
from convgrad.plan.view import Ints

# The columns that the driver reads: each range as its begin and its length; which part of the weights it is, and where
# that part's sums of units are kept.
TASK = (
    "group", "groups", "rows.first", "rows.count", "lanes.first", "lanes.count", "tap", "taps", "chunk", "chunks",
    "part", "kept",
)  # fmt: skip


@dataclass(frozen=True)
class Tasks:
    """Rows of TASK, and what they need."""

    table: Ints
    most: tuple[int, int, int, int]  # panels of groups, of rows, of lanes, tiles of taps
    kept_bytes: int  # of all tiles, behind a counter for each part of the weights
    counters: int


def parts(count: int, into: int) -> list[tuple[int, int]]:
    """Cut a range into parts as equal as can be.

    >>> parts(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, rest = divmod(count, into)
    ends = [size * i + min(i, rest) for i in range(into + 1)]
    return [(a, b) for a, b in pairwise(ends) if b > a]


def tasks(whole: Sequence[int], into: Parts, chunks: Sequence[int], unit_bytes: int) -> Tasks:
    """Cut panels of groups, rows and lanes and tiles of taps; ``chunks`` are those of each part of the batch.

    ``unit_bytes`` is what a tile's sums of all units take.
    """
    weights = [
        tuple(word for begin, end in each for word in (begin, end - begin))
        for each in product(*map(parts, whole, into[: len(whole)]))
    ]
    shared = len(chunks) > 1
    kept_step = unit_bytes * shared
    counters = len(weights) * shared
    first = -(-8 * counters // LINE_BYTES) * LINE_BYTES
    kept_at = np.cumsum([first, *(prod(one[1::2]) * kept_step for one in weights)])
    table = [
        (*one, begin, end - begin, part, kept_at[part])
        for begin, end in pairwise(np.cumsum([0, *chunks]))
        for part, one in enumerate(weights)
    ]
    groups, rows, lanes, taps = (max(one[at] for one in weights) for at in (1, 3, 5, 7))
    return Tasks(np.array(table, np.int64), (groups, rows, lanes, taps), int(kept_at[-1]), counters)
