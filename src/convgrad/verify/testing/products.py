"""Assertions about matrix products and linear layers, which are judged as 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.errors import InvalidShapeError
from convgrad.verify.check import check
from convgrad.verify.testing.convolution import ResultKeywords, check_shape, passed, with_keywords
from convgrad.verify.verdict import Verdict


@with_keywords
def assert_matrix_product(
    actual: ArrayLike, a: ArrayLike, b: ArrayLike, **arithmetic: Unpack[ResultKeywords]
) -> Verdict:
    """Assert that an array is the matrix product of a and b, and return the verdict.

    Shapes: a (..., M, K), b (..., K, N), actual (..., M, N). Leading axes are a batch of products, and are broadcast as
    in ``numpy.matmul``.

    Args:
        a: The left matrices, of shape (..., M, K).
        b: The right matrices, of shape (..., K, N).

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands are invalid.

    >>> a, b = np.ones((5, 2, 3), np.float32), np.ones((3, 4), np.float32)
    >>> assert_matrix_product(a @ b, a, b).outcome
    'ok'
    """
    __tracebackhide__ = True
    left, right = _array(a, "a"), _array(b, "b")
    if min(left.ndim, right.ndim) < 2 or left.shape[-1] != right.shape[-2]:
        raise InvalidShapeError(f"a and b must be (..., M, K) and (..., K, N); got {left.shape} and {right.shape}")
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError as error:
        raise InvalidShapeError(f"a and b must have leading axes that broadcast: {error}") from error
    groups = prod(batch)

    def side_by_side(matrices: Array) -> Array:
        """Return the matrices of a batch as channels of groups: (1, rows, columns of all matrices)."""
        rows, columns = matrices.shape[-2:]
        broadcast = np.broadcast_to(matrices, (*batch, rows, columns)).reshape(groups, rows, columns)
        return broadcast.transpose(1, 0, 2).reshape(1, rows, groups * columns)

    shape = (*batch, left.shape[-2], right.shape[-1])
    operands, call = (side_by_side(left), side_by_side(right)), {**arithmetic, "groups": groups}
    columns = f"a channel is g*{shape[-1]} + a column of product g" if groups > 1 else "a channel is a column"
    note = f"note      judged as a 1x1 convolution: a position is a row, and {columns}"
    return _judged(actual, _AsConvolution("Convolution", operands, call, shape, side_by_side), note)


@with_keywords
def assert_linear(
    actual: ArrayLike,
    src: ArrayLike,
    weights: ArrayLike,
    bias: ArrayLike | None = None,
    **arithmetic: Unpack[ResultKeywords],
) -> Verdict:
    """Assert that an array is the result of a linear layer, src @ weights.T + bias, and return the verdict.

    Shapes: src (N, ..., I), weights (O, I), bias (O,), actual (N, ..., O). In the message, images are indices of the
    first axis, and positions are indices of the axes between.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands are invalid.

    >>> src, weights = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    >>> assert_linear(src @ weights.T, src, weights).outcome
    'ok'
    """
    __tracebackhide__ = True
    data, matrix = _array(src, "src"), _array(weights, "weights")
    operands = (_spatial(data), _one_tap(matrix, data.ndim), *(() if bias is None else (_array(bias, "bias"),)))
    shape, call = (*data.shape[:-1], len(matrix)), {**_OIX, **arithmetic}
    return _judged(actual, _AsConvolution("Convolution", operands, call, shape, _spatial))


@with_keywords
def assert_linear_weight_gradient(
    actual: ArrayLike, src: ArrayLike, diff_dst: ArrayLike, **arithmetic: Unpack[ResultKeywords]
) -> Verdict:
    """Assert that an array is the weight gradient of a linear layer, and return the verdict.

    Shapes: src (N, ..., I), diff_dst (N, ..., O), actual (O, I), as in :func:`assert_linear`.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands are invalid.

    >>> src, diff_dst = np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)
    >>> assert_linear_weight_gradient(diff_dst.T @ src, src, diff_dst).outcome
    'ok'
    """
    __tracebackhide__ = True
    data, diff = _array(src, "src"), _array(diff_dst, "diff_dst")
    shape, operands = (diff.shape[-1], data.shape[-1]), (_spatial(data), _spatial(diff))
    call = {**_OIX, **arithmetic, "weights_shape": _one_tap(np.empty(shape), data.ndim).shape}
    view = partial(_one_tap, ndim=data.ndim)
    return _judged(actual, _AsConvolution("ConvolutionBackwardWeights", operands, call, shape, view))


@with_keywords
def assert_linear_data_gradient(
    actual: ArrayLike, diff_dst: ArrayLike, weights: ArrayLike, **arithmetic: Unpack[ResultKeywords]
) -> Verdict:
    """Assert that an array is the gradient of a linear layer by src, and return the verdict.

    Shapes: diff_dst (N, ..., O), weights (O, I), actual (N, ..., I), as in :func:`assert_linear`.

    Raises:
        AssertionError: The verdict is not ok. The message is the verdict.
        ConvgradError: The operands are invalid.

    >>> diff_dst, weights = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    >>> assert_linear_data_gradient(diff_dst @ weights, diff_dst, weights).outcome
    'ok'
    """
    __tracebackhide__ = True
    diff, matrix = _array(diff_dst, "diff_dst"), _array(weights, "weights")
    operands = (_spatial(diff), _one_tap(matrix, diff.ndim))
    shape = (*diff.shape[:-1], *matrix.shape[1:])
    call = {**_OIX, **arithmetic}
    return _judged(actual, _AsConvolution("ConvolutionBackwardData", operands, call, shape, _spatial))


_OIX = {"weights_format": "OIX"}


def _array(value: object, name: str) -> Array:
    return arrays.take(libraries.detached(value), "convgrad.verify.testing", name)[0]


def _spatial(data: Array) -> Array:
    """Return the data of a linear layer as data of a convolution, with at least one spatial axis."""
    return data[:, np.newaxis] if data.ndim == 2 else data


def _one_tap(matrix: Array, ndim: int) -> Array:
    """Return the weights of a linear layer as weights with one tap, for data with ``ndim`` axes."""
    return matrix.reshape(*matrix.shape, *(1,) * max(ndim - 2, 1))


@dataclass(frozen=True, eq=False)
class _AsConvolution:
    """A product as the convolution that is checked: the call of an operator, and how results become its results.

    ``shape`` is the shape of a product, and ``view`` gives it the axes of the convolution's result.
    """

    operator: str
    operands: tuple[Array, ...]
    keywords: Mapping[str, Any]
    shape: tuple[int, ...]
    view: Callable[[Array], Array]


def _judged(actual: ArrayLike, convolution: _AsConvolution, note: str = "") -> Verdict:
    """Return the verdict on a product, if it is ok."""
    __tracebackhide__ = True
    shape, view, keywords = convolution.shape, convolution.view, dict(convolution.keywords)
    check_shape(actual, shape)
    if 0 in shape:
        return Verdict()  # a convolution cannot have 0 channels
    if keywords.get("old") is not None:
        keywords["old"] = view(_array(keywords["old"], "old"))
    verdict = check(convolution.operator, view(_array(actual, "actual")), *convolution.operands, **keywords)
    if verdict.worst:
        places = view(np.arange(prod(shape)).reshape(shape))
        worst = np.unravel_index(places[verdict.worst], shape)
        verdict = replace(verdict, worst=tuple(map(int, worst)), mask=None)
    return passed(verdict, note)
