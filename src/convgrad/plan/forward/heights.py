"""How high tiles are along an axis of positions: as few cycles as can be, the last tile overlapping the one before."""

from __future__ import annotations

from functools import lru_cache

from convgrad.plan.forward.recipe import heights
from convgrad.plan.tiling import term_cycles


@lru_cache(maxsize=4096)
def tiles(count: int, rows: int, vectors: int) -> tuple[int, int, float]:
    """Return the height of the tiles of some positions, how many there are, and cycles a term and position.

    >>> [tiles(n, 14, 2)[:2] for n in (56, 54, 9, 1)]
    [(14, 4), (14, 4), (4, 3), (1, 1)]
    """
    found = [(-(-count // h) * term_cycles(h, vectors) / count, h) for h in heights(rows) if h <= count]
    least, height = min(found)
    return height, -(-count // height), least
