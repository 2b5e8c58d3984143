"""The .npy format: one array, whose header is checked against the file's size before memory is allocated."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import IO, cast

import numpy as np

from convgrad.array_types import Array, Dtype
from convgrad.errors import FileError
from convgrad.files.member import RECORDS, Member, Members, Stored
from convgrad.formats import F8_E5M2, of_dtype

LONGEST_HEADER = 1 << 14  # bytes that are read; NumPy refuses headers of more than 10,000
_E5M2, _SHORT = b"'<f1'", 64  # the type that NumPy writes for f8_e5m2, and the bytes that include a header's type
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def members(file: IO[bytes], path: Path) -> Iterator[Members]:
    """Yield the only array of a .npy file, with the key ""."""
    size = os.fstat(file.fileno()).st_size
    yield {"": Member(size, lambda: array(file, size, str(path)), lambda: stored(file, size, str(path)))}


def array(file: IO[bytes], size: int, name: str) -> Array:
    """Return the array of a .npy file, or of an archive's member, that has ``size`` bytes."""
    there = stored(file, size, name)
    if of_dtype(there.dtype) is F8_E5M2:  # NumPy cannot read its own header
        file.seek(there.first_byte)
        return np.ndarray(there.shape, there.dtype, bytearray(file.read()), order=there.order)
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def stored(file: IO[bytes], size: int, name: str) -> Stored:
    """Return the position of a file's array. Raise FileError if the array is unreadable or not of ``size`` bytes."""
    begin = file.read(LONGEST_HEADER)
    is_e5m2 = _E5M2 in begin[:_SHORT]
    head = io.BytesIO(begin.replace(_E5M2, b"'|V1'", 1) if is_e5m2 else begin)
    version = np.lib.format.read_magic(head)
    if version not in _HEADERS:
        raise FileError(f"{name}: version {version} of the .npy format is not supported")
    shape, fortran, dtype = _HEADERS[version](head)
    if dtype.hasobject:
        raise FileError(f"{name}: holds Python objects, which are never unpickled")
    announced, present = prod(shape) * dtype.itemsize, size - head.tell()
    if announced != present:
        raise FileError(f"{name}: the header announces {announced} bytes of data; the file has {present}")
    if dtype.kind == "V" and dtype not in RECORDS:
        raise FileError(f"{name}: must hold numbers; it holds raw {dtype.itemsize}-byte records")
    return Stored(F8_E5M2.dtype if is_e5m2 else dtype, tuple(shape), head.tell(), "F" if fortran else "C")


def header(_: str, shape: tuple[int, ...], dtype: Dtype) -> bytes:
    """Return the .npy header for a row-major array with this shape and type."""
    head = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


def write(file: IO[bytes], arrays: Mapping[str, Array]) -> None:
    """Write the only array of ``arrays`` to a .npy file."""
    (only,) = arrays.values()
    plain = cast(IO[bytes], SimpleNamespace(write=file.write))  # with a real file, NumPy would hide the system's error
    np.lib.format.write_array(plain, np.asarray(only), allow_pickle=False)
