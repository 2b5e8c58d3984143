"""Where memory lies: ``array.ctypes.data`` of an array takes as long as a third of a small kernel."""

from __future__ import annotations

import ctypes
from typing import Any

from numpy.typing import NDArray

# The array interface's C side: int two, nd; char typekind; int itemsize, flags; then pointers: shape, strides, data.
_DATA = 24 + 2 * ctypes.sizeof(ctypes.c_void_p)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_word = ctypes.c_size_t.from_address

Words = ctypes.Array[ctypes.c_int64]


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array's first element: what ``array.ctypes.data`` is.

    >>> import numpy as np
    >>> array = np.arange(6, dtype=np.int8).reshape(2, 3).T[::-1]
    >>> address_of(array) == array.ctypes.data
    True
    """
    capsule = array.__array_struct__  # held while it is read
    return _word(_pointer(capsule, None) + _DATA).value


def words(count: int) -> Words:
    """Return so many integers of 64 bits, zeros, that compiled code may write to."""
    return (ctypes.c_int64 * count)()
