"""Operands with unusual strides or with a NaN or an infinity: properties that a shape alone does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convgrad.array_types import Array
from convgrad.formats import strided
from convgrad.spec.problem import Problem
from convgrad.verify.cases.case import Arrays
from convgrad.verify.fill import fill

VALUES: Mapping[str, float] = {"nan": np.nan, "inf": np.inf}


def _within(array: Array, room: Sequence[int], at: tuple[slice, ...]) -> Array:
    """Return a copy of an array that is the slice ``at`` of an array with shape ``room`` and NaN elsewhere."""
    view = np.full(room, np.nan, array.dtype)[at]
    view[...] = array
    return view


def _strided(array: Array) -> Array:
    return _within(array, [2 * extent for extent in array.shape], (slice(None, None, 2),) * array.ndim)


def _sliced(array: Array) -> Array:
    *others, last = array.shape
    return _within(array, [*others, 3 * last], (..., slice(last, 2 * last)))  # type: ignore[arg-type]


def _reversed(array: Array) -> Array:
    return _within(array, array.shape, (slice(None, None, -1),) * array.ndim)


def _turned(array: Array) -> Array:
    return np.asfortranarray(array)


def _expanded(array: Array) -> Array:
    return strided(array, array.shape, (0, *array.strides[1:]))


VIEWS: Mapping[str, Callable[[Array], Array]] = {
    "strided": _strided,  # every other element of each axis
    "sliced": _sliced,  # the middle third of the last axis of a larger array
    "reversed": _reversed,  # negative strides
    "turned": _turned,  # Fortran order: the first axis is contiguous
    "expanded": _expanded,  # stride 0 along the first axis
}


def strange(problem: Problem, shapes: Sequence[tuple[int, ...]], words: Mapping[str, str], seed: int) -> Arrays:
    """Return small integers as a problem's operands, in the view and with the special values of ``words``.

    ``words`` maps a row of VALUES to a tensor of the underlying convolution, whose middle element gets that value.
    """
    operands = list(fill(problem, shapes, "integers", seed))
    for name, value in VALUES.items():
        if name in words:
            array = operands[list(map(str, problem.operands)).index(words[name])]
            array.flat[array.size // 2] = value
    view = VIEWS.get(words.get("view", ""))
    return Arrays(tuple(map(view, operands)) if view else tuple(operands))
