"""Weighted sums of per-sample gradients, with scales that are given or that clip each gradient to a norm."""

from __future__ import annotations

import sys
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from convgrad import arrays
from convgrad.arrays import libraries
from convgrad.functional.call import check_options, prepare, room
from convgrad.functional.declared import computed_by
from convgrad.functional.keywords import BiasGradientKeywords, OutputOptions, SampleSumsKeywords
from convgrad.functional.samples import OF_EITHER, OPERATORS, norms2, of_either
from convgrad.functional.scaled_sum import weighted_sum
from convgrad.functional.types import Array, ShapeLike
from convgrad.spec import samples
from convgrad.spec.rules import refuse
from convgrad.words import shown


def _clipped(
    operator: str,
    operands: tuple[object, ...],
    attributes: dict[str, object],
    *,
    max_norm: float,
    **options: Unpack[OutputOptions],
) -> Array:
    out, accumulate, threads = options["out"], options["accumulate"], options["threads"]
    check_options(operator, out, accumulate, threads)
    largest = _norm(operator, max_norm)
    prepared = prepare(operator, operands, attributes, options["dtype"], accumulate, lenient=True)
    if out is not None:
        room(prepared.problem, out, prepared.taken)  # check out before any work
    scale = clip_scales(norms2(operator, operands, attributes, threads), largest)
    return weighted_sum(operator, operands, attributes, scale, **options)


def _norm(operator: str, max_norm: object) -> float:
    """Return ``max_norm`` as a float, checked by rule S2. An infinite ``max_norm`` becomes the largest finite float."""
    is_number = isinstance(max_norm, int | float | np.integer | np.floating) and not isinstance(max_norm, bool)
    number = np.nan if not is_number else max_norm if isinstance(max_norm, int) else float(max_norm)  # type: ignore[arg-type]
    if not number > 0:  # S2
        refuse("S2", operator, f"max_norm must be a positive number; got {shown(max_norm)}")
    return float(min(number, sys.float_info.max))


@computed_by(of_either(weighted_sum), OPERATORS[False], OF_EITHER)
def weighted_weights_sum(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    scale: ArrayLike,
    **keywords: Unpack[SampleSumsKeywords],
) -> Array:
    """Return the weighted sum of the samples' weight gradients: sum over n of scale[n] * grad[n, k, c, o].

    The result is the weight gradient of src and scale[n] * diff_dst. If src has fewer elements than diff_dst, src is
    scaled instead. Scales, and products of scales and elements, are each rounded once to f32 (f64 for f64 operands).
    The order of the sum is the same as in the plain gradient of f32 operands (f64 for f64 operands). So scales of 1
    give the bits of the plain gradient, except if bf16 operands have at least 16 channels of src and of dst per group.
    No gradient of a single sample is computed. Operands are scaled a few images at a time, however large the batch.

    Shapes (NXC): src (N, I..., C), diff_dst (N, O..., O), scale (N,). If ``transposed`` is True, the operands and
    attributes are the same as in :func:`conv_transpose_backward_weights`, including ``output_padding``.

    Raises:
        InvalidShapeError: ``scale`` does not have the shape (N,), or these functions raise the error.
        InvalidAttributeError, InvalidDataTypeError: See these functions.

    Follows oneDNN's documentation of the operators for each sample. ``spec/samples.py`` defines the order of the sums.

    >>> import numpy as np
    >>> src = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    >>> diff_dst = np.array([1, 0, 2, 1, 0, 0], np.float32).reshape(2, 3, 1)
    >>> weighted_weights_sum(src, diff_dst, (2, 1, 1), scale=[2.0, 0.5]).ravel().tolist()  # of [7, 10] and [5, 6]
    [16.5, 23.0]
    """


@computed_by(weighted_sum, "BiasAddBackward")
def weighted_bias_sum(
    diff_dst: ArrayLike,
    *,
    scale: ArrayLike,
    **keywords: Unpack[BiasGradientKeywords],
) -> Array:
    """Return the weighted sum of the samples' bias gradients: sum over n of scale[n] * sum over p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C), scale (N,), result (C,). Rounding, order and memory are as in
    :func:`weighted_weights_sum`.

    Raises:
        InvalidShapeError: ``scale`` does not have the shape (N,), or :func:`bias_add_backward` raises the error.
        InvalidAttributeError, InvalidDataTypeError: See :func:`bias_add_backward`.

    Follows BiasAddBackward of the oneDNN developer guide, sample by sample.

    >>> import numpy as np
    >>> weighted_bias_sum(np.ones((2, 3, 2), np.float32), scale=[2.0, 0.5]).tolist()
    [7.5, 7.5]
    """


def clip_scales(norm2: ArrayLike, max_norm: float) -> Array:
    """Return the scales that clip gradients with squared norms ``norm2`` to ``max_norm``: min(1, max_norm / norm).

    Shapes: norm2 (N,) of f64, result (N,) of f32. The scales are rounded towards zero, so that they never exceed
    max_norm / norm. The scale is 1 if the norm is 0, 0 if the norm is infinite, and NaN if the norm is NaN. A scale
    below 1 means that the sample was clipped. To clip the gradient of several layers together, pass the sum of their
    norm2.

    Args:
        norm2: The squared norms of the samples' gradients, of shape (N,), a floating-point type.
        max_norm: The largest norm that a gradient may have, a positive number.

    Raises:
        InvalidAttributeError: ``max_norm`` is not a positive number.
        InvalidDataTypeError: ``norm2`` is not an array of floating-point numbers.

    Follows no documentation of oneDNN. ``spec/samples.py`` defines the scales.

    >>> clip_scales([0.0, 1.0, 16.0], max_norm=2).tolist()
    [1.0, 1.0, 0.5]
    """
    taken, _ = arrays.take(norm2, "clip_scales", "norm2")
    result: Array = libraries.like(norm2)(samples.clip_scales(taken, _norm("clip_scales", max_norm)))
    return result


@computed_by(of_either(_clipped), OPERATORS[False], OF_EITHER)
def clipped_weights_sum(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    max_norm: float,
    **keywords: Unpack[SampleSumsKeywords],
) -> Array:
    """Return the sum of the samples' weight gradients, each scaled by its own min(1, max_norm / norm).

    The function calls :func:`per_sample_weights_norm2`, :func:`clip_scales` and :func:`weighted_weights_sum`, with the
    same bits as three separate calls. Call the three functions yourself to clip by the norm of several layers, or to
    find out which samples were clipped. Shapes (NXC): src (N, I..., C), diff_dst (N, O..., O).

    Raises:
        InvalidAttributeError: ``max_norm`` is not a positive number, or :func:`weighted_weights_sum` raises the error.
        InvalidShapeError, InvalidDataTypeError: See :func:`weighted_weights_sum`.

    Follows oneDNN's documentation of the operators for each sample. ``spec/samples.py`` defines the order of the sums.

    >>> import numpy as np
    >>> src, diff_dst = np.array([3, 30], np.float32), np.array([1, 1], np.float32)
    >>> src, diff_dst = src.reshape(2, 1, 1), diff_dst.reshape(2, 1, 1)
    >>> clipped_weights_sum(src, diff_dst, (1, 1, 1), max_norm=15).ravel().tolist()  # 3 as it is, 30 at half
    [18.0]
    """
