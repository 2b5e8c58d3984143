"""Calls for PyTorch's tracing: an empty tensor like the result, of its shape, type and memory format.

Sizes may be symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from convgrad.spec.geometry import effective_kernel, forward_extent
from convgrad.torch import kernels, problems
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, pads_of, transposed_extents
from convgrad.torch.kernels import LAST, kinds
from convgrad.torch.passes import Call


def empty(call: Call) -> Tensor:
    """Return an empty tensor like the result of ``kernels.compute``."""
    pose, operands, layer, sizes = call
    if _known(operands, layer, sizes):
        settled = tuple((dtype, tuple(shape)) for dtype, shape in kinds(operands))
        shape: Sequence[int] = pose(settled, layer, *sizes).output_shape
    else:
        shape = _SYMBOLIC[pose](operands, layer, *sizes)
    device = kernels.common_device([tensor.device for tensor in operands])
    memory = LAST[len(shape)] if layer.channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=operands[0].dtype, device=device, memory_format=memory)


def _dst(operands: tuple[Tensor, ...], layer: OpAttributes) -> Sequence[int]:
    (src, weights), holds = (tensor.shape for tensor in operands[:2]), "src channels must be weights channels x groups"
    _agree("Convolution", operands, weights[1] * layer.groups == src[1], holds)
    kernel = [effective_kernel(taps, d) for taps, d in zip(weights[2:], layer.dilations, strict=True)]
    begin_and_end = pads_of(layer.pads, weights[2:], layer.dilations)
    pads = [begin + end for begin, end in zip(*begin_and_end, strict=True)]
    return (src[0], weights[0], *map(forward_extent, src[2:], kernel, layer.strides, pads))


def _diff_src(operands: tuple[Tensor, ...], layer: OpAttributes, extents: Ints | None) -> Sequence[int]:
    diff_dst, weights = (tensor.shape for tensor in operands[:2])
    _agree("ConvTranspose", operands, weights[0] == diff_dst[1], "diff_dst channels must be equal to weights channels")
    if extents is None:
        kernel = weights[2:]
        pads, more = pads_of(layer.pads, kernel, layer.dilations), layer.output_padding or (0,) * len(kernel)
        extents = transposed_extents(diff_dst[2:], kernel, layer.strides, pads, more, layer.dilations)
    return (diff_dst[0], weights[1] * layer.groups, *extents)


def _diff_weights(operands: tuple[Tensor, ...], layer: OpAttributes, kernel: Ints) -> Sequence[int]:
    diff_dst, src = (tensor.shape for tensor in operands)
    _agree("ConvTransposeBackwardWeights", operands, src[0] == diff_dst[0], "batches must agree")
    return (diff_dst[1], src[1] // layer.groups, *kernel)


def _diff_bias(operands: tuple[Tensor, ...], _: OpAttributes) -> Sequence[int]:
    _agree("BiasAddBackward", operands, True, "")
    return (operands[0].shape[1],)


_SYMBOLIC: dict[Callable[..., object], Callable[..., Sequence[int]]] = {  # the shape of a problem with symbolic sizes
    problems.dst_problem: _dst,
    problems.transposed_problem: _diff_src,
    problems.kernel_problem: _diff_weights,
    problems.bias_problem: _diff_bias,
}


def _known(operands: tuple[Tensor, ...], layer: OpAttributes, extents: Sequence[Ints | None]) -> bool:
    """Return whether all sizes and attributes are integers. The operator's rules cannot check symbols."""
    lists = (layer.strides, *layer.pads, layer.output_padding, layer.dilations, *extents)
    sizes = [layer.groups, *[size for attribute in lists for size in attribute or ()]]
    sizes += [extent for tensor in operands for extent in tensor.shape]
    return all(type(size) is int for size in sizes)


def _agree(name: str, operands: tuple[Tensor, ...], holds: bool, sentence: str) -> None:
    """Check operands with symbolic sizes: raise if types are unsupported or differ, or if ``holds`` is false."""
    problems.common(name, kinds(operands))
    torch._check(holds, lambda: f"{name}: {sentence}")
