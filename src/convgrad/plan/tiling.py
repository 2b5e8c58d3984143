"""The heights of micro-tiles that cover an extent, and the cycles of a micro-tile's step of K."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import ceil

from convgrad.plan import constants
from convgrad.plan.constants import LOAD_CYCLES, MIN_STEP_CYCLES, STEP_CYCLES
from convgrad.plan.machine import Isa
from convgrad.spec.order import SPLIT_TERMS

SIDE = 16  # the most rows of a tile of AMX, and its columns


def balanced(count: int, limit: int) -> int:
    """Return the smallest tile size that covers ``count`` in as few tiles as the tile size ``limit``.

    >>> balanced(7, 4), balanced(9, 4), balanced(3, 8)
    (4, 3, 3)
    """
    return ceil(count / ceil(count / min(count, limit)))


def tile_rows(rows: int) -> tuple[int, ...]:
    """Return the rows of each tile of AMX that together have ``rows`` rows, as equal as possible.

    >>> tile_rows(32), tile_rows(27), tile_rows(9)
    ((16, 16), (14, 13), (9,))
    """
    return (rows,) if rows <= SIDE else (rows - rows // 2, rows // 2)


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


def amx_step_cycles(rows: int, vectors: int, lines: int) -> float:
    """Return the cycles of a step of K in a line of a micro-tile of AMX, which takes one or two ``lines``."""
    of_a = lines if rows <= SIDE else 2
    block = constants.AMX_BLOCK_CYCLES * (of_a + vectors) + constants.AMX_ROW_CYCLES * lines * rows * vectors
    return block / lines / SPLIT_TERMS


def holds_node(isa: Isa, rows: int, vectors: int) -> bool:
    """Return whether registers have room for the sums of a node of portions, besides those of two chains."""
    return (3 * rows + 1) * vectors <= isa.registers


def portion_step_cycles(rows: int, vectors: int) -> float:
    """Return the cycles of a micro-tile's step of K, if portions have two chains and nodes stay in registers."""
    loads = constants.PORTION_ROW_CYCLES * rows + vectors / 2
    busy = max(rows * vectors / 2, loads, MIN_STEP_CYCLES / 2)  # each result has two sums at a time
    return busy * constants.PORTION_FACTOR + constants.PORTION_STEP_CYCLES * rows


@lru_cache(maxsize=4096)
def tiles(count: int, rows: int, vectors: int) -> tuple[int, int, float]:
    """Return the height of micro-tiles that cover ``count`` positions, their number, and cycles per k and position.

    If the rows do not divide the positions, the last micro-tile overlaps the one before.

    >>> [tiles(n, 14, 2)[:2] for n in (56, 54, 9, 1)]
    [(14, 4), (14, 4), (4, 3), (1, 1)]
    """
    return cheapest(count, [(height, step_cycles(height, vectors)) for height in heights(rows)])


def cheapest(count: int, among: Iterable[tuple[int, float]]) -> tuple[int, int, float]:
    """Return what ``tiles`` returns, for some heights of micro-tiles with their cycles of a step of K."""
    cycles, height = min((-(-count // height) * step / count, height) for height, step in among if height <= count)
    return height, -(-count // height), cycles
