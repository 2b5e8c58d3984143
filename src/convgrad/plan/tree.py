"""The 16-ary tree of sums: its levels, and the numbers of accumulation chains, which have a digit for each level."""

from __future__ import annotations

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.tables import Ints
from convgrad.spec.order import FAN_IN

DIGIT_BITS = FAN_IN.bit_length() - 1
END = -1  # follows the last number: no node is above both
CHAIN = Record("number", "following", "unit")  # two numbers; the unit whose sum is complete and stored, or -1


def levels_of(leaves: int) -> int:
    """Return the levels of the 16-ary tree over some leaves.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def chains(blocks: int, units: int) -> tuple[Ints, int]:
    """Return a row of CHAIN for each block of each unit, and the levels of the tree over the units' trees, at least 1.

    >>> table, levels = chains(2, 2)
    >>> table.tolist(), levels  # a unit's number begins above the digits of its blocks
    ([[0, 1, -1], [1, 16, -1], [16, 17, -1], [17, -1, -1]], 2)
    """
    levels = levels_of(blocks)
    unit, block = (each.ravel() for each in np.indices((units, blocks), np.int64))
    number = (unit << (DIGIT_BITS * levels)) | block
    table = CHAIN.table(number.size, number=number, following=np.append(number[1:], END), unit=-1)
    return table, max(1, levels + levels_of(units))


def chains_of_units(blocks: int, units: int) -> tuple[Ints, int]:
    """Return the same where each unit has a tree of its own, whose sum is stored.

    >>> chains_of_units(2, 2)[0].tolist()
    [[0, 1, -1], [1, -1, 0], [0, 1, -1], [1, -1, 1]]
    """
    one, levels = chains(blocks, 1)
    table = np.tile(one, (units, 1))
    table[blocks - 1 :: blocks, CHAIN.index("unit")] = np.arange(units)
    return table, levels
