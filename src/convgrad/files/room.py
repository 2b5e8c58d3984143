"""A file whose numbers are written in any order, after a header. Disk space for all numbers is reserved first."""

from __future__ import annotations

import os
from math import prod
from typing import IO

import numpy as np

from convgrad.array_types import Array, Dtype
from convgrad.errors import FileError


def room(file: IO[bytes], header: bytes, shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return a map of the numbers after the header, in an empty file or in an unfinished file with the same header.

    Disk space is reserved first, so that a full disk raises an error here. A write to unreserved space could kill
    the process. A file that is too short is from a call that was killed during the reservation, and is extended.
    """
    size, present = len(header) + prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size
    begin = file.read(len(header)) if present else b""
    if not header.startswith(begin) or present > size:
        kind = f"{dtype} of shape {list(shape)}"
        raise FileError(f"{file.name}: was left by another call, whose result is not {kind}; remove the file")
    if present < size:
        file.write(header[len(begin) :])
        file.flush()
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    if not prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file.name, dtype, "r+", len(header), shape)
