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

from collections.abc import Callable, Sequence
from typing import cast

from torch import Tensor

from convgrad.engines.settings import accuracy
from convgrad.spec.check import few
from convgrad.spec.rules import refuse
from convgrad.torch import instead
from convgrad.torch.arguments import Arguments, LayerArguments, PerAxis, declared_as, integer, spread
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, unread
from convgrad.torch.kernels import is_channels_last
from convgrad.torch.operators import call
from convgrad.torch.overrides import overridable
from convgrad.torch.recorded import of_shape, sizes_are_recorded
from convgrad.torch.refused import of_gradient, refused
from convgrad.torch.sizes import check, ends_of, kernel_of, of_size
from convgrad.words import shown

_OF_INPUT = of_gradient(diff_dst="grad_output", dst_shape="input_size")
_OF_WEIGHT = of_gradient(src="input", diff_dst="grad_output", weights_shape="weight_size")
# by the operands of ConvTransposeBackwardWeights, because its rules check the sizes
_OF_TRANSPOSED_INPUT = of_gradient(src="input_size", diff_dst="grad_output", weights_shape="weight")


@overridable(globals(), 1, 2)
@instead.gradient("input", transposed=False)
def _by_input(name: str, axes: int, size: Sequence[int], weight: Tensor, grad: Tensor, layer: LayerArguments) -> Tensor:
    try:
        strides, pads, dilations, groups = _spread(axes, layer)
        shapes = tuple(grad.shape), tuple(weight.shape), _size(size)
        check("ConvolutionBackwardData", shapes, strides, pads, dilations, groups)
        last = is_channels_last(grad) or is_channels_last(weight)
        like, more = of_shape(shapes[2], grad) if sizes_are_recorded() else None, None
        if like is None:
            more = unread(shapes[2][2:], shapes[0][2:], shapes[1][2:], strides, (pads, pads), dilations)
        attributes = OpAttributes(strides, pads, pads, more, dilations, groups, last, accuracy(None))
        result = call("data_gradient", grad, weight, None, like, attributes)
        return of_size("ConvolutionBackwardData", result, shapes[2])
    except Exception as error:
        refused(name, error, {"weight": weight, "grad_output": grad}, _OF_INPUT)


@overridable(globals(), 1, 2)
@instead.gradient("input", transposed=True)
def _by_transposed_input(
    name: str, axes: int, size: Sequence[int], weight: Tensor, grad: Tensor, layer: LayerArguments
) -> Tensor:
    try:
        strides, pads, dilations, groups = _spread(axes, layer)
        large, kernel, small = tuple(grad.shape), tuple(weight.shape), _size(size)
        # The data gradient has no rule for input_size, so the rules of the weight gradient check all three sizes.
        check("ConvTransposeBackwardWeights", (small, large, kernel), strides, pads, dilations, groups)
        ends = ends_of(large, small, kernel, strides, pads, dilations)
        last = is_channels_last(grad) or is_channels_last(weight)
        attributes = OpAttributes(strides, pads, ends, None, dilations, groups, last, accuracy(None))
        result = call("forward", grad, weight, None, attributes)
        return of_size("ConvTransposeBackwardData", result, small)
    except Exception as error:
        refused(name, error, {"weight": weight, "grad_output": grad}, _OF_TRANSPOSED_INPUT)


def _weight_gradient(transposed: bool) -> Callable[..., Tensor]:
    """Return the helper of the gradients of weights, of layers that are transposed or not."""
    operator = "ConvTransposeBackwardWeights" if transposed else "ConvolutionBackwardWeights"

    @overridable(globals(), 0, 2)
    @instead.gradient("weight", transposed=transposed)
    def gradient(
        name: str, axes: int, input: Tensor, size: Sequence[int], grad: Tensor, layer: LayerArguments
    ) -> Tensor:
        try:
            strides, pads, dilations, groups = _spread(axes, layer)
            small, large, kernel = tuple(input.shape), tuple(grad.shape), _size(size)
            check(operator, (small, large, kernel), strides, pads, dilations, groups)
            last = is_channels_last(input) or is_channels_last(grad)
            ends = ends_of(large, small, kernel, strides, pads, dilations) if transposed else pads
            attributes = OpAttributes(strides, pads, ends, None, dilations, groups, last, accuracy(None))
            src, diff_dst = (grad, input) if transposed else (input, grad)
            result = call("weight_gradient", src, diff_dst, *kernel_of(kernel, grad), attributes)
            return of_size(operator, result, kernel)
        except Exception as error:
            refused(name, error, {"input": input, "grad_output": grad}, _OF_WEIGHT)

    helper: Callable[..., Tensor] = gradient
    return helper


_by_weight, _by_transposed_weight = _weight_gradient(transposed=False), _weight_gradient(transposed=True)


def _spread(axes: int, layer: LayerArguments) -> tuple[Ints, Ints, Ints, int]:
    """Return strides, pads and dilations with one value per spatial axis, and the groups."""
    attributes = ("stride", layer.stride), ("padding", cast(PerAxis, layer.begin)), ("dilation", layer.dilation)
    strides, pads, dilations = [spread(name, value, axes) for name, value in attributes]
    return strides, pads, dilations, integer("groups", layer.groups)


def _size(value: Sequence[int]) -> Ints:
    """Return a tensor's size as a tuple."""
    items = few("", "the size", value)
    if not isinstance(items, tuple):  # G9
        refuse("G9", "", f"the size must have one integer per axis; got {shown(value)}")
    return items


# -- public functions --------------------------------------------------------------------------------------------


def _input(
    input_size: Sequence[int],
    weight: Tensor,
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Arguments:
    return (input_size, weight, grad_output), LayerArguments(stride, padding, padding, dilation, groups)


def _weight(
    input: Tensor,
    weight_size: Sequence[int],
    grad_output: Tensor,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Arguments:
    return (input, weight_size, grad_output), LayerArguments(stride, padding, padding, dilation, groups)


@declared_as(_input, _by_input, 1)
def conv1d_input() -> None:
    """Return the gradient of conv1d with respect to its input (N, C, I).

    Shapes: weight (O, C/groups, K), grad_output (N, O, P).

    >>> import torch
    >>> conv1d_input((1, 1, 4), torch.ones(1, 1, 1), torch.ones(1, 1, 2), stride=2).tolist()
    [[[1.0, 0.0, 1.0, 0.0]]]
    """


@declared_as(_weight, _by_weight, 1)
def conv1d_weight() -> None:
    """Return the gradient of conv1d with respect to its weight (O, C/groups, K).

    Shapes: input (N, C, I), grad_output (N, O, P).

    >>> import torch
    >>> conv1d_weight(torch.ones(1, 1, 4), (1, 1, 3), torch.ones(1, 1, 4), padding=1).tolist()
    [[[3.0, 4.0, 3.0]]]
    """


@declared_as(_input, _by_input, 2)
def conv2d_input() -> None:
    """Return the gradient of conv2d with respect to its input (N, C, H, W).

    Shapes: weight (O, C/groups, height, width), grad_output (N, O, H', W').

    >>> import torch
    >>> conv2d_input((1, 2, 1, 3), torch.ones(2, 1, 1, 2), torch.ones(1, 2, 1, 2), groups=2).tolist()
    [[[[1.0, 2.0, 1.0]], [[1.0, 2.0, 1.0]]]]
    """


@declared_as(_weight, _by_weight, 2)
def conv2d_weight() -> None:
    """Return the gradient of conv2d with respect to its weight (O, C/groups, height, width).

    Shapes: input (N, C, H, W), grad_output (N, O, H', W').

    >>> import torch
    >>> conv2d_weight(torch.ones(2, 1, 3, 4), (1, 1, 2, 2), torch.ones(2, 1, 1, 2), stride=2).tolist()
    [[[[4.0, 4.0], [4.0, 4.0]]]]
    """


@declared_as(_input, _by_input, 3)
def conv3d_input() -> None:
    """Return the gradient of conv3d with respect to its input (N, C, D, H, W).

    Shapes: weight (O, C/groups, depth, height, width), grad_output (N, O, D', H', W').

    >>> import torch
    >>> conv3d_input((1, 1, 3, 2, 1), torch.ones(1, 1, 2, 1, 1), torch.ones(1, 1, 2, 2, 1)).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0, 1.0, 1.0]
    """


@declared_as(_weight, _by_weight, 3)
def conv3d_weight() -> None:
    """Return the gradient of conv3d with respect to its weight (O, C/groups, depth, height, width).

    Shapes: input (N, C, D, H, W), grad_output (N, O, D', H', W').

    >>> import torch
    >>> conv3d_weight(torch.ones(1, 1, 3, 2, 2), (1, 1, 2, 1, 1), torch.ones(1, 1, 2, 2, 2)).ravel().tolist()
    [8.0, 8.0]
    """


@declared_as(_input, _by_transposed_input, 1)
def conv_transpose1d_input() -> None:
    """Return the gradient of conv_transpose1d with respect to its input (N, C, l).

    Shapes: weight (C, O/groups, K), grad_output (N, O, L).

    >>> import torch
    >>> conv_transpose1d_input((1, 1, 2), torch.ones(1, 1, 2), torch.ones(1, 1, 5), stride=2).tolist()
    [[[2.0, 2.0]]]
    """


@declared_as(_weight, _by_transposed_weight, 1)
def conv_transpose1d_weight() -> None:
    """Return the gradient of conv_transpose1d with respect to its weight (C, O/groups, K).

    Shapes: input (N, C, l), grad_output (N, O, L).

    >>> import torch
    >>> conv_transpose1d_weight(torch.ones(1, 1, 2), (1, 1, 3), torch.ones(1, 1, 4)).tolist()
    [[[2.0, 2.0, 2.0]]]
    """


@declared_as(_input, _by_transposed_input, 2)
def conv_transpose2d_input() -> None:
    """Return the gradient of conv_transpose2d with respect to its input (N, C, h, w).

    Shapes: weight (C, O/groups, height, width), grad_output (N, O, H, W).

    >>> import torch
    >>> conv_transpose2d_input((1, 1, 1, 2), torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 3)).tolist()
    [[[[4.0, 4.0]]]]
    """


@declared_as(_weight, _by_transposed_weight, 2)
def conv_transpose2d_weight() -> None:
    """Return the gradient of conv_transpose2d with respect to its weight (C, O/groups, height, width).

    Shapes: input (N, C, h, w), grad_output (N, O, H, W).

    >>> import torch
    >>> conv_transpose2d_weight(torch.ones(3, 1, 1, 2), (1, 1, 1, 2), torch.ones(3, 1, 1, 4), stride=2).tolist()
    [[[[6.0, 6.0]]]]
    """


@declared_as(_input, _by_transposed_input, 3)
def conv_transpose3d_input() -> None:
    """Return the gradient of conv_transpose3d with respect to its input (N, C, d, h, w).

    Shapes: weight (C, O/groups, depth, height, width), grad_output (N, O, D, H, W).

    >>> import torch
    >>> conv_transpose3d_input((1, 2, 1, 1, 1), torch.ones(2, 3, 1, 1, 2), torch.ones(1, 3, 1, 1, 2)).ravel().tolist()
    [6.0, 6.0]
    """


@declared_as(_weight, _by_transposed_weight, 3)
def conv_transpose3d_weight() -> None:
    """Return the gradient of conv_transpose3d with respect to its weight (C, O/groups, depth, height, width).

    Shapes: input (N, C, d, h, w), grad_output (N, O, D, H, W).

    >>> import torch
    >>> conv_transpose3d_weight(torch.ones(1, 1, 1, 1, 3), (1, 1, 1, 1, 2), torch.ones(1, 1, 1, 1, 4)).ravel().tolist()
    [3.0, 3.0]
    """
