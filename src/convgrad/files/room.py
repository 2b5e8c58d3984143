"""A file that is written in any order: a header, then room for numbers, which is taken on the disk before any come."""

from __future__ import annotations

import os
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import FileError

Array = NDArray[Any]


def room(file: IO[bytes], header: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a map of what follows the header, of a new file or of one that was left with the same header.

    A full disk is told of here: a map that has no blocks when it is written to ends the process. A file that is too
    short is of a call that was killed here.
    """
    size, present = len(header) + prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size
    found = file.read(len(header)) if present else b""
    if not header.startswith(found) or present > size:
        kind = f"{dtype} of shape {list(shape)}"
        raise FileError(f"{file.name}: was left by another call, whose result is no {kind}; remove it to begin anew")
    if present < size:
        file.write(header[len(found) :])
        file.flush()
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    if not prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file.name, dtype, "r+", len(header), shape)
