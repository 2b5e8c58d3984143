"""Stretches: boxes of output positions of a forward or a data gradient that meet the same box of existing taps.

Along one axis the output positions are cut into parts of the same existing taps, and stretches are the product of the
parts of all axes. What a part meets moves evenly with its positions and with its taps, so a part is a few numbers, and
tables are as long as axes have parts: nothing lists taps by positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd

from convgrad.spec.geometry import Axis


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


def parts(axis: Axis, solves_for: str) -> tuple[Part, ...]:
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
    return tuple(part for whole in phases(axis, solves_for) for part in _existing(whole, _met(axis, solves_for)))


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

    What does not exist is below 0, or from the operand's extent on.

    >>> for part in uncut(phases(Axis(src=5, dst=7, kernel=3, pad_begin=3, pad_end=1), "dst"), 5):
    ...     print(part.positions, part.taps, part.met)
    range(0, 1) range(0, 0) 0
    range(1, 7) range(0, 3) -2
    """
    return tuple(part for whole in phases for part in _touching(whole, extent))


def _met(axis: Axis, solves_for: str) -> int:
    """Return the positions of the operand."""
    return axis.src if solves_for == "dst" else axis.dst


def _phase(axis: Axis, first: int) -> Part:
    """Return the source positions from ``first`` on, a stride apart, and all taps by which they meet whole positions.

    From p * stride = i + pad_begin - k * dilation: such taps are stride / gcd(stride, dilation) apart.
    """
    common = gcd(axis.stride, axis.dilation)
    step, by_tap = axis.stride // common, axis.dilation // common
    quotient, rest = divmod(first + axis.pad_begin, common)
    tap = quotient * pow(by_tap, -1, step) % step if rest == 0 else axis.kernel  # none
    taps = range(axis.kernel)[tap::step]
    met = (first + axis.pad_begin - tap * axis.dilation) // axis.stride
    return Part(range(axis.src)[first :: axis.stride], taps, met, 1, -by_tap)


def _touching(whole: Part, extent: int) -> Iterator[Part]:
    """Cut a part where it ceases to meet nothing but what is below 0, and where it begins to meet nothing below."""
    reach, count = whole.by_tap * max(0, len(whole.taps) - 1), len(whole.positions)
    least, most = whole.met + min(0, reach), whole.met + max(0, reach)
    first, end = (
        min(max(0, -((met - bound) // whole.by_position)), count) if whole.taps else 0
        for met, bound in ((most, 0), (least, extent))
    )
    for begin, stop, taps in ((0, first, range(0)), (first, end, whole.taps), (end, count, range(0))):
        if begin < stop:
            met = whole.met + begin * whole.by_position if taps else 0
            yield Part(whole.positions[begin:stop], taps, met, whole.by_position, whole.by_tap)


def _existing(whole: Part, extent: int) -> Iterator[Part]:
    """Cut a part where its taps begin or cease to meet positions of 0 to ``extent``.

    By ascending address of what they meet, the taps that exist are those of ``low`` to ``high``; both fall as positions
    rise, and each is followed to the position where it next falls.
    """
    taps, step = len(whole.taps), abs(whole.by_tap)
    least = whole.met + min(0, whole.by_tap) * (taps - 1)
    at, count = 0, len(whole.positions)
    while at < count:
        here = least + at * whole.by_position
        low, high = (min(max(0, -((here - bound) // step)), taps) for bound in (0, extent))
        falls = [
            -((least + (n - 1) * step - bound) // whole.by_position) for n, bound in ((low, 0), (high, extent)) if n
        ]
        end = min([count, *falls])
        first, last = (low, high) if whole.by_tap > 0 else (taps - high, taps - low)
        met = whole.met + at * whole.by_position + first * whole.by_tap
        yield Part(whole.positions[at:end], whole.taps[first:last], met, whole.by_position, whole.by_tap)
        at = end
