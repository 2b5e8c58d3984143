"""Single samples of a batch: the squared norms of their weight gradients, and a weighted sum of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convgrad import engines, libraries
from convgrad.functional.call import check_options, prepare
from convgrad.functional.declared import computed_by
from convgrad.functional.types import Array, PerAxis, ShapeLike
from convgrad.spec import samples
from convgrad.spec.rules import refuse

OPERATORS = {False: "ConvolutionBackwardWeights", True: "ConvTransposeBackwardWeights"}


def operator_of(transposed: object, attributes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the operator that is meant, and its attributes: an output_padding is refused where there is none."""
    output_padding = attributes.pop("output_padding")
    if not isinstance(transposed, bool | np.bool_):  # A2
        refuse("A2", OPERATORS[False], f"transposed must be a bool; got {transposed!r:.200}")
    padding = {"output_padding": output_padding} if transposed or output_padding is not None else {}
    return OPERATORS[bool(transposed)], attributes | padding


def norms2(operator: str, operands: tuple[object, ...], attributes: Mapping[str, Any], threads: int | None) -> Array:
    """Return the squared norms of a call's samples, of its operands and attributes."""
    check_options(operator, None, False, threads)
    prepared = prepare(operator, operands, attributes, lenient=True)
    norms = np.empty(prepared.problem.geometry.batch)
    engines.norms2(samples.of_one(prepared.problem), prepared.operands, norms, threads)
    result: Array = libraries.like(operands[0])(norms)
    return result


def _weights_norms2(
    _: str, operands: tuple[object, ...], attributes: dict[str, Any], threads: int | None, transposed: bool
) -> Array:
    operator, attributes = operator_of(transposed, attributes)
    return norms2(operator, operands, attributes, threads)


@computed_by(_weights_norms2, OPERATORS[False])
def per_sample_weights_norm2(
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
    weights_format: str | None = None,
    threads: int | None = None,
    transposed: bool = False,
    output_padding: PerAxis | None = None,
) -> Array:
    """Return the squared norm of each sample's weight gradient: norm2[n] = sum over k, c, o of grad[n, k, c, o]**2.

    Here grad[n, k, c, o] = sum over p of src[n, i, c] diff_dst[n, p, o], with i = p*stride + k*dilation - pad_begin:
    the weight gradient of image n alone, in f32, never rounded to a narrower type. Result (N,) of f64, in which squares
    of f32 are exact: they neither overflow nor underflow. A sample that is not finite reaches its own norm only. One
    gradient a thread is in memory at a time, however large the batch. Where diff_dst has one position, as in a fully
    connected layer, norm2[n] is that of src times that of diff_dst, and no gradient is computed. Of f64 operands all is
    in f64.

    Operands and attributes are those of :func:`convolution_backward_weights`, or, ``transposed``, of
    :func:`conv_transpose_backward_weights`, which has an ``output_padding`` too; ``weights_format`` is XIO by default,
    transposed XOI.

    Raises:
        InvalidShapeError, InvalidAttributeError, InvalidDataTypeError: as those functions do.

    Follows the documents of those operators, sample by sample; ``spec/samples.py`` has the order of the sums.

    >>> import numpy as np
    >>> src = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    >>> diff_dst = np.array([1, 0, 2, 1, 0, 0], np.float32).reshape(2, 3, 1)
    >>> per_sample_weights_norm2(src, diff_dst, (2, 1, 1)).tolist()  # of the gradients [7, 10] and [5, 6]
    [149.0, 61.0]
    """


@computed_by(norms2, "BiasAddBackward")
def per_sample_bias_norm2(diff_dst: ArrayLike, *, data_format: str = "NXC", threads: int | None = None) -> Array:
    """Return the squared norm of each sample's bias gradient: norm2[n] = sum over c of (sum over p of dy[n, p, c])**2.

    Shapes (NXC): diff_dst (N, X..., C), result (N,) of f64. What is said of :func:`per_sample_weights_norm2` holds: the
    norm2 of a layer's gradient by both is the sum of both.

    Raises:
        InvalidShapeError, InvalidAttributeError, InvalidDataTypeError: as :func:`bias_add_backward` does.

    Follows BiasAddBackward of the oneDNN developer guide, sample by sample.

    >>> import numpy as np
    >>> per_sample_bias_norm2(np.ones((2, 3, 4), np.float32)).tolist()  # of the gradients [3, 3, 3, 3]
    [36.0, 36.0]
    """
