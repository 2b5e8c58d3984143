"""The heights of micro-tiles that cover an extent, and the cycles of a micro-tile's step of K."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from convgrad.plan.constants import LOAD_CYCLES, MIN_STEP_CYCLES, STEP_CYCLES


def balanced(count: int, limit: int) -> int:
    """Return the smallest tile size that covers ``count`` in as few tiles as the tile size ``limit``.

    >>> balanced(7, 4), balanced(9, 4), balanced(3, 8)
    (4, 3, 3)
    """
    return ceil(count / ceil(count / min(count, limit)))


def step_cycles(rows: int, vectors: int) -> float:
    """Return the cycles of a micro-tile's step of K: the maximum of multiply-adds, loads, and a sum's latency."""
    busy = max(rows * vectors / 2, LOAD_CYCLES * (rows + 2 * vectors), MIN_STEP_CYCLES)
    return busy + STEP_CYCLES


def heights(rows: int) -> tuple[int, ...]:
    """Return the heights of a kernel's micro-tiles in rows: the maximum ``rows``, and all smaller powers of two.

    >>> heights(14), heights(4)
    ((14, 8, 4, 2, 1), (4, 2, 1))
    """
    return (rows, *(1 << i for i in reversed(range((rows - 1).bit_length()))))


@lru_cache(maxsize=4096)
def tiles(count: int, rows: int, vectors: int) -> tuple[int, int, float]:
    """Return the height of micro-tiles that cover ``count`` positions, their number, and cycles per k and position.

    If the rows do not divide the positions, the last micro-tile overlaps the one before.

    >>> [tiles(n, 14, 2)[:2] for n in (56, 54, 9, 1)]
    [(14, 4), (14, 4), (4, 3), (1, 1)]
    """
    costs = [(-(-count // h) * step_cycles(h, vectors) / count, h) for h in heights(rows) if h <= count]
    cycles, height = min(costs)
    return height, -(-count // height), cycles
