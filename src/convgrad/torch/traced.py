"""The operators for PyTorch's tracing. Each returns an empty tensor like its result: shape, type and memory format.

Sizes may be symbols.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from convgrad.spec.chosen import DIRECT
from convgrad.spec.geometry import effective_kernel, forward_extent
from convgrad.torch import kernels
from convgrad.torch.kernels import LAST, Ints, Tensor, kinds


def forward(
    src: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    strides: Ints,
    pads_begin: Ints,
    pads_end: Ints,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
) -> Tensor:
    """Return an empty tensor like the result of ``kernels.forward``."""
    given = (src, weights) if bias is None else (src, weights, bias)
    if _known(given, strides, pads_begin, pads_end, dilations, groups):
        problem = kernels.dst_problem(
            _settled(given), tuple(strides), tuple(pads_begin), tuple(pads_end), tuple(dilations), groups
        )
        return _empty(given, problem.output_shape, channels_last)
    _agree(
        "Convolution",
        given,
        weights.shape[1] * groups == src.shape[1],
        "src channels must be weights channels x groups",
    )
    kernel = [effective_kernel(taps, d) for taps, d in zip(weights.shape[2:], dilations, strict=True)]
    pads = [begin + end for begin, end in zip(pads_begin, pads_end, strict=True)]
    extents = map(forward_extent, src.shape[2:], kernel, strides, pads)
    return _empty(given, (src.shape[0], weights.shape[0], *extents), channels_last)


def data_gradient(
    diff_dst: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    extents: Ints,
    strides: Ints,
    pads_begin: Ints,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
) -> Tensor:
    """Return an empty tensor like the result of ``kernels.data_gradient``."""
    given = (diff_dst, weights) if bias is None else (diff_dst, weights, bias)
    if _known(given, extents, strides, pads_begin, dilations, groups):
        problem = kernels.src_problem(
            _settled(given), tuple(extents), tuple(strides), tuple(pads_begin), tuple(dilations), groups
        )
        return _empty(given, problem.output_shape, channels_last)
    _agree(
        "ConvTranspose",
        given,
        weights.shape[0] == diff_dst.shape[1],
        "diff_dst channels must be equal to weights channels",
    )
    return _empty(given, (diff_dst.shape[0], weights.shape[1] * groups, *extents), channels_last)


def weight_gradient(
    src: Tensor,
    diff_dst: Tensor,
    kernel: Ints,
    strides: Ints,
    pads_begin: Ints,
    dilations: Ints,
    groups: int,
    channels_last: bool,
    max_error: float = DIRECT,
    tune: bool = False,
) -> Tensor:
    """Return an empty tensor like the result of ``kernels.weight_gradient``."""
    given = (diff_dst, src)
    if _known(given, kernel, strides, pads_begin, dilations, groups):
        problem = kernels.weights_problem(
            _settled(given), tuple(kernel), tuple(strides), tuple(pads_begin), tuple(dilations), groups
        )
        return _empty(given, problem.output_shape, channels_last)
    _agree("ConvTransposeBackwardWeights", given, src.shape[0] == diff_dst.shape[0], "batches must agree")
    return _empty(given, (diff_dst.shape[1], src.shape[1] // groups, *kernel), channels_last)


def bias_gradient(diff_dst: Tensor) -> Tensor:
    """Return an empty tensor like the result of ``kernels.bias_gradient``."""
    _agree("BiasAddBackward", (diff_dst,), True, "")
    return _empty((diff_dst,), (diff_dst.shape[1],), False)


def _known(given: tuple[Tensor, ...], *numbers: Any) -> bool:
    """Return whether all sizes and attributes are integers. The operator's rules cannot check symbols."""
    sizes = [number for one in numbers for number in (one if isinstance(one, Sequence) else (one,))]
    sizes += [extent for tensor in given for extent in tensor.shape]
    return all(type(size) is int for size in sizes)


def _settled(given: tuple[Tensor, ...]) -> tuple[kernels.Kind, ...]:
    return tuple((dtype, tuple(shape)) for dtype, shape in kinds(given))


def _agree(name: str, given: tuple[Tensor, ...], holds: Any, sentence: str) -> None:
    """Check operands with symbolic sizes: raise if types are unsupported or differ, or if ``holds`` is false."""
    kernels.common(name, kinds(given))
    torch._check(holds, lambda: f"{name}: {sentence}")


def _empty(given: tuple[Tensor, ...], shape: Sequence[Any], channels_last: bool) -> Tensor:
    device = kernels.common_device([tensor.device for tensor in given])
    memory = LAST[len(shape)] if channels_last else torch.contiguous_format
    return torch.empty(shape, dtype=given[0].dtype, device=device, memory_format=memory)
