"""Calls of any operator by its name, with the operands and attributes that the operator's document defines."""

from __future__ import annotations

from convgrad.functional.call import call, problem_from_shapes
from convgrad.functional.types import Array, DType
from convgrad.parameters import described


@described
def run(
    operator: str,
    *inputs: object,
    dtype: DType | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **attributes: object,
) -> Array:
    """Compute any operator by its name, and return its only output.

    A shape input is a 1-D integer array or a sequence of ints, and takes precedence over the attribute of the same
    meaning. Attributes that are lists must have one value per spatial axis, and strides and dilations are required.

    Names without "-1" are the current operators, names with "-1" the older ones. If only one of the two exists, you may
    omit or add "-1". ConvolutionBackpropFilters-1 takes its inputs in the order of its document, unless the second
    input is a shape. ConvolutionBackpropData-1 also takes an output_shape of only the spatial extents.

    The output is an array of the first input's library. ``activation="relu"`` is for Convolution, ConvTranspose and
    BiasAdd only.

    Raises:
        InvalidOpError: The operator is unknown, or does not take this number of inputs.
        InvalidAttributeError, InvalidShapeError, InvalidDataTypeError: See the functions.

    Follows oneDNN's documentation of the named operator.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((2, 6, 1), np.float32), np.ones((2, 3, 1), np.float32)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, (2, 1, 1), strides=[2], dilations=[1]).ravel().tolist()
    [6.0, 6.0]
    """
    return call(
        operator,
        inputs,
        attributes,
        dtype=dtype,
        out=out,
        accumulate=accumulate,
        threads=threads,
        lenient=False,
        max_error=max_error,
        activation=activation,
    )


@described
def infer_shapes(operator: str, *shapes: object, **attributes: object) -> tuple[int, ...]:
    """Return the shape of an operator's output from the shapes of its inputs, without computing anything.

    Unlike in :func:`run`, an attribute may also be one int for all axes, and you may omit strides and dilations of 1.
    Raises the errors of :func:`run`.

    Follows oneDNN's documentation of the named operator.

    >>> infer_shapes("Convolution", (2, 224, 224, 3), (7, 7, 3, 64), strides=2, auto_pad="valid")
    (2, 109, 109, 64)
    """
    _, problem = problem_from_shapes(operator, shapes, attributes, spell_out=True)
    return problem.output_shape
