"""The convolution and its two gradients, on JAX's arrays."""

from __future__ import annotations

from typing import Never

from jax.typing import ArrayLike

from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import DType, PerAxis, ShapeLike
from convgrad.jax.call import Array, call


@refuses_keywords
def convolution(
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    dtype: DType | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> Array:
    """Convolve: dst[n, p, o] = bias[o] + sum over k, c of src[n, i, c] weights[k, c, o].

    Here i = p*stride + k*dilation - pad_begin, and only positions that exist count. Shapes (NXC, XIO): src (N, I...,
    C), weights (K..., C/groups, O), bias (O,), result (N, O..., O). Attributes, errors and bits are those of
    :func:`convgrad.convolution`; shapes and attributes are checked while a function is traced.

    Follows the document of the Convolution operator, as its gradients' documents state it.

    >>> import jax.numpy as jnp
    >>> convolution(jnp.arange(1.0, 6).reshape(1, 5, 1), jnp.array([1.0, 0, -1]).reshape(3, 1, 1)).ravel().tolist()
    [-2.0, -2.0, -2.0]
    """
    attributes = {
        "strides": strides,
        "pads_begin": pads_begin,
        "pads_end": pads_end,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "groups": groups,
        "data_format": data_format,
        "weights_format": weights_format,
        **unknown,
    }
    operands = (src, weights, bias)
    return call("Convolution", operands, attributes, dtype=dtype, threads=threads)


@refuses_keywords
def convolution_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    dst_shape: ShapeLike | None = None,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    dtype: DType | None = None,
    threads: int | None = None,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by src: diff_src[n, i, c] = sum over k, o of diff_dst[n, p, o] weights[k, c, o].

    The sum runs over the taps k and positions p that met i. Shapes (NXC, XIO): diff_dst (N, O..., O), weights (K...,
    C/groups, O), result (N, I..., C), which is ``dst_shape``. Attributes, errors and bits are those of
    :func:`convgrad.convolution_backward_data`; shapes and attributes are checked while a function is traced.

    Follows the document ConvolutionBackpropData-1.

    >>> import jax.numpy as jnp
    >>> diff_dst, weights = jnp.array([1.0, 2]).reshape(1, 2, 1), jnp.array([1.0, 10]).reshape(2, 1, 1)
    >>> convolution_backward_data(diff_dst, weights, (1, 5, 1), strides=2).ravel().tolist()
    [1.0, 10.0, 2.0, 20.0, 0.0]
    """
    attributes = {
        "strides": strides,
        "pads_begin": pads_begin,
        "pads_end": pads_end,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "groups": groups,
        "data_format": data_format,
        "weights_format": weights_format,
        "output_padding": output_padding,
        **unknown,
    }
    operands = (diff_dst, weights, dst_shape)
    return call("ConvolutionBackwardData", operands, attributes, dtype=dtype, threads=threads)


@refuses_keywords
def convolution_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    dtype: DType | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by weights: diff_weights[k, c, o] = sum over n, p of src[n, i, c] diff_dst[n, p, o].

    Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), result (K..., C/groups, O), which is ``weights_shape``.
    Attributes, errors and bits are those of :func:`convgrad.convolution_backward_weights`; shapes and
    attributes are checked while a function is traced.

    Follows the document ConvolutionBackwardWeights.

    >>> import jax.numpy as jnp
    >>> src, diff_dst = jnp.arange(1.0, 5).reshape(1, 4, 1), jnp.array([1.0, 0, 2]).reshape(1, 3, 1)
    >>> convolution_backward_weights(src, diff_dst, (2, 1, 1)).ravel().tolist()
    [7.0, 10.0]
    """
    attributes = {
        "strides": strides,
        "pads_begin": pads_begin,
        "pads_end": pads_end,
        "dilations": dilations,
        "auto_pad": auto_pad,
        "groups": groups,
        "data_format": data_format,
        "weights_format": weights_format,
        **unknown,
    }
    operands = (src, diff_dst, weights_shape)
    return call("ConvolutionBackwardWeights", operands, attributes, dtype=dtype, threads=threads)
