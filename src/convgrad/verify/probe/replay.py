"""Evaluation of a revealed tree on numbers: equal bits confirm the function's order and format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.formats import ACCUMULATIONS, F32, F64, Format, round_to
from convgrad.verify.probe.tree import Tree

Rounded = Callable[[Array], Array]


def kept_in(tree: Tree, values: Array, sums: Array, to: Format, first: Format) -> Format | None:
    """Return the format in which the tree's additions give these sums, rounded to ``to``; None if no format does.

    ``values`` has one row of terms per sum, in float64. ``first`` is tried before the other formats. A tree with unseen
    terms, or with additions of more than two, cannot be evaluated.
    """
    if tree.examined.size < tree.terms or tree.below.max() > 2:
        return None
    for fmt in (first, *(f for f in ACCUMULATIONS.values() if f is not first)):
        if np.array_equal(round_to(added(tree, values, fmt), to), sums):
            return fmt
    return None


def added(tree: Tree, values: Array, fmt: Format) -> NDArray[np.float64]:
    """Return the sums of rows of terms; each addition is rounded to a format.

    >>> from convgrad.verify.probe.tree import along
    >>> chain = along(3, np.arange(3), np.array([2, 3]))
    >>> float(added(chain, np.array([[2.0**24, 1.0, 1.0]]), F32)[0]) - 2**24
    0.0
    """
    sums: list[NDArray[np.float64] | None] = [None] * tree.sizes.size

    def add(node: int, part: NDArray[np.float64]) -> None:
        so_far = sums[node]
        sums[node] = part if so_far is None else _round(so_far + part, fmt)

    for term, over in enumerate(tree.over.tolist()):
        add(over, values[:, term].astype(np.float64))
    for node in range(tree.sizes.size - 1, 0, -1):
        done = sums[node]
        assert done is not None
        add(int(tree.above[node]), done)
    total = sums[0]
    assert total is not None
    return total


def _round(values: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    """Return float64 sums of two numbers of a format, rounded to this format.

    Rounding to float64 and then to the format equals one rounding, because 53 bits exceed 2 x 24 + 1.
    """
    if fmt is F64:
        return values
    if fmt is F32:
        return values.astype(np.float32).astype(np.float64)
    return round_to(values, fmt)
