"""The terms of many output elements at once: one row per element, padded with zeros to the longest row."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.problem import Problem
from convgrad.verify.terms import MEETINGS, Index, terms_of

Places = NDArray[np.intp]

LONG = 1 << 12  # number of terms above which rows are gathered faster one at a time


def rows_of(problem: Problem, operands: Sequence[Array], at: Sequence[Index]) -> tuple[F64Array, F64Array]:
    """Return the factors x and y of the terms of these elements: one axis of elements, then the axes of ``terms_of``.

    Along each axis, the existing terms come first, in order, then zeros.

    >>> from convgrad.notation import problem
    >>> small = problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1")
    >>> x, y = rows_of(small, [np.arange(1.0, 4.0).reshape(1, 1, 3)] * 2, [(0, 0, 0), (0, 0, 1)])
    >>> (x * y).tolist()
    [[[2.0, 6.0, 0.0]], [[1.0, 4.0, 9.0]]]
    """
    conv = problem.geometry
    if isinstance(conv, Conv) and _max_terms(problem, conv) <= LONG and all(array.size for array in operands):
        return _together(problem, conv, operands, at)
    terms = [terms_of(problem, operands, index) for index in at]
    shape = np.maximum(np.max([element_terms.x.shape for element_terms in terms], axis=0), 1)
    x, y = np.zeros((2, len(terms), *shape))
    for row, element_terms in enumerate(terms):
        ranges = (row, *(slice(extent) for extent in element_terms.x.shape))
        x[ranges], y[ranges] = element_terms.x, element_terms.y
    return x, y


def _max_terms(problem: Problem, conv: Conv) -> int:
    if problem.solves_for == "weights":
        return conv.batch * conv.positions
    return conv.taps * (conv.src_channels if problem.solves_for == "dst" else conv.dst_channels) // conv.groups


def _together(
    problem: Problem, conv: Conv, operands: Sequence[Array], at: Sequence[Index]
) -> tuple[F64Array, F64Array]:
    """Return the factors x and y of the terms of all these elements, by one indexing operation per operand."""
    output = problem.solves_for
    rank, tensors = 2 + len(conv.axes), dict(zip(problem.operands, operands, strict=True))
    first, second, *positions = np.array(at, np.intp).T
    meetings = [_meetings(output, axis, places.tolist()) for axis, places in zip(conv.axes, positions, strict=True)]
    xs, ys, exist = (
        [_onto(rank, part, 0, axis) for axis, part in enumerate(parts, 2)] for parts in zip(*meetings, strict=True)
    )
    sources, destinations = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    onto = partial(_onto, rank)
    if output == "weights":
        images = onto(np.arange(conv.batch), 1)
        x = tensors["src"][images, onto(first // destinations * sources + second, 0), *xs]
        y = tensors["dst"][images, onto(first, 0), *ys]
    elif output == "dst":
        channels = np.arange(sources)
        x = tensors["src"][onto(first, 0), onto(np.add.outer(second // destinations * sources, channels), 0, 1), *xs]
        y = tensors["weights"][onto(second, 0), onto(channels, 1), *ys]
    else:
        channels = onto(np.add.outer(second // sources * destinations, np.arange(destinations)), 0, 1)
        x = tensors["dst"][onto(first, 0), channels, *xs]
        y = tensors["weights"][channels, onto(second % sources, 0), *ys]
    x, y = x.astype(np.float64), y.astype(np.float64)
    missing = ~reduce(np.logical_and, exist)
    if missing.any():
        for values in (x, y):
            np.copyto(values, 0.0, where=missing)
    return x, y


def _meetings(output: str, axis: Axis, places: Sequence[int]) -> tuple[Places, Places, NDArray[np.bool_]]:
    """Return, for output indices along one axis, the indices of the factors x and y, and a mask of existing factors."""
    meetings = {place: MEETINGS[output](axis, place) for place in set(places)}
    longest = max(1, *(x.size for x, _ in meetings.values()))
    xs, ys = np.zeros((2, len(places), longest), np.intp)
    exists = np.zeros((len(places), longest), np.bool_)
    for row, place in enumerate(places):
        x, y = meetings[place]
        xs[row, : x.size], ys[row, : y.size], exists[row, : x.size] = x, y, True
    return xs, ys, exists


def _onto(rank: int, array: Array, *axes: int) -> Array:
    """Return an array reshaped to this rank: its own axes are at ``axes``, and the others have extent 1."""
    shape = [1] * rank
    for axis, extent in zip(axes, array.shape, strict=True):
        shape[axis] = extent
    return array.reshape(shape)
