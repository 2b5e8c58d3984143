"""The two convolutions of jax.lax, with the arguments of jax.lax. Errors name the arguments that are unsupported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax.typing import ArrayLike

from convgrad.errors import InvalidAttributeError, UnsupportedError
from convgrad.functional.types import DType
from convgrad.jax.call import Array, array, call
from convgrad.spec.geometry import effective_kernel
from convgrad.spec.layouts import axis_order

Pads = Sequence[tuple[int, int]]  # (low, high) per axis
AUTO_PADS = {"SAME": "same_upper", "SAME_LOWER": "same_lower", "VALID": "valid"}
DATA, WEIGHTS = ("NCX", "NXC"), ("OIX", "XIO")


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Pads,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: object = None,
    preferred_element_type: DType | None = None,
    out_sharding: None = None,
) -> Array:
    """Convolve as jax.lax.conv_general_dilated does: out[n, o, p] = sum over k, c of lhs[n, c, i] rhs[o, c, k].

    Here i = p*stride + k*rhs_dilation - low. The function first inserts ``lhs_dilation`` - 1 zeros between the
    positions of lhs. If ``lhs_dilation`` is above 1, this is a transposed convolution. Shapes without
    ``dimension_numbers``: lhs (N, C, I...), rhs (O, C/groups, K...), result (N, O, P...). ``padding`` is SAME,
    SAME_LOWER or VALID, or one pair (low, high) per axis; low and high may be negative. Arrays in the orders NCHW,
    NHWC, OIHW and HWIO, with any number of axes, are read directly. Arrays in other orders are transposed first. Sums
    are computed in f32, or in f64 for f64 operands. ``precision`` is ignored.

    If ``batch_group_count`` is above 1, lhs consists of that many consecutive batches. Each batch is convolved with its
    own share of the outputs of rhs. ``out_sharding`` must be None; under ``jax.shard_map`` each device computes its own
    shard. The bits are the same as from :func:`convgrad.convolution` or :func:`convgrad.conv_transpose`.

    Raises:
        UnsupportedError: Both lhs_dilation and window_strides are above 1, or out_sharding is not None.
        InvalidAttributeError: padding is an unknown name, or lhs_dilation is above 1 and padding is a name. Or
            batch_group_count does not divide both batch and outputs, or both group counts are above 1.
        InvalidShapeError, InvalidDataTypeError: The same as in :func:`convgrad.convolution`.

    Follows jax.lax.conv_general_dilated.

    >>> import jax.numpy as jnp
    >>> lhs, rhs = jnp.arange(1.0, 6).reshape(1, 1, 5), jnp.array([1.0, 0, -1]).reshape(1, 1, 3)
    >>> conv_general_dilated(lhs, rhs, [1], "VALID").ravel().tolist()
    [-2.0, -2.0, -2.0]
    """
    if out_sharding is not None:
        raise UnsupportedError(
            f"conv_general_dilated: out_sharding must be None; got {out_sharding!r}. Use jax.shard_map."
        )
    lhs, rhs = array(lhs), array(rhs)
    numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    if batch_group_count != 1:
        lhs = _beside(lhs, rhs, numbers, feature_group_count, batch_group_count)
        feature_group_count = batch_group_count
    dilations = [1] * (lhs.ndim - 2) if rhs_dilation is None else list(rhs_dilation)
    reach = [effective_kernel(rhs.shape[a], d) - 1 for a, d in zip(numbers.rhs_spec[2:], dilations, strict=True)]
    attributes = {"dilations": dilations, "groups": feature_group_count}
    grown = [] if lhs_dilation is None else list(lhs_dilation)
    if _nothing_met([lhs.shape[axis] for axis in numbers.lhs_spec[2:]], grown, reach, padding):
        theirs = partial(
            jax.lax.conv_general_dilated,
            window_strides=window_strides,
            padding=padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dimension_numbers=numbers,
            feature_group_count=feature_group_count,
            preferred_element_type=preferred_element_type,
        )
        kind = jax.eval_shape(theirs, lhs, rhs)
        return jax.numpy.zeros(kind.shape, kind.dtype)
    beyond = [(0, 0, 0)] * lhs.ndim
    if any(dilation != 1 for dilation in grown):
        given = _of_transposed(window_strides, grown, padding)
        weights = rhs.transpose(numbers.rhs_spec)
        pads = [(e - low, e - high) for e, (low, high) in zip(reach, given, strict=True)]
        beyond = _at(numbers.out_spec, [(max(0, -low), max(0, -high)) for low, high in pads])
        attributes |= {"strides": grown, "weights_format": "IOX"} | _pads(pads)
        operator, weights = "ConvTranspose", _turned(weights, feature_group_count)
    else:
        if not isinstance(padding, str):
            cut = _at(numbers.lhs_spec, [(min(0, low), min(0, high)) for low, high in padding])
            lhs = jax.lax.pad(lhs, lhs.dtype.type(0), cut)
        operator, (weights, weights_format) = "Convolution", _laid(rhs, numbers.rhs_spec, WEIGHTS)
        attributes |= {"strides": list(window_strides), "weights_format": weights_format} | _pads(padding)
    src, data_format = _laid(lhs, numbers.lhs_spec, DATA)
    attributes["data_format"] = data_format
    result = call(operator, (src, weights), attributes, dtype=preferred_element_type, threads=None)
    order = axis_order(data_format, lhs.ndim)
    if tuple(numbers.out_spec) != order:
        result = result.transpose([order[list(numbers.out_spec).index(axis)] for axis in range(lhs.ndim)])
    return jax.lax.pad(result, result.dtype.type(0), beyond)


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Pads,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: object = None,
    preferred_element_type: DType | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """Compute a transposed convolution as jax.lax.conv_transpose does.

    The function inserts ``strides`` - 1 zeros between the positions of lhs, adds pads, and convolves the padded lhs.
    Shapes without ``dimension_numbers``: lhs (N, l..., C), rhs (K..., C, O), result (N, L..., O). In the extents,
    E = dilation*(K - 1) + 1. With SAME, L = stride*l. With VALID, L = stride*(l - 1) + max(E, stride). Pairs (low,
    high) are the pads of lhs with the zeros inserted. If ``use_consistent_padding`` is true, pairs are instead the pads
    of the convolution that is transposed. Then L = stride*(l - 1) + E - low - high. ``transpose_kernel`` reverses the
    taps and exchanges the channels of rhs. All other arguments are the same as in
    :func:`convgrad.jax.conv_general_dilated`.

    Follows jax.lax.conv_transpose.

    >>> import jax.numpy as jnp
    >>> lhs, rhs = jnp.array([1.0, 2]).reshape(1, 2, 1), jnp.array([1.0, 10, 100]).reshape(3, 1, 1)
    >>> conv_transpose(lhs, rhs, [2], "VALID", transpose_kernel=True).ravel().tolist()
    [1.0, 10.0, 102.0, 20.0, 200.0]
    """
    lhs, rhs = array(lhs), array(rhs)
    if dimension_numbers is None:
        letters = "".join(chr(ord("a") + axis) for axis in range(lhs.ndim - 2))
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = jax.lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    if isinstance(padding, str) or use_consistent_padding:
        kernel = [rhs.shape[axis] for axis in numbers.rhs_spec[2:]]
        dilations = [1] * len(kernel) if rhs_dilation is None else rhs_dilation
        each: Sequence[Any] = [padding] * len(kernel) if isinstance(padding, str) else padding
        reach = [effective_kernel(k, d) - 1 for k, d in zip(kernel, dilations, strict=True)]
        padding = [_around(e, s, pad) for e, s, pad in zip(reach, strides, each, strict=True)]
    if transpose_kernel:
        rhs = jax.numpy.flip(rhs, numbers.rhs_spec[2:]).swapaxes(*numbers.rhs_spec[:2])
    return conv_general_dilated(
        lhs, rhs, [1] * (lhs.ndim - 2), padding, strides, rhs_dilation, numbers, 1, 1, precision, preferred_element_type
    )


def _around(reach: int, stride: int, pad: str | tuple[int, int]) -> tuple[int, int]:
    """Return the pads of an lhs with zeros inserted, from the pads of the convolution that is transposed."""
    if not isinstance(pad, str):
        return reach - pad[0], reach - pad[1]
    if pad == "SAME":
        total = reach + stride - 1
        low = reach if stride > reach else -(-total // 2)
    elif pad == "VALID":
        total, low = reach + max(reach, stride - 1), reach
    else:
        raise InvalidAttributeError(
            f"conv_transpose: padding must be SAME, VALID or pairs (low, high); got {pad!r:.200}"
        )
    return low, total - low


def _beside(lhs: Array, rhs: Array, numbers: Any, groups: int, batches: int) -> Array:
    """Return ``lhs`` with its consecutive batches as groups of channels, because each batch has its own weights."""
    batch, outputs = lhs.shape[numbers.lhs_spec[0]], rhs.shape[numbers.rhs_spec[0]]
    if groups != 1 or batches < 1 or batch % batches or outputs % batches:
        raise InvalidAttributeError(
            "conv_general_dilated: batch_group_count must divide the batch of lhs and the outputs of rhs, and"
            f" feature_group_count must then be 1; got {batches}, {batch}, {outputs} and {groups}"
        )
    canonical = lhs.transpose(numbers.lhs_spec)
    _, channels, *extents = canonical.shape
    split = canonical.reshape(batches, batch // batches, channels, *extents).swapaxes(0, 1)
    beside = split.reshape(batch // batches, batches * channels, *extents)
    return beside.transpose(sorted(range(lhs.ndim), key=numbers.lhs_spec.__getitem__))


def _of_transposed(strides: Sequence[int], grown: Sequence[int], padding: str | Pads) -> Pads:
    """Return the padding of a transposed convolution as pairs; raise if the arguments are not supported."""
    if any(stride != 1 for stride in strides):
        raise UnsupportedError(
            "conv_general_dilated: window_strides must be 1 where lhs_dilation is above 1, as in a transposed"
            f" convolution; got window_strides {tuple(strides)} and lhs_dilation {tuple(grown)}"
        )
    if isinstance(padding, str):
        raise InvalidAttributeError(
            "conv_general_dilated: padding must be pairs (low, high) where lhs_dilation is above 1; got"
            f" {padding!r:.200}. Use conv_transpose"
        )
    return padding


def _nothing_met(extents: Sequence[int], grown: Sequence[int], reach: Sequence[int], padding: str | Pads) -> bool:
    """Return whether the result is empty or has only zeros. Negative pads may remove all positions of lhs."""
    pads = [(0, 0)] * len(extents) if isinstance(padding, str) else padding
    valid = padding if isinstance(padding, str) else "VALID"
    for extent, gap, maximum, (low, high) in zip(extents, grown or [1] * len(extents), reach, pads, strict=True):
        span = (extent - 1) * gap + 1 if extent else 0
        left = span + min(0, low) + min(0, high)
        if left <= 0 or (valid.upper() == "VALID" and span + low + high <= maximum):
            return True
    return False


def _pads(padding: str | Pads) -> dict[str, Any]:
    """Return padding as attributes of an operator. Negative pads become 0; the caller applies them."""
    if isinstance(padding, str):
        if padding.upper() not in AUTO_PADS:
            names = ", ".join(AUTO_PADS)
            raise InvalidAttributeError(
                f"conv_general_dilated: padding must be one of {names}, or pairs (low, high); got {padding!r:.200}"
            )
        return {"auto_pad": AUTO_PADS[padding.upper()]}
    return {"pads_begin": [max(0, low) for low, _ in padding], "pads_end": [max(0, high) for _, high in padding]}


def _at(spec: Sequence[int], pads: Pads) -> list[tuple[int, int, int]]:
    """Return spatial pads as an argument of jax.lax.pad; ``spec`` is the array's order of axes."""
    found = [(0, 0, 0)] * len(spec)
    for axis, (low, high) in zip(spec[2:], pads, strict=True):
        found[axis] = (low, high, 0)
    return found


def _laid(array: Array, spec: Sequence[int], layouts: Sequence[str]) -> tuple[Array, str]:
    """Return an array in one of ``layouts``, and its layout. The array is transposed if it is in none of them."""
    for layout in layouts:
        if axis_order(layout, array.ndim) == tuple(spec):
            return array, layout
    return array.transpose(spec), layouts[0]


def _turned(weights: Array, groups: int) -> Array:
    """Return a transposed convolution's weights from a convolution's canonical weights: IOX, with reversed taps."""
    outputs, inputs, *kernel = weights.shape
    if outputs % groups == 0:
        split = weights.reshape(groups, outputs // groups, inputs, *kernel).swapaxes(1, 2)
        weights = split.reshape(groups * inputs, outputs // groups, *kernel)
    return jax.numpy.flip(weights, range(2, weights.ndim))
