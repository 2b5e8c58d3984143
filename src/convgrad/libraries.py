"""Whose arrays callers pass, and how a result becomes one of theirs without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def like(value: object) -> Callable[[Array], Any]:
    """Return what hands an array over, without a copy, in the library of a value: itself where that is NumPy's."""
    return _as_it_is


def _as_it_is(array: Array) -> Array:
    return array
