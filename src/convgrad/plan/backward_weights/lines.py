"""Lines: the rows of dst that blocks are made of, the outer taps, and the rows of src they meet.

A line has a number, an outer tap has one, and their sum is the number of what they meet. So tables hold lines, taps and
what is met, and nothing lists taps by lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.tables import Ints
from convgrad.spec.geometry import Axis

# Positions in the row, the bytes of dst at position 0, and the line's number in bytes of the table of places.
LINE = Record("first", "end", "fixed", "number")
NOWHERE = np.iinfo(np.int64).min  # the place of what does not exist


@dataclass(frozen=True)
class Lines:
    """What rows of dst and outer taps meet: source row ``met(lines[row] + taps[tap])``, -1 for none."""

    lines: Ints  # by row of dst, row-major
    taps: Ints  # by outer tap, row-major
    steps: tuple[tuple[int, int], ...]  # of each axis: from a tap's number to the next one's, and the taps
    sources: tuple[Ints, ...]  # of each axis, by its number: the source position, -1 for none
    extents: tuple[int, ...]  # of the source

    def met(self, numbers: Ints) -> Ints:
        """Return the source rows, row-major, of such numbers; -1 for none."""
        found, unit = np.zeros_like(numbers), 1
        for source, extent in zip(reversed(self.sources), reversed(self.extents), strict=True):
            numbers, here = np.divmod(numbers, len(source))
            at = source[here]
            found = np.where((found >= 0) & (at >= 0), found + at * unit, -1)
            unit *= extent
        return found

    def reached(self, rows: Ints) -> tuple[int, Ints]:
        """Return the first number that some rows of dst meet, and a mask of those they do from there on."""
        numbers = self.lines[rows]
        first = int(numbers.min())
        mask = np.zeros(int(numbers.max()) - first + int(self.taps[-1]) + 1, bool)
        mask[numbers - first] = True
        for step, count in self.steps:
            covered = 1
            while covered < count:  # or of the mask and itself, shifted by as many taps as it covers
                more = min(covered, count - covered)
                mask[more * step :] |= mask[: max(0, len(mask) - more * step)].copy()
                covered += more
        return first, mask


def lines(axes: Sequence[Axis]) -> Lines:
    """Return the lines of some outer axes.

    An axis counts the positions that it reaches from its first tap on; where strides or dilations leave most of those
    unmet, the taps of each position.

    >>> one = lines([Axis(5, 3, 3, dilation=1, pad_begin=1)])
    >>> one.met(np.add.outer(one.taps, one.lines)).tolist()
    [[-1, 0, 1], [0, 1, 2], [1, 2, 3]]
    """
    counted = [_counted(axis) for axis in axes]
    sizes = [len(source) for _, _, source in counted]
    units = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    rows, taps = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for axis, unit, (step, tap_step, _) in zip(axes, units, counted, strict=True):
        rows = (rows[:, None] + np.arange(axis.dst, dtype=np.int64) * (step * unit)).ravel()
        taps = (taps[:, None] + np.arange(axis.kernel, dtype=np.int64) * (tap_step * unit)).ravel()
    steps = tuple((tap * unit, axis.kernel) for axis, unit, (_, tap, _) in zip(axes, units, counted, strict=True))
    return Lines(rows, taps, steps, tuple(source for *_, source in counted), tuple(axis.src for axis in axes))


def _counted(axis: Axis) -> tuple[int, int, Ints]:
    """Return the steps of an axis's numbers from a position to the next and from a tap, and what each meets."""
    step, tap_step, size = _numbers(axis)
    numbers = np.arange(size, dtype=np.int64)
    if size == axis.span:
        met = numbers - axis.pad_begin
    else:
        p, k = np.divmod(numbers, axis.kernel)
        met = p * axis.stride + k * axis.dilation - axis.pad_begin
    return step, tap_step, np.where((met >= 0) & (met < axis.src), met, -1)


def _numbers(axis: Axis) -> tuple[int, int, int]:
    """Return the steps of an axis's numbers from a position to the next and from a tap, and how many there are."""
    reach, met = axis.span, axis.dst * axis.kernel
    return (axis.stride, axis.dilation, reach) if reach <= met else (axis.kernel, 1, met)


def tap_share(axes: Sequence[Axis]) -> float:
    """Return how much of all numbers lies between those of the first tap and the last.

    >>> tap_share([Axis(58, 56, 3)])
    0.034482758620689655
    """
    taps, total = 0, 1
    for axis in reversed(axes):
        _, tap_step, size = _numbers(axis)
        taps += (axis.kernel - 1) * tap_step * total
        total *= size
    return taps / total


def meetings(axes: Sequence[Axis]) -> Ints:
    """Return how many rows of dst meet a row of src, by outer tap.

    >>> meetings([Axis(5, 5, 3, pad_begin=1), Axis(5, 3, 1, stride=2)]).tolist()
    [12, 15, 12]
    """
    found = np.ones(1, np.int64)
    for axis in axes:
        shift = axis.pad_begin - np.arange(axis.kernel, dtype=np.int64) * axis.dilation
        first = np.clip(-(-shift // axis.stride), 0, axis.dst)
        end = np.clip((axis.src - 1 + shift) // axis.stride + 1, 0, axis.dst)
        found = (found[:, None] * np.maximum(end - first, 0)).ravel()
    return found
