"""Sums of a batch's pieces: what is added left to right is a list, added in one pass; or is computed onto one array."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, engines
from convgrad.formats import F32, Format
from convgrad.spec.pieces import Nodes, put

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


Computed = Callable[[Array | None], Array]  # makes a dense f32 array, or adds to one that it is given
Ours = tuple[Array, bool]  # an array, and whether it may be written to


def grown(before: Iterable[tuple[Nodes, Sum]], more: Iterable[tuple[Nodes, Computed]]) -> tuple[Array, ...]:
    """Return the sums of a run and of what follows it, which is computed onto what has begun, one after another.

    Arrays before stay as they are: what grows of them is a copy.
    """
    made = [(nodes, (added(terms), False)) for nodes, terms in before]
    for nodes, computed in more:
        begun = made[-1][0].and_next(nodes) if made else None
        array = computed(_ours(*made.pop()[1]) if begun else None)
        put(made, begun or nodes, (array, True), _onto)
        del array  # it may be in its parent by now
    return tuple(array for _, (array, _) in made)


def _ours(array: Array, ours: bool) -> Array:
    return array if ours else array.copy()


def _onto(one: Ours, other: Ours) -> Ours:
    (total, ours), (term, _) = one, other
    out = total if ours else arrays.empty(total.shape, F32.dtype)
    engines.add_up((total, term), out, F32, accumulate=False)
    return out, True


def finish(terms: Sum, out: Array, fmt: Format, accumulate: bool) -> None:
    """Write a sum into an array of a format: +0, the old value, one rounding."""
    dense = out if out.flags.c_contiguous else np.ascontiguousarray(out)
    engines.add_up(terms, dense, fmt, accumulate)
    if dense is not out:
        out[...] = dense
