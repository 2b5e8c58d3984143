"""The operators for PyTorch's tracing. Each returns an empty tensor like its result: shape, type and memory format.

Sizes may be symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from convgrad.spec.geometry import effective_kernel, forward_extent
from convgrad.torch import kernels, problems
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, pads_of, transposed_extents
from convgrad.torch.kernels import LAST, Tensor, kinds


def forward(src: Tensor, weights: Tensor, bias: Tensor | None, layer: OpAttributes) -> Tensor:
    """Return an empty tensor like the result of ``kernels.forward``."""
    given = (src, weights) if bias is None else (src, weights, bias)
    if _known(given, layer):
        problem = problems.dst_problem(_settled(given), layer)
        return _empty(given, problem.output_shape, layer.channels_last)
    _agree(
        "Convolution",
        given,
        weights.shape[1] * layer.groups == src.shape[1],
        "src channels must be weights channels x groups",
    )
    kernel = [effective_kernel(taps, d) for taps, d in zip(weights.shape[2:], layer.dilations, strict=True)]
    both = pads_of(layer.pads, weights.shape[2:], layer.dilations)
    pads = [begin + end for begin, end in zip(*both, strict=True)]
    extents = map(forward_extent, src.shape[2:], kernel, layer.strides, pads)
    return _empty(given, (src.shape[0], weights.shape[0], *extents), layer.channels_last)


def data_gradient(
    diff_dst: Tensor, weights: Tensor, bias: Tensor | None, src: Tensor | None, layer: OpAttributes
) -> Tensor:
    """Return an empty tensor like the result of ``kernels.data_gradient``."""
    given = (diff_dst, weights) if bias is None else (diff_dst, weights, bias)
    extents = None if src is None else tuple(src.shape[2:])
    if _known(given, layer, extents):
        problem = problems.transposed_problem(_settled(given), layer, extents)
        return _empty(given, problem.output_shape, layer.channels_last)
    _agree(
        "ConvTranspose",
        given,
        weights.shape[0] == diff_dst.shape[1],
        "diff_dst channels must be equal to weights channels",
    )
    if extents is None:
        small, kernel = diff_dst.shape[2:], weights.shape[2:]
        pads, more = pads_of(layer.pads, kernel, layer.dilations), layer.output_padding or (0,) * len(kernel)
        extents = transposed_extents(small, kernel, layer.strides, pads, more, layer.dilations)
    return _empty(given, (diff_dst.shape[0], weights.shape[1] * layer.groups, *extents), layer.channels_last)


def weight_gradient(
    src: Tensor, diff_dst: Tensor, weights: Tensor | None, kernel: Ints | None, layer: OpAttributes
) -> Tensor:
    """Return an empty tensor like the result of ``kernels.weight_gradient``."""
    given = (diff_dst, src)
    extents: Any = kernel if weights is None else tuple(weights.shape[2:])
    if _known(given, layer, extents):
        problem = problems.kernel_problem(_settled(given), layer, extents)
        return _empty(given, problem.output_shape, layer.channels_last)
    _agree("ConvTransposeBackwardWeights", given, src.shape[0] == diff_dst.shape[0], "batches must agree")
    return _empty(given, (diff_dst.shape[1], src.shape[1] // layer.groups, *extents), layer.channels_last)


def bias_gradient(diff_dst: Tensor) -> Tensor:
    """Return an empty tensor like the result of ``kernels.bias_gradient``."""
    _agree("BiasAddBackward", (diff_dst,), True, "")
    return _empty((diff_dst,), (diff_dst.shape[1],), False)


def _known(given: tuple[Tensor, ...], layer: OpAttributes, extents: Ints | None = None) -> bool:
    """Return whether all sizes and attributes are integers. The operator's rules cannot check symbols."""
    lists = (layer.strides, *layer.pads, layer.output_padding, layer.dilations, extents)
    sizes = [layer.groups, *[size for one in lists for size in one or ()]]
    sizes += [extent for tensor in given for extent in tensor.shape]
    return all(type(size) is int for size in sizes)


def _settled(given: tuple[Tensor, ...]) -> tuple[problems.Kind, ...]:
    return tuple((dtype, tuple(shape)) for dtype, shape in kinds(given))


def _agree(name: str, given: tuple[Tensor, ...], holds: Any, sentence: str) -> None:
    """Check operands with symbolic sizes: raise if types are unsupported or differ, or if ``holds`` is false."""
    problems.common(name, kinds(given))
    torch._check(holds, lambda: f"{name}: {sentence}")


def _empty(given: tuple[Tensor, ...], shape: Sequence[Any], channels_last: bool) -> Tensor:
    device = kernels.common_device([tensor.device for tensor in given])
    memory = LAST[len(shape)] if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=given[0].dtype, device=device, memory_format=memory)
