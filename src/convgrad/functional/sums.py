"""Sums of a batch's pieces, added and finished by the engine: its additions are the same everywhere.

An addition is the bias gradient of one image of one position, accumulated: whatever a process has done to the mode of
its floating-point unit, subnormal sums stay what they are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F32, Format
from convgrad.functional.call import solve
from convgrad.spec.geometry import Channels
from convgrad.spec.problem import Problem, posed

Array = NDArray[Any]


class Sum(NamedTuple):
    """An f32 sum; ``own`` where nobody else has the array, so that it may be added into."""

    array: Array
    own: bool = False


def add(one: Sum, other: Sum) -> Sum:
    """Return the sum of two, in the place of one that is nobody else's."""
    into, more = (one, other) if one.own or not other.own else (other, one)
    array = into.array if into.own else into.array.copy()
    finish(more.array, array, F32, accumulate=True)
    return Sum(array, own=True)


def finish(total: Array | None, out: Array, fmt: Format, accumulate: bool) -> None:
    """Write a sum, of nothing for None: +0, the old value, one rounding."""
    flat = out.reshape(-1)  # a copy, where elements do not lie in order
    rows = np.empty((0, flat.size), np.float32) if total is None else total.reshape(1, -1)
    solve(_posed(len(rows), flat.size, fmt, accumulate), [rows], flat)
    if not np.may_share_memory(flat, out):
        out[...] = flat.reshape(out.shape)


@lru_cache(maxsize=256)
def _posed(images: int, size: int, fmt: Format, accumulate: bool) -> Problem:
    problem = posed("bias", False, Channels(images, size, ()), {"dst": "NXC"}, F32, fmt)
    return replace(problem, accumulate=accumulate)
