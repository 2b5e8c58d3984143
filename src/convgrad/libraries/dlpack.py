"""Arrays of any library that supports DLPack, as NumPy's, also of bf16 and f8: they share memory and stay read-only."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import FORMATS

Array = NDArray[Any]

CPU = 1
_UINT = 1
_EXTENSIONS = {fmt.dtype.name: fmt for fmt in FORMATS.values() if fmt.is_extension}
_WORD = ctypes.sizeof(ctypes.c_void_p)
# The byte of a capsule's tensor, by the capsule's name. A versioned one follows uint32 major, uint32 minor,
# void* manager_ctx, void* deleter, uint64 flags.
_BEGINS = {b"dltensor_versioned": 16 + 2 * _WORD, b"dltensor": 0}
_CODE = _WORD + 12  # a tensor begins: void* data, int32 device_type, int32 device_id, int32 ndim, uint8 code
_PENDING = (("is_neg", "resolve_neg"), ("is_conj", "resolve_conj"))


def device_of(value: Any) -> tuple[int, int]:
    """Return the kind of a value's device, in DLPack's numbering, and the device's number."""
    kind, number = map(int, value.__dlpack_device__())
    return kind, number


def array_of(value: Any) -> Array:
    """Return the CPU memory of a value; a value that cannot be handed over raises any exception."""
    value = resolved(value)
    text = str(getattr(value, "dtype", ""))
    fmt = next((fmt for name, fmt in _EXTENSIONS.items() if re.search(rf"\b{name}\b", text)), None)
    if fmt is not None:
        return np.from_dlpack(_AsBits(value)).view(fmt.dtype)
    array: Array = np.from_dlpack(value)
    return array


def resolved(value: Any) -> Any:
    """Return a tensor with pending signs and conjugates applied, which its memory alone does not show."""
    for pending, resolve in _PENDING:
        if getattr(value, pending, bool)():
            value = getattr(value, resolve)()
    return value


class _AsBits:
    """A tensor's DLPack capsule with the type code of unsigned integers, which NumPy knows."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        """Return the capsule, of the requested version; a tensor without versions refuses the request itself."""
        capsule = self._tensor.__dlpack__(**options)
        api = ctypes.pythonapi
        name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
        pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", api)
        )
        name = name_of(capsule)
        ctypes.c_uint8.from_address(pointer_of(capsule, name) + _BEGINS[name] + _CODE).value = _UINT
        return capsule

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()
