"""The .npy format: one array, whose header is checked against the file's size before memory is allocated."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import FileError
from convgrad.files.member import RECORDS, Member, Members, Stored

Array = NDArray[Any]

LONGEST_HEADER = 1 << 14  # bytes that are read; NumPy refuses headers of more than 10,000
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@contextmanager
def members(file: IO[bytes], path: Path) -> Iterator[Members]:
    """Yield the only array of a .npy file, with the key ""."""
    size = os.fstat(file.fileno()).st_size
    yield {"": Member(size, lambda: array(file, size, str(path)), lambda: stored(file, size, str(path)))}


def array(file: IO[bytes], size: int, name: str) -> Array:
    """Return the array of a .npy file, or of an archive's member, that has ``size`` bytes."""
    stored(file, size, name)
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def stored(file: IO[bytes], size: int, name: str) -> Stored:
    """Return the position of a file's array. Raise FileError if the array is unreadable or not of ``size`` bytes."""
    head = io.BytesIO(file.read(LONGEST_HEADER))
    version = np.lib.format.read_magic(head)
    if version not in _HEADERS:
        raise FileError(f"{name}: version {version} of the .npy format is not supported")
    try:
        shape, fortran, dtype = _HEADERS[version](head)
    except ValueError as error:
        if "'<f1'" in str(error):
            also = "write .safetensors, or its bits: array.view('uint8')"
            raise FileError(
                f"{name}: holds f8_e5m2 as numpy.save writes it, which NumPy cannot read; {also}"
            ) from error
        raise
    if dtype.hasobject:
        raise FileError(f"{name}: holds Python objects, which are never unpickled")
    announced, present = prod(shape) * dtype.itemsize, size - head.tell()
    if announced != present:
        raise FileError(f"{name}: the header announces {announced} bytes of data; the file has {present}")
    if dtype.kind == "V" and dtype not in RECORDS:
        raise FileError(f"{name}: must hold numbers; it holds raw {dtype.itemsize}-byte records")
    return Stored(dtype, tuple(shape), head.tell(), "F" if fortran else "C")


def header(_: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
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
