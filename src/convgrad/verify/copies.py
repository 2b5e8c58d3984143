"""Copies of arrays with the same strides, and with NaN in the memory between the elements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.array_types import Array

BETWEEN = 0xFF  # bytes of this value are NaN in every format, which reveals reads outside the elements


def laid(array: Array) -> tuple[Array, int]:
    """Return memory that contains a copy of an array with its strides, and the byte offset of the first element."""
    spans = [stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)]
    size = sum(map(abs, spans)) + array.itemsize if array.size else 0
    offset = -sum(span for span in spans if span < 0) if size else 0
    memory = arrays.empty((size,), np.dtype(np.uint8))
    if size > array.nbytes:
        memory.fill(BETWEEN)
    np.ndarray(array.shape, array.dtype, memory, offset, array.strides)[...] = array
    return memory, offset


def copied(array: Array) -> Array:
    """Return a copy with the same strides, in new memory.

    >>> copied(np.arange(6.0)[::-2]).strides
    (-16,)
    """
    memory, offset = laid(array)
    return np.ndarray(array.shape, array.dtype, memory, offset, array.strides)


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape and type have the same bits, including NaNs and signs of zeros."""
    return bool(same_elements(a, b).all())


def same_elements(a: Array, b: Array) -> NDArray[np.bool_]:
    """Return a mask of the elements that have the same bits in two arrays of one shape and type."""
    words = f"u{a.itemsize}"
    same: NDArray[np.bool_] = np.equal(a.view(words), b.view(words))
    return same
