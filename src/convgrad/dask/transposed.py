"""The transposed convolution and its two gradients, on dask arrays."""

from __future__ import annotations

from typing import Any, Never

from convgrad.dask.call import Operand, call
from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import DType, PerAxis, ShapeLike


@refuses_keywords
def conv_transpose(
    src: Operand,
    weights: Operand,
    bias: Operand | None = None,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    dtype: DType | None = None,
    threads: int = 1,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Any:
    """Convolve transposed: dst[n, i, o] = bias[o] + sum over k, c of src[n, p, c] weights[k, o, c].

    The sum runs over the taps k and positions p that meet i = p*stride + k*dilation - pad_begin. Shapes (NXC, XOI): src
    (N, l..., C), weights (K..., O/groups, C), bias (O,), result (N, L..., O). Attributes, errors and bits are those of
    :func:`convgrad.conv_transpose`.

    Follows the document of the ConvTranspose operator, as its gradients' documents state it.

    >>> import numpy as np
    >>> import dask.array as da
    >>> src, weights = da.arange(1, 3, dtype="f4").reshape(1, 2, 1), np.array([1, 10, 100], "f4").reshape(3, 1, 1)
    >>> conv_transpose(src, weights, strides=2).compute().ravel().tolist()
    [1.0, 10.0, 102.0, 20.0, 200.0]
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
    operands = (src, weights, bias)
    return call("ConvTranspose", operands, attributes, dtype=dtype, threads=threads)


@refuses_keywords
def conv_transpose_backward_data(
    diff_dst: Operand,
    weights: Operand,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    dtype: DType | None = None,
    threads: int = 1,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Any:
    """Differentiate by src: diff_src[n, p, c] = sum over k, o of diff_dst[n, i, o] weights[k, o, c].

    A plain convolution of diff_dst. Shapes (NXC, XOI): diff_dst (N, L..., O), weights (K..., O/groups, C), result (N,
    l..., C). Attributes, errors and bits are those of
    :func:`convgrad.conv_transpose_backward_data`.

    Follows the document of ConvTransposeBackwardData, with the padding rule of the forward.

    >>> import numpy as np
    >>> import dask.array as da
    >>> diff_dst, weights = da.arange(1, 6, dtype="f4").reshape(1, 5, 1), np.array([1, 0, 1], "f4").reshape(3, 1, 1)
    >>> conv_transpose_backward_data(diff_dst, weights, strides=2).compute().ravel().tolist()
    [4.0, 8.0]
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
    operands = (diff_dst, weights)
    return call("ConvTransposeBackwardData", operands, attributes, dtype=dtype, threads=threads)


@refuses_keywords
def conv_transpose_backward_weights(
    src: Operand,
    diff_dst: Operand,
    weights_shape: ShapeLike | None = None,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    dtype: DType | None = None,
    threads: int = 1,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Any:
    """Differentiate by weights: diff_weights[k, o, c] = sum over n, p of src[n, p, c] diff_dst[n, i, o].

    Shapes (NXC, XOI): src (N, l..., C), diff_dst (N, L..., O), result (K..., O/groups, C), which is ``weights_shape``.
    Attributes, errors and bits are those of :func:`convgrad.conv_transpose_backward_weights`.

    Follows the document ConvTransposeBackwardWeights.

    >>> import dask.array as da
    >>> src, diff_dst = da.ones((9, 2, 1), dtype="f4", chunks=2), da.ones((9, 5, 1), dtype="f4", chunks=4)
    >>> conv_transpose_backward_weights(src, diff_dst, (3, 1, 1), strides=2).compute().ravel().tolist()
    [18.0, 18.0, 18.0]
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
    operands = (src, diff_dst, weights_shape)
    return call("ConvTransposeBackwardWeights", operands, attributes, dtype=dtype, threads=threads)
