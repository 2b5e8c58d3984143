"""Whether elements of arrays share memory: an exact search over indices, with a limit on its steps.

``np.shares_memory`` cannot be used, because its limit does not count all steps, so that some strides take minutes.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import gcd, prod

import numpy as np

from convgrad.array_types import Array
from convgrad.engines.addresses import address_of

STEPS = 50_000  # of one decision


class _TooHardError(Exception):
    """A search has taken all its steps."""


@lru_cache(maxsize=1024)
def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool | None:
    """Return whether two elements of an array share memory; None if this takes too many steps to decide.

    ``size`` is the size of an element, in the unit of the strides.

    >>> overlaps_itself((2, 3), (20, 12), 4), overlaps_itself((2, 3), (12, 4), 4), overlaps_itself((2, 3), (8, 4), 4)
    (False, False, True)
    """
    if 0 in shape:
        return False
    axes = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    spans = [size]  # the size of the memory that the first axes span
    for stride, extent in axes:
        spans.append(spans[-1] + stride * (extent - 1))
    while axes and axes[-1][0] >= spans[len(axes) - 1]:  # the steps of this axis are longer than all others together
        axes.pop()
    if prod(n for _, n in axes) * size > spans[len(axes)]:  # more elements than there is memory for
        return True
    search = _Search()
    try:
        return any(_overlap_along(axes[number:], size, search) for number in range(len(axes)))
    except _TooHardError:
        return None


def _overlap_along(axes: list[tuple[int, int]], size: int, search: _Search) -> bool:
    """Return whether two elements share memory whose first different index is the first of ``axes``.

    Only differences of indices matter: at least 1 along the first axis, and of any sign along the others.
    """
    (stride, extent), *others = axes
    limits = Counter({stride: extent - 2})
    for s, n in others:
        limits[s] += 2 * (n - 1)
    center = sum(s * (n - 1) for s, n in others) - stride
    return search.finds(limits, center - size + 1, center + size - 1)


def overlaps(operand: Array, other: Array) -> bool | None:
    """Return whether an element of one array shares memory with an element of another; None if it is too hard."""
    if not np.may_share_memory(operand, other):  # compares the bounds, which is fast
        return False
    limits = Counter[int]()
    first = []  # the lowest address of each array
    for array in (operand, other):
        axes = [*zip(array.strides, array.shape, strict=True)]
        limits.update({abs(s): 0 for s, _ in axes})
        for s, n in axes:
            limits[abs(s)] += n - 1
        first.append(address_of(array) + sum(min(s, 0) * (n - 1) for s, n in axes))
    # An element of ``other`` minus an element of ``operand``. The indices of ``operand`` are counted from its end.
    end = sum(abs(s) * (n - 1) for s, n in zip(operand.strides, operand.shape, strict=True))
    center = first[0] + end - first[1]
    try:
        return _Search().finds(limits, center - other.itemsize + 1, center + operand.itemsize - 1)
    except _TooHardError:
        return None


class _Search:
    """Searches with a common limit on their steps."""

    def __init__(self) -> None:
        self._steps = STEPS

    def finds(self, limits: Counter[int], low: int, high: int) -> bool:
        """Return whether a sum of integers, each times a number from 0 to its limit, is from ``low`` to ``high``.

        Raises _TooHardError if the search takes too many steps.
        """
        terms = sorted(((n, limit) for n, limit in limits.items() if n and limit), reverse=True)
        largest, divisors = [0], [0]  # of the sums of the last terms
        for n, limit in reversed(terms):
            largest.append(largest[-1] + n * limit)
            divisors.append(gcd(divisors[-1], n))

        def is_reached(left: int, low: int, high: int) -> bool:
            low, high = max(low, 0), min(high, largest[left])
            if low == 0 or high < low:
                return low <= high
            if high // divisors[left] * divisors[left] < low:  # all sums are multiples
                return False
            n, limit = terms[-left]
            for number in range(max(0, -((largest[left - 1] - low) // n)), min(limit, high // n) + 1):
                self._steps -= 1
                if self._steps < 0:
                    raise _TooHardError
                if is_reached(left - 1, low - n * number, high - n * number):
                    return True
            return False

        return is_reached(len(terms), low, high)
