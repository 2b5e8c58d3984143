"""Blocks of chunked arrays: finding the parts of blocks that form a region, and assembling the region from them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, product
from typing import NamedTuple

import numpy as np

from convgrad.array_types import Array
from convgrad.spec.subproblems import Region

Chunks = tuple[tuple[int, ...], ...]  # per axis, the extents of its blocks


class BlockPart(NamedTuple):
    """A part of a block: the block's index, the region inside the block, and whether it is the whole block."""

    block: tuple[int, ...]
    within: Region
    is_whole: bool


class BlockRead(NamedTuple):
    """The parts of blocks that form a region, row-major, and the extents of these parts along each axis."""

    parts: tuple[BlockPart, ...]
    extents: Chunks


class ArrayBlocks:
    """The blocks of an array. ``read`` finds the parts of blocks that form a region.

    >>> [tuple(part) for part in ArrayBlocks(((4, 4),)).read((slice(3, 8),)).parts]
    [((0,), (slice(3, 4, None),), False), ((1,), (slice(0, 4, None),), True)]
    """

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks
        self._ends = [list(accumulate(axis)) for axis in chunks]

    def read(self, region: Region) -> BlockRead:
        """Return the parts of blocks that form a region. The region must not be empty."""
        axes = [list(self._along(axis, span)) for axis, span in enumerate(region)]
        parts = []
        for at in product(*axes):
            block, within, whole = zip(*at, strict=True)
            parts.append(BlockPart(block, within, all(whole)))
        return BlockRead(
            tuple(parts), tuple(tuple(within.stop - within.start for _, within, _ in axis) for axis in axes)
        )

    def _along(self, axis: int, region: slice) -> Iterator[tuple[int, slice, bool]]:
        """Yield each block that overlaps a slice of an axis, the overlap, and whether it is the whole block."""
        chunks, ends = self.chunks[axis], self._ends[axis]
        for block in range(bisect_right(ends, region.start), bisect_left(ends, region.stop) + 1):
            begin = ends[block] - chunks[block]
            first, end = max(region.start - begin, 0), min(region.stop - begin, chunks[block])
            if first < end:
                yield block, slice(first, end), end - first == chunks[block]


def assembled(extents: Chunks, blocks: Sequence[Array]) -> Array:
    """Return one array from row-major blocks with these extents per axis. A single block is returned without a copy.

    >>> assembled(((1, 2), (1,)), [np.zeros((1, 1)), np.ones((2, 1))]).ravel().tolist()
    [0.0, 1.0, 1.0]
    """
    if len(blocks) == 1:
        return blocks[0]
    array = np.empty([sum(axis) for axis in extents], blocks[0].dtype)
    ends = [list(accumulate(axis)) for axis in extents]
    regions = [[slice(end - n, end) for end, n in zip(*axis, strict=True)] for axis in zip(ends, extents, strict=True)]
    for region, block in zip(product(*regions), blocks, strict=True):
        array[region] = block
    return array
