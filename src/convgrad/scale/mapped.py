"""Where in a file an array lies whose memory is the file's: which file, and which bytes of it."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Part:
    """A file, the byte at which an array's first element lies, and all bytes from its lowest to its highest."""

    file: str
    first: int
    bytes: range

    def meets(self, other: Part) -> bool:
        """Tell whether two parts may have a byte in common."""
        low, high = max(self.bytes.start, other.bytes.start), min(self.bytes.stop, other.bytes.stop)
        return low < high and os.path.samefile(self.file, other.file)


def part_of(array: object) -> Part | None:
    """Return where an array lies; None where that is no file, or one without a name."""
    owner = array
    while isinstance(owner, np.ndarray) and not isinstance(owner.base, mmap.mmap):
        owner = owner.base  # a view is a memmap too, but its offset is that of the first
    if not isinstance(array, np.ndarray) or not isinstance(owner, np.memmap) or not owner.filename:
        return None
    first = _address(array) - _address(owner) + owner.offset
    ways = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low, high = (first + sum(way for way in ways if way * sign > 0) for sign in (-1, 1))
    size = array.itemsize if array.size else 0
    return Part(os.path.realpath(str(owner.filename)), first, range(low, high + size))


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
