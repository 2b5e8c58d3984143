"""The libraries whose arrays are accepted, and the conversion of results to the caller's library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays.libraries.jax import JAX
from convgrad.arrays.libraries.library import Library
from convgrad.arrays.libraries.torch import TORCH
from convgrad.engines import settings
from convgrad.formats import FORMATS

Result = TypeVar("Result")

LIBRARIES = (TORCH, JAX)
_DTYPES = {library.dtypes + fmt.dtype_name: fmt for library in LIBRARIES for fmt in FORMATS.values()}


def library_of(value: object) -> Library | None:
    """Return the library of an array; None for NumPy arrays and for all other values."""
    for library in LIBRARIES:
        kind = getattr(library.loaded, library.kind, None)  # None while another thread imports the library
        if kind is not None and isinstance(value, kind):
            return library
    return None


def opened(value: object) -> Array | None:
    """Return a PyTorch or JAX array as a NumPy array on the same memory; None for other values and refused arrays."""
    library = library_of(value)
    try:
        if library is None or library.refusal(value, library.refused) is not None:
            return None
        return library.array(library.loaded, value)
    except Exception:  # ``arrays.take`` reports the error
        return None


def like(value: object) -> Callable[[Array], Any]:
    """Return a function that converts NumPy arrays to the library of ``value``, without a copy where possible.

    If ``value`` is a NumPy array, the function returns its argument.
    """
    library = None if type(value) is np.ndarray else library_of(value)
    return _as_it_is if library is None else library.like(library.loaded, value)


def written(value: object) -> None:
    """Notify the library of an array that the array's memory was written to."""
    library = library_of(value)
    if library is not None:
        library.written(library.loaded, value)


def on_its_threads(value: object, compute: Callable[..., Result], *arguments: object) -> Result:
    """Call ``compute`` with the thread pool of an array's library, and return the result."""
    library = None if type(value) is np.ndarray else library_of(value)
    return compute(*arguments) if library is None else settings.on(library.pool, compute, *arguments)


def detached(value: object) -> Any:
    """Return an array that is detached from the recording of gradients; return any other value unchanged."""
    library = library_of(value)
    return value if library is None else library.detached(library.loaded, value)


def dtype(what: object) -> object:
    """Return the number format of a PyTorch or JAX dtype, or of its name; return any other value unchanged.

    >>> print(dtype("torch.bfloat16"), dtype("torch.int8"))
    bf16 torch.int8
    """
    try:
        return _DTYPES.get(str(what), what)
    except Exception:  # a caller's class may raise anything, and an integer may be too long
        return what


def _as_it_is(array: Array) -> Array:
    return array
