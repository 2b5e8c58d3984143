"""The functions of the operators: convolutions, transposed convolutions, bias additions, and their gradients.

Each function is a declaration. The signature lists the operands and attributes of the operator, then the options.
"""

from __future__ import annotations

from typing import Unpack

from numpy.typing import ArrayLike

from convgrad.functional.call import call
from convgrad.functional.declared import computed_by
from convgrad.functional.keywords import (
    BiasAddKeywords,
    BiasGradientKeywords,
    ForwardKeywords,
    GradientKeywords,
    PaddedGradientKeywords,
    TransposedForwardKeywords,
)
from convgrad.functional.types import Array, ShapeLike


@computed_by(call, "Convolution")
def convolution(
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    **keywords: Unpack[ForwardKeywords],
) -> Array:
    """Convolve: dst[n, p, o] = bias[o] + sum over k, c of src[n, i, c] weights[k, c, o].

    Here i = p*stride + k*dilation - pad_begin. Positions i outside src add nothing.

    Shapes (NXC, XIO): src (N, I..., C), weights (K..., C/groups, O), bias (O,), result (N, O..., O). The result's
    extents are floor((I + P - E)/stride) + 1, where P = pad_begin + pad_end and E = dilation*(K - 1) + 1.

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows the Convolution operator as oneDNN's documentation of its gradients defines it.

    >>> import numpy as np
    >>> src = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> weights = np.array([1, 0, -1], np.float32).reshape(3, 1, 1)
    >>> convolution(src, weights).ravel().tolist()
    [-2.0, -2.0, -2.0]
    """


@computed_by(call, "ConvolutionBackwardData")
def convolution_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    dst_shape: ShapeLike | None = None,
    **keywords: Unpack[PaddedGradientKeywords],
) -> Array:
    """Differentiate by src: diff_src[n, i, c] = sum over k, o of diff_dst[n, p, o] weights[k, c, o].

    The sum runs over the taps k and positions p with i = p*stride + k*dilation - pad_begin. A position that no tap
    reaches gets 0. Shapes (NXC, XIO): diff_dst (N, O..., O), weights (K..., C/groups, O), result (N, I..., C).

    You can omit ``dst_shape`` in three cases. If auto_pad is same, you must then omit ``output_padding``, too. E and P
    are defined in :func:`convolution`.

    - ``output_padding`` is given: I = stride*(O - 1) + E - P + output_padding, with output_padding < stride.
    - auto_pad is same, and E >= stride: I = stride*O.
    - Every stride is 1.

    If ``dst_shape`` is given, output_padding is ignored.

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range, or dst_shape is required and missing.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows oneDNN's documentation of ConvolutionBackpropData-1.

    >>> import numpy as np
    >>> diff_dst = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 10], np.float32).reshape(2, 1, 1)
    >>> convolution_backward_data(diff_dst, weights, (1, 5, 1), strides=2).ravel().tolist()
    [1.0, 10.0, 2.0, 20.0, 0.0]
    """


@computed_by(call, "ConvolutionBackwardWeights")
def convolution_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    **keywords: Unpack[GradientKeywords],
) -> Array:
    """Differentiate by weights: diff_weights[k, c, o] = sum over n, p of src[n, i, c] diff_dst[n, p, o].

    Here i = p*stride + k*dilation - pad_begin. Positions i outside src add nothing, so a tap that meets only padding
    has gradient 0. Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), result (K..., C/groups, O).

    You must pass ``weights_shape``, because I and O do not determine K.

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range, or weights_shape is missing.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows oneDNN's documentation of ConvolutionBackwardWeights.

    >>> import numpy as np
    >>> src = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> diff_dst = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
    >>> convolution_backward_weights(src, diff_dst, (2, 1, 1)).ravel().tolist()
    [7.0, 10.0]
    """


@computed_by(call, "ConvTranspose")
def conv_transpose(
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    **keywords: Unpack[TransposedForwardKeywords],
) -> Array:
    """Compute a transposed convolution: dst[n, i, o] = bias[o] + sum over k, c of src[n, p, c] weights[k, o, c].

    The sum runs over the taps k and positions p with i = p*stride + k*dilation - pad_begin.

    Shapes (NXC, XOI): src (N, l..., C), weights (K..., O/groups, C), bias (O,), result (N, L..., O).
    The result's extents are L = stride*(l - 1) + E - P + output_padding, where E = dilation*(K - 1) + 1 and
    P = pad_begin + pad_end. If auto_pad is same, P = max(E - stride, 0).
    ``output_padding`` applies in every pad mode and must be below max(stride, dilation).

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows the ConvTranspose operator as oneDNN's documentation of its gradients defines it.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 10, 100], np.float32).reshape(3, 1, 1)
    >>> conv_transpose(src, weights, strides=2).ravel().tolist()
    [1.0, 10.0, 102.0, 20.0, 200.0]
    """


@computed_by(call, "ConvTransposeBackwardData")
def conv_transpose_backward_data(
    diff_dst: ArrayLike,
    weights: ArrayLike,
    **keywords: Unpack[PaddedGradientKeywords],
) -> Array:
    """Differentiate by src: diff_src[n, p, c] = sum over k, o of diff_dst[n, i, o] weights[k, o, c].

    Here i = p*stride + k*dilation - pad_begin, so the result is a plain convolution of diff_dst.

    Shapes (NXC, XOI): diff_dst (N, L..., O), weights (K..., O/groups, C), result (N, l..., C). The result's extents
    are l = floor((L + P - E)/stride) + 1. If ``output_padding`` is given, L = stride*(l - 1) + E - P + output_padding
    must hold exactly.

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows oneDNN's documentation of ConvTransposeBackwardData, with the padding rule of :func:`conv_transpose`.

    >>> import numpy as np
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> weights = np.array([1, 0, 1], np.float32).reshape(3, 1, 1)
    >>> conv_transpose_backward_data(diff_dst, weights, strides=2).ravel().tolist()
    [4.0, 8.0]
    """


@computed_by(call, "ConvTransposeBackwardWeights")
def conv_transpose_backward_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    **keywords: Unpack[PaddedGradientKeywords],
) -> Array:
    """Differentiate by weights: diff_weights[k, o, c] = sum over n, p of src[n, p, c] diff_dst[n, i, o].

    Here i = p*stride + k*dilation - pad_begin. Positions i outside diff_dst add nothing. The result is the weight
    gradient of a convolution with src and diff_dst exchanged.

    Shapes (NXC, XOI): src (N, l..., C), diff_dst (N, L..., O), result (K..., O/groups, C). The difference
    d = L - (stride*(l - 1) + E - P) must satisfy 0 <= d < max(stride, dilation). If ``output_padding`` is given, d must
    be equal to ``output_padding``.

    You must pass ``weights_shape``, because l and L do not determine K.

    Raises:
        InvalidShapeError: The shapes do not fit. The message shows the formula and the extents that fit.
        InvalidAttributeError: An attribute is out of its range, or weights_shape is missing.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows oneDNN's documentation of ConvTransposeBackwardWeights.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> conv_transpose_backward_weights(src, diff_dst, (3, 1, 1), strides=2).ravel().tolist()
    [7.0, 10.0, 13.0]
    """


@computed_by(call, "BiasAdd")
def bias_add(
    src: ArrayLike,
    bias: ArrayLike,
    **keywords: Unpack[BiasAddKeywords],
) -> Array:
    """Add one value per channel: dst[n, p, c] = src[n, p, c] + bias[c].

    Shapes (NXC): src (N, X..., C), bias (C,), result (N, X..., C). There may be any number of spatial axes, or none.

    Raises:
        InvalidShapeError: bias does not have the shape (C,), or src has fewer than two axes.
        InvalidDataTypeError: The operands have an unsupported type, or different types.

    Follows BiasAdd of the oneDNN developer guide.

    >>> import numpy as np
    >>> bias_add(np.zeros((1, 2, 2), np.float32), np.array([1, 2], np.float32)).tolist()
    [[[1.0, 2.0], [1.0, 2.0]]]
    """


@computed_by(call, "BiasAddBackward")
def bias_add_backward(
    diff_dst: ArrayLike,
    **keywords: Unpack[BiasGradientKeywords],
) -> Array:
    """Differentiate by the bias: diff_bias[c] = sum over n, p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C), result (C,). There may be any number of spatial axes, or none.

    Raises:
        InvalidShapeError: diff_dst has fewer than two axes.
        InvalidDataTypeError: diff_dst has an unsupported type.

    Follows BiasAddBackward of the oneDNN developer guide.

    >>> import numpy as np
    >>> bias_add_backward(np.ones((2, 3, 3, 2), np.float32)).tolist()
    [18.0, 18.0]
    """
