"""What a file says of an array before any of it is read, and where in the file it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

# The records that formats become in .npy and .npz, which lose their names. Of f8_e5m2 NumPy cannot read what it writes.
RECORDS = {np.dtype("V1"): "f8_e4m3", np.dtype("V2"): "bf16"}


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
