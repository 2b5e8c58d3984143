"""The 16-ary reduction tree: its levels, and the numbers of accumulation chains, with a base-16 digit per level."""

from __future__ import annotations

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.tables import Ints
from convgrad.spec.order import FAN_IN

DIGIT_BITS = FAN_IN.bit_length() - 1
END = -1  # stands for the next chain after the last one, so that all nodes are complete
CHAIN = Record("number", "following", "leaf")  # of a chain: number, next number, batch leaf that it ends or -1


def levels_of(leaves: int) -> int:
    """Return the number of levels above ``leaves`` leaves of the 16-ary tree.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def chains(chain_count: int, leaves: int) -> tuple[Ints, int]:
    """Return rows of CHAIN for a batch whose leaves have ``chain_count`` chains, and the tree's levels (at least 1).

    >>> table, levels = chains(2, 2)
    >>> table.tolist(), levels  # the number of a leaf is above the digits of its chains
    ([[0, 1, -1], [1, 16, -1], [16, 17, -1], [17, -1, -1]], 2)
    """
    levels = levels_of(chain_count)
    leaf, chain = (index.ravel() for index in np.indices((leaves, chain_count), np.int64))
    number = (leaf << (DIGIT_BITS * levels)) | chain
    table = CHAIN.table(number.size, number=number, following=np.append(number[1:], END), leaf=-1)
    return table, max(1, levels + levels_of(leaves))


def chains_of_leaves(chain_count: int, leaves: int) -> tuple[Ints, int]:
    """Return rows of CHAIN for leaves of a batch whose sums are stored separately, and the levels of a leaf's tree.

    >>> chains_of_leaves(2, 2)[0].tolist()
    [[0, 1, -1], [1, -1, 0], [0, 1, -1], [1, -1, 1]]
    """
    leaf, levels = chains(chain_count, 1)
    table = np.tile(leaf, (leaves, 1))
    table[chain_count - 1 :: chain_count, CHAIN.index("leaf")] = np.arange(leaves)
    return table, levels
