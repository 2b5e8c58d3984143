"""Whose arrays callers pass, and how a result becomes one of theirs without a copy."""

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
    """Return the row of the library whose array a value is; None of NumPy's, and of anything else."""
    for library in LIBRARIES:
        kind = getattr(library.loaded, library.kind, None)  # none yet while another thread is loading it
        if kind is not None and isinstance(value, kind):
            return library
    return None


def opened(value: object) -> Array | None:
    """Return the memory of an array of one of the libraries; None where it is no such array, or is refused."""
    library = library_of(value)
    try:
        if library is None or library.refusal(value, library.refused) is not None:
            return None
        return library.array(library.loaded, value)
    except Exception:  # the door says what it was
        return None


def like(value: object) -> Callable[[Array], Any]:
    """Return what hands an array over, without a copy, in the library of a value: itself where that is NumPy's."""
    library = None if type(value) is np.ndarray else library_of(value)
    return _as_it_is if library is None else library.like(library.loaded, value)


def written(value: object) -> None:
    """Tell the library of an array that its memory was written to."""
    library = library_of(value)
    if library is not None:
        library.written(library.loaded, value)


def on_its_threads(value: object, compute: Callable[..., Made], *given: object) -> Made:
    """Return what a function returns, called on the threads that compute for an array's library."""
    library = None if type(value) is np.ndarray else library_of(value)
    return compute(*given) if library is None else settings.on(library.pool, compute, *given)


def detached(value: object) -> Any:
    """Return a value without the gradients that are recorded of it, for those whose answer is no function of it."""
    library = library_of(value)
    return value if library is None else library.detached(library.loaded, value)


def dtype(what: object) -> object:
    """Return the format that a library's dtype means, or its name; anything else as it is.

    >>> print(dtype("torch.bfloat16"), dtype("torch.int8"))
    bf16 torch.int8
    """
    return _DTYPES.get(str(what), what)


def _as_it_is(array: Array) -> Array:
    return array
