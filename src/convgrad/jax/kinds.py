"""Convolutions of jax.lax by the kind of their elements. Complex numbers become real ones; JAX computes integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import lax

from convgrad import formats
from convgrad.array_types import Dtype
from convgrad.errors import InvalidDataTypeError, UnsupportedError
from convgrad.formats import F32, F64
from convgrad.jax.call import Array, named
from convgrad.jax.general import convolve, zeros_if_nothing_meets
from convgrad.jax.window import Window

if TYPE_CHECKING:
    from jax.typing import DTypeLike

_BOOL, _INTEGER, _FLOATING, _COMPLEX = np.bool_, np.integer, np.floating, np.complexfloating
# the kinds of results that preferred_element_type may ask for, by the kind of the operands
_RESULTS: dict[type[np.generic] | None, tuple[type[np.generic], ...]] = {
    _BOOL: (_BOOL, _INTEGER, _FLOATING),
    _INTEGER: (_INTEGER, _FLOATING),
    _FLOATING: (_FLOATING,),
    _COMPLEX: (_COMPLEX,),
}


def convolve_any(lhs: Array, rhs: Array, of: Window, preferred: object) -> Array:
    """Return the convolution of two arrays of any kind."""
    if lhs.dtype != rhs.dtype:
        raise InvalidDataTypeError(
            f"conv_general_dilated: lhs and rhs must have the same type; got {lhs.dtype} and {rhs.dtype}"
        )
    kind = _kind(lhs.dtype)
    if kind is None or (kind is _FLOATING and formats.of_dtype(lhs.dtype) is None):
        raise InvalidDataTypeError(
            f"conv_general_dilated: lhs and rhs must be arrays of {formats.LISTED}, of integers or of complex numbers;"
            f" got {lhs.dtype}"
        )
    to = lhs.dtype if preferred is None else _result_type(preferred, lhs.dtype)
    _check_enabled(lhs.dtype)
    _check_enabled(to)
    if is_exact(to):
        nothing = zeros_if_nothing_meets(lhs, rhs, of, to)
        return _by_jax(_as(lhs, to), _as(rhs, to), of) if nothing is None else nothing
    if kind is _COMPLEX:
        return _complex(lhs, rhs, of, to)
    if to == F64.dtype or kind is not _FLOATING:
        lhs, rhs = (_as(array, F64.dtype if to == F64.dtype else F32.dtype) for array in (lhs, rhs))
    return convolve(lhs, rhs, of, to)


def is_exact(dtype: DTypeLike) -> bool:
    """Return whether sums of a type have the same bits in any order: sums of integers are modulo a power of two."""
    return _kind(dtype) in (_BOOL, _INTEGER)


def _kind(dtype: DTypeLike) -> type[np.generic] | None:
    return next((kind for kind in _RESULTS if jax.dtypes.issubdtype(dtype, kind)), None)


def _result_type(preferred: object, dtype: Dtype) -> Dtype:
    fmt = formats.named(named(preferred))  # type: ignore[arg-type]
    to: Dtype | None
    try:
        to = fmt.dtype if fmt else np.dtype(preferred)  # type: ignore[call-overload]
    except TypeError:
        to = None
    if to is None or _kind(to) not in _RESULTS[_kind(dtype)] or (_kind(to) is _FLOATING and not fmt):
        raise InvalidDataTypeError(
            f"conv_general_dilated: preferred_element_type must be a type that can have the results of {dtype}; got"
            f" {preferred!r:.200}"
        )
    return to


def _check_enabled(dtype: Dtype) -> None:
    """Raise if JAX would convert arrays of a type to a narrower type."""
    if dtype.itemsize > F32.itemsize and not jax.config.jax_enable_x64 and dtype != np.complex64:
        raise UnsupportedError(
            f"conv_general_dilated: {dtype} must be enabled in JAX. Use jax.config.update('jax_enable_x64', True)"
        )


def _as(array: Array, dtype: DTypeLike) -> Array:
    return lax.convert_element_type(array, dtype)


def _by_jax(lhs: Array, rhs: Array, of: Window) -> Array:
    numbers = jax.lax.ConvDimensionNumbers(of.lhs_spec, of.rhs_spec, of.out_spec)
    dilations = of.lhs_dilation, of.rhs_dilation
    return lax.conv_general_dilated(lhs, rhs, of.strides, of.pads, *dilations, numbers, of.groups, of.batches)


def _complex(lhs: Array, rhs: Array, of: Window, to: Dtype) -> Array:
    """Return a complex convolution as one real convolution of twice the channels.

    Channels 2c and 2c + 1 are the real and the imaginary part of channel c. Groups remain contiguous.
    """
    part = np.finfo(to).dtype
    a, b, c, d = (_as(get(array), part) for array in (lhs, rhs) for get in (lax.real, lax.imag))
    outputs, inputs = of.rhs_spec[:2]
    weights = _interleaved(_interleaved(c, -d, inputs), _interleaved(d, c, inputs), outputs)
    result = convolve(_interleaved(a, b, of.lhs_spec[1]), weights, of, part)
    along = of.out_spec[1]
    pairs = result.reshape(*result.shape[:along], result.shape[along] // 2, 2, *result.shape[along + 1 :])
    return lax.complex(*(lax.index_in_dim(pairs, at, along + 1, keepdims=False) for at in (0, 1)))


def _interleaved(even: Array, odd: Array, axis: int) -> Array:
    """Return an array that has the positions of ``even`` and ``odd`` in turn along an axis."""
    shape = list(even.shape)
    shape[axis] *= 2
    return jax.numpy.stack([even, odd], axis + 1).reshape(shape)
