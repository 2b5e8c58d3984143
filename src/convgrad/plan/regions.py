"""Regions: output positions of a forward or a data gradient that meet the same existing taps.

Each axis is cut into parts: output positions that meet the same existing taps. A region is one part of each axis. The
data that a part meets moves by a constant step per position and per tap. So a part is described by
a few numbers, and no table of pairs of position and tap is needed. An axis can have as many parts as taps, so parts
are computed as columns, not one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from operator import mul

import numpy as np

from convgrad.plan.tables import Ints, distinct, wrapped
from convgrad.spec.geometry import Axis

FAR = 1 << 62  # numbers beyond are computed as Python's integers


@dataclass(frozen=True)
class Part:
    """Output positions along one axis, evenly apart, that meet the same taps, and which positions of the operand.

    Where ``taps`` are empty the positions are to be written all the same, and ``met`` is of no meaning.
    """

    positions: range
    taps: range
    met: int  # the operand's position that the first position meets by the first tap
    by_position: int  # from there to what the next position meets
    by_tap: int  # and to what the next of ``taps`` does


NOTHING = Part(range(0), range(0), 0, 1, 1)


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of one axis, column by column, and the numbers that all of them have in common."""

    first: Ints  # positions: where they begin, and how many there are
    count: Ints
    tap: Ints  # taps: where they begin, and how many there are
    taps: Ints
    met: Ints
    step: int  # from a position to the next, from a tap to the next
    tap_step: int
    by_position: int
    by_tap: int

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Parts:
        """Return some parts whose positions are equally far apart, and whose taps are."""
        rows = [(p.positions.start, len(p.positions), p.taps.start, len(p.taps), wrapped(p.met)) for p in parts]
        one = next((part for part in parts if part.taps), parts[0])
        first, count, tap, taps, met = np.array(rows, np.int64).T.copy()
        return cls(first, count, tap, taps, met, one.positions.step, one.taps.step, one.by_position, one.by_tap)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.first)

    def __iter__(self) -> Iterator[Part]:
        """Yield them one by one."""
        columns = (column.tolist() for column in (self.first, self.count, self.tap, self.taps, self.met))
        for first, count, tap, taps, met in zip(*columns, strict=True):
            positions = range(first, first + count * self.step, self.step)
            met_taps = range(tap, tap + taps * self.tap_step, self.tap_step)
            yield Part(positions, met_taps, met, self.by_position, self.by_tap)

    @cached_property
    def max_count(self) -> int:
        """Positions of the longest part."""
        return int(self.count.max())

    @cached_property
    def max_taps(self) -> int:
        """Taps that a position meets, at most."""
        return int(self.taps.max())

    @cached_property
    def largest(self) -> int:
        """The positions of the part with the most meetings."""
        return int(self.count[np.argmax(self.count * self.taps)])

    @cached_property
    def reach(self) -> int:
        """The largest distance between the elements that the first and the last tap of a position meet."""
        return abs(self.by_tap) * max(0, self.max_taps - 1)

    @cached_property
    def meetings(self) -> int:
        """Pairs of a position and a tap that it meets."""
        return sum(map(mul, self.count.tolist(), self.taps.tolist()))

    @cached_property
    def all_taps(self) -> int:
        """The number of taps, summed over parts."""
        return sum(self.taps.tolist())

    @cached_property
    def counted(self) -> tuple[tuple[int, float], ...]:
        """How many positions parts have, ascending, and the meetings of all parts that have so many."""
        counts, which = distinct(self.count)
        found = np.bincount(which, self.count.astype(float) * self.taps)
        return tuple(zip(counts.tolist(), found.tolist(), strict=True))

    @cached_property
    def alike(self) -> tuple[tuple[tuple[int, int], int], ...]:
        """How many parts have so many positions and so many taps."""
        return tuple(Counter(zip(self.count.tolist(), self.taps.tolist(), strict=True)).items())

    def in_blocks(self, size: int) -> Blocks:
        """Return the parts of output blocks of so many positions; the last output block has the remainder.

        >>> one = parts(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst").in_blocks(3)
        >>> [part.positions for part in one.parts], one.begins.tolist()
        ([range(0, 1), range(1, 3), range(3, 4), range(4, 5)], [0, 2])
        """
        known = self._in_blocks.get(size)
        if known is None:
            known = self._in_blocks[size] = self._cut(size)
        return known

    @cached_property
    def _in_blocks(self) -> dict[int, Blocks]:
        return {}

    def _cut(self, size: int) -> Blocks:
        extent = int(self.count.sum())
        if size >= extent:
            return Blocks(self, np.zeros(1, np.int64))
        one, last = self.first // size, (self.first + (self.count - 1) * self.step) // size
        pieces = last - one + 1
        which = np.repeat(np.arange(len(self)), pieces)
        block = one[which] + np.arange(len(which)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        before = block * size - self.first[which]  # positions of the block, and their end, from the part's first
        begin = np.maximum(0, -(-before // self.step))
        count = np.minimum(self.count[which], -((-before - size) // self.step)) - begin
        there = np.flatnonzero(count > 0)
        there = there[np.argsort(block[there], kind="stable")]
        which, begin = which[there], begin[there]
        found = replace(
            self, first=self.first[which] + begin * self.step, count=count[there], tap=self.tap[which],
            taps=self.taps[which], met=self.met[which] + begin * self.by_position,
        )  # fmt: skip
        return Blocks(found, np.searchsorted(block[there], np.arange(-(-extent // size))))


@dataclass(frozen=True, eq=False)
class Blocks:
    """The parts of all output blocks of an axis, block by block."""

    parts: Parts
    begins: Ints  # where those of each output block begin

    @cached_property
    def lengths(self) -> Ints:
        """How many parts each output block has."""
        return np.diff(self.begins, append=len(self.parts))

    @cached_property
    def reached(self) -> tuple[Ints, Ints]:
        """The first and the last element that each output block meets; equal if it meets nothing."""
        parts = self.parts
        by_taps = (parts.taps - 1) * parts.by_tap
        low = parts.met + np.minimum(by_taps, 0)
        high = parts.met + (parts.count - 1) * parts.by_position + np.maximum(by_taps, 0) + 1
        low = np.minimum.reduceat(np.where(parts.taps > 0, low, FAR), self.begins)
        high = np.maximum.reduceat(np.where(parts.taps > 0, high, -FAR), self.begins)
        return np.where(low < high, low, 0), np.where(low < high, high, 0)


def parts(axis: Axis, solves_for: str) -> Parts:
    """Return the parts of an axis, where a problem solves for ``dst`` or for ``src``.

    >>> for part in parts(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst"):
    ...     print(part.positions, part.taps, part.met)
    range(0, 1) range(1, 3) 0
    range(1, 4) range(0, 3) 0
    range(4, 5) range(0, 2) 3
    >>> for part in parts(Axis(src=6, dst=3, kernel=3, stride=2), "src"):
    ...     print(part)  # even positions meet the outer taps, odd ones the inner tap
    Part(positions=range(0, 2, 2), taps=range(0, 2, 2), met=0, by_position=1, by_tap=-1)
    Part(positions=range(2, 6, 2), taps=range(0, 4, 2), met=1, by_position=1, by_tap=-1)
    Part(positions=range(1, 7, 2), taps=range(1, 3, 2), met=0, by_position=1, by_tap=-1)
    """
    whole = phases(axis, solves_for)
    extent = axis.src if solves_for == "dst" else axis.dst
    first, count, tap, taps, met = np.concatenate([_existing(phase, extent) for phase in whole or [NOTHING]], 1)
    one = whole[0] if whole else NOTHING
    return Parts(first, count, tap, taps, met, one.positions.step, one.taps.step, one.by_position, one.by_tap)


def phases(axis: Axis, solves_for: str) -> tuple[Part, ...]:
    """Return the phases of an axis, parts with all taps, of which some may not exist for some positions.

    >>> phases(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst")
    (Part(positions=range(0, 5), taps=range(0, 3), met=-1, by_position=1, by_tap=1),)
    """
    if solves_for == "dst":
        return (Part(range(axis.dst), range(axis.kernel), -axis.pad_begin, axis.stride, axis.dilation),)
    return tuple(_phase(axis, first) for first in range(min(axis.stride, axis.src)))


def uncut(phases: Sequence[Part], extent: int) -> tuple[Part, ...]:
    """Return phases without their ends that meet nothing, and these: of the others, some taps may not exist.

    Absent elements are below 0, or from the operand's extent on.

    >>> for part in uncut(phases(Axis(src=5, dst=7, kernel=3, pad_begin=3, pad_end=1), "dst"), 5):
    ...     print(part.positions, part.taps, part.met)
    range(0, 1) range(0, 0) 0
    range(1, 7) range(0, 3) -2
    """
    return tuple(part for whole in phases for part in _touching(whole, extent))


def _phase(axis: Axis, first: int) -> Part:
    """Return the source positions from ``first`` on, a stride apart, and all taps by which they meet whole positions.

    From p * stride = i + pad_begin - k * dilation: such taps are stride / gcd(stride, dilation) apart.
    """
    common = gcd(axis.stride, axis.dilation)
    step, by_tap = axis.stride // common, axis.dilation // common
    quotient, remainder = divmod(first + axis.pad_begin, common)
    tap = quotient * pow(by_tap, -1, step) % step if remainder == 0 else axis.kernel  # none
    taps = range(axis.kernel)[tap::step]
    met = (first + axis.pad_begin - tap * axis.dilation) // axis.stride
    return Part(range(axis.src)[first :: axis.stride], taps, met, 1, -by_tap)


def _touching(whole: Part, extent: int) -> Iterator[Part]:
    """Cut a part where it ceases to meet nothing but what is below 0, and where it begins to meet nothing below."""
    reach, count = whole.by_tap * max(0, len(whole.taps) - 1), len(whole.positions)
    low, high = whole.met + min(0, reach), whole.met + max(0, reach)
    first, end = (
        min(max(0, -((met - bound) // whole.by_position)), count) if whole.taps else 0
        for met, bound in ((high, 0), (low, extent))
    )
    for begin, stop, taps in ((0, first, range(0)), (first, end, whole.taps), (end, count, range(0))):
        if begin < stop:
            met = whole.met + begin * whole.by_position if taps else 0
            yield Part(whole.positions[begin:stop], taps, met, whole.by_position, whole.by_tap)


def _existing(whole: Part, extent: int) -> Ints:
    """Cut a part where its taps begin or cease to meet positions of 0 to ``extent``; return the columns of ``Parts``.

    By ascending address of what they meet, the taps that exist are those of ``low`` to ``high``; both fall as positions
    rise, and what falls tap by tap is followed to where.
    """
    taps, step, by_position, count = len(whole.taps), abs(whole.by_tap), whole.by_position, len(whole.positions)
    lowest = whole.met + min(0, whole.by_tap) * (taps - 1)
    if not count:
        return np.empty((5, 0), np.int64)
    farthest = abs(lowest) + count * by_position + taps * step + extent
    kind = np.dtype(np.int64 if farthest < FAR else object)

    def falls(bound: int) -> list[Ints]:
        """Return the positions at which fewer taps meet elements below a bound."""
        more, fewer = (min(max(0, -((lowest - bound + at * by_position) // step)), taps) for at in (0, count - 1))
        if more == fewer:
            return []
        among = max(1, by_position // step)  # that a position leaves behind, all at once
        left = np.arange(-(-(more - fewer) // among)).astype(kind) * among
        ends = [bound - lowest - fewer * step - left * step, np.array([bound - lowest - (more - 1) * step], kind)]
        return [-(-end // by_position) for end in ends]

    at, _ = distinct(np.concatenate([np.zeros(1, kind), *falls(0), *falls(extent)]))
    here = lowest + at * by_position
    low, high = (np.clip(-((here - bound) // step), 0, taps) for bound in (0, extent))
    first = low if whole.by_tap > 0 else taps - high
    met = whole.met + at * by_position + first * whole.by_tap
    ends = np.append(at[1:], count)
    first_tap = whole.taps.start + first * whole.taps.step
    first_position = whole.positions.start + at * whole.positions.step
    if kind.hasobject:
        met = np.array([wrapped(number) for number in met], kind)
    columns: Ints = np.stack([first_position, ends - at, first_tap, high - low, met]).astype(np.int64)
    return columns
