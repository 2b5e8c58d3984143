"""Per-sample gradients: the squared norms of the weight and bias gradients of each image of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from convgrad import engines
from convgrad.arrays import libraries
from convgrad.functional.call import check_options, prepare
from convgrad.functional.declared import computed_by, defaults_of
from convgrad.functional.keywords import SampleNormsKeywords
from convgrad.functional.types import Array, ShapeLike
from convgrad.spec import samples
from convgrad.spec.operators import find
from convgrad.spec.rules import refuse
from convgrad.words import shown

OPERATORS = {False: "ConvolutionBackwardWeights", True: "ConvTransposeBackwardWeights"}
OF_EITHER = defaults_of(find(OPERATORS[False])) | {"weights_format": None, "transposed": False}


def of_either(compute: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function that calls ``compute`` for the weight gradient that the option ``transposed`` selects.

    If ``transposed`` is False and output_padding is given, the checks raise an error.
    """

    def computed(
        _: str, operands: tuple[object, ...], attributes: dict[str, object], *, transposed: object, **options: object
    ) -> Array:
        output_padding = attributes.pop("output_padding")
        if not isinstance(transposed, bool | np.bool_):  # A2
            refuse("A2", OPERATORS[False], f"transposed must be a bool; got {shown(transposed)}")
        padding = {"output_padding": output_padding} if transposed or output_padding is not None else {}
        return compute(OPERATORS[bool(transposed)], operands, attributes | padding, **options)

    return computed


def norms2(operator: str, operands: tuple[object, ...], attributes: Mapping[str, object], threads: int | None) -> Array:
    """Return the squared norms of the samples' gradients, of shape (N,) and type f64, for a call."""
    check_options(operator, None, False, threads)
    prepared = prepare(operator, operands, attributes, lenient=True)
    norms = np.empty(prepared.problem.geometry.batch)
    engines.norms2(samples.of_one(prepared.problem), prepared.operands, norms, threads)
    result: Array = libraries.like(operands[0])(norms)
    return result


@computed_by(of_either(norms2), OPERATORS[False], OF_EITHER)
def per_sample_weights_norm2(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    **keywords: Unpack[SampleNormsKeywords],
) -> Array:
    """Return the squared norm of each sample's weight gradient: norm2[n] = sum over k, c, o of grad[n, k, c, o]**2.

    Here grad[n, k, c, o] = sum over p of src[n, i, c] diff_dst[n, p, o], where i = p*stride + k*dilation - pad_begin.
    grad[n] is the weight gradient of image n alone. The gradient is computed in f32 (f64 for f64 operands) and never
    rounded to a narrower type. The result has shape (N,) and type f64. Squares of f32 numbers are exact in f64, and
    neither overflow nor underflow. A sample that is not finite affects only its own norm.

    Each thread keeps one gradient in memory at a time, however large the batch. If diff_dst has one position, as in a
    fully connected layer, norm2[n] is the product of the squared norms of src and diff_dst, summed over groups. In this
    case no gradient is computed, except for f64 operands.

    Shapes (NXC): src (N, I..., C), diff_dst (N, O..., O). If ``transposed`` is True, the operands and attributes are
    the same as in :func:`conv_transpose_backward_weights`, including ``output_padding``.

    Raises:
        InvalidShapeError, InvalidAttributeError, InvalidDataTypeError: See these functions.

    Follows oneDNN's documentation of the operators for each sample. ``spec/samples.py`` defines the order of the sums.

    >>> import numpy as np
    >>> src = np.arange(1, 9, dtype=np.float32).reshape(2, 4, 1)
    >>> diff_dst = np.array([1, 0, 2, 1, 0, 0], np.float32).reshape(2, 3, 1)
    >>> per_sample_weights_norm2(src, diff_dst, (2, 1, 1)).tolist()  # of the gradients [7, 10] and [5, 6]
    [149.0, 61.0]
    """


@computed_by(norms2, "BiasAddBackward")
def per_sample_bias_norm2(diff_dst: ArrayLike, *, data_format: str = "NXC", threads: int | None = None) -> Array:
    """Return the squared norm of each sample's bias gradient: norm2[n] = sum over c of (sum over p of dy[n, p, c])**2.

    Shapes (NXC): diff_dst (N, X..., C), result (N,) of f64. Precision and memory are as in
    :func:`per_sample_weights_norm2`. Add both results to get the squared norm by weights and bias together.

    Raises:
        InvalidShapeError, InvalidAttributeError, InvalidDataTypeError: See :func:`bias_add_backward`.

    Follows BiasAddBackward of the oneDNN developer guide, sample by sample.

    >>> import numpy as np
    >>> per_sample_bias_norm2(np.ones((2, 3, 4), np.float32)).tolist()  # of the gradients [3, 3, 3, 3]
    [36.0, 36.0]
    """
