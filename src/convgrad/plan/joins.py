"""Where partial sums go: the 16-ary trees over an image's blocks and over the units of the batch, as tables."""

from __future__ import annotations

import numpy as np

from convgrad.plan.view import Ints
from convgrad.spec.order import FAN_IN

FAN_IN_BITS = FAN_IN.bit_length() - 1  # of a leaf's number, a level of the tree
JOIN = ("firsts", "carries", "unit")  # bits of first children; levels completed; which unit is done and kept, or -1


def levels_of(leaves: int) -> int:
    """Return the levels of the 16-ary tree over some leaves.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def _tree(leaves: int) -> tuple[Ints, Ints, int]:
    """Return, for each leaf, a bit per level where it is a first child, and how many levels it completes."""
    levels, leaf = levels_of(leaves), np.arange(leaves, dtype=np.int64)
    firsts, complete, ended = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64), np.ones(leaves, bool)
    for level in range(levels):
        child = leaf // FAN_IN**level % FAN_IN
        firsts |= (child == 0).astype(np.int64) << level
        ended = ended & ((child == FAN_IN - 1) | (leaf == leaves - 1))
        complete += ended
    return firsts, complete, levels


def joins(blocks: int, units: int) -> tuple[Ints, int]:
    """Return a row of JOIN for each block of each unit, and the number of levels.

    >>> table, levels = joins(2, 2)
    >>> table.tolist(), levels  # the second block of a unit carries the unit's sum upward
    ([[3, 0, -1], [2, 1, -1], [1, 0, -1], [0, 1, -1]], 2)
    """
    block_firsts, block_complete, block_levels = _tree(blocks)
    unit_firsts, unit_complete, unit_levels = _tree(units)
    levels = max(1, block_levels + unit_levels)
    firsts = block_firsts[None, :] | (unit_firsts[:, None] << block_levels)
    if block_levels + unit_levels == 0:
        firsts = firsts | 1
    whole = block_complete == block_levels
    carries = np.where(whole[None, :], block_levels + unit_complete[:, None], block_complete[None, :])
    carries = np.minimum(carries, levels - 1)
    return np.stack([firsts.ravel(), carries.ravel(), np.full(firsts.size, -1)], 1), levels


def joins_apart(blocks: int, units: int) -> tuple[Ints, int]:
    """Return the same where each unit's sum is kept, to be joined when all are there.

    >>> joins_apart(2, 2)[0].tolist()
    [[1, 0, -1], [0, 0, 0], [1, 0, -1], [0, 0, 1]]
    """
    one, levels = joins(blocks, 1)
    table = np.tile(one, (units, 1))
    table[blocks - 1 :: blocks, JOIN.index("unit")] = np.arange(units)
    return table, levels
