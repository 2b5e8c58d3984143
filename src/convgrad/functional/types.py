"""The types of the public functions' parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
PerAxis = int | Sequence[int]
ShapeLike = Sequence[int] | NDArray[np.integer[Any]]
DType = DTypeLike | str
