"""The addition of the sums of a batch's parts: several arrays in one pass, or one array after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from convgrad import arrays, engines
from convgrad.array_types import Array
from convgrad.formats import F32, Format
from convgrad.spec.pieces import Nodes, put

Sum = tuple[Array, ...]  # dense f32 arrays that are still to be added, from the first to the last


def add(terms: Sum, other: Sum) -> Sum:
    """Return the sum of two sums as a list of arrays: those of ``terms``, then ``other`` as one array."""
    return (*terms, added(other))


def added(terms: Sum) -> Array:
    """Add the arrays of a sum in one pass, and return one array."""
    if len(terms) == 1:
        return terms[0]
    total = arrays.empty(terms[0].shape, F32.dtype)
    engines.add_up(terms, total, F32, accumulate=False)
    return total


Computed = Callable[[Array | None], Array]  # returns a new dense f32 array, or adds the result to a given one
Ours = tuple[Array, bool]  # an array, and whether it may be overwritten


def grown(before: Iterable[tuple[Nodes, Sum]], more: Iterable[tuple[Nodes, Computed]]) -> tuple[Array, ...]:
    """Return the sums of the nodes ``before`` and of the nodes ``more``, which are computed one after another.

    A new sum is added to the unfinished sum of its parent node. The arrays of ``before`` are copied and not changed.
    """
    pending = [(nodes, (added(terms), False)) for nodes, terms in before]
    for nodes, computed in more:
        parent = pending[-1][0].and_next(nodes) if pending else None
        array = computed(_ours(*pending.pop()[1]) if parent else None)
        put(pending, parent or nodes, (array, True), _onto)
        del array  # free the array if it was added to its parent's array
    return tuple(array for _, (array, _) in pending)


def _ours(array: Array, ours: bool) -> Array:
    return array if ours else array.copy()


def _onto(parent: Ours, child: Ours) -> Ours:
    (total, ours), (term, _) = parent, child
    out = total if ours else arrays.empty(total.shape, F32.dtype)
    engines.add_up((total, term), out, F32, accumulate=False)
    return out, True


def store(terms: Sum, out: Array, fmt: Format, accumulate: bool) -> None:
    """Write a sum to ``out`` in format ``fmt``. First add +0 and, if ``accumulate``, the old value; then round once."""
    dense = out if out.flags.c_contiguous else np.ascontiguousarray(out)
    engines.add_up(terms, dense, fmt, accumulate)
    if dense is not out:
        out[...] = dense
