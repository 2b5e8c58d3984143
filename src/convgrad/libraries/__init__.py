"""The libraries of callers' arrays, and the conversion of a result to the caller's library without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import settings
from convgrad.formats import FORMATS
from convgrad.libraries.jax import JAX
from convgrad.libraries.library import Library
from convgrad.libraries.torch import TORCH

Array = NDArray[Any]
Made = TypeVar("Made")

LIBRARIES = (TORCH, JAX)
_DTYPES = {library.dtypes + fmt.dtype.name: fmt for library in LIBRARIES for fmt in FORMATS.values()}


def library_of(value: object) -> Library | None:
    """Return the row of the library that made an array; None for NumPy's arrays and other values."""
    for library in LIBRARIES:
        kind = getattr(library.loaded, library.kind, None)  # not yet there while another thread loads it
        if kind is not None and isinstance(value, kind):
            return library
    return None


def opened(value: object) -> Array | None:
    """Return the memory of an array of one of the libraries; None if it is another value or is refused."""
    library = library_of(value)
    try:
        if library is None or library.refusal(value, library.refused) is not None:
            return None
        return library.array(library.loaded, value)
    except Exception:  # ``arrays.take`` reports the error
        return None


def like(value: object) -> Callable[[Array], Any]:
    """Return a function that converts an array without a copy to the library of a value; NumPy's stay unchanged."""
    library = None if type(value) is np.ndarray else library_of(value)
    return _as_it_is if library is None else library.like(library.loaded, value)


def written(value: object) -> None:
    """Notify the library of an array that its memory was written to."""
    library = library_of(value)
    if library is not None:
        library.written(library.loaded, value)


def on_its_threads(value: object, compute: Callable[..., Made], *given: object) -> Made:
    """Return a function's result, computed on the threads of an array's library."""
    library = None if type(value) is np.ndarray else library_of(value)
    return compute(*given) if library is None else settings.on(library.pool, compute, *given)


def detached(value: object) -> Any:
    """Return a value without its recorded gradients, for callers whose result is not differentiable in it."""
    library = library_of(value)
    return value if library is None else library.detached(library.loaded, value)


def dtype(what: object) -> object:
    """Return the format of a library's dtype, or of its name; return any other value unchanged.

    >>> print(dtype("torch.bfloat16"), dtype("torch.int8"))
    bf16 torch.int8
    """
    return _DTYPES.get(str(what), what)


def _as_it_is(array: Array) -> Array:
    return array
