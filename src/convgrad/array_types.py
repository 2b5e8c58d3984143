"""The types of NumPy arrays and of their number formats, for annotations."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # an array of any number format
F64Array = NDArray[np.float64]
Dtype = np.dtype[Any]  # the type of the elements of such an array
# an index of elements of an array
Selection = tuple[int | slice | EllipsisType | NDArray[np.int64] | NDArray[np.bool_] | None, ...]
