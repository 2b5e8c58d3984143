"""The transposed convolution and its two gradients: the plain ones with src and dst exchanged."""

from __future__ import annotations

from typing import Never

from numpy.typing import ArrayLike

from convgrad.functional.call import call
from convgrad.functional.keywords import refuses_keywords
from convgrad.functional.types import Array, DType, PerAxis, ShapeLike


@refuses_keywords
def conv_transpose(
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
    weights_format: str = "XOI",
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Array:
    """Convolve transposed: dst[n, i, o] = bias[o] + sum over k, c of src[n, p, c] weights[k, o, c].

    The sum runs over the taps k and positions p that meet i = p*stride + k*dilation - pad_begin. Shapes (NXC, XOI): src
    (N, l..., C), weights (K..., O/groups, C), bias (O,), result (N, L..., O) with L = stride*(l - 1) + E - P +
    output_padding, where E = dilation*(K - 1) + 1 and P = pad_begin + pad_end. output_padding < max(stride, dilation)
    counts in every pad mode; auto_pad same makes P = max(E - stride, 0).

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XOI or IOX. ``dtype`` is the output's type, by default the
    operands'; ``out`` is written in place and returned; ``accumulate`` adds into it, in f32, before the one rounding;
    ``threads`` bounds the threads of generated kernels (the NumPy engine leaves threads to its BLAS). Operands are
    arrays of one type, f32, bf16, f16, f64 or f8, and of any strides, of NumPy, PyTorch or JAX; the result is of the
    first one's library.

    ``max_error`` admits errors of so many times the guarantee gamma_h ||src_t|| ||weights_o||, norms of what
    a tile of the result meets and of the weights of its channel: from 8 or so f32 layers of 3x3 taps, stride
    1 and 32 channels or more may be computed by tiles of 2x2, from 64 by 4x4, by fewer multiply-adds. 1, the default,
    is the direct sum, whose guarantee is one of each element.

    ``activation="relu"`` makes what is at most 0 a +0, after bias and old value and before the one rounding; NaN stays.

    Raises:
        InvalidShapeError: shapes that do not fit; the message shows the formula and the extents that would.
        InvalidAttributeError: an attribute out of its range.
        InvalidDataTypeError: operands of other or of different types.

    Follows the document of the ConvTranspose operator, as its gradients' documents state it.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 10, 100], np.float32).reshape(3, 1, 1)
    >>> conv_transpose(src, weights, strides=2).ravel().tolist()
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
    return call(
        "ConvTranspose",
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
def conv_transpose_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
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
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by src: diff_src[n, p, c] = sum over k, o of diff_dst[n, i, o] weights[k, o, c].

    Here i = p*stride + k*dilation - pad_begin: a plain convolution of diff_dst. Shapes (NXC, XOI): diff_dst (N, L...,
    O), weights (K..., O/groups, C), result (N, l..., C) with l = floor((L + P - E)/stride) + 1; where
    ``output_padding`` is given, L = stride*(l - 1) + E - P + output_padding must hold exactly.

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XOI or IOX. ``dtype`` is the output's type, by default the
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
        InvalidAttributeError: an attribute out of its range.
        InvalidDataTypeError: operands of other or of different types.

    Follows the document of ConvTransposeBackwardData, with the padding rule of the forward.

    >>> import numpy as np
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> weights = np.array([1, 0, 1], np.float32).reshape(3, 1, 1)
    >>> conv_transpose_backward_data(diff_dst, weights, strides=2).ravel().tolist()
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
    return call(
        "ConvTransposeBackwardData",
        operands,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        max_error=max_error,
    )


@refuses_keywords
def conv_transpose_backward_weights(
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
    weights_format: str = "XOI",
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    output_padding: PerAxis | None = None,
    **unknown: Never,
) -> Array:
    """Differentiate by weights: diff_weights[k, o, c] = sum over n, p of src[n, p, c] diff_dst[n, i, o].

    Here i = p*stride + k*dilation - pad_begin where that exists: a convolution's weight gradient with the two tensors
    exchanged. Shapes (NXC, XOI): src (N, l..., C), diff_dst (N, L..., O), result (K..., O/groups, C), with
    0 <= L - (stride*(l - 1) + E - P) < max(stride, dilation), or equal to ``output_padding`` where that is given.

    ``weights_shape``, the shape of the result in ``weights_format``, must be given: l and L do not determine K.

    Attributes: ``strides``, ``dilations`` (1 = none), ``pads_begin``, ``pads_end`` count positions, one int for all
    axes or one per axis; ``auto_pad`` none, same_upper, same_lower or valid (but for none, pads are ignored);
    ``data_format`` NXC or NCX; ``weights_format`` XOI or IOX. ``dtype`` is the output's type, by default the
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

    Follows the document ConvTransposeBackwardWeights.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> conv_transpose_backward_weights(src, diff_dst, (3, 1, 1), strides=2).ravel().tolist()
    [7.0, 10.0, 13.0]
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
    return call(
        "ConvTransposeBackwardWeights",
        operands,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        max_error=max_error,
    )
