"""The description of an array in an open file: the announced size, and the position in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from convgrad.array_types import Array, Dtype

# The raw records that NumPy writes for these formats to .npy and .npz files, which lose the formats' names. For f8_e5m2
# NumPy writes a type of its own, which it cannot read (``npy.py`` does).
RECORDS = {np.dtype("V1"): "f8_e4m3", np.dtype("V2"): "bf16"}


@dataclass(frozen=True)
class Stored:
    """An array that can be mapped: its type, shape, first byte in the file, and row-major (C) or column-major order."""

    dtype: Dtype
    shape: tuple[int, ...]
    first_byte: int
    order: Literal["C", "F"] = "C"


@dataclass(frozen=True)
class Member:
    """An array in an open file: its announced size, and functions that return the array and its position.

    If ``stored`` is None, the array cannot be mapped, and ``why_not`` is the reason. ``sliced`` returns an object that
    is read region by region, if the format has such objects.
    """

    size_bytes: int
    read: Callable[[], Array]
    stored: Callable[[], Stored] | None = None
    why_not: str = ""
    sliced: Callable[[], Any] | None = None


Members = Mapping[str, Member]
