"""The layers as PyTorch's own operators.

Exports to ONNX use them, because ONNX cannot call convgrad, and layers without input channels, which sum nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from convgrad.errors import UnsupportedError
from convgrad.torch.arguments import LayerArguments, PerAxis, is_transposed, spread
from convgrad.torch.extents import Ints


def wanted() -> bool:
    """Return whether one of PyTorch's two ONNX exporters is tracing the caller."""
    traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
    return traced and bool(torch.onnx.is_in_onnx_export())


def is_empty(weight: object) -> bool:
    """Return whether weights have no elements. A trace never has such weights."""
    return isinstance(weight, torch.Tensor) and not torch._C._get_tracing_state() and 0 in weight.shape


def has_no_channels(name: str, input: Tensor, weight: Tensor) -> bool:
    """Return whether a convolution has no input channels, so that PyTorch returns an empty result.

    PyTorch refuses transposed layers without channels, and all layers without output channels.
    """
    if not is_empty(weight):
        return False
    axes = weight.dim() - 2
    at = input.dim() - axes - 1  # the axis of channels
    if is_transposed(name) or axes not in (1, 2, 3) or at not in (0, 1):
        return False
    return bool(weight.shape[0]) and not weight.shape[1] and not input.shape[at]


def sums_nothing(weight: object) -> bool:
    """Return whether weights, or the size of weights, have outputs, but no input channels."""
    size = weight.shape if isinstance(weight, torch.Tensor) else weight
    if torch._C._get_tracing_state() or not isinstance(size, tuple | list) or len(size) not in (3, 4, 5):
        return False
    return bool(size[0]) and not size[1]


def convolution(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, layer: LayerArguments) -> Tensor:
    """Return the result of ``torch.nn.functional.conv1d``, ``2d`` or ``3d``.

    If the pads at the begin and at the end differ, the input is padded before that call.
    """
    function, (stride, begin, end, dilation, groups, *_) = _function("conv", name, weight), layer
    if not isinstance(begin, str):  # a name gives the pads at both ends
        begin, ends = _pads(begin, end, weight)
        if begin != ends:
            pads = [pad for pair in zip(begin, ends, strict=True) for pad in reversed(pair)]
            input, begin = nn.functional.pad(input, pads[::-1]), 0
    return function(input, weight, bias, stride, begin, dilation, groups)


def transposed(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, layer: LayerArguments) -> Tensor:
    """Return the result of ``torch.nn.functional.conv_transpose1d``, ``2d`` or ``3d``.

    If the pads at the begin and at the end differ, the result is computed without pads and then cropped.
    """
    function, (stride, begin, end, dilation, groups, *_) = _function("conv_transpose", name, weight), layer
    begins, ends = _pads(begin, end, weight)
    if begins == ends:
        return function(input, weight, bias, stride, begins, layer.output_padding, groups, dilation)
    unpadded = function(input, weight, bias, stride, 0, layer.output_padding, groups, dilation)
    return unpadded[(..., *[slice(first, -last or None) for first, last in zip(begins, ends, strict=True)])]


def _function(kind: str, name: str, weight: Tensor) -> Callable[..., Tensor]:
    axes = weight.dim() - 2
    if not 1 <= axes <= 3:
        raise UnsupportedError(f"{name}: an export to ONNX needs 1 to 3 spatial axes; got {axes}")
    function: Callable[..., Tensor] = getattr(nn.functional, f"{kind}{axes}d")
    return function


def _pads(begin: PerAxis | str, end: PerAxis | str, weight: Tensor) -> tuple[Ints, Ints]:
    """Return the pads at the begin and at the end, one per spatial axis."""
    axes = weight.dim() - 2
    return spread("pads_begin", cast(PerAxis, begin), axes), spread("pads_end", cast(PerAxis, end), axes)
