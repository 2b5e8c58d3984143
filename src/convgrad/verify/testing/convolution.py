"""Assertions about results of convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, TypedDict, Unpack, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from convgrad.functional.types import PerAxis, ShapeLike
from convgrad.parameters import Function, described
from convgrad.verify.check import check
from convgrad.verify.declared import SUM
from convgrad.verify.verdict import WRONG, Verdict


class ResultKeywords(TypedDict, total=False):
    """The keywords that describe the arithmetic of a result."""

    old: ArrayLike | None
    accumulation: str | None
    height: PerAxis | None
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
    weights_format: str | None
    output_padding: PerAxis | None


class Bias(ResultKeywords, total=False):
    """The keywords of a bias gradient."""

    data_format: str


DEFAULTS: dict[str, Any] = {  # the values that the keywords have if they are not passed
    "old": None,
    "accumulation": None,
    "height": None,
    "algorithm": SUM,
    "strides": 1,
    "pads_begin": 0,
    "pads_end": 0,
    "dilations": 1,
    "auto_pad": "none",
    "groups": 1,
    "data_format": "NXC",
    "weights_format": None,
    "output_padding": None,
}


def with_keywords(function: Function) -> Function:
    """Return a function whose signature and docstring have its keywords one by one, instead of a TypedDict of them."""
    declared = signature(function)
    *others, last = declared.parameters.values()
    (keywords,) = get_type_hints(function)[last.name].__args__
    one_by_one = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=DEFAULTS[name], annotation=annotation.__forward_arg__)
        for name, annotation in keywords.__annotations__.items()
    ]
    vars(function)["__signature__"] = declared.replace(parameters=[*others, *one_by_one])
    return described(function)


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


def _without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value, because some operators have no ``output_padding``, not even of None."""
    return {name: value for name, value in attributes.items() if value is not None}


@with_keywords
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
    type (f32, bf16, f16, f64 or f8), and ``actual`` is judged by its own type. Shapes (NXC, XIO): src (N, I..., C),
    weights (K..., C/groups, O), bias (O,), actual (N, O..., O). The keywords describe the layer and, as in
    :func:`convgrad.verify.check`, the arithmetic.

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
    return passed(check(operator, actual, *inputs, **_without_none(attributes)))


@with_keywords
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

    Shapes (NXC, XIO): src (N, I..., C), diff_dst (N, O..., O), actual (K..., C/groups, O). The keywords are those of
    :func:`assert_convolution`.

    Args:
        weights_shape: The shape of the weights, in the order of ``weights_format``; None is the shape of ``actual``.
            Default: None.

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
    return passed(check(operator, actual, src, diff_dst, shape, **_without_none(attributes)))


@with_keywords
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

    Shapes (NXC, XIO): diff_dst (N, O..., O), weights (K..., C/groups, O), actual (N, I..., C). Several shapes of src
    are possible if a stride is larger than 1. Then pass ``src_shape``, so that ``actual`` must have this shape. The
    keywords are those of :func:`assert_convolution`.

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
        return passed(check("ConvTransposeBackwardData", actual, diff_dst, weights, **_without_none(attributes)))
    return passed(
        check("ConvolutionBackwardData", actual, diff_dst, weights, np.shape(actual), **_without_none(attributes))
    )


@with_keywords
def assert_bias_gradient(actual: ArrayLike, diff_dst: ArrayLike, **attributes: Unpack[Bias]) -> Verdict:
    """Assert that an array is the bias gradient of a convolution or linear layer, and return the verdict.

    Shapes (NXC): diff_dst (N, X..., C), actual (C,).

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands or attributes are invalid.

    >>> assert_bias_gradient(np.full(4, 6, np.float32), np.ones((2, 3, 4), np.float32)).outcome
    'ok'
    """
    __tracebackhide__ = True
    return passed(check("BiasAddBackward", actual, diff_dst, **attributes))
