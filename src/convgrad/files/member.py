"""What a file says of an array before any of it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BF16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Member:
    """An array of a file: the bytes it says it takes, and how it is read while the file is open."""

    size_bytes: int
    read: Callable[[], NDArray[Any]]


Members = Mapping[str, Member]
