"""The functions that compute all gradients of a convolution or a transposed convolution in one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from numpy.typing import ArrayLike

from convgrad.functional.declared import computed_by, defaults_of
from convgrad.functional.joint import NAMES, ROWS, Gradients, JointOptions, backward
from convgrad.functional.keywords import AttributeKeywords, OutputPaddingKeywords
from convgrad.functional.types import ShapeLike


class JointGradientsKeywords(AttributeKeywords, JointOptions, total=False):
    """The keywords of all gradients of a convolution."""


class PaddedJointGradientsKeywords(JointGradientsKeywords, OutputPaddingKeywords, total=False):
    """The keywords of all gradients of a transposed convolution."""


def _defaults(function: str) -> Mapping[str, object]:
    return defaults_of(ROWS[function]) | {"needs": NAMES}


@computed_by(backward, "convolution_backward", _defaults("convolution_backward"))
def convolution_backward(  # type: ignore[empty-body]
    src: ArrayLike | ShapeLike,
    diff_dst: ArrayLike,
    weights: ArrayLike | ShapeLike,
    **keywords: Unpack[JointGradientsKeywords],
) -> Gradients:
    """Differentiate a convolution by src, weights and bias, and return the three gradients.

    - diff_src[n, i, c] = sum over k, o of diff_dst[n, p, o] weights[k, c, o]
    - diff_weights[k, c, o] = sum over n, p of src[n, i, c] diff_dst[n, p, o]
    - diff_bias[o] = sum over n, p of diff_dst[n, p, o]

    Here i = p*stride + k*dilation - pad_begin. Positions i outside src add nothing.

    Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), weights (K..., C/groups, O). The src and weights
    gradients have the shapes of src and weights, and the bias gradient has the shape (O,). Each gradient has the same
    bits as the result of its own function: :func:`convolution_backward_data`, :func:`convolution_backward_weights` or
    :func:`bias_add_backward`.

    The src gradient does not read src, and the weights gradient does not read weights. You can pass a shape for an
    array that no gradient in ``needs`` reads.

    Keyword Args:
        dtype: One type for all gradients, or a mapping from names to types; None is the type of the operands.
            Default: None.
        out: A mapping from names to arrays, or a tuple like the one returned. The arrays of gradients in ``needs`` are
            written and returned; None makes new ones. Default: None.
        accumulate: True adds into every array of ``out``. A tuple of names adds into the arrays with these names. The
            old value of an array is added before the only rounding. Default: False.

    For example, ``out={"weights": dw, "bias": db}, accumulate=True`` sums the gradients of several batches.

    Raises:
        InvalidShapeError: The shapes do not fit, or an array in ``out`` has another shape or overlaps another array.
        InvalidAttributeError: An attribute is out of its range, or a name is not that of a gradient.
        InvalidDataTypeError: The operands have an unsupported type or different types, or a shape was given for an
            array that must be read.

    Follows oneDNN's documentation of the Convolution operators.

    >>> import numpy as np
    >>> src = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> weights = np.array([1, 10], np.float32).reshape(2, 1, 1)
    >>> diff_dst = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
    >>> [gradient.ravel().tolist() for gradient in convolution_backward(src, diff_dst, weights)]
    [[1.0, 10.0, 2.0, 20.0], [7.0, 10.0], [3.0]]
    >>> convolution_backward(src, diff_dst, weights.shape, needs=("weights",)).src is None
    True
    """


@computed_by(backward, "conv_transpose_backward", _defaults("conv_transpose_backward"))
def conv_transpose_backward(  # type: ignore[empty-body]
    src: ArrayLike | ShapeLike,
    diff_dst: ArrayLike,
    weights: ArrayLike | ShapeLike,
    **keywords: Unpack[PaddedJointGradientsKeywords],
) -> Gradients:
    """Differentiate a transposed convolution by src, weights and bias, and return the three gradients.

    - diff_src[n, p, c] = sum over k, o of diff_dst[n, i, o] weights[k, o, c]
    - diff_weights[k, o, c] = sum over n, p of src[n, p, c] diff_dst[n, i, o]
    - diff_bias[o] = sum over n, i of diff_dst[n, i, o]

    Here i = p*stride + k*dilation - pad_begin. Positions i outside diff_dst add nothing.

    Shapes (NXC, XOI): src (N, l..., C), diff_dst (N, L..., O), weights (K..., O/groups, C). The src and weights
    gradients have the shapes of src and weights, and the bias gradient has the shape (O,). Each gradient has the same
    bits as the result of its own function: :func:`conv_transpose_backward_data`,
    :func:`conv_transpose_backward_weights` or :func:`bias_add_backward`.

    The src gradient does not read src, and the weights gradient does not read weights. You can pass a shape for an
    array that no gradient in ``needs`` reads.

    ``output_padding`` follows from src and diff_dst. A given
    ``output_padding`` is compared with their shapes.

    Keyword Args:
        dtype: One type for all gradients, or a mapping from names to types; None is the type of the operands.
            Default: None.
        out: A mapping from names to arrays, or a tuple like the one returned. The arrays of gradients in ``needs`` are
            written and returned; None makes new ones. Default: None.
        accumulate: True adds into every array of ``out``. A tuple of names adds into the arrays with these names. The
            old value of an array is added before the only rounding. Default: False.

    For example, ``out={"weights": dw, "bias": db}, accumulate=True`` sums the gradients of several batches.

    Raises:
        InvalidShapeError: The shapes do not fit, or an array in ``out`` has another shape or overlaps another array.
        InvalidAttributeError: An attribute is out of its range, or a name is not that of a gradient.
        InvalidDataTypeError: The operands have an unsupported type or different types, or a shape was given for an
            array that must be read.

    Follows oneDNN's documentation of the ConvTranspose operators.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 0, 1], np.float32).reshape(3, 1, 1)
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> [gradient.ravel().tolist() for gradient in conv_transpose_backward(src, diff_dst, weights, strides=2)]
    [[4.0, 8.0], [7.0, 10.0, 13.0], [15.0]]
    """
