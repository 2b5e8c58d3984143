"""The data that a file announces about an array before it is read, and the array's position in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# The records that formats become in .npy and .npz, which lose their names. NumPy cannot read its own f8_e5m2 files.
RECORDS = {np.dtype("V1"): "f8_e4m3", np.dtype("V2"): "bf16"}


@dataclass(frozen=True)
class Stored:
    """An array whose bytes in a file are those in memory: its type, shape, first byte and order."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first_byte: int
    order: Literal["C", "F"] = "C"


@dataclass(frozen=True)
class Member:
    """An array of an open file: its announced bytes, the function that reads it, and its position in the file.

    An array without ``stored`` cannot be mapped; ``why_not`` is the reason.
    """

    size_bytes: int
    read: Callable[[], NDArray[Any]]
    stored: Callable[[], Stored] | None = None
    why_not: str = ""


Members = Mapping[str, Member]
