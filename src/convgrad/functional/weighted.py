"""Weighted sums of the gradients of a batch's samples: each sample's scale, or that which clips its norm."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convgrad import arrays, libraries
from convgrad.functional.call import check_options, prepare, room
from convgrad.functional.declared import computed_by
from convgrad.functional.samples import OPERATORS, norms2, operator_of
from convgrad.functional.scaled_sum import weighted_sum
from convgrad.functional.types import Array, DType, PerAxis, ShapeLike
from convgrad.spec import samples
from convgrad.spec.rules import refuse


def _weighted(
    operator: str, operands: tuple[object, ...], attributes: dict[str, Any], *, transposed: bool = False, **options: Any
) -> Array:
    if operator in OPERATORS.values():
        operator, attributes = operator_of(transposed, attributes)
    return weighted_sum(operator, operands, attributes, **options)


def _clipped(
    _: str, operands: tuple[object, ...], attributes: dict[str, Any], *, max_norm: float, transposed: bool,
    dtype: DType | None, out: Array | None, accumulate: bool, threads: int | None,
) -> Array:  # fmt: skip
    operator, attributes = operator_of(transposed, attributes)
    check_options(operator, out, accumulate, threads)
    most, prepared = _norm(operator, max_norm), prepare(operator, operands, attributes, dtype, accumulate, lenient=True)
    if out is not None:
        room(prepared.problem, out, prepared.taken)  # refused before any work
    scale = clip_scales(norms2(operator, operands, attributes, threads), most)
    return weighted_sum(operator, operands, attributes, scale, dtype, out, accumulate, threads)


def _norm(operator: str, max_norm: object) -> float:
    """Return the largest norm as a finite float, by rule S2: beyond it no norm is but one that is infinite."""
    is_number = isinstance(max_norm, int | float | np.integer | np.floating) and not isinstance(max_norm, bool)
    number = np.nan if not is_number else max_norm if isinstance(max_norm, int) else float(max_norm)  # type: ignore[arg-type]
    if not number > 0:  # S2
        refuse("S2", operator, f"max_norm must be a positive number; got {max_norm!r:.200}")
    return float(min(number, sys.float_info.max))


@computed_by(_weighted, OPERATORS[False])
def weighted_weights_sum(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    scale: ArrayLike,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str | None = None,
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    transposed: bool = False,
    output_padding: PerAxis | None = None,
) -> Array:
    """Return the weighted sum of the samples' weight gradients: sum over n of scale[n] * grad[n, k, c, o].

    It is the weight gradient of src and of scale[n] * diff_dst, or of scale[n] * src where src has fewer elements, each
    product rounded once to f32, in the order of the plain one: scales of one give its bits. ``scale`` has one number
    per image, (N,), which is rounded to f32. No gradient of a sample is formed, and operands are scaled some images at
    a time, however large the batch. Of f64 operands all is in f64.

    Operands, attributes and options are those of :func:`convolution_backward_weights`, or, ``transposed``, of
    :func:`conv_transpose_backward_weights`, which has an ``output_padding`` too; ``weights_format`` is XIO by default,
    transposed XOI.

    Raises:
        InvalidShapeError: ``scale`` has another shape than (N,); or as those functions do.
        InvalidAttributeError, InvalidDataTypeError: as those functions do.

    Follows the documents of those operators, sample by sample; ``spec/samples.py`` has the order of the sums.

    >>> import numpy as np
    >>> src = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    >>> diff_dst = np.array([1, 0, 2, 1, 0, 0], np.float32).reshape(2, 3, 1)
    >>> weighted_weights_sum(src, diff_dst, (2, 1, 1), scale=[2.0, 0.5]).ravel().tolist()  # of [7, 10] and [5, 6]
    [16.5, 23.0]
    """


@computed_by(_weighted, "BiasAddBackward")
def weighted_bias_sum(
    diff_dst: ArrayLike,
    *,
    scale: ArrayLike,
    data_format: str = "NXC",
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
) -> Array:
    """Return the weighted sum of the samples' bias gradients: sum over n of scale[n] * sum over p of diff_dst[n, p, c].

    Shapes (NXC): diff_dst (N, X..., C), scale (N,), result (C,). What is said of :func:`weighted_weights_sum` holds;
    the options are those of :func:`bias_add_backward`.

    Raises:
        InvalidShapeError: ``scale`` has another shape than (N,); or as :func:`bias_add_backward` does.
        InvalidAttributeError, InvalidDataTypeError: as :func:`bias_add_backward` does.

    Follows BiasAddBackward of the oneDNN developer guide, sample by sample.

    >>> import numpy as np
    >>> weighted_bias_sum(np.ones((2, 3, 2), np.float32), scale=[2.0, 0.5]).tolist()
    [7.5, 7.5]
    """


def clip_scales(norm2: ArrayLike, max_norm: float) -> Array:
    """Return what scales gradients of these squared norms to a norm of at most ``max_norm``: min(1, max_norm / norm).

    Shapes: norm2 (N,), of f64; result (N,) of f32, rounded towards zero, so that it never exceeds the quotient; 1 where
    the norm is 0, 0 where it is infinite, NaN where it is NaN. Where a gradient has several parts, as those of several
    layers, norm2 is the sum of theirs. Samples whose scale is below 1 were clipped.

    Raises:
        InvalidAttributeError: ``max_norm`` is no positive number.
        InvalidDataTypeError: ``norm2`` is no array of floating-point numbers.

    Follows no document of the operators; ``spec/samples.py`` defines it.

    >>> clip_scales([0.0, 1.0, 16.0], max_norm=2).tolist()
    [1.0, 1.0, 0.5]
    """
    taken, _ = arrays.take(norm2, "clip_scales", "norm2")
    result: Array = libraries.like(norm2)(samples.clip_scales(taken.astype(np.float64), _norm("clip_scales", max_norm)))
    return result


@computed_by(_clipped, OPERATORS[False])
def clipped_weights_sum(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    *,
    max_norm: float,
    strides: PerAxis = 1,
    pads_begin: PerAxis = 0,
    pads_end: PerAxis = 0,
    dilations: PerAxis = 1,
    auto_pad: str | None = "none",
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str | None = None,
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    transposed: bool = False,
    output_padding: PerAxis | None = None,
) -> Array:
    """Return the sum of the samples' weight gradients, each scaled by min(1, max_norm / norm) of its own.

    It is :func:`weighted_weights_sum`, whose operands, attributes and options it has, of the scales that
    :func:`clip_scales` makes of :func:`per_sample_weights_norm2`, to the same bits. Call these three where gradients
    are clipped by the norm of several layers, or where it is to be known which were clipped.

    Raises:
        InvalidAttributeError: ``max_norm`` is no positive number; or as :func:`weighted_weights_sum` does.
        InvalidShapeError, InvalidDataTypeError: as :func:`weighted_weights_sum` does.

    Follows the documents of those operators, sample by sample; ``spec/samples.py`` has the order of the sums.

    >>> import numpy as np
    >>> src, diff_dst = np.array([3, 30], np.float32), np.array([1, 1], np.float32)
    >>> src, diff_dst = src.reshape(2, 1, 1), diff_dst.reshape(2, 1, 1)
    >>> clipped_weights_sum(src, diff_dst, (1, 1, 1), max_norm=15).ravel().tolist()  # 3 as it is, 30 at half
    [18.0]
    """
