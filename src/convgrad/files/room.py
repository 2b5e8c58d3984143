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

    A full disk is told of here: a map that has no blocks when it is written to ends the process.
    """
    size, present = len(header) + prod(shape) * dtype.itemsize, os.fstat(file.fileno()).st_size
    if not present:
        file.write(header)
        file.flush()
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    elif present != size or file.read(len(header)) != header:
        kind = f"{dtype} of shape {list(shape)}"
        raise FileError(f"{file.name}: was left by another call, whose result is no {kind}; remove it to begin anew")
    if not prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(file.name, dtype, "r+", len(header), shape)
