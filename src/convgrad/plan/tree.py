"""The 16-ary reduction tree: its levels, and the numbers of accumulation chains, which have a digit per level."""

from __future__ import annotations

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.tables import Ints
from convgrad.spec.order import FAN_IN

DIGIT_BITS = FAN_IN.bit_length() - 1
END = -1  # the number after the last chain: all nodes are complete
CHAIN = Record("number", "following", "unit")  # its number and the next; the unit whose sum is complete, or -1


def levels_of(leaves: int) -> int:
    """Return the levels of the 16-ary tree over ``leaves`` leaves.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def chains(count: int, units: int) -> tuple[Ints, int]:
    """Return a row of CHAIN for each of ``count`` chains of each unit, and the levels of the whole tree, at least 1.

    >>> table, levels = chains(2, 2)
    >>> table.tolist(), levels  # the digits of a unit are above those of its chains
    ([[0, 1, -1], [1, 16, -1], [16, 17, -1], [17, -1, -1]], 2)
    """
    levels = levels_of(count)
    unit, chain = (each.ravel() for each in np.indices((units, count), np.int64))
    number = (unit << (DIGIT_BITS * levels)) | chain
    table = CHAIN.table(number.size, number=number, following=np.append(number[1:], END), unit=-1)
    return table, max(1, levels + levels_of(units))


def chains_of_units(count: int, units: int) -> tuple[Ints, int]:
    """Return rows of CHAIN and levels if each unit has its own tree, whose sum is stored.

    >>> chains_of_units(2, 2)[0].tolist()
    [[0, 1, -1], [1, -1, 0], [0, 1, -1], [1, -1, 1]]
    """
    one, levels = chains(count, 1)
    table = np.tile(one, (units, 1))
    table[count - 1 :: count, CHAIN.index("unit")] = np.arange(units)
    return table, levels
