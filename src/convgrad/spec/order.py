"""The order of every sum and its rounding depth (height). Both depend only on the problem and are the same everywhere.

A **block** is one accumulation chain: fused multiply-adds over at most 256 consecutive terms, starting from +0. A fixed
16-ary reduction **tree** adds the block sums: 16 neighbours are added from left to right into the first, level by
level. Terms form **lines** of equal length, and lines form **units**. A block has as many whole lines as fit in 256
terms; a longer line is cut every 256 terms. One tree adds the blocks of a unit, and another adds the units. In `plan/`
and `engines/`, CHAIN, ``nest.chains`` and ``pass_chains`` count blocks, but ``spec.chains`` the chains of a portion.

| a sum over | units | lines of a unit | terms of a line |
|---|---|---|---|
| images of up to 256 positions | the whole sum | images | positions, row-major |
| larger images | images | rows, row-major | positions of a row |
| taps and channels | the whole sum | taps, row-major | channels |
| taps and channels, tap by tap | taps, row-major | one | channels |

Weight and bias gradients sum over the images of the batch and the positions of dst. Data gradients and forwards sum
over taps and the channels of one group. They sum tap by tap if the result has at most 4 channels, groups are 1 and at
least 16 channels are summed. Then kernels may compute the results of each tap and combine them (kn2row).

Many sums of bf16 products have the order of AMX's instruction TDPBF16PS. A block's terms form **portions** of 32
consecutive terms, with two chains each. One chain adds the terms with even numbers in the block, the other those with
odd numbers. A portion's sum is even + odd, and a block adds the sums of its portions from left to right. This holds for

- forwards and data gradients that sum at least 32 channels, where a block is one portion of one line;
- weight gradients with at least 16 src channels and 16 dst channels per group.

Other forwards and data gradients of bf16 take channels in pairs within a tap: the second of each pair first, and an odd
last channel alone. VDPBF16PS uses this order.

In Winograd, a block is a chain over at most 64 products of a point. A weight gradient adds the products of tiles
(``spec/winograd/tile_order.py``), and the other passes add the products of channels.

Terms whose tap does not exist are skipped. Then +0, the bias, and the old value (``accumulate``) are added, in this
order, with one addition each. The result is rounded once to the output type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import BF16
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.problem import Problem
from convgrad.spec.winograd.algorithms import algorithm_of, aligned, in_slices
from convgrad.spec.winograd.tile_order import BLOCK as TILES_BLOCK

BLOCK = 256
FAN_IN = 16
APART_RESULTS, APART_TERMS = 4, 16  # sums tap by tap have at most 4 result channels and at least 16 summed channels
SPLIT_TERMS = 32  # the most terms of a portion, and the fewest summed channels of bf16 operands for it
SPLIT_CHANNELS = 16  # the fewest channels per group, of src and of dst, for bf16 weight gradients in two chains


@dataclass(frozen=True)
class SumOrder:
    """The order of one output's sum, including terms on padding: units of lines of terms, which may be taken in pairs.

    >>> SumOrder(1, 9, 60).begins()  # four lines per block
    array([  0, 240, 480])
    >>> SumOrder(1, 2, 300).begins()  # each line is cut
    array([  0, 256, 300, 556])
    >>> SumOrder(1, 2, 48, chains=2, block=32).begins()
    array([ 0, 32, 48, 80])
    """

    units: int
    lines: int
    length: int
    pairs: bool = False
    chains: int = 1  # of a portion: with 2, one chain has its even terms, and the other its odd terms
    block: int = field(default=BLOCK, repr=False)

    @property
    def unit_terms(self) -> int:
        """The number of terms in a unit."""
        return self.lines * self.length

    @property
    def terms(self) -> int:
        """The number of terms, including those on padding."""
        return self.units * self.unit_terms

    @property
    def lines_a_block(self) -> int:
        """The number of whole lines that fit in a block, or 1 if a line is longer."""
        return max(1, self.block // max(1, self.length))

    @property
    def blocks_a_line(self) -> int:
        """The number of blocks that a line is cut into; 1 if a block has whole lines."""
        return -(-self.length // self.block)

    @property
    def blocks(self) -> int:
        """The number of blocks in a unit."""
        return -(-self.lines // self.lines_a_block) * self.blocks_a_line

    @property
    def height(self) -> int:
        """The rounding depth: that of the longest block plus, for each tree level, the children minus one."""
        if self.terms == 0:
            return 0
        longest = min(self.block, min(self.lines, self.lines_a_block) * self.length)
        if self.chains == 2:  # of a chain, of both chains, and of portions
            longest = -(-min(longest, SPLIT_TERMS) // 2) + (longest > 1) + -(-longest // SPLIT_TERMS) - 1
        return longest + tree_height(self.blocks) + tree_height(self.units)

    def begins(self) -> NDArray[np.int64]:
        """Return the number of each block's first term, counted within its unit."""
        line, part = np.divmod(np.arange(self.blocks, dtype=np.int64) * self.lines_a_block, max(1, self.blocks_a_line))
        begins: NDArray[np.int64] = line * self.length + part * self.block
        return begins

    def taken(self) -> NDArray[np.int64]:
        """Return the numbers of a line's terms in the order in which chains add them.

        >>> SumOrder(1, 2, 5, pairs=True).taken()
        array([1, 0, 3, 2, 4])
        """
        terms = np.arange(self.length, dtype=np.int64)
        return np.where(terms ^ 1 < self.length, terms ^ 1, terms) if self.pairs else terms


def tree_height(leaves: int) -> int:
    """Return the largest number of additions that any leaf of the 16-ary reduction tree passes through.

    >>> tree_height(1), tree_height(16), tree_height(17), tree_height(4096)
    (0, 15, 16, 45)
    """
    height = 0
    while leaves > 1:
        height += min(leaves, FAN_IN) - 1
        leaves = -(-leaves // FAN_IN)
    return height


def over_positions(batch: int, extents: Sequence[int], chains: int = 1) -> SumOrder:
    """Return the order of a sum over images and positions, for a weight or bias gradient.

    >>> over_positions(100, (7, 7)).lines_a_block, over_positions(8, (56, 56)).blocks
    (5, 14)
    >>> over_positions(8, (56, 56), chains=2).height, over_positions(8, (56, 56)).height
    (43, 244)
    """
    positions = prod(extents)
    if positions <= BLOCK:
        return SumOrder(1, batch, positions, chains=chains)
    return SumOrder(batch, positions // extents[-1], extents[-1], chains=chains)


def images_a_block(extents: Sequence[int]) -> int:
    """Return the number of images per block in a sum over images and positions; 1 if each image is a unit.

    >>> images_a_block((7, 7)), images_a_block((56, 56))
    (5, 1)
    """
    order = over_positions(1, extents)
    return order.lines_a_block if order.lines == 1 else 1


def over_taps(taps: int, channels: int, apart: bool = False, bf16: bool = False) -> SumOrder:
    """Return the order of a sum over taps and channels, for a forward or data gradient.

    With ``apart``, the order is tap by tap. With ``bf16``, channels are taken in pairs, or in portions of two chains.

    >>> over_taps(9, 64).blocks, over_taps(49, 64, apart=True).units
    (3, 49)
    >>> over_taps(9, 64, bf16=True).height, over_taps(9, 8, bf16=True).height
    (33, 72)
    """
    units, lines = (taps, 1) if apart else (1, taps)
    if bf16 and channels >= SPLIT_TERMS:
        return SumOrder(units, lines, channels, chains=2, block=SPLIT_TERMS)
    return SumOrder(units, lines, channels, pairs=bf16)


def order_of(problem: Problem) -> SumOrder:
    """Return the order of every sum of a problem.

    >>> from convgrad.notation import problem
    >>> order_of(problem("BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1")).height
    244
    >>> order_of(problem("FWD_D bf16 NXC mb1ic64ih9oc3oh9kh3ph1"))
    SumOrder(units=9, lines=1, length=64, pairs=False, chains=2)
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        return over_positions(geometry.batch, geometry.extents) if problem.solves_for == "bias" else SumOrder(1, 1, 1)
    if problem.solves_for == "weights":
        if problem.algorithm:
            turns = algorithm_of(geometry, problem.algorithm).turns(in_slices(geometry))
            return SumOrder(turns.units, turns.lines, turns.length, block=TILES_BLOCK)
        return over_positions(geometry.batch, [a.dst for a in geometry.axes], chains_of(problem))
    summed, results = geometry.src_channels, geometry.dst_channels
    if problem.solves_for == "src":
        summed, results = results, summed
    if problem.algorithm:
        return SumOrder(1, 1, aligned(geometry)[0].kernel * (summed // geometry.groups), block=TILES_BLOCK)
    apart = geometry.groups == 1 and results <= APART_RESULTS and summed >= APART_TERMS
    return over_taps(geometry.taps, summed // geometry.groups, apart, problem.operand_format is BF16)


def chains_of(problem: Problem) -> int:
    """Return the number of chains of a portion in a weight gradient that is not Winograd's.

    >>> from convgrad.notation import problem
    >>> [chains_of(problem(f"BWD_W bf16 NXC mb1ic{c}iw9oc64ow9kw1")) for c in (15, 16)]
    [1, 2]
    """
    conv = problem.geometry
    assert isinstance(conv, Conv)
    fewest = min(conv.src_channels, conv.dst_channels) // conv.groups
    return 2 if problem.operand_format is BF16 and fewest >= SPLIT_CHANNELS else 1


def last_additions(problem: Problem) -> int:
    """Return the number of additions after the sum: one for a bias, and one for an old value."""
    return ("bias" in problem.operands) + problem.accumulate


def height_of(problem: Problem) -> int:
    """Return the rounding depth h of a problem's results in the specified order, including terms on padding."""
    around = 0
    if problem.algorithm:
        assert isinstance(problem.geometry, Conv)
        around = sum(algorithm_of(problem.geometry, problem.algorithm).stages(problem.solves_for))
    return order_of(problem).height + around + last_additions(problem)
