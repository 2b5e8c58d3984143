"""The types of the public functions' parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # of NumPy, or of a library whose arrays are taken
PerAxis = int | Sequence[int]
ShapeLike = Sequence[int] | NDArray[np.integer[Any]]
DType = Any  # of any such library, or its name
