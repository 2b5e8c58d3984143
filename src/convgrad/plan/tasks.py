"""Tasks: parts of the weights times parts of the batch, and where the partial sums are that tasks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import Parts
from convgrad.plan.records import Record
from convgrad.plan.view import Ints

# Each range as its begin and its length; which part of the weights it is, and where that part's partial sums are.
TASK = Record(
    "group", "groups", "rows.first", "rows.count", "lanes.first", "lanes.count", "tap", "taps",
    "cache_block", "cache_blocks", "part", "partial_sums",
)  # fmt: skip


@dataclass(frozen=True)
class Tasks:
    """Rows of TASK, and what they need."""

    table: Ints
    most: tuple[int, int, int, int]  # panels of groups, of rows, of lanes, tiles of taps
    partial_bytes: int  # of the partial sums of all tiles, after a counter for each part of the weights
    counters: int


def parts(count: int, into: int) -> list[tuple[int, int]]:
    """Cut a range into parts as equal as can be.

    >>> parts(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, rest = divmod(count, into)
    ends = [size * i + min(i, rest) for i in range(into + 1)]
    return [(a, b) for a, b in pairwise(ends) if b > a]


def tasks(whole: Sequence[int], into: Parts, cache_blocks: Sequence[int], unit_bytes: int) -> Tasks:
    """Cut panels of groups, rows and lanes and tiles of taps; ``cache_blocks`` are those of each part of the batch.

    ``unit_bytes`` is what a tile's sums of all units take.
    """
    weights = list(product(*map(parts, whole, into[: len(whole)])))  # ranges of groups, rows, lanes, taps
    sizes = [[end - begin for begin, end in each] for each in weights]
    shared = len(cache_blocks) > 1
    sums_step = unit_bytes * shared
    counters = len(weights) * shared
    first = -(-8 * counters // LINE_BYTES) * LINE_BYTES
    sums_at = np.cumsum([first, *(prod(each) * sums_step for each in sizes)]).tolist()
    table = TASK.rows(
        {
            "group": group, "groups": groups, "rows.first": row, "rows.count": rows, "lanes.first": lane,
            "lanes.count": lanes, "tap": tap, "taps": taps, "cache_block": begin, "cache_blocks": end - begin,
            "part": part, "partial_sums": sums_at[part],
        }
        for begin, end in pairwise(np.cumsum([0, *cache_blocks]).tolist())
        for part, (((group, _), (row, _), (lane, _), (tap, _)), (groups, rows, lanes, taps)) in enumerate(
            zip(weights, sizes, strict=True)
        )
    )  # fmt: skip
    groups, rows, lanes, taps = map(max, zip(*sizes, strict=True))
    return Tasks(table, (groups, rows, lanes, taps), sums_at[-1], counters)
