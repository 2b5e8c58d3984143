"""Conversion of any library's arrays to NumPy through DLPack, without a copy, also for bf16 and f8."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays.libraries.library import Foreign
from convgrad.formats import FORMATS

CPU, CUDA = 1, 2
_UINT = 1
_EXTENSIONS = {fmt.dtype_name: fmt for fmt in FORMATS.values() if fmt.is_extension}
_WORD = ctypes.sizeof(ctypes.c_void_p)
# The offset in bytes of the tensor in a capsule's struct, by the capsule's name. A versioned struct begins with
# uint32 major, uint32 minor, void* manager_ctx, void* deleter, uint64 flags.
_BEGINS = {b"dltensor_versioned": 16 + 2 * _WORD, b"dltensor": 0}
_CODE = _WORD + 12  # offset of code: void* data, int32 device_type, int32 device_id, int32 ndim, uint8 code
_PENDING = (("is_neg", "resolve_neg"), ("is_conj", "resolve_conj"))


def device_of(value: Foreign) -> tuple[int, int]:
    """Return the DLPack device type of an array and the number of its device."""
    kind, number = map(int, value.__dlpack_device__())
    return kind, number


def array_of(value: Foreign) -> Array:
    """Return an array on the CPU as a NumPy array. The array's library may raise any exception."""
    value = resolved(value)
    text = str(getattr(value, "dtype", ""))
    fmt = next((fmt for name, fmt in _EXTENSIONS.items() if re.search(rf"\b{name}\b", text)), None)
    if fmt is not None:
        return np.from_dlpack(_AsBits(value)).view(fmt.dtype)
    array: Array = np.from_dlpack(value)
    return array


def resolved(value: Foreign) -> Foreign:
    """Return a tensor with pending negation and conjugation applied, which only the tensor's flags show."""
    for pending, resolve in _PENDING:
        if getattr(value, pending, bool)():
            value = getattr(value, resolve)()
    return value


class _AsBits:
    """A tensor that is exported through DLPack as unsigned integers, because NumPy does not support its type."""

    def __init__(self, tensor: Foreign) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: object) -> Any:
        """Return the tensor's capsule with the type code of unsigned integers. ``options`` are passed to the tensor."""
        capsule = self._tensor.__dlpack__(**options)
        api = ctypes.pythonapi
        name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
        pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", api)
        )
        name = name_of(capsule)
        ctypes.c_uint8.from_address(pointer_of(capsule, name) + _BEGINS[name] + _CODE).value = _UINT
        return capsule

    def __dlpack_device__(self) -> object:
        return self._tensor.__dlpack_device__()
