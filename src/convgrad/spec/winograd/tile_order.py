"""The order in which a weight gradient sums its Winograd tiles: reduction segments (stretches), blocks and units.

A segment is a row of a slice's tiles (``algorithms.py``). A row of more than 64 tiles is cut into segments of equal
length; the last segment may reach beyond the slice's edge. A block has as many whole segments as have at most 64 tiles
together, from one or more slices. Up to 256 blocks are divided into at most U units. U is the largest power of two, up
to 16, for which U units have at least 4 blocks each. More blocks are divided into units of 16 blocks. Missing tiles at
the end of a unit are tiles of zeros, which add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 64  # products per chain: over tiles for a weight gradient, else over channels
UNITS, MIN_BLOCKS, MAX_BLOCKS = 16, 4, 16  # the limit of U, and the limits of blocks per unit


@dataclass(frozen=True)
class Turns:
    """The segments (stretches), blocks and units of all slices' tiles."""

    rows: int  # rows of tiles per slice
    parts: int  # segments per row
    length: int  # tiles per segment
    stretches: int  # segments of all slices
    segments_per_block: int
    blocks: int  # blocks per unit
    units: int

    @property
    def tiles(self) -> int:
        """The number of tiles of all slices, including tiles beyond an edge."""
        return self.stretches * self.length

    @property
    def lines(self) -> int:
        """The number of segments in a unit."""
        return min(self.stretches, self.segments_per_block * self.blocks)


def turns(slices: int, rows: int, columns: int) -> Turns:
    """Return the order in which the tiles of slices with these rows and columns of tiles are summed.

    >>> turns(8, 14, 14)  # 28 blocks of four rows
    Turns(rows=14, parts=1, length=14, stretches=112, segments_per_block=4, blocks=7, units=4)
    >>> turns(1, 2, 100)
    Turns(rows=2, parts=2, length=50, stretches=4, segments_per_block=1, blocks=4, units=1)
    """
    parts = -(-columns // BLOCK)
    length = -(-columns // parts)
    stretches, per_block = slices * rows * parts, BLOCK // length
    blocks, units = -(-stretches // per_block), 1
    while units < UNITS and blocks >= 2 * units * MIN_BLOCKS:
        units *= 2
    of_unit = min(MAX_BLOCKS, -(-blocks // units))
    return Turns(rows, parts, length, stretches, per_block, of_unit, -(-blocks // of_unit))
