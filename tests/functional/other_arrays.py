"""Arrays that are not NumPy's own: of another library, and of a subclass."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


class Theirs:
    """An array of another library, which NumPy can turn into one of its own."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, *_: Any, **__: Any) -> Array:
        return self.array


class Own(np.ndarray):  # type: ignore[type-arg]
    """An array with ideas of its own: neither its axes nor its elements are to be asked for."""

    def transpose(self, *_: Any) -> Any:
        raise AssertionError("its axes are not asked for")

    def __setitem__(self, *_: Any) -> None:
        raise AssertionError("its elements are not asked for")
