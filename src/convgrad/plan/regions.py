"""Regions: output positions of a forward or a data gradient that use the same taps.

An output position meets an input position through each tap. The tap exists if that input position is not padding. Each
axis is cut into parts: output positions with the same existing taps. A region is one part of each axis. In a part, the
input position moves by a constant step per output position and per tap. So a few numbers describe a part, and no table
lists pairs of position and tap. An axis can have as many parts as taps, so parts are computed as arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd
from operator import mul

import numpy as np

from convgrad.cached import cached_property
from convgrad.plan.tables import Ints, distinct, numbered, wrapped
from convgrad.spec.geometry import Axis

MANY_PHASES = 8  # fewer are cut one by one
FAR = 1 << 62  # larger numbers are computed as Python integers, because 64 bits may overflow


@dataclass(frozen=True)
class AxisPart:
    """Evenly spaced output positions along one axis that use the same taps, and the input positions that they meet.

    If ``taps`` are empty, the positions are stored all the same. Then ``input`` is 0 in a phase, and means nothing in a
    part of one.
    """

    positions: range
    taps: range
    input: int  # the input position that the first output position meets through the first tap
    by_position: int  # the step of the input position from an output position to the next
    by_tap: int  # the step of the input position from a tap to the next of ``taps``


NOTHING = AxisPart(range(0), range(0), 0, 1, 1)


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of one axis: an array per number that differs between parts, and the numbers that all parts share."""

    first: Ints  # the first output position of each part
    count: Ints  # the number of output positions of each part
    tap: Ints  # the first tap of each part
    taps: Ints  # the number of taps of each part
    input: Ints  # ``AxisPart.input`` of each part
    step: int  # the step from an output position of a part to the next
    tap_step: int  # the step from a tap of a part to the next
    by_position: int
    by_tap: int

    @classmethod
    def of(cls, parts: Sequence[AxisPart]) -> Parts:
        """Return ``parts`` as arrays. The steps of positions and of taps must be the same in all parts."""
        rows = [(p.positions.start, len(p.positions), p.taps.start, len(p.taps), wrapped(p.input)) for p in parts]
        part = next((part for part in parts if part.taps), parts[0])
        first, count, tap, taps, first_input = np.array(rows, np.int64).T.copy()
        return cls(
            first, count, tap, taps, first_input, part.positions.step, part.taps.step, part.by_position, part.by_tap
        )

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.first)

    def __iter__(self) -> Iterator[AxisPart]:
        """Yield the parts one by one."""
        columns = (column.tolist() for column in (self.first, self.count, self.tap, self.taps, self.input))
        for first, count, tap, taps, first_input in zip(*columns, strict=True):
            positions = range(first, first + count * self.step, self.step)
            existing_taps = range(tap, tap + taps * self.tap_step, self.tap_step)
            yield AxisPart(positions, existing_taps, first_input, self.by_position, self.by_tap)

    @cached_property
    def max_count(self) -> int:
        """The number of output positions of the longest part."""
        return int(self.count.max())

    @cached_property
    def max_taps(self) -> int:
        """The maximum number of taps of a part."""
        return int(self.taps.max())

    @cached_property
    def largest(self) -> int:
        """The number of output positions of the part with the most pairs of position and tap."""
        return int(self.count[np.argmax(self.count * self.taps)])

    @cached_property
    def reach(self) -> int:
        """The largest distance between two input positions that the same output position meets."""
        return abs(self.by_tap) * max(0, self.max_taps - 1)

    @cached_property
    def meetings(self) -> int:
        """The number of pairs of an output position and an existing tap."""
        return sum(map(mul, self.count.tolist(), self.taps.tolist()))

    @cached_property
    def all_taps(self) -> int:
        """The sum of the numbers of taps of all parts."""
        return sum(self.taps.tolist())

    @cached_property
    def counted(self) -> tuple[tuple[int, float], ...]:
        """Pairs (positions of a part, sum of positions times taps over parts with as many positions), ascending."""
        counts, which = distinct(self.count)
        counts_of_taps = np.bincount(which, self.count.astype(float) * self.taps)
        return tuple(zip(counts.tolist(), counts_of_taps.tolist(), strict=True))

    @cached_property
    def alike(self) -> tuple[tuple[tuple[int, int], int], ...]:
        """Pairs ((positions, taps), number of parts with as many positions and taps)."""
        return tuple(Counter(zip(self.count.tolist(), self.taps.tolist(), strict=True)).items())

    def in_blocks(self, size: int) -> AxisBlocks:
        """Cut the parts at the bounds of output blocks of ``size`` positions. The last output block may be smaller.

        >>> one = parts(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst").in_blocks(3)
        >>> [part.positions for part in one.parts], one.begins.tolist()
        ([range(0, 1), range(1, 3), range(3, 4), range(4, 5)], [0, 2])
        """
        known = self._in_blocks.get(size)
        if known is None:
            known = self._in_blocks[size] = self._cut(size)
        return known

    @cached_property
    def _in_blocks(self) -> dict[int, AxisBlocks]:
        return {}

    def _cut(self, size: int) -> AxisBlocks:
        extent = int(self.count.sum())
        if size >= extent:
            return AxisBlocks(self, np.zeros(1, np.int64))
        first_block, last = self.first // size, (self.first + (self.count - 1) * self.step) // size
        which, number = numbered(np.minimum(self.count, last - first_block + 1))
        if self.step > size:  # each position is in another block
            begin, count = number, np.ones_like(number)
            block = (self.first[which] + begin * self.step) // size
        else:
            block = first_block[which] + number
            before = block * size - self.first[which]  # distance from the part's first position to the block
            begin = np.maximum(0, -(-before // self.step))
            count = np.minimum(self.count[which], -((-before - size) // self.step)) - begin
        order = np.argsort(block, kind="stable")
        which, begin = which[order], begin[order]
        parts = replace(
            self,
            first=self.first[which] + begin * self.step,
            count=count[order],
            tap=self.tap[which],
            taps=self.taps[which],
            input=self.input[which] + begin * self.by_position,
        )
        return AxisBlocks(parts, np.searchsorted(block[order], np.arange(-(-extent // size))))


@dataclass(frozen=True, eq=False)
class AxisBlocks:
    """The parts of all output blocks of an axis, in the order of the blocks."""

    parts: Parts
    begins: Ints  # the index of each output block's first part

    @cached_property
    def lengths(self) -> Ints:
        """The number of parts of each output block."""
        return np.diff(self.begins, append=len(self.parts))

    @cached_property
    def reached(self) -> tuple[Ints, Ints]:
        """The first input position that each output block meets, and the end of these positions; 0 and 0 if none."""
        parts = self.parts
        by_taps = (parts.taps - 1) * parts.by_tap
        low = parts.input + np.minimum(by_taps, 0)
        high = parts.input + (parts.count - 1) * parts.by_position + np.maximum(by_taps, 0) + 1
        low = np.minimum.reduceat(np.where(parts.taps > 0, low, FAR), self.begins)
        high = np.maximum.reduceat(np.where(parts.taps > 0, high, -FAR), self.begins)
        return np.where(low < high, low, 0), np.where(low < high, high, 0)


def parts(axis: Axis, solves_for: str) -> Parts:
    """Return the parts of an axis of the output. ``solves_for`` is "dst" for a forward, "src" for a data gradient.

    >>> for part in parts(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst"):
    ...     print(part.positions, part.taps, part.input)
    range(0, 1) range(1, 3) 0
    range(1, 4) range(0, 3) 0
    range(4, 5) range(0, 2) 3
    >>> for part in parts(Axis(src=6, dst=3, kernel=3, stride=2), "src"):
    ...     print(part)  # even positions meet taps 0 and 2, odd positions meet tap 1
    AxisPart(positions=range(0, 2, 2), taps=range(0, 2, 2), input=0, by_position=1, by_tap=-1)
    AxisPart(positions=range(2, 6, 2), taps=range(0, 4, 2), input=1, by_position=1, by_tap=-1)
    AxisPart(positions=range(1, 7, 2), taps=range(1, 3, 2), input=0, by_position=1, by_tap=-1)
    """
    whole = phases(axis, solves_for)
    extent = axis.src if solves_for == "dst" else axis.dst
    kind, examples = _kinds(whole)
    counts, taps, inputs = (column[examples].tolist() for column in (whole.count, whole.taps, whole.input))
    shared = whole.by_position, whole.by_tap, extent
    tables = [_existing(*row, *shared) for row in zip(counts, taps, inputs, strict=True)]
    lengths = np.array([table.shape[1] for table in tables])
    phase, number = numbered(lengths[kind])
    row = (np.cumsum(lengths) - lengths)[kind][phase] + number
    at, count, tap, taps, first_input = np.concatenate(tables, 1)[:, row]
    first, first_tap = whole.first[phase] + at * whole.step, whole.tap[phase] + tap * whole.tap_step
    return replace(whole, first=first, count=count, tap=first_tap, taps=taps, input=first_input)


def _kinds(whole: Parts) -> tuple[Ints, Ints]:
    """Return the kind of each phase, and a phase of each kind. Phases of a kind are cut alike.

    A large stride has many phases, but few kinds.
    """
    kind = examples = np.arange(len(whole))
    if len(whole) > MANY_PHASES:
        kind = np.zeros(len(whole), np.int64)
        for column in (whole.count, whole.taps, whole.input):
            numbers, which = distinct(column)
            _, kind = distinct(kind * len(numbers) + which)
        examples = np.zeros(kind.max() + 1, np.int64)
        examples[kind] = np.arange(len(kind))
    return kind, examples


@lru_cache(maxsize=32)  # those of the axes of a few problems
def phases(axis: Axis, solves_for: str) -> Parts:
    """Return the phases of an axis: parts that are not cut where taps meet padding instead of the input.

    In a data gradient, phase ``first`` has the src positions ``first``, ``first + stride``, ... and the taps k through
    which they meet dst positions. Taps with a whole p in p * stride = i + pad_begin - k * dilation are
    stride / gcd(stride, dilation) apart.

    >>> list(phases(Axis(src=5, dst=5, kernel=3, pad_begin=1, pad_end=1), "dst"))
    [AxisPart(positions=range(0, 5), taps=range(0, 3), input=-1, by_position=1, by_tap=1)]
    """
    if solves_for == "dst":
        return Parts.of([AxisPart(range(axis.dst), range(axis.kernel), -axis.pad_begin, axis.stride, axis.dilation)])
    common = gcd(axis.stride, axis.dilation)
    step, by_tap = axis.stride // common, axis.dilation // common
    farthest = max(axis.src + axis.pad_begin, (axis.kernel + step) * axis.dilation, step * step)
    first = np.arange(min(axis.stride, axis.src) or 1).astype(np.int64 if farthest < FAR else object)
    quotient, remainder = (first + axis.pad_begin) // common, (first + axis.pad_begin) % common
    tap = np.minimum(quotient % step * pow(by_tap, -1, step) % step, axis.kernel)
    tap = np.where(remainder == 0, tap, axis.kernel)  # past the end: no tap
    taps, count = -((tap - axis.kernel) // step), -((first - axis.src) // axis.stride)
    first_input = np.where(taps > 0, (first + axis.pad_begin - tap * axis.dilation) // axis.stride, 0)
    if first.dtype.hasobject:
        first_input = np.array([wrapped(number) for number in first_input])
    first, count, tap, taps, first_input = np.stack([first, count, tap, taps, first_input]).astype(np.int64)
    return Parts(first, count, tap, taps, first_input, axis.stride, step, 1, -by_tap)


def uncut(whole: Parts, extent: int) -> Parts:
    """Cut each phase into the output positions that meet the input, of positions 0 to ``extent``, and the other ones.

    The other positions, before and after them, have no taps. Some taps of the first may not exist for some positions.

    >>> for part in uncut(phases(Axis(src=5, dst=7, kernel=3, pad_begin=3, pad_end=1), "dst"), 5):
    ...     print(part.positions, part.taps, part.input)
    range(0, 1) range(0, 0) 0
    range(1, 7) range(0, 3) -2
    """
    count, taps, step = whole.count, whole.taps, whole.by_position
    farthest = max(map(abs, _ends(whole.input))) + abs(whole.by_tap) * whole.max_taps + whole.max_count * step + extent
    first_input = whole.input.astype(np.int64 if farthest < FAR else object)
    reach = whole.by_tap * np.maximum(0, taps - 1).astype(first_input.dtype)
    low, high = first_input + np.minimum(0, reach), first_input + np.maximum(0, reach)
    first, end = (
        np.where(taps > 0, np.clip(-((bound_input - bound) // step), 0, count), 0).astype(np.int64)
        for bound_input, bound in ((high, 0), (low, extent))
    )
    ends = np.stack([np.zeros_like(first), first, end, count], 1)
    phase, piece = np.nonzero(np.diff(ends) > 0)
    begin, meets = ends[phase, piece], piece == 1
    return replace(
        whole,
        first=whole.first[phase] + begin * whole.step,
        count=ends[phase, piece + 1] - begin,
        tap=np.where(meets, whole.tap[phase], 0),
        taps=np.where(meets, taps[phase], 0),
        input=np.where(meets, whole.input[phase] + begin * wrapped(step), 0),
    )


def _ends(numbers: Ints) -> tuple[int, int]:
    return int(numbers.min()), int(numbers.max())


def _existing(count: int, taps: int, first_input: int, by_position: int, by_tap: int, extent: int) -> Ints:
    """Cut a phase where its existing taps change. Return the first five fields of ``Parts``, one row each.

    Positions and taps are counted in the phase. Order the taps by the input position that they meet. Then the taps from
    ``low`` to ``high`` exist. Both bounds decrease as the output position increases. The phase is cut where either
    bound decreases.
    """
    step, lowest = abs(by_tap), first_input + min(0, by_tap) * (taps - 1)
    if not count:
        return np.empty((5, 0), np.int64)
    farthest = abs(lowest) + count * by_position + taps * step + extent
    kind = np.dtype(np.int64 if farthest < FAR else object)

    def falls(bound: int) -> list[Ints]:
        """Return the output positions at which the number of taps that meet inputs below ``bound`` decreases."""
        more, fewer = (min(max(0, -((lowest - bound + at * by_position) // step)), taps) for at in (0, count - 1))
        if more == fewer:
            return []
        among = max(1, by_position // step)  # taps that pass the bound from one position to the next
        left = np.arange(-(-(more - fewer) // among)).astype(kind) * among
        ends = [bound - lowest - fewer * step - left * step, np.array([bound - lowest - (more - 1) * step], kind)]
        return [-(-end // by_position) for end in ends]

    at, _ = distinct(np.concatenate([np.zeros(1, kind), *falls(0), *falls(extent)]))
    here = lowest + at * by_position
    low, high = (np.clip(-((here - bound) // step), 0, taps) for bound in (0, extent))
    first = low if by_tap > 0 else taps - high
    inputs = first_input + at * by_position + first * by_tap
    if kind.hasobject:
        inputs = np.array([wrapped(number) for number in inputs], kind)
    columns: Ints = np.stack([at, np.append(at[1:], count) - at, first, high - low, inputs]).astype(np.int64)
    return columns
