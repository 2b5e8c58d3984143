"""Which micro-tiles registers hold, how many rows divide what there is, and what a step of K takes."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from convgrad.plan.constants import LOAD_CYCLES, MIN_STEP_CYCLES, STEP_CYCLES


def balanced(count: int, most: int) -> int:
    """Return the size of a tile that covers ``count`` in as few tiles as ``most`` does, as evenly as can be.

    >>> balanced(7, 4), balanced(9, 4), balanced(3, 8)
    (4, 3, 3)
    """
    return ceil(count / ceil(count / min(count, most)))


def step_cycles(rows: int, vectors: int) -> float:
    """Return the cycles a term of a tile of one tap: two multiply-adds or loads each, and a sum's own latency."""
    busy = max(rows * vectors / 2, LOAD_CYCLES * (rows + 2 * vectors), MIN_STEP_CYCLES)
    return busy + STEP_CYCLES


def heights(rows: int) -> tuple[int, ...]:
    """Return the rows of a kernel's tiles: the most, and the powers of two below.

    >>> heights(14), heights(4)
    ((14, 8, 4, 2, 1), (4, 2, 1))
    """
    return (rows, *(1 << i for i in reversed(range((rows - 1).bit_length()))))


@lru_cache(maxsize=4096)
def tiles(count: int, rows: int, vectors: int) -> tuple[int, int, float]:
    """Return the height of the tiles of some positions, how many there are, and cycles a term and position.

    The last tile overlaps the one before.

    >>> [tiles(n, 14, 2)[:2] for n in (56, 54, 9, 1)]
    [(14, 4), (14, 4), (4, 3), (1, 1)]
    """
    found = [(-(-count // h) * step_cycles(h, vectors) / count, h) for h in heights(rows) if h <= count]
    least, height = min(found)
    return height, -(-count // height), least
