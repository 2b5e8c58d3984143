"""Any operator of the table by its versioned name, strictly by its document."""

from __future__ import annotations

from typing import Any

from convgrad.functional.call import call, problem_from_shapes
from convgrad.functional.types import Array, DType


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
    """Run any operator of the table by its name and return its one output.

    ``inputs`` come in the operator's order, optional ones last; a shape input is a 1-D integer array or a sequence of
    ints and beats the attribute of the same meaning. ``attributes`` are strict, by the operator's own names: lists
    have one value per spatial axis, and strides and dilations are required. Names without "-1" are the current
    operators, names with it the older ones; where only one of both exists, "-1" may be left out or added.
    ConvolutionBackpropFilters-1 takes the order of its document unless its
    second input is a shape, and ConvolutionBackpropData-1 also takes an output_shape of the spatial extents alone.
    The output is of the first input's library. ``max_error`` is that of the functions: what f32 sums of 3x3 taps may
    err, to be faster by tiles. ``activation="relu"`` makes what is at most 0 a +0, before the one rounding of a
    Convolution, ConvTranspose or BiasAdd.

    Raises:
        InvalidOpError: an unknown operator, or a number of inputs it does not take.
        InvalidAttributeError, InvalidShapeError, InvalidDataTypeError: as the functions raise them.

    Follows the document of the operator named.

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


def infer_shapes(operator: str, *shapes: object, **attributes: Any) -> tuple[int, ...]:
    """Return the shape of an operator's one output from the shapes of its inputs, without computing anything.

    ``shapes`` are one per input, in the order of the operator's document; a shape input's place takes its values.
    ``attributes`` are as for :func:`run`, or as for the functions: one int for all axes, strides and dilations 1 where
    nothing is said of them. Raises as :func:`run` does.

    Follows the document of the operator named.

    >>> infer_shapes("Convolution", (2, 224, 224, 3), (7, 7, 3, 64), strides=2, auto_pad="valid")
    (2, 109, 109, 64)
    """
    _, problem = problem_from_shapes(operator, shapes, attributes, spell_out=True)
    return problem.output_shape
