"""The gradient functions with the names, operands and attributes of the older documents."""

from __future__ import annotations

from typing import Unpack

from numpy.typing import ArrayLike

from convgrad.functional.call import call
from convgrad.functional.declared import computed_by
from convgrad.functional.keywords import OlderFilterGradientKeywords, OlderGradientKeywords, OlderPaddedGradientKeywords
from convgrad.functional.types import Array, ShapeLike


@computed_by(call, "ConvolutionBackpropWeights-1")
def convolution_backprop_weights(
    src: ArrayLike,
    diff_dst: ArrayLike,
    weights_shape: ShapeLike | None = None,
    **keywords: Unpack[OlderGradientKeywords],
) -> Array:
    """Differentiate a convolution by its weights, under the older name ConvolutionBackpropWeights-1.

    Formula and errors are those of :func:`convolution_backward_weights`. Shapes (NXC, XIO): src (N, I..., C),
    diff_dst (N, O..., O), result (K..., C/groups, O).

    Absent pads are calculated, with the sum max(s(O - 1) + E - I, 0) per axis. ``pads_begin`` is half of it, rounded
    down. If only one is absent, it is the rest of the sum.

    Follows oneDNN's documentation of ConvolutionBackpropWeights-1.

    >>> import numpy as np
    >>> src = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> diff_dst = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
    >>> convolution_backprop_weights(src, diff_dst, (2, 1, 1)).ravel().tolist()
    [7.0, 10.0]
    """


@computed_by(call, "ConvolutionBackpropFilters-1")
def convolution_backprop_filters(
    input_forward: ArrayLike,
    output_delta: ArrayLike,
    filter_shape: ShapeLike | None = None,
    **keywords: Unpack[OlderFilterGradientKeywords],
) -> Array:
    """Differentiate a convolution by its filter, under the older name ConvolutionBackpropFilters-1.

    Formula and errors are those of :func:`convolution_backward_weights`. The older names are input_forward for src,
    output_delta for diff_dst, filter_shape for weights_shape and filter_format for weights_format.

    Args:
        input_forward: The input of the layer, of shape (N, I..., C) in NXC.
        output_delta: The gradient of the layer's output, of shape (N, O..., O) in NXC.
        filter_shape: The shape of the filter, in the order of ``filter_format``; it is required. Default: None.

    Pass the operands in the order of the document. If the second operand is a shape, the operands have
    the order of specification 0.7: input, filters_shape, output_delta.

    Absent pads are calculated, with the sum max(s(O - 1) + E - I, 0) per axis. ``pads_begin`` is half of it, rounded
    down. If only one is absent, it is the rest of the sum.

    Follows oneDNN's documentation of ConvolutionBackpropFilters-1.

    >>> import numpy as np
    >>> input_forward = np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1)
    >>> output_delta = np.array([1, 0, 2], np.float32).reshape(1, 3, 1)
    >>> convolution_backprop_filters(input_forward, output_delta, (2, 1, 1)).ravel().tolist()
    [7.0, 10.0]
    """


@computed_by(call, "ConvolutionBackpropData-1")
def convolution_backprop_data(
    data: ArrayLike,
    filter: ArrayLike,
    output_shape: ShapeLike | None = None,
    **keywords: Unpack[OlderPaddedGradientKeywords],
) -> Array:
    """Differentiate a convolution by its input, under the older name ConvolutionBackpropData-1.

    Formula and errors are those of :func:`convolution_backward_data`. The older names are data for diff_dst, filter
    for weights, output_shape for dst_shape and filter_format for weights_format.

    Args:
        data: The gradient of the layer's output, of shape (N, O..., O) in NXC.
        filter: The filter of the layer, of shape (K..., C/groups, O) in XIO.
        output_shape: The full shape of the result, in the order of ``data_format``; None if it follows from the
            operands. Default: None.

    Absent pads are calculated, with the sum max(s(O - 1) + E - I, 0) per axis. ``pads_begin`` is half of it, rounded
    down. If only one is absent, it is the rest of the sum. Without ``output_shape``, absent pads are 0.

    With ``output_shape`` and auto_pad same, the sum of the pads is max(s(O - 1) + E - I + output_padding, 0).

    Follows oneDNN's documentation of ConvolutionBackpropData-1.

    >>> import numpy as np
    >>> data = np.array([1, 2], np.float32).reshape(1, 2, 1)
    >>> filter = np.array([1, 10], np.float32).reshape(2, 1, 1)
    >>> convolution_backprop_data(data, filter, (1, 5, 1), strides=2).ravel().tolist()
    [1.0, 10.0, 2.0, 20.0, 0.0]
    """
