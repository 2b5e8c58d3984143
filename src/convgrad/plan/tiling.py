"""Which micro-tiles registers hold, how many rows divide what there is, and what a step of K takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, prod

from convgrad.plan.constants import FEWER_ROWS, LEAST_CYCLES, LOADS_CYCLES, STRIP_OUTER, TERM_CYCLES
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import Tile
from convgrad.spec.geometry import Axis


def balanced(count: int, most: int) -> int:
    """Return the size of a tile that covers ``count`` in as few tiles as ``most`` does, as evenly as can be.

    >>> balanced(7, 4), balanced(9, 4), balanced(3, 8)
    (4, 3, 3)
    """
    return ceil(count / ceil(count / min(count, most)))


def term_cycles(rows: int, vectors: int) -> float:
    """Return the cycles a term of a tile of one tap: two multiply-adds or loads each, and a sum's own latency."""
    busy = max(rows * vectors / 2, LOADS_CYCLES * (rows + 2 * vectors), LEAST_CYCLES)
    return busy + TERM_CYCLES


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
    found = [(-(-count // h) * term_cycles(h, vectors) / count, h) for h in heights(rows) if h <= count]
    least, height = min(found)
    return height, -(-count // height), least


def outer_products(most: int, vectors: int, items: int) -> list[Tile]:
    """Return the tiles of one tap with as many rows as registers hold, or some fewer.

    >>> [tile.rows for tile in outer_products(14, 2, items=11)]
    [6, 7, 8, 9, 10, 11]
    """
    most = min(most, items)
    return [Tile(rows, vectors) for rows in range(max(1, most - FEWER_ROWS), most + 1)]


def under_taps(axes: tuple[Axis, ...], rows: int, vectors: int, room: int, addresses: int) -> list[Tile]:
    """Return the tiles of some rows and vectors with as many taps as registers hold: ``room`` sums of all.

    Under dilation each tap needs an address of its own, of ``addresses``, and src as much padding as the taps reach.
    """
    *outer, inner = axes
    most = room // (rows * vectors)
    if inner.dilation > 1:
        most = min(most, addresses, inner.src // inner.dilation + 1)
    if most < 1:
        return []
    k = balanced(inner.kernel, most)
    tiles = [Tile(rows, vectors, 1, k)]
    count = prod(axis.kernel for axis in outer)
    if k == inner.kernel and count > 1:
        several = sorted({balanced(count, n) for n in (2, 3, 4, 5)})
        tiles += [Tile(rows, vectors, u, k) for u in several if 1 < u <= most // k]
    return tiles


def strips(isa: Isa, axes: tuple[Axis, ...]) -> Iterator[tuple[Tile, int]]:
    """Yield the tiles of taps of one vector, and how many inner taps a position moves on what registers hold."""
    *outer, inner = axes
    ahead = inner.stride // inner.dilation if inner.stride % inner.dilation == 0 else 0
    for u in range(1, min(prod(axis.kernel for axis in outer), STRIP_OUTER) + 1):
        for k in sorted({ceil(inner.kernel / n) for n in range(1, 5)} | {min(inner.kernel, 8)}):
            for slide in {ahead if ahead < k else 0, 0}:
                held = u * (k - slide) if slide else 0
                if u * k + held + 1 + isa.spare <= isa.registers:
                    yield Tile(1, 1, u, k), slide
