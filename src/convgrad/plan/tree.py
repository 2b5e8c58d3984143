"""The 16-ary reduction tree: its levels, and the numbers of accumulation chains, which have a digit per level."""

from __future__ import annotations

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.tables import Ints
from convgrad.spec.order import FAN_IN

DIGIT_BITS = FAN_IN.bit_length() - 1
END = -1  # follows the last number: no node is above both
CHAIN = Record("number", "following", "leaf")  # two numbers; the leaf whose sum is complete and stored, or -1


def levels_of(leaves: int) -> int:
    """Return the levels of the 16-ary tree over ``leaves`` leaves.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def chains(each: int, leaves: int) -> tuple[Ints, int]:
    """Return a row of CHAIN for each chain of each leaf, and the levels of the tree over the leaves' trees, at least 1.

    >>> table, levels = chains(2, 2)
    >>> table.tolist(), levels  # a leaf's number begins above the digits of its chains
    ([[0, 1, -1], [1, 16, -1], [16, 17, -1], [17, -1, -1]], 2)
    """
    levels = levels_of(each)
    leaf, chain = (one.ravel() for one in np.indices((leaves, each), np.int64))
    number = (leaf << (DIGIT_BITS * levels)) | chain
    table = CHAIN.table(number.size, number=number, following=np.append(number[1:], END), leaf=-1)
    return table, max(1, levels + levels_of(leaves))


def chains_of_leaves(each: int, leaves: int) -> tuple[Ints, int]:
    """Return the same if each leaf has a tree of its own, whose sum is stored.

    >>> chains_of_leaves(2, 2)[0].tolist()
    [[0, 1, -1], [1, -1, 0], [0, 1, -1], [1, -1, 1]]
    """
    one, levels = chains(each, 1)
    table = np.tile(one, (leaves, 1))
    table[each - 1 :: each, CHAIN.index("leaf")] = np.arange(leaves)
    return table, levels
