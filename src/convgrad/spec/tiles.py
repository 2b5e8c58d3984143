"""In which order the tiles of a weight gradient are summed: in stretches of rows, of which some are a block.

A stretch is a row of an image's tiles; a row of more than 64 is cut into equal ones, the last of which reaches beyond
the edge. As many whole stretches as have 64 tiles at most are a block, whatever image they are of. Blocks stand in
units, a power of two of them where there are fewer than 256 blocks: of 4 blocks or more, 16 units at most; of more
blocks, 16 are a unit. What a unit lacks at the end is tiles of zeros, which add nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 64  # products a chain: of tiles, or of channels where positions are solved for
UNITS, LEAST_BLOCKS, MOST_BLOCKS = 16, 4, 16  # units, and blocks of one


@dataclass(frozen=True)
class Turns:
    """The stretches, blocks and units of all images' tiles."""

    rows: int  # of an image
    parts: int  # stretches of a row
    length: int  # tiles of a stretch
    stretches: int  # of all images
    each: int  # stretches of a block
    blocks: int  # of a unit
    units: int

    @property
    def tiles(self) -> int:
        """Tiles of all images, those beyond an edge counted."""
        return self.stretches * self.length

    @property
    def lines(self) -> int:
        """Stretches of a unit."""
        return min(self.stretches, self.each * self.blocks)


def turns(images: int, rows: int, columns: int) -> Turns:
    """Return in which order the tiles of images of so many rows and columns of tiles are summed.

    >>> turns(8, 14, 14)  # 28 blocks of four rows
    Turns(rows=14, parts=1, length=14, stretches=112, each=4, blocks=7, units=4)
    >>> turns(1, 2, 100)
    Turns(rows=2, parts=2, length=50, stretches=4, each=1, blocks=4, units=1)
    """
    parts = -(-columns // BLOCK)
    length = -(-columns // parts)
    stretches, each = images * rows * parts, BLOCK // length
    blocks, units = -(-stretches // each), 1
    while units < UNITS and blocks >= 2 * units * LEAST_BLOCKS:
        units *= 2
    of_unit = min(MOST_BLOCKS, -(-blocks // units))
    return Turns(rows, parts, length, stretches, each, of_unit, -(-blocks // of_unit))
