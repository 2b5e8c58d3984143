"""The order of every sum and its height: a function of the problem alone, the same everywhere.

A **block** is one chain of fused multiply-adds over at most 256 consecutive terms, starting from +0. Block sums are
joined by a fixed 16-ary **tree**: 16 neighbours are added in order, left to right, into the first, and so on upward.
The blocks of a **unit** (an image, a tap, or the whole sum) form one tree, and the units' sums another. Terms run

- for a weight gradient and a bias gradient: over the images of the batch, then destination positions row-major. Images
  of at most 256 positions are packed, floor(256 / positions) whole images a block. A larger image is a unit; its blocks
  are as many whole rows as fit in 256, and a longer row is cut every 256;
- for a data gradient and a forward: over the taps row-major, then the channels summed over. A block is as many whole
  taps as fit in 256; more than 256 channels are cut every 256 within their tap. A data gradient with one group and at
  most 4 source channels makes each tap a unit.

Terms whose tap does not exist are skipped. +0 is added to every finished sum; then bias, then ``accumulate``, each with
one addition; then the result is rounded once to the output type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.problem import Problem

BLOCK = 256
FAN_IN = 16
TAP_UNIT_CHANNELS = 4


@dataclass(frozen=True)
class Order:
    """One output's sum on the full grid: the lengths of one unit's blocks in order, and how many units."""

    blocks: tuple[int, ...]
    units: int

    @property
    def terms(self) -> int:
        """The number of terms, those on padding counted."""
        return sum(self.blocks) * self.units

    @property
    def height(self) -> int:
        """The most roundings a term goes through: the longest block and, at each tree level, the children less one."""
        return max(self.blocks, default=0) + tree_height(len(self.blocks)) + tree_height(self.units)


def tree_height(leaves: int) -> int:
    """Return the most additions a leaf goes through in the 16-ary tree.

    >>> tree_height(1), tree_height(16), tree_height(17), tree_height(4096)
    (0, 15, 16, 45)
    """
    height = 0
    while leaves > 1:
        height += min(leaves, FAN_IN) - 1
        leaves = -(-leaves // FAN_IN)
    return height


def cut(length: int, limit: int = BLOCK) -> tuple[int, ...]:
    """Return ``length`` cut every ``limit``, the remainder last.

    >>> cut(600)
    (256, 256, 88)
    """
    return (limit,) * (length // limit) + ((length % limit,) if length % limit else ())


def over_positions(batch: int, extents: Sequence[int]) -> Order:
    """Return the order of a sum over images and positions: a weight gradient's, a bias gradient's.

    >>> over_positions(100, (7, 7)).blocks[-1], over_positions(100, (7, 7)).height
    (245, 261)
    >>> over_positions(8, (56, 56))  # four rows of 56 a block
    Order(blocks=(224, 224, 224, 224, 224, 224, 224, 224, 224, 224, 224, 224, 224, 224), units=8)
    """
    row = extents[-1] if extents else 1
    rows = prod(extents[:-1])
    positions = rows * row
    if positions == 0 or batch == 0:
        return Order((), 0)
    if positions <= BLOCK:
        return Order(cut(batch * positions, BLOCK // positions * positions), 1)
    if row > BLOCK:
        return Order(cut(row) * rows, batch)
    return Order(cut(positions, BLOCK // row * row), batch)


def over_taps(taps: int, channels: int, tap_units: bool = False) -> Order:
    """Return the order of a sum over taps and channels: a forward's, a data gradient's.

    >>> over_taps(9, 64)
    Order(blocks=(256, 256, 64), units=1)
    >>> over_taps(2, 300)
    Order(blocks=(256, 44, 256, 44), units=1)
    """
    if tap_units:
        return Order(cut(channels), taps)
    if channels > BLOCK:
        return Order(cut(channels) * taps, 1)
    return Order(cut(taps * channels, BLOCK // channels * channels), 1)


def order_of(problem: Problem) -> Order:
    """Return the order of every sum of a problem.

    >>> from convgrad.notation import problem
    >>> order_of(problem("BWD_W f32 NXC mb8ic64ih56oc64oh56kh3ph1")).height
    244
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        return over_positions(geometry.batch, geometry.extents) if problem.solves_for == "bias" else Order((1,), 1)
    if problem.solves_for == "weights":
        return over_positions(geometry.batch, [a.dst for a in geometry.axes])
    if problem.solves_for == "dst":
        return over_taps(geometry.taps, geometry.src_channels // geometry.groups)
    return over_taps(geometry.taps, geometry.dst_channels // geometry.groups, _tap_units(geometry))


def _tap_units(conv: Conv) -> bool:
    return conv.groups == 1 and conv.src_channels <= TAP_UNIT_CHANNELS


def last_additions(problem: Problem) -> int:
    """Return how many additions follow the sum: bias, accumulate."""
    return ("bias" in problem.operands) + problem.accumulate


def height_of(problem: Problem) -> int:
    """Return the height h of a problem's results in the specified order, on the full grid."""
    return order_of(problem).height + last_additions(problem)
