"""Convolutions of jax.lax by convgrad's operators: arrays of real numbers, and a window of any kind.

Zeros that ``lhs_dilation`` inserts are not multiplied, and neither is padding. So strides together with lhs_dilation
are cut into phases: output positions, and the taps that meet positions of lhs there. Each phase is a convolution
without lhs_dilation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, TypeVar

import jax
from jax import lax

from convgrad.formats import F32
from convgrad.jax.call import Array, call
from convgrad.jax.primitive import zeros
from convgrad.jax.window import Pads, Window, dilated
from convgrad.spec.layouts import axis_order

if TYPE_CHECKING:
    from jax.typing import DTypeLike

Value = TypeVar("Value")
DATA, WEIGHTS = ("NCX", "NXC"), ("OIX", "XIO")


def convolve(lhs: Array, rhs: Array, of: Window, dtype: DTypeLike) -> Array:
    """Return the convolution of two arrays of one floating type; the result has the type ``dtype``."""
    if lhs.ndim == 2:  # a matrix product is a convolution with one position and one tap
        specs = (*of.lhs_spec, 2), (*of.rhs_spec, 2), (*of.out_spec, 2)
        of = Window(*specs, (1,), ((0, 0),), (1,), (1,), of.groups, of.batches)
        return lax.squeeze(convolve(lax.expand_dims(lhs, [2]), lax.expand_dims(rhs, [2]), of, dtype), [2])
    if of.batches > 1:
        lhs, of = _beside(lhs, of), replace(of, groups=of.batches, batches=1)
    if (result := zeros_if_nothing_meets(lhs, rhs, of, dtype)) is not None:
        return result
    if all(gap == 1 for gap in of.lhs_dilation):
        return _convolution(lhs, rhs, of, dtype)
    if all(stride == 1 for stride in of.strides):
        return _transposed(lhs, rhs, of, dtype)
    return _in_phases(lhs, rhs, of, dtype)


def _beside(lhs: Array, of: Window) -> Array:
    """Return ``lhs`` with its consecutive batches as groups of channels, because each batch has its own weights."""
    batch, channels, *extents = (lhs.shape[axis] for axis in of.lhs_spec)
    split = lhs.transpose(of.lhs_spec).reshape(of.batches, batch // of.batches, channels, *extents).swapaxes(0, 1)
    beside = split.reshape(batch // of.batches, of.batches * channels, *extents)
    return beside.transpose(sorted(range(lhs.ndim), key=of.lhs_spec.__getitem__))


def zeros_if_nothing_meets(lhs: Array, rhs: Array, of: Window, dtype: DTypeLike) -> Array | None:
    """Return the result if it is empty or has only zeros, else None. Negative pads may remove all positions of lhs."""
    extents = of.result_extents(lhs, rhs)
    spans = [dilated(extent, gap) for extent, gap in zip(of.extents(lhs), of.lhs_dilation, strict=True)]
    lengths = [span + min(0, low) + min(0, high) for span, (low, high) in zip(spans, of.pads, strict=True)]
    if prod(lhs.shape) and prod(rhs.shape) and prod(extents) and all(length > 0 for length in lengths):
        return None
    canonical = (lhs.shape[of.lhs_spec[0]] // of.batches, rhs.shape[of.rhs_spec[0]], *extents)
    return zeros([canonical[of.out_spec.index(axis)] for axis in range(lhs.ndim)], dtype, lhs, rhs)


def _convolution(lhs: Array, rhs: Array, of: Window, dtype: DTypeLike) -> Array:
    """Return the result if lhs is not dilated. Negative pads remove positions of lhs first."""
    lhs = _padded(lhs, of.lhs_spec, [(min(0, low), min(0, high)) for low, high in of.pads])
    weights, weights_format = _laid(rhs, of.rhs_spec, WEIGHTS)
    return _called("Convolution", lhs, weights, weights_format, of, dtype)


def _transposed(lhs: Array, rhs: Array, of: Window, dtype: DTypeLike) -> Array:
    """Return the result if strides are 1. A transposed convolution skips the zeros between the positions of lhs.

    Its pads remove positions of the result. If they are negative, the result has zeros beyond all products.
    """
    pads = tuple((reach - low, reach - high) for reach, (low, high) in zip(of.reach(rhs), of.pads, strict=True))
    weights = _turned(rhs.transpose(of.rhs_spec), of.groups)
    layer = replace(of, strides=of.lhs_dilation, pads=pads)
    result = _called("ConvTranspose", lhs, weights, "IOX", layer, dtype)
    return _padded(result, of.out_spec, [(max(0, -low), max(0, -high)) for low, high in pads])


def _called(operator: str, lhs: Array, weights: Array, weights_format: str, of: Window, dtype: DTypeLike) -> Array:
    """Return the result of an operator with the strides, dilations, groups and pads of ``of``.

    Its axes are in the order of ``of.out_spec``. Pads below 0 are left to the caller.
    """
    src, data_format = _laid(lhs, of.lhs_spec, DATA)
    attributes = {
        "strides": list(of.strides),
        "dilations": list(of.rhs_dilation),
        "groups": of.groups,
        "pads_begin": [max(0, low) for low, _ in of.pads],
        "pads_end": [max(0, high) for _, high in of.pads],
        "data_format": data_format,
        "weights_format": weights_format,
    }
    result = call(operator, (src, weights), attributes, dtype=dtype)
    order = axis_order(data_format, result.ndim)
    if of.out_spec == order:
        return result
    return result.transpose([order[of.out_spec.index(axis)] for axis in range(result.ndim)])


def _padded(array: Array, spec: Sequence[int], pads: Pads) -> Array:
    """Return an array with pads on its spatial axes; negative pads remove positions."""
    every = [(0, 0, 0)] * array.ndim
    for axis, (low, high) in zip(spec[2:], pads, strict=True):
        every[axis] = (low, high, 0)
    return lax.pad(array, array.dtype.type(0), every) if any(map(any, pads)) else array


def _laid(array: Array, spec: Sequence[int], layouts: Sequence[str]) -> tuple[Array, str]:
    """Return an array in one of ``layouts``, and its layout. The array is transposed if it is in none of them."""
    for layout in layouts:
        if axis_order(layout, array.ndim) == spec:
            return array, layout
    return array.transpose(spec), layouts[0]


def _turned(weights: Array, groups: int) -> Array:
    """Return a transposed convolution's weights from a convolution's canonical weights: IOX, with reversed taps."""
    outputs, inputs, *kernel = weights.shape
    split = weights.reshape(groups, outputs // groups, inputs, *kernel).swapaxes(1, 2)
    return jax.numpy.flip(split.reshape(groups * inputs, outputs // groups, *kernel), range(2, weights.ndim))


# -- phases --------------------------------------------------------------------------------------------------------


def _in_phases(lhs: Array, rhs: Array, of: Window, dtype: DTypeLike) -> Array:
    """Return the result for strides together with lhs_dilation: one axis after the other loses its dilation.

    The gradient of lhs is a sum over phases. Phases are therefore computed in f32 if the operands are narrower.
    """
    axis = max(range(len(of.strides)), key=lambda axis: (of.lhs_dilation[axis] > 1, of.strides[axis] > 1))
    phases = list(_phases(lhs, rhs, of, axis))
    if len(phases) > 1 and lhs.dtype.itemsize < F32.itemsize:
        lhs, rhs = (lax.convert_element_type(array, F32.dtype) for array in (lhs, rhs))
    results = []
    for first, step, last, window in phases:
        taps = lax.slice_in_dim(rhs, first, last, step, axis=of.rhs_spec[axis + 2])
        results.append(convolve(lhs, taps, window, dtype))
    along = of.out_spec[axis + 2]
    merged = list(results[0].shape)
    merged[along] *= len(results)
    merged_results = jax.numpy.stack(results, along + 1).reshape(merged)
    return lax.slice_in_dim(merged_results, 0, of.result_extents(lhs, rhs)[axis], axis=along)


def _phases(lhs: Array, rhs: Array, of: Window, axis: int) -> Iterator[tuple[int, int, int, Window]]:
    """Yield the phases of an axis: its first tap, the step to the next and the end of its taps; and its window.

    Output position p and tap k meet position (p*stride + k*rhs_dilation - low) / lhs_dilation of lhs, if the
    division has no remainder. The n phases have the positions p = phase, phase + n and so on. All phases have as many
    positions as the longest, so that their results can be stacked.
    """
    stride, gap, dilation, low = of.strides[axis], of.lhs_dilation[axis], of.rhs_dilation[axis], of.pads[axis][0]
    number, step = gap // gcd(stride, gap), gap // gcd(dilation, gap)
    taps, extent, outputs = rhs.shape[of.rhs_spec[axis + 2]], of.extents(lhs)[axis], of.result_extents(lhs, rhs)[axis]
    positions = -(-outputs // number)
    for phase in range(min(number, outputs)):
        offset = phase * stride - low
        first = next((tap for tap in range(min(step, taps)) if (offset + tap * dilation) % gap == 0), taps)
        begin = -(offset + first * dilation) // gap  # the pad before lhs
        window = replace(
            of,
            strides=_with(of.strides, axis, number * stride // gap),
            lhs_dilation=_with(of.lhs_dilation, axis, 1),
            rhs_dilation=_with(of.rhs_dilation, axis, step * dilation // gap),
        )
        span = (positions - 1) * window.strides[axis] + 1
        reach = (len(range(first, taps, step)) - 1) * window.rhs_dilation[axis]
        pads = (begin, span + reach - extent - begin) if first < taps else (0, span - 1 - extent)
        yield first, step, taps, replace(window, pads=_with(of.pads, axis, pads))


def _with(values: tuple[Value, ...], axis: int, value: Value) -> tuple[Value, ...]:
    return (*values[:axis], value, *values[axis + 1 :])
