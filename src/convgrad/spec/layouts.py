"""Layouts as axis orders: the place of each canonical axis in an array of a given format.

Canonical orders are N, C, X... for data and O, I, X... for weights of the underlying convolution. The inputs of a
transposed operator are the outputs of its underlying convolution. So its IOX weights are OIX weights of that
convolution, and its XOI weights are XIO weights.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod

DATA = ("NCX", "NXC")
CHANNELS_FIRST = frozenset({"NCX", "OIX", "IOX"})


def in_our_letters(layout: str) -> str:
    """Return another library's name of a layout in our letters, where X stands for all spatial axes.

    >>> in_our_letters("NHWC"), in_our_letters("oidhw")
    ('NXC', 'OIX')
    """
    return re.sub("D?H?W", "X", layout.upper())


@cache
def axis_order(layout: str, rank: int) -> tuple[int, ...]:
    """Return the permutation that makes an array of ``layout`` canonical: ``array.transpose(axis_order(...))``.

    >>> axis_order("NXC", 4), axis_order("XIO", 4), axis_order("OIX", 4)
    ((0, 3, 1, 2), (3, 2, 0, 1), (0, 1, 2, 3))
    """
    if layout in CHANNELS_FIRST:
        return tuple(range(rank))
    if layout == "NXC":
        return (0, rank - 1, *range(1, rank - 1))
    return (rank - 1, rank - 2, *range(rank - 2))


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major array without gaps.

    >>> dense((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def shape_words(shape: Sequence[int]) -> str:
    """Return a shape as text, in the form that all messages use.

    >>> shape_words((8, 56, 56, 64)), shape_words(())
    ('8x56x56x64', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"


def to_canonical(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the canonical shape of an array of ``layout``.

    >>> to_canonical((3, 3, 16, 32), "XIO")
    (32, 16, 3, 3)
    """
    return tuple(shape[axis] for axis in axis_order(layout, len(shape)))


def from_canonical(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Return the shape in ``layout`` of an array with this canonical shape. It is the inverse of ``to_canonical``.

    >>> from_canonical((32, 16, 3, 3), "XIO")
    (3, 3, 16, 32)
    """
    result = [0] * len(shape)
    for extent, axis in zip(shape, axis_order(layout, len(shape)), strict=True):
        result[axis] = extent
    return tuple(result)
