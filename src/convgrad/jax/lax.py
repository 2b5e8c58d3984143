"""The two convolutions of jax.lax, with the arguments of jax.lax. Errors name the arguments that are unsupported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import jax
from jax.typing import ArrayLike

from convgrad.errors import InvalidAttributeError, UnsupportedError
from convgrad.functional.types import DType
from convgrad.jax.call import Array, array
from convgrad.jax.kinds import convolve_any
from convgrad.jax.window import (
    AUTO_PADS,
    DimensionNumbers,
    Pads,
    WindowArguments,
    dilated,
    dimensions,
    pairs,
    per_axis,
    window,
)
from convgrad.parameters import described


@described
def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Pads,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: DimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: object = None,
    preferred_element_type: DType | None = None,
    out_sharding: None = None,
) -> Array:
    """Convolve as jax.lax.conv_general_dilated does: out[n, o, p] = sum over k, c of lhs[n, c, i] rhs[o, c, k].

    Here i = (p*stride + k*rhs_dilation - low) / lhs_dilation. Taps for which i has a remainder or is outside lhs
    contribute nothing, not even 0 * NaN. Shapes without ``dimension_numbers``: lhs (N, C, I...), rhs (O, C/groups,
    K...), result (N, O, P...). There may be no spatial axes. Pads may be negative. Arrays in the orders NCHW, NHWC,
    OIHW and HWIO, with any number of axes, are read directly. Arrays in other orders are transposed first. Sums are
    computed in f32, or in f64 for f64 operands.

    JAX computes integers, because their sums are exact in any order. A complex convolution is a real convolution of
    twice the channels: channels 2c and 2c + 1 are the real and the imaginary part of channel c.

    If ``batch_group_count`` is above 1, each batch is convolved with its own share of the outputs of rhs. The bits are
    the same as from :func:`convgrad.convolution`, or from :func:`convgrad.conv_transpose` if ``lhs_dilation`` is above
    1. With both strides and lhs_dilation, each result is one sum, but the gradient of lhs is a sum of several results
    in f32.

    Args:
        window_strides: The step of the kernel in elements, one int per spatial axis.
        lhs_dilation: The distance between the elements of lhs, between which zeros are inserted, one int per spatial
            axis; None is 1 on all axes. Default: None.
        feature_group_count: The number of groups that channels are divided into. Default: 1.
        batch_group_count: The number of consecutive batches of which lhs consists. Default: 1.
        out_sharding: It must be None; under ``jax.shard_map`` each device computes its own shard. Default: None.

    Raises:
        UnsupportedError: out_sharding is not None, or a type of 64 bits needs ``jax_enable_x64``.
        InvalidAttributeError: An argument has a value or a length that does not fit, or padding is a name although
            lhs_dilation is above 1. Or batch_group_count does not divide both batch and outputs, or both group counts
            are above 1.
        InvalidShapeError: lhs and rhs differ in rank, or their channels do not fit feature_group_count.
        InvalidDataTypeError: The operands have different types, or a type that is not supported.

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
    arguments = WindowArguments(
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    return convolve_any(lhs, rhs, window(lhs, rhs, arguments), preferred_element_type)


@described
def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Pads,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: DimensionNumbers = None,
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
    of the convolution that is transposed. Then L = stride*(l - 1) + E - low - high.

    Args:
        strides: The step of the transposed convolution in elements, one int per spatial axis.
        transpose_kernel: Whether the taps of rhs are reversed and its channels exchanged. Default: False.
        use_consistent_padding: Whether pairs are the pads of the convolution that is transposed. Default: False.

    Follows jax.lax.conv_transpose.

    >>> import jax.numpy as jnp
    >>> lhs, rhs = jnp.array([1.0, 2]).reshape(1, 2, 1), jnp.array([1.0, 10, 100]).reshape(3, 1, 1)
    >>> conv_transpose(lhs, rhs, [2], "VALID", transpose_kernel=True).ravel().tolist()
    [1.0, 10.0, 102.0, 20.0, 200.0]
    """
    operator = "conv_transpose"
    lhs, rhs = array(lhs), array(rhs)
    if dimension_numbers is None:
        letters = "".join(chr(ord("a") + axis) for axis in range(lhs.ndim - 2))
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    _, rhs_spec, _ = specs = dimensions(operator, lhs, rhs, dimension_numbers)
    axes = lhs.ndim - 2
    strides = per_axis(operator, "strides", strides, axes)
    if rhs_dilation is not None:
        rhs_dilation = per_axis(operator, "rhs_dilation", rhs_dilation, axes)
    if not isinstance(padding, str):
        padding = pairs(operator, padding, axes)
    if padding in ("SAME", "VALID") or use_consistent_padding:
        kernel = zip([rhs.shape[axis] for axis in rhs_spec[2:]], rhs_dilation or [1] * axes, strict=True)
        pads: Sequence[str | tuple[int, int]] = [padding] * axes if isinstance(padding, str) else padding
        reach = [dilated(taps, dilation) - 1 for taps, dilation in kernel]
        padding = [_around(e, s, pad) for e, s, pad in zip(reach, strides, pads, strict=True)]
    elif isinstance(padding, str) and (padding.upper() not in AUTO_PADS or any(stride > 1 for stride in strides)):
        _refuse_name(padding)
    if transpose_kernel:
        rhs = jax.numpy.flip(rhs, rhs_spec[2:]).swapaxes(*rhs_spec[:2])
    numbers = jax.lax.ConvDimensionNumbers(*specs)
    return conv_general_dilated(
        lhs, rhs, [1] * axes, padding, strides, rhs_dilation, numbers, 1, 1, precision, preferred_element_type
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
        _refuse_name(pad)
    return low, total - low


def _refuse_name(padding: str) -> NoReturn:
    raise InvalidAttributeError(
        f"conv_transpose: padding must be SAME, VALID or pairs (low, high); got {padding!r:.200}"
    )
