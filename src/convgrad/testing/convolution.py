"""Assertions about results of convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from convgrad.functional.types import PerAxis, ShapeLike
from convgrad.verify.check import check
from convgrad.verify.verdict import WRONG, Verdict


class ResultKeywords(TypedDict, total=False):
    """The keywords that describe the arithmetic of a result."""

    old: ArrayLike
    accumulation: str
    height: PerAxis
    algorithm: str


class LayerKeywords(ResultKeywords, total=False):
    """The keywords that describe a layer, and the arithmetic of a result."""

    strides: PerAxis
    pads_begin: PerAxis
    pads_end: PerAxis
    dilations: PerAxis
    auto_pad: str | None
    groups: int
    data_format: str
    weights_format: str
    output_padding: PerAxis


class Bias(ResultKeywords, total=False):
    """The keywords of a bias gradient."""

    data_format: str


def passed(verdict: Verdict, note: str = "") -> Verdict:
    """Return a verdict that is ok; raise AssertionError with the verdict's text, and a note, for any other verdict."""
    __tracebackhide__ = True  # pytest then ends its traceback at the caller
    if verdict.ok:
        return verdict
    raise AssertionError(f"{verdict}\n  {note}" if note else str(verdict))


def check_shape(actual: ArrayLike, shape: Sequence[int]) -> None:
    """Raise AssertionError if a result has another shape."""
    __tracebackhide__ = True
    if np.shape(actual) != tuple(shape):
        reason = f"result must be of shape {tuple(shape)}; got {np.shape(actual)}"
        raise AssertionError(str(Verdict(outcome=WRONG, reason=reason)))


def assert_convolution(
    actual: ArrayLike,
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    transposed: bool = False,
    **attributes: Unpack[LayerKeywords],
) -> Verdict:
    """Assert that an array is the convolution of src and weights, and return the verdict.

    Arrays are NumPy, PyTorch or JAX arrays in CPU memory, or arrays of any library with DLPack. The operands have one
    type (f32, bf16, f16, f64 or f8), and ``actual`` is judged by its own type. ``transposed=True`` is for transposed
    convolutions. The other keywords describe the layer, with the defaults of :func:`convgrad.convolution`: ``strides``,
    ``pads_begin``, ``pads_end``, ``dilations``, ``auto_pad``, ``groups``, ``data_format``, ``weights_format`` and
    ``output_padding``.

    Four keywords describe the arithmetic, as in :func:`convgrad.verify.check`:

    - ``accumulation``: the type of the sums: f32, bf16, f16, tf32 or f64. Default: f32, and f64 for f64 operands.
    - ``height``: the rounding depth, or the block sizes of a known order of the sums. Default: any order.
    - ``algorithm``: "sum" (the default), "winograd:M,R" or "fft".
    - ``old``: the array to which the result was added.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict: its outcome, the wrong elements, and the
            name of the bug.
        ConvgradError: The operands or attributes are invalid.

    >>> src, weights = np.ones((1, 4, 1), np.float32), np.ones((2, 1, 1), np.float32)
    >>> assert_convolution(np.array([[[2], [2], [2]]], np.float32), src, weights).outcome
    'ok'
    """
    __tracebackhide__ = True
    operator = "ConvTranspose" if transposed else "Convolution"
    inputs = (src, weights) if bias is None else (src, weights, bias)
    return passed(check(operator, actual, *inputs, **attributes))


def assert_weight_gradient(
    actual: ArrayLike,
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    transposed: bool = False,
    **attributes: Unpack[LayerKeywords],
) -> Verdict:
    """Assert that an array is the weight gradient of a convolution, and return the verdict.

    If you omit ``weights_shape``, the weights have the shape of ``actual``. The keywords are those of
    :func:`assert_convolution`.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands or attributes are invalid.

    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> assert_weight_gradient(np.full((2, 1, 1), 6, np.float32), src, diff_dst, strides=2).outcome
    'ok'
    """
    __tracebackhide__ = True
    operator = "ConvTransposeBackwardWeights" if transposed else "ConvolutionBackwardWeights"
    shape = np.shape(actual) if weights_shape is None else weights_shape
    return passed(check(operator, actual, src, diff_dst, shape, **attributes))


def assert_data_gradient(
    actual: ArrayLike,
    diff_dst: ArrayLike,
    weights: ArrayLike,
    src_shape: Sequence[int] | None = None,
    *,
    transposed: bool = False,
    **attributes: Unpack[LayerKeywords],
) -> Verdict:
    """Assert that an array is the gradient of a convolution by src, and return the verdict.

    If you omit ``src_shape``, src has the shape of ``actual``. Several shapes of src are possible if a stride is larger
    than 1. Then pass ``src_shape``, so that ``actual`` must have this shape. The keywords are those of
    :func:`assert_convolution`.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands or attributes are invalid.

    >>> diff_dst, weights = np.ones((1, 2, 1), np.float32), np.ones((2, 1, 1), np.float32)
    >>> assert_data_gradient(np.ones((1, 4, 1), np.float32), diff_dst, weights, (1, 4, 1), strides=2).outcome
    'ok'
    """
    __tracebackhide__ = True
    if src_shape is not None:
        check_shape(actual, src_shape)
    if transposed:
        return passed(check("ConvTransposeBackwardData", actual, diff_dst, weights, **attributes))
    return passed(check("ConvolutionBackwardData", actual, diff_dst, weights, np.shape(actual), **attributes))


def assert_bias_gradient(actual: ArrayLike, diff_dst: ArrayLike, **attributes: Unpack[Bias]) -> Verdict:
    """Assert that an array is the bias gradient of a convolution or linear layer, and return the verdict.

    Keywords are ``data_format``, and those of :func:`assert_convolution` that describe the arithmetic.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands or attributes are invalid.

    >>> assert_bias_gradient(np.full(4, 6, np.float32), np.ones((2, 3, 4), np.float32)).outcome
    'ok'
    """
    __tracebackhide__ = True
    return passed(check("BiasAddBackward", actual, diff_dst, **attributes))
