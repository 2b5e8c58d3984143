"""Convolution layers as functions on PyTorch's tensors, with the names and arguments of torch.nn.functional."""

from __future__ import annotations

from types import EllipsisType
from typing import cast

import torch
from torch import Tensor

from convgrad.engines.settings import accuracy
from convgrad.parameters import described
from convgrad.spec.rules import refuse
from convgrad.torch import expanded, instead, plain, recorded
from convgrad.torch.arguments import (
    Arguments,
    LayerArguments,
    PerAxis,
    at_end,
    by_name,
    declared_as,
    integer,
    is_transposed,
    spread,
    taken,
)
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, Pads
from convgrad.torch.kernels import is_channels_last
from convgrad.torch.operators import activate, call_activated
from convgrad.torch.overrides import compiling, handed_over, has_torch_function
from convgrad.torch.recorded import sizes_are_recorded
from convgrad.torch.refused import LAYER, OF_ANY_AXES, refused

_WORDS = {"convolution": OF_ANY_AXES, "conv_transpose": OF_ANY_AXES}


@instead.first
def conv_layer(
    name: str, axes: int | None, input: Tensor, weight: Tensor, bias: Tensor | None, layer: LayerArguments
) -> Tensor:
    """Return the convolution of the function ``name`` of this module, which may be a transposed one."""
    tensors = input, weight, bias
    if has_torch_function(tensors) and not compiling():
        if layer.tune or layer.output_size is not None:  # which the public functions do not have
            return handed_over(conv_layer, tensors, name, axes, *tensors, layer)
        settings = {"max_error": layer.max_error, "activation": layer.activation}
        return handed_over(_PUBLIC[name], tensors, *tensors, *_public_arguments(name, axes, layer), **settings)
    if plain.wanted():
        compute = plain.transposed if is_transposed(name) else plain.convolution
        return activate(layer.activation, name, compute(name, *tensors, layer), lambda result: result <= 0)
    try:
        input, weight, bias, axes, batched = taken(name, axes, input, weight, bias)
        like = _recorded_size(axes, input, layer)
        attributes = _attributes(name, axes, is_channels_last(input) or is_channels_last(weight), layer, like)
        operator, size = ("data_gradient", (like,)) if is_transposed(name) else ("forward", ())
        result = call_activated(layer.activation, operator, input, weight, bias, *size, attributes)
        return result if batched else result.squeeze(0)
    except Exception as error:
        refused(name, error, {"input": input, "weight": weight, "bias": bias}, _WORDS.get(name, LAYER))


def _public_arguments(name: str, axes: int | None, layer: LayerArguments) -> tuple[object, ...]:
    """Return the arguments of a public function after the tensors, in its order."""
    pads = (layer.begin,) if axes else (layer.begin, layer.end)
    if not is_transposed(name):
        return layer.stride, *pads, layer.dilation, layer.groups
    others = (layer.groups, layer.dilation) if axes else (layer.dilation, layer.groups)
    return layer.stride, *pads, layer.output_padding, *others


def _recorded_size(axes: int, input: Tensor, layer: LayerArguments) -> Tensor | None:
    """Return a tensor with the output size that a trace must keep, or None."""
    if layer.output_size is None or not sizes_are_recorded():
        return None
    return recorded.of_shape((1, 1, *layer.output_size[-axes:]), input)


def _attributes(name: str, axes: int, last: bool, layer: LayerArguments, like: Tensor | None) -> OpAttributes:
    """Return the attributes of the operator. The output padding follows from the size of ``like``, if it is given."""
    strides, dilations = spread("strides", layer.stride, axes), spread("dilations", layer.dilation, axes)
    rests: Ints | None = None
    if is_transposed(name):
        rests = spread("output_padding", cast(PerAxis, layer.output_padding), axes)
        if isinstance(layer.begin, str):  # A2
            refuse("A2", name, f"pads_begin must be integers; got {layer.begin!r:.200}")
    pads: Pads = (
        by_name(name, layer.begin, strides)
        if isinstance(layer.begin, str)
        else (spread("pads_begin", layer.begin, axes), at_end(name, cast(PerAxis, layer.end), axes))
    )
    rests = rests if like is None else None
    within = accuracy(layer.max_error, name)
    groups = integer("groups", layer.groups)
    return OpAttributes(strides, *pads, rests, dilations, groups, last, within, layer.tune)


def _conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | str = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    max_error: float | None = None,
    activation: str | None = None,
) -> Arguments:
    layer = LayerArguments(stride, padding, padding, dilation, groups, max_error, activation)
    return (input, weight, bias), layer


def _conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
    *,
    max_error: float | None = None,
    activation: str | None = None,
) -> Arguments:
    layer = LayerArguments(stride, padding, padding, dilation, groups, max_error, activation, False, output_padding)
    return (input, weight, bias), layer


@declared_as(_conv, conv_layer, 1)
def conv1d() -> None:
    """Return the convolution of torch.nn.functional.conv1d, with one spatial axis; see ``convolution``.

    Shapes: input (N, C, I) or (C, I), weight (O, C/groups, K), bias (O,).

    >>> conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3), padding=1).tolist()
    [[[2.0, 3.0, 3.0, 3.0, 2.0]]]
    """


@declared_as(_conv, conv_layer, 2)
def conv2d() -> None:
    """Return the convolution of torch.nn.functional.conv2d, with two spatial axes; see ``convolution``.

    Shapes: input (N, C, H, W) or (C, H, W), weight (O, C/groups, KH, KW), bias (O,).

    >>> conv2d(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 2, 2), padding="same").tolist()
    [[[[4.0, 4.0, 2.0], [2.0, 2.0, 1.0]]]]
    """


@declared_as(_conv, conv_layer, 3)
def conv3d() -> None:
    """Return the convolution of torch.nn.functional.conv3d, with three spatial axes; see ``convolution``.

    Shapes: input (N, C, D, H, W) or (C, D, H, W), weight (O, C/groups, KD, KH, KW), bias (O,).

    >>> conv3d(torch.ones(1, 4, 3, 3, 3), torch.ones(2, 2, 3, 3, 3), groups=2).shape
    torch.Size([1, 2, 1, 1, 1])
    """


@declared_as(_conv_transpose, conv_layer, 1)
def conv_transpose1d() -> None:
    """Return the convolution of torch.nn.functional.conv_transpose1d; see ``conv_transpose``.

    Shapes: input (N, C, l) or (C, l), weight (C, O/groups, K), bias (O,).

    >>> conv_transpose1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2), stride=2, output_padding=1).tolist()
    [[[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]]]
    """


@declared_as(_conv_transpose, conv_layer, 2)
def conv_transpose2d() -> None:
    """Return the convolution of torch.nn.functional.conv_transpose2d; see ``conv_transpose``.

    Shapes: input (N, C, h, w) or (C, h, w), weight (C, O/groups, KH, KW), bias (O,).

    >>> conv_transpose2d(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """


@declared_as(_conv_transpose, conv_layer, 3)
def conv_transpose3d() -> None:
    """Return the convolution of torch.nn.functional.conv_transpose3d; see ``conv_transpose``.

    Shapes: input (N, C, d, h, w) or (C, d, h, w), weight (C, O/groups, KD, KH, KW), bias (O,).

    >>> conv_transpose3d(torch.ones(1, 2, 2, 2, 2), torch.ones(2, 1, 2, 2, 2), stride=2).shape
    torch.Size([1, 1, 4, 4, 4])
    """


@described
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding_begin: PerAxis | str = 0,
    padding_end: PerAxis | str | None = None,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    max_error: float | None = None,
    activation: str | None = None,
) -> Tensor:
    """Return out[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] * input[n, c, p*stride + k*dilation - begin].

    The number of spatial axes is not limited. Shapes: input (N, C, I...) or (C, I...), weight (O, C/groups, K...),
    bias (O,). The result's extents are floor((I + begin + end - E)/stride) + 1, where E = dilation*(K - 1) + 1. Here
    begin and end are ``padding_begin`` and ``padding_end``. If ``padding_begin`` is "same" or "valid", it sets the pads
    at both ends. Results and derivatives of any order have the same bits as in ``convgrad.convolution``. ``max_error``
    allows Winograd in the result and in its derivatives, and takes precedence over ``convgrad.max_error``. The
    derivative of ``activation="relu"`` is the derivative of torch.relu.

    Raises InvalidShapeError, InvalidAttributeError or InvalidDataTypeError if the arguments do not fit together; each
    is a ValueError or a TypeError. Raises UnsupportedError, a NotImplementedError, if tensors are neither in CPU memory
    nor on one CUDA device. GPU kernels compute only direct sums of f32, bf16 and f16, with at most three spatial axes.

    >>> convolution(torch.ones(1, 1, 3), torch.ones(1, 1, 3), padding_begin=2, padding_end=0).tolist()
    [[[1.0, 2.0, 3.0]]]
    """
    end = padding_begin if padding_end is None else padding_end
    layer = LayerArguments(stride, padding_begin, end, dilation, groups, max_error, activation)
    return conv_layer("convolution", None, input, weight, bias, layer)


@described
def conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding_begin: PerAxis = 0,
    padding_end: PerAxis | None = None,
    output_padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    max_error: float | None = None,
    activation: str | None = None,
) -> Tensor:
    """Return the transposed convolution: the data gradient of a convolution with these attributes, plus a bias.

    The number of spatial axes is not limited. Shapes: input (N, C, l...) or (C, l...), weight (C, O/groups, K...),
    bias (O,). The result's extents are L = stride*(l - 1) + E - begin - end + output_padding, where
    E = dilation*(K - 1) + 1. ``output_padding`` must be below max(stride, dilation). Here begin and end are
    ``padding_begin`` and ``padding_end``. Results and derivatives of any order have the same bits as in
    ``convgrad.conv_transpose``. The errors and the derivatives are the same as in ``convolution``.

    >>> conv_transpose(torch.ones(1, 1, 2), torch.ones(1, 1, 3), padding_begin=1, padding_end=0).tolist()
    [[[2.0, 2.0, 1.0]]]
    """
    end = padding_begin if padding_end is None else padding_end
    layer = LayerArguments(stride, padding_begin, end, dilation, groups, max_error, activation, False, output_padding)
    return conv_layer("conv_transpose", None, input, weight, bias, layer)


@described
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return out[..., o] = bias[o] + sum over c of weight[o, c] * input[..., c], as a convolution with one tap.

    Shapes: input (..., C) with any leading axes, weight (O, C), bias (O,), as in torch.nn.functional.linear. The first
    axis is the batch; the other leading axes are positions of the convolution. Results and gradients have the same bits
    with any number of threads and any instruction set. The errors are the same as in ``convolution``.

    >>> linear(torch.ones(2, 3), torch.ones(1, 3), torch.ones(1)).tolist()
    [[4.0], [4.0]]
    """
    try:
        if expanded.is_expanded(weight) or expanded.is_expanded(bias):
            return expanded.layer(linear, "linear", input, weight, bias)
        if has_torch_function((input, weight, bias)) and not compiling():
            return handed_over(linear, (input, weight, bias), input, weight, bias)
        if plain.wanted() or plain.is_empty(weight):
            return torch.nn.functional.linear(input, weight, bias)
        shape, rank = recorded.numbers(weight.shape), input.dim()
        if len(shape) != 2:  # G1
            refuse("G1", "linear", f"weight must have two axes, (O, C); got {shape}")
        if recorded.numbers(input.shape[-1:]) != shape[1:]:  # G4
            refuse("G4", "linear", f"input must have {shape[1]} features on its last axis; got {tuple(input.shape)}")
        # views without sizes, so that a trace with fixed sizes is right for others
        image = input.flatten(1, -2) if rank > 3 else input[_LINE[rank]]
    except Exception as error:
        refused("linear", error, {"input": input, "weight": weight, "bias": bias}, LAYER)
    operands = image.unsqueeze(2).permute(0, 3, 1, 2), weight[..., None, None], bias
    result = conv_layer("linear", 2, *operands, _ONE_TAP)
    out = result.permute(0, 2, 3, 1).squeeze(2)
    return (out.unflatten(1, input.shape[1:-1]) if rank > 3 else out[_BACK[rank]]).contiguous()


_ONE_TAP = LayerArguments(1, 0, 0, 1, 1)
_Index = tuple[slice | int | None, ...] | EllipsisType
_LINE: dict[int, _Index] = {1: (None, None), 2: (slice(None), None), 3: ...}  # by the rank of linear's input
_BACK: dict[int, _Index] = {1: (0, 0), 2: (slice(None), 0), 3: ...}


_TRANSPOSED = conv_transpose, conv_transpose1d, conv_transpose2d, conv_transpose3d
_PUBLIC = {function.__name__: function for function in (convolution, conv1d, conv2d, conv3d, *_TRANSPOSED)}
