"""Sums of a batch's pieces: what is added left to right is kept as a list, and added in one pass where it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.formats import F32, Format

Array = NDArray[Any]

Sum = tuple[Array, ...]  # dense f32 arrays, to be added from the first to the last; so another one can follow


def add(one: Sum, other: Sum) -> Sum:
    """Return the sum of two."""
    return (*one, added(other))


def added(terms: Sum) -> Array:
    """Return a sum as one array."""
    if len(terms) == 1:
        return terms[0]
    total = arrays.empty(terms[0].shape, F32.dtype)
    engines.add_up(terms, total, F32, accumulate=False)
    return total


def add_to(total: Array, term: Array) -> Array:
    """Add a dense f32 array to another, in place, and return that."""
    engines.add_up((total, term), total, F32, accumulate=False)
    return total


def finish(terms: Sum, out: Array, fmt: Format, accumulate: bool) -> None:
    """Write a sum into an array of a format: +0, the old value, one rounding."""
    dense = out if out.flags.c_contiguous else np.ascontiguousarray(out)
    engines.add_up(terms, dense, fmt, accumulate)
    if dense is not out:
        out[...] = dense
