"""What a file says of an array before any of it is read, and where in the file it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RECORDS = (np.dtype("V1"), np.dtype("V2"))  # what f8 and bf16 become in .npy and .npz, which lose their names


@dataclass(frozen=True)
class Lies:
    """An array that lies in a file as it does in memory: its type, its shape, the byte it begins with, its order."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    first_byte: int
    order: Literal["C", "F"] = "C"


@dataclass(frozen=True)
class Member:
    """An array of a file: the bytes it says it takes, how it is read, and where it lies, while the file is open.

    What has no ``lies`` cannot be mapped, of which ``why_not`` says why.
    """

    size_bytes: int
    read: Callable[[], NDArray[Any]]
    lies: Callable[[], Lies] | None = None
    why_not: str = ""


Members = Mapping[str, Member]
