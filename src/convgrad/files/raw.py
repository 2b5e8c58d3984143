"""Raw files: the little-endian numbers of an array without a header. The caller describes the array."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from convgrad.array_types import Array
from convgrad.disk import opened
from convgrad.errors import FileError
from convgrad.formats import Format, strided
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.spec.layouts import dense


@dataclass(frozen=True)
class Described:
    """The description of an array in a raw file: number format, shape, and strides and offset in elements.

    If ``strides`` is None, the array is dense and row-major.
    """

    format: Format
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def elements(self) -> int:
        """The smallest number of elements that the file can have."""
        if 0 in self.shape:
            return 0
        return self.offset + 1 + sum((extent - 1) * step for extent, step in zip(self.shape, self._steps, strict=True))

    @property
    def is_part(self) -> bool:
        """Whether the file may have other elements too, because the array is not dense or has an offset."""
        return self.offset > 0 or self._steps != Described(self.format, self.shape)._steps

    @property
    def _steps(self) -> tuple[int, ...]:
        steps = dense(self.shape) if self.strides is None else self.strides
        return tuple(step if extent > 1 else 0 for extent, step in zip(self.shape, steps, strict=True))

    def view(self, flat: Array) -> Array:
        """Return the described array as a view of ``flat``, the file's elements."""
        if 0 in self.shape:
            return np.empty(self.shape, flat.dtype)
        steps = [step * flat.itemsize for step in self._steps]
        return strided(flat[self.offset :], self.shape, steps)


def read(path: Path, described: Described, memory_bytes: int = DEFAULT_LIMITS.memory_bytes) -> Array:
    """Return the array of a raw file, or raise FileError if the file's size does not fit the description.

    The file must have exactly the array's bytes; if the array is a part of the file, the file may be longer.
    """
    item = described.format.itemsize
    wanted, dense_bytes = described.elements * item, prod(described.shape) * item
    with opened(path) as file:
        present = os.fstat(file.fileno()).st_size
        what = f"{described.format} of shape {list(described.shape)}"
        if described.strides is not None:
            what = f"{what} with strides {list(described.strides)}"
        part = described.is_part
        if present < wanted or (present > wanted and not part) or present % item:
            minimum = "at least " * part
            raise FileError(f"{path}: {what} takes {minimum}{wanted} bytes; the file has {present}")
        if max(present, dense_bytes) > memory_bytes:
            wanted = max(present, dense_bytes)
            raise FileError(f"{path}: the array must fit {memory_bytes} bytes (memory_bytes); it takes {wanted}")
        flat = np.fromfile(file, described.format.dtype.newbyteorder("<"), present // item)
    return described.view(flat)
