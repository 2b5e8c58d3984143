"""JAX arrays: their conversion from and to NumPy arrays, and the arrays that are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType

import numpy as np

from convgrad.array_types import Array
from convgrad.arrays.libraries.library import Foreign, Library, Refusal
from convgrad.formats import F64


def _array(jax: ModuleType, array: Foreign) -> Array:
    return np.asarray(array)


def _like(jax: ModuleType, array: Foreign) -> Callable[[Array], Foreign]:
    (device,) = array.devices()
    return partial(_handed, jax, device)


def _handed(jax: ModuleType, device: Foreign, array: Array) -> Foreign:
    """Return a NumPy array as a JAX array. XLA copies the array unless it begins at the start of a cache line.

    An f64 array remains f64, even if ``jax_enable_x64`` is False.
    """
    if array.dtype == F64.dtype and not jax.config.jax_enable_x64:
        with jax.enable_x64(True):
            return jax.device_put(array, device)
    return jax.device_put(array, device)


_REFUSED = (
    Refusal(
        lambda jax, array: isinstance(array, jax.core.Tracer),
        "D8",
        "{name} must be an array, not a tracer, which has no values yet; use an operator of convgrad.jax, or call this "
        "function outside jit, grad and vmap",
    ),
    Refusal(lambda jax, array: array.is_deleted(), "D1", "{name} must lie in memory; got an array that was deleted"),
    Refusal(  # np.asarray would copy an array on several devices, or not on the CPU
        lambda jax, array: len(array.devices()) > 1,
        "D1",
        "{name} must lie on one device; got an array on {got.sharding}; jax.device_put({name}, device) gathers it",
    ),
    Refusal(
        lambda jax, array: array.platform() != "cpu",
        "D1",
        "{name} must lie in CPU memory; got an array on {got.device}; copy it there first: "
        'jax.device_put({name}, jax.devices("cpu")[0])',
    ),
)
_NOT_WRITTEN = (
    Refusal(lambda jax, array: True, "D3", "{name} must be writable; got a JAX array, which is never writable"),
)


def _written(jax: ModuleType, array: Foreign) -> None:
    raise AssertionError("JAX arrays are never written to")


def _detached(jax: ModuleType, array: Foreign) -> Foreign:
    return array


JAX = Library("jax", "Array", "jax.numpy.", _array, _like, _written, _detached, _REFUSED, _NOT_WRITTEN)
