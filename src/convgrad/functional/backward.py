"""The gradients of a convolution, and of a transposed one, by all of its tensors in one call."""

from __future__ import annotations

from collections.abc import Mapping

from numpy.typing import ArrayLike

from convgrad.functional.declared import computed_by
from convgrad.functional.joint import NAMES, Gradients, Names, OfEach, backward
from convgrad.functional.types import DType, PerAxis, ShapeLike


@computed_by(backward, "convolution_backward")
def convolution_backward(  # type: ignore[empty-body]
    src: ArrayLike | ShapeLike,
    diff_dst: ArrayLike,
    weights: ArrayLike | ShapeLike,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    needs: Names = NAMES,
    dtype: DType | Mapping[str, DType] | None = None,
    out: OfEach | None = None,
    accumulate: bool | Names = False,
    threads: int | None = None,
    max_error: float | None = None,
) -> Gradients:
    """Differentiate a convolution by src, weights and bias: the three sums of a backward pass.

    diff_src[n, i, c] = sum over k, o of diff_dst[n, p, o] weights[k, c, o], diff_weights[k, c, o] = sum over n, p of
    src[n, i, c] diff_dst[n, p, o], diff_bias[o] = sum over n, p of diff_dst[n, p, o], where i = p*stride + k*dilation -
    pad_begin exists.

    ``needs`` says which: nothing else is computed, and None stands in its place. Each has the bits that the function of
    its own gives, which are :func:`convolution_backward_data`, :func:`convolution_backward_weights` and
    :func:`bias_add_backward`. Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), weights (K..., C/groups,
    O); the gradients as src and weights, and (O,).
    Where src or weights are not read, as the gradients they take part in are not asked for, their shape does in their
    place.

    The attributes are those of the forward, :func:`convolution`. ``dtype`` is the type of all gradients, or a mapping
    from names to types; ``out`` a mapping from names, or a tuple like the one returned, of arrays that are written in
    place and returned; ``accumulate`` adds into them, in f32, before the one rounding: True into each that is given,
    names into those; what ``needs`` leaves out is not written to. So buffers are filled over some batches:
    ``out={"weights": dw, "bias": db}, accumulate=True``. ``threads`` bounds the threads of generated kernels. Operands
    are arrays of one type, f32, bf16, f16, f64 or f8, and of any strides.

    ``max_error`` is that of the functions of one gradient: what f32 sums of 3x3 taps may err, to be faster by tiles.

    Raises:
        InvalidShapeError: shapes that do not fit; an out of another shape, or one that overlaps an operand or another.
        InvalidAttributeError: an attribute out of its range, or a name that is none of a gradient.
        InvalidDataTypeError: operands of other or of different types, or a shape where the array is read.

    Follows the documents of the Convolution operators.

    >>> import numpy as np
    >>> src = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> weights = np.array([1, 10], np.float32).reshape(2, 1, 1)
    >>> diff_dst = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
    >>> [gradient.ravel().tolist() for gradient in convolution_backward(src, diff_dst, weights)]
    [[1.0, 10.0, 2.0, 20.0], [7.0, 10.0], [3.0]]
    >>> convolution_backward(src, diff_dst, weights.shape, needs=("weights",)).src is None
    True
    """


@computed_by(backward, "conv_transpose_backward")
def conv_transpose_backward(  # type: ignore[empty-body]
    src: ArrayLike | ShapeLike,
    diff_dst: ArrayLike,
    weights: ArrayLike | ShapeLike,
    *,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    needs: Names = NAMES,
    dtype: DType | Mapping[str, DType] | None = None,
    out: OfEach | None = None,
    accumulate: bool | Names = False,
    threads: int | None = None,
    max_error: float | None = None,
    output_padding: PerAxis | None = None,
) -> Gradients:
    """Differentiate a transposed convolution by src, weights and bias: the three sums of a backward pass.

    diff_src[n, p, c] = sum over k, o of diff_dst[n, i, o] weights[k, o, c], diff_weights[k, o, c] = sum over n, p of
    src[n, p, c] diff_dst[n, i, o], diff_bias[o] = sum over n, i of diff_dst[n, i, o], where i = p*stride + k*dilation -
    pad_begin exists.

    ``needs`` says which: nothing else is computed, and None stands in its place. Each has the bits that the function of
    its own gives, which are :func:`conv_transpose_backward_data`, :func:`conv_transpose_backward_weights` and
    :func:`bias_add_backward`. Shapes (NXC, XOI): src (N, l..., C), diff_dst (N, L..., O), weights
    (K..., O/groups, C); the gradients as src and weights, and (O,).
    Where src or weights are not read, as the gradients they take part in are not asked for, their shape does in their
    place.

    The attributes are those of the forward, :func:`conv_transpose`, whose ``output_padding`` follows from
    src and diff_dst, and is held against them where it is given. ``dtype`` is the type of all gradients, or a mapping
    from names to types; ``out`` a mapping from names, or a tuple like the one returned, of arrays that are written in
    place and returned; ``accumulate`` adds into them, in f32, before the one rounding: True into each that is given,
    names into those; what ``needs`` leaves out is not written to. So buffers are filled over some batches:
    ``out={"weights": dw, "bias": db}, accumulate=True``. ``threads`` bounds the threads of generated kernels. Operands
    are arrays of one type, f32, bf16, f16, f64 or f8, and of any strides.

    ``max_error`` is that of the functions of one gradient: what f32 sums of 3x3 taps may err, to be faster by tiles.

    Raises:
        InvalidShapeError: shapes that do not fit; an out of another shape, or one that overlaps an operand or another.
        InvalidAttributeError: an attribute out of its range, or a name that is none of a gradient.
        InvalidDataTypeError: operands of other or of different types, or a shape where the array is read.

    Follows the documents of the ConvTranspose operators.

    >>> import numpy as np
    >>> src = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 0, 1], np.float32).reshape(3, 1, 1)
    >>> diff_dst = np.arange(1, 6, dtype=np.float32).reshape(1, 5, 1)
    >>> [gradient.ravel().tolist() for gradient in conv_transpose_backward(src, diff_dst, weights, strides=2)]
    [[4.0, 8.0], [7.0, 10.0, 13.0], [15.0]]
    """
