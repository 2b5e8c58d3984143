"""A file that is written in any order: a header, then space for numbers, which is reserved on disk first."""

from __future__ import annotations

import os
from math import prod
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from convgrad.errors import FileError

Array = NDArray[Any]


def room(file: IO[bytes], header: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a map of the numbers after the header, in a new file or in one that was left with the same header.

    Space is reserved first, so that a full disk is an error here: writing to a map without disk blocks would end the
    process. A file that is too short was left by a call that was killed during the reservation.
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
