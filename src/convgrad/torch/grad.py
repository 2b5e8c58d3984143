"""The gradients of layers with respect to input and weight, with the names and arguments of torch.nn.grad.

Tap k connects position p of the smaller tensor with position i = p*stride + k*dilation - padding of the larger one::

    conv            grad_input[n, c, i]  = sum over o, k of grad_output[n, o, p] weight[o, c, k]
                    grad_weight[o, c, k] = sum over n, p of grad_output[n, o, p] input[n, c, i]
    conv_transpose  grad_input[n, c, p]  = sum over o, k of grad_output[n, o, i] weight[c, o, k]
                    grad_weight[c, o, k] = sum over n, p of grad_output[n, o, i] input[n, c, p]

The tensors' sizes determine the output padding, so no function takes an ``output_padding``. The gradient is 0 at
positions that no tap reads. All functions are differentiable. The functions of transposed layers do not exist in
torch.nn.grad. Sizes that no layer with these arguments can have raise InvalidShapeError. Tensors of different types
raise InvalidDataTypeError.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import cast

from convgrad.engines.settings import accuracy
from convgrad.formats import F32
from convgrad.functional.call import REMEMBERED, problem_from_shapes
from convgrad.torch.extents import Ints, unread
from convgrad.torch.kernels import Tensor, is_channels_last
from convgrad.torch.operators import call
from convgrad.torch.overrides import overridable
from convgrad.torch.recorded import numbers, of_shape, sizes_are_recorded
from convgrad.torch.refused import of_gradient, refused

PerAxis = int | Sequence[int]

_OF_INPUT = of_gradient(diff_dst="grad_output", dst_shape="input_size")
_OF_WEIGHT = of_gradient(src="input", diff_dst="grad_output", weights_shape="weight_size")
# by the operands of ConvTransposeBackwardWeights, because its rules check the sizes
_OF_TRANSPOSED_INPUT = of_gradient(src="input_size", diff_dst="grad_output", weights_shape="weight")


def conv1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv1d with respect to its input (N, C, I).

    Shapes: weight (O, C/groups, K), grad_output (N, O, P).

    >>> import torch
    >>> conv1d_input((1, 1, 4), torch.ones(1, 1, 1), torch.ones(1, 1, 2), stride=2).tolist()
    [[[1.0, 0.0, 1.0, 0.0]]]
    """
    return _by_input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv1d with respect to its weight (O, C/groups, K).

    Shapes: input (N, C, I), grad_output (N, O, P).

    >>> import torch
    >>> conv1d_weight(torch.ones(1, 1, 4), (1, 1, 3), torch.ones(1, 1, 4), padding=1).tolist()
    [[[3.0, 4.0, 3.0]]]
    """
    return _by_weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv2d with respect to its input (N, C, H, W).

    Shapes: weight (O, C/groups, height, width), grad_output (N, O, H', W').

    >>> import torch
    >>> conv2d_input((1, 2, 1, 3), torch.ones(2, 1, 1, 2), torch.ones(1, 2, 1, 2), groups=2).tolist()
    [[[[1.0, 2.0, 1.0]], [[1.0, 2.0, 1.0]]]]
    """
    return _by_input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv2d with respect to its weight (O, C/groups, height, width).

    Shapes: input (N, C, H, W), grad_output (N, O, H', W').

    >>> import torch
    >>> conv2d_weight(torch.ones(2, 1, 3, 4), (1, 1, 2, 2), torch.ones(2, 1, 1, 2), stride=2).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """
    return _by_weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv3d with respect to its input (N, C, D, H, W).

    Shapes: weight (O, C/groups, depth, height, width), grad_output (N, O, D', H', W').

    >>> import torch
    >>> conv3d_input((1, 1, 3, 2, 1), torch.ones(1, 1, 2, 1, 1), torch.ones(1, 1, 2, 2, 1)).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0, 1.0, 1.0]
    """
    return _by_input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv3d with respect to its weight (O, C/groups, depth, height, width).

    Shapes: input (N, C, D, H, W), grad_output (N, O, D', H', W').

    >>> import torch
    >>> conv3d_weight(torch.ones(1, 1, 3, 2, 2), (1, 1, 2, 1, 1), torch.ones(1, 1, 2, 2, 2)).ravel().tolist()
    [8.0, 8.0]
    """
    return _by_weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv_transpose1d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose1d with respect to its input (N, C, l).

    Shapes: weight (C, O/groups, K), grad_output (N, O, L).

    >>> import torch
    >>> conv_transpose1d_input((1, 1, 2), torch.ones(1, 1, 2), torch.ones(1, 1, 5), stride=2).tolist()
    [[[2.0, 2.0]]]
    """
    return _by_transposed_input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv_transpose1d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose1d with respect to its weight (C, O/groups, K).

    Shapes: input (N, C, l), grad_output (N, O, L).

    >>> import torch
    >>> conv_transpose1d_weight(torch.ones(1, 1, 2), (1, 1, 3), torch.ones(1, 1, 4)).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    return _by_transposed_weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv_transpose2d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose2d with respect to its input (N, C, h, w).

    Shapes: weight (C, O/groups, height, width), grad_output (N, O, H, W).

    >>> import torch
    >>> conv_transpose2d_input((1, 1, 1, 2), torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 3)).tolist()
    [[[[4.0, 4.0]]]]
    """
    return _by_transposed_input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv_transpose2d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose2d with respect to its weight (C, O/groups, height, width).

    Shapes: input (N, C, h, w), grad_output (N, O, H, W).

    >>> import torch
    >>> conv_transpose2d_weight(torch.ones(3, 1, 1, 2), (1, 1, 1, 2), torch.ones(3, 1, 1, 4), stride=2).tolist()
    [[[[6.0, 6.0]]]]
    """
    return _by_transposed_weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv_transpose3d_input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose3d with respect to its input (N, C, d, h, w).

    Shapes: weight (C, O/groups, depth, height, width), grad_output (N, O, D, H, W).

    >>> import torch
    >>> conv_transpose3d_input((1, 2, 1, 1, 1), torch.ones(2, 3, 1, 1, 2), torch.ones(1, 3, 1, 1, 2)).ravel().tolist()
    [6.0, 6.0]
    """
    return _by_transposed_input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv_transpose3d_weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the gradient of conv_transpose3d with respect to its weight (C, O/groups, depth, height, width).

    Shapes: input (N, C, d, h, w), grad_output (N, O, D, H, W).

    >>> import torch
    >>> conv_transpose3d_weight(torch.ones(1, 1, 1, 1, 3), (1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 4)).ravel().tolist()
    [3.0, 3.0]
    """
    return _by_transposed_weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)


# -- shared helpers ------------------------------------------------------------------------------------------------


@overridable(globals(), "conv{}d_input", 1, 2)
def _by_input(
    axes: int, size: Sequence[int], weight: Tensor, grad: Tensor, stride: PerAxis, pad: PerAxis, dilation: PerAxis,
    groups: int,
) -> Tensor:  # fmt: skip
    try:
        strides, pads, dilations = _spread(axes, stride), _spread(axes, pad), _spread(axes, dilation)
        shapes = tuple(grad.shape), tuple(weight.shape), tuple(size)
        _check("ConvolutionBackwardData", shapes, strides, pads, dilations, groups)
        last = is_channels_last(grad) or is_channels_last(weight)
        like, more = of_shape(shapes[2], grad) if sizes_are_recorded() else None, None
        if like is None:
            more = unread(shapes[2][2:], shapes[0][2:], shapes[1][2:], strides, (pads, pads), dilations)
        layer = strides, pads, pads, more, dilations, groups, last, accuracy(None)
        return call("data_gradient", grad, weight, None, like, *layer)
    except Exception as error:
        refused(f"conv{axes}d_input", error, {"weight": weight, "grad_output": grad}, _OF_INPUT)


@overridable(globals(), "conv{}d_weight", 0, 2)
def _by_weight(
    axes: int, given: Tensor, size: Sequence[int], grad: Tensor, stride: PerAxis, pad: PerAxis, dilation: PerAxis,
    groups: int,
) -> Tensor:  # fmt: skip
    try:
        strides, pads, dilations = _spread(axes, stride), _spread(axes, pad), _spread(axes, dilation)
        shapes = tuple(given.shape), tuple(grad.shape), tuple(size)
        _check("ConvolutionBackwardWeights", shapes, strides, pads, dilations, groups)
        last = is_channels_last(given) or is_channels_last(grad)
        layer = strides, pads, pads, dilations, groups, last, accuracy(None)
        return call("weight_gradient", given, grad, *_kernel(shapes[2], grad), *layer)
    except Exception as error:
        refused(f"conv{axes}d_weight", error, {"input": given, "grad_output": grad}, _OF_WEIGHT)


@overridable(globals(), "conv_transpose{}d_input", 1, 2)
def _by_transposed_input(
    axes: int, size: Sequence[int], weight: Tensor, grad: Tensor, stride: PerAxis, pad: PerAxis, dilation: PerAxis,
    groups: int,
) -> Tensor:  # fmt: skip
    try:
        strides, pads, dilations = _spread(axes, stride), _spread(axes, pad), _spread(axes, dilation)
        large, kernel, small = tuple(grad.shape), tuple(weight.shape), tuple(size)
        # The data gradient has no rule for input_size, so the rules of the weight gradient check all three sizes.
        _check("ConvTransposeBackwardWeights", (small, large, kernel), strides, pads, dilations, groups)
        ends = _ends(large, small, kernel, strides, pads, dilations)
        last = is_channels_last(grad) or is_channels_last(weight)
        return call("forward", grad, weight, None, strides, pads, ends, dilations, groups, last, accuracy(None))
    except Exception as error:
        refused(f"conv_transpose{axes}d_input", error, {"weight": weight, "grad_output": grad}, _OF_TRANSPOSED_INPUT)


@overridable(globals(), "conv_transpose{}d_weight", 0, 2)
def _by_transposed_weight(
    axes: int, given: Tensor, size: Sequence[int], grad: Tensor, stride: PerAxis, pad: PerAxis, dilation: PerAxis,
    groups: int,
) -> Tensor:  # fmt: skip
    try:
        strides, pads, dilations = _spread(axes, stride), _spread(axes, pad), _spread(axes, dilation)
        shapes = tuple(given.shape), tuple(grad.shape), tuple(size)
        _check("ConvTransposeBackwardWeights", shapes, strides, pads, dilations, groups)
        last = is_channels_last(given) or is_channels_last(grad)
        ends = _ends(shapes[1], shapes[0], shapes[2], strides, pads, dilations)
        layer = strides, pads, ends, dilations, groups, last, accuracy(None)
        return call("weight_gradient", grad, given, *_kernel(shapes[2], grad), *layer)
    except Exception as error:
        refused(f"conv_transpose{axes}d_weight", error, {"input": given, "grad_output": grad}, _OF_WEIGHT)


def _kernel(size: Ints, like: Tensor) -> tuple[Tensor | None, Ints | None]:
    """Return the two arguments of the operator from which it takes the extents of the kernel."""
    return (of_shape(size, like), None) if sizes_are_recorded() else (None, size[2:])


def _ends(large: Ints, small: Ints, kernel: Ints, strides: Ints, pads: Ints, dilations: Ints) -> Ints:
    """Return the pads at the end of the convolution that has these sizes.

    They are below ``pads`` by the transposed layer's output_padding, as far as it is a multiple of the stride: the
    remainder is what a convolution with a stride does not read.
    """
    more = unread(large[2:], small[2:], kernel[2:], strides, (pads, pads), dilations)
    return tuple([pad - extra // s * s for pad, extra, s in zip(pads, more, strides, strict=True)])


def _check(operator: str, shapes: tuple[Ints, ...], strides: Ints, pads: Ints, dilations: Ints, groups: int) -> None:
    """Raise the operator's error if no layer with these attributes has tensors of these shapes."""
    lists = map(numbers, (strides, pads, dilations, (groups,)))
    _known_to_fit(operator, tuple(map(numbers, shapes)), *lists)


@lru_cache(maxsize=REMEMBERED)
def _known_to_fit(
    operator: str, shapes: tuple[Ints, ...], strides: Ints, pads: Ints, dilations: Ints, groups: Ints
) -> None:
    attributes = {
        "strides": list(strides),
        "pads_begin": list(pads),
        "pads_end": list(pads),
        "dilations": list(dilations),
        "groups": groups[0],
        "data_format": "NCX",
        "weights_format": "IOX" if operator.startswith("ConvTranspose") else "OIX",
    }
    problem_from_shapes(operator, shapes, attributes, F32)


def _spread(axes: int, value: PerAxis) -> Ints:
    """Return one value per spatial axis; an int is used for all axes."""
    return tuple(value) if isinstance(value, tuple | list) else (cast(int, value),) * axes
