"""The convolution and its two gradients, by their current names."""

from __future__ import annotations

from typing import Never

from numpy.typing import ArrayLike

from convgrad.functional.call import call
from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import Array, DType, PerAxis, ShapeLike


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
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **unknown: Never,
) -> Array:
    """Convolve: dst[n, p, o] = bias[o] + sum over k, c of src[n, i, c] weights[k, c, o].

    Here i = p*stride + k*dilation - pad_begin, and only positions that exist count.
    Shapes (NXC, XIO): src (N, I..., C), weights (K..., C/groups, O), bias (O,), result (N, O..., O) with extents
    floor((I + P - E)/stride) + 1, where P = pad_begin + pad_end and E = dilation*(K - 1) + 1.

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XIO or OIX. ``dtype`` is the output's type, by default the
    operands'; ``out`` is written in place and returned; ``accumulate`` adds into it, in f32, before the one rounding;
    ``threads`` bounds the threads of generated kernels (the NumPy engine leaves threads to its BLAS). Operands are
    arrays of one type, f32, bf16, f16, f64 or f8, and of any strides, of NumPy, PyTorch or JAX; the result is of the
    first one's library.

    ``max_error`` admits errors of so many times the guarantee gamma_h ||src_t|| ||weights_o||, norms of what
    a tile of dst meets and of the weights of its channel: from 8 or so f32 layers of 3x3 taps, stride
    1 and 32 channels or more may be computed by tiles of 2x2, from 64 by 4x4, by fewer multiply-adds. 1, the default,
    is the direct sum, whose guarantee is one of each element.

    ``activation="relu"`` makes what is at most 0 a +0, after bias and old value and before the one rounding; NaN stays.

    Raises:
        InvalidShapeError: shapes that do not fit; the message shows the formula and the extents that would.
        InvalidAttributeError: an attribute out of its range.
        InvalidDataTypeError: operands of other or of different types.

    Follows the document of the Convolution operator, as its gradients' documents state it.

    >>> import numpy as np
    >>> src = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> weights = np.array([1, 0, -1], np.float32).reshape(3, 1, 1)
    >>> convolution(src, weights).ravel().tolist()
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
    return call(
        "Convolution",
        operands,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        max_error=max_error,
        activation=activation,
    )


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
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by src: diff_src[n, i, c] = sum over k, o of diff_dst[n, p, o] weights[k, c, o].

    The sum runs over the taps k and positions p that met i = p*stride + k*dilation - pad_begin. A position that no tap
    reaches gets 0. Shapes (NXC, XIO): diff_dst (N, O..., O), weights (K..., C/groups, O), result (N, I..., C).

    ``dst_shape``, the full shape of the result in ``data_format``, is needed where the extents I do not follow: they
    do from ``output_padding`` (I = stride*(O - 1) + E - P + output_padding, with output_padding < stride), from
    auto_pad same (I = stride*O where E >= stride), and where every stride is 1. With ``dst_shape`` given,
    output_padding is ignored.

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XIO or OIX. ``dtype`` is the output's type, by default the
    operands'; ``out`` is written in place and returned; ``accumulate`` adds into it, in f32, before the one rounding;
    ``threads`` bounds the threads of generated kernels (the NumPy engine leaves threads to its BLAS). Operands are
    arrays of one type, f32, bf16, f16, f64 or f8, and of any strides, of NumPy, PyTorch or JAX; the result is of the
    first one's library.

    ``max_error`` admits errors of so many times the guarantee gamma_h ||diff_dst_t|| ||weights_c||, norms of what
    a tile of the result meets and of the weights of its channel: from 8 or so f32 layers of 3x3 taps, stride
    1 and 32 channels or more may be computed by tiles of 2x2, from 64 by 4x4, by fewer multiply-adds. 1, the default,
    is the direct sum, whose guarantee is one of each element.

    Raises:
        InvalidShapeError: shapes that do not fit; the message shows the formula and the extents that would.
        InvalidAttributeError: an attribute out of its range, or no dst_shape where it is needed.
        InvalidDataTypeError: operands of other or of different types.

    Follows the document ConvolutionBackpropData-1.

    >>> import numpy as np
    >>> diff_dst = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 10], np.float32).reshape(2, 1, 1)
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
    return call(
        "ConvolutionBackwardData",
        operands,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        max_error=max_error,
    )


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
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by weights: diff_weights[k, c, o] = sum over n, p of src[n, i, c] diff_dst[n, p, o].

    Here i = p*stride + k*dilation - pad_begin, and only positions that exist count: a tap that sees padding alone has
    gradient 0. Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), result (K..., C/groups, O).

    ``weights_shape``, the shape of the result in ``weights_format``, must be given: I and O do not determine K.

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XIO or OIX. ``dtype`` is the output's type, by default the
    operands'; ``out`` is written in place and returned; ``accumulate`` adds into it, in f32, before the one rounding;
    ``threads`` bounds the threads of generated kernels (the NumPy engine leaves threads to its BLAS). Operands are
    arrays of one type, f32, bf16, f16, f64 or f8, and of any strides, of NumPy, PyTorch or JAX; the result is of the
    first one's library.

    ``max_error`` admits errors of so many times the guarantee gamma_h ||src_c|| ||diff_dst_o||, norms of the channels
    of a weight: from 8 or so f32 layers of 3x3 taps, stride 1 and 32 channels or more may be computed by tiles of 2x2,
    from 64 by 4x4, by fewer multiply-adds. 1, the default, is the direct sum, whose guarantee is one of each element.

    Raises:
        InvalidShapeError: shapes that do not fit; the message shows the formula and the extents that would.
        InvalidAttributeError: an attribute out of its range, or no weights_shape.
        InvalidDataTypeError: operands of other or of different types.

    Follows the document ConvolutionBackwardWeights.

    >>> import numpy as np
    >>> src = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> diff_dst = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
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
    return call(
        "ConvolutionBackwardWeights",
        operands,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        max_error=max_error,
    )
