"""The types of the public functions' parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # an array of NumPy or of another supported library
MaybeArray = Array  # such an array, or None
PerAxis = int | Sequence[int]
ShapeLike = Sequence[int] | NDArray[np.integer[Any]]
DType = Any  # a dtype of a supported library, or the name of a type
