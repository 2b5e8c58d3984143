"""PyTorch as a peer: calls that compute one result, on contiguous and on channels-last tensors.

PyTorch's pads are equal at both ends of an axis. If a problem has different pads, the timed call also pads the input or
crops the output, and the contender's notes say so. The weights of PyTorch's conv_transpose are those of the underlying
convolution, (O, I, K...).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from convgrad.array_types import Array
from convgrad.arrays.libraries.torch import array_of, formats_of, tensor_of
from convgrad.cli.bench.work import Contender, Work
from convgrad.host import usable_cores
from convgrad.spec.geometry import Axis, Conv, transposed_extent
from convgrad.spec.operators import find
from convgrad.spec.problem import canonical_shape

CORES = usable_cores()  # read after importing PyTorch, because the import may pin this thread to a core
_FORWARD = {False: "conv", True: "conv_transpose"}
_DTYPES = {fmt: dtype for dtype, fmt in formats_of(torch).items()}
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


@dataclass(frozen=True)
class Pads:
    """The pads of one axis: PyTorch's pad of both ends, the remaining pad of each end, and the output padding."""

    both: int
    begin: int
    end: int
    output_padding: int


def contenders(work: Work, threads: int) -> list[Contender]:
    """Return PyTorch's contenders: contiguous tensors, then channels-last tensors."""
    torch.set_num_threads(threads)
    return [_contender(work, "nchw", _contiguous), _contender(work, "nhwc", _channels_last)]


def pads(axis: Axis, transposed: bool) -> Pads:
    """Return PyTorch's pads for an axis of the underlying convolution.

    >>> pads(Axis(56, 28, 3, stride=2, pad_begin=1), False), pads(Axis(56, 28, 3, stride=2, pad_end=1), False)
    (Pads(both=1, begin=0, end=0, output_padding=1), Pads(both=0, begin=0, end=1, output_padding=0))
    """
    longest = max(axis.stride, axis.dilation if transposed else 1)

    def output_padding(extent: int, both: int) -> int:
        return extent - transposed_extent(axis.dst, axis.effective_kernel, axis.stride, 2 * both)

    if 0 <= output_padding(axis.src, axis.pad_begin) < longest:
        return Pads(axis.pad_begin, 0, 0, output_padding(axis.src, axis.pad_begin))
    both = min(axis.pad_begin, axis.pad_end)
    begin, end = axis.pad_begin - both, axis.pad_end - both
    return Pads(both, begin, end, output_padding(axis.src + begin + end, both))


def _contender(work: Work, layout: str, place: Callable[[Tensor], Tensor]) -> Contender:
    conv, transposed = work.conv, find(work.problem.operator).transposed
    if len(conv.axes) == 1 and place is _channels_last:  # PyTorch has channels-last formats only for 2 and 3 axes
        conv = Conv(conv.batch, conv.groups, conv.src_channels, conv.dst_channels, (Axis(1, 1, 1), *conv.axes))
    axes = tuple(pads(a, transposed) for a in conv.axes)
    tensors: dict[str, Tensor] = {
        name: place(_tensor(operand, _rank(name, conv)))
        for name, operand in zip(work.problem.operands, work.operands, strict=True)
    }
    dtype = _DTYPES[work.problem.operand_format]
    padded = (*conv.src_shape[:2], *(a.src + p.begin + p.end for a, p in zip(conv.axes, axes, strict=True)))
    for name, shape in (("src", padded), ("dst", conv.dst_shape), ("weights", conv.weights_shape)):
        if name not in tensors:  # PyTorch needs a tensor with the shape of the result
            tensors[name] = place(torch.empty(shape, dtype=dtype))
    beyond = any(p.begin or p.end for p in axes)
    notes = ("torch's time has F.pad or a crop for pads that differ by end",) if beyond else ()
    operation = _operation(work.problem.solves_for, conv, axes, transposed, "src" in work.problem.operands and beyond)
    crop = _crop(axes, padded) if work.problem.solves_for == "src" and beyond else ()
    shape = canonical_shape(work.conv, work.problem.output)
    return Contender(f"torch {layout}", partial(_run, operation, tensors, crop), partial(_array, shape), notes, CORES)


def _rank(name: str, conv: Conv) -> int:
    return 1 if name == "bias" else 2 + len(conv.axes)


def _run(operation: Callable[..., Tensor], tensors: dict[str, Tensor], crop: tuple[slice, ...]) -> Tensor:
    result = operation(**tensors)
    return result[crop] if crop else result


def _operation(
    solves_for: str, conv: Conv, axes: tuple[Pads, ...], transposed: bool, pad: bool
) -> Callable[..., Tensor]:
    """Return the PyTorch call to time. Its keywords are the underlying convolution's src, dst, weights and bias."""
    x, y = ("dst", "src") if transposed else ("src", "dst")
    stride, dilation = [a.stride for a in conv.axes], [a.dilation for a in conv.axes]
    both, output_padding = [p.both for p in axes], [p.output_padding for p in axes]
    outside = [extent for p in reversed(axes) for extent in (p.begin, p.end)]
    forward = getattr(functional, f"{_FORWARD[transposed]}{len(axes)}d")
    keywords: dict[str, object] = {"stride": stride, "padding": both, "dilation": dilation, "groups": conv.groups}
    if transposed:
        keywords["output_padding"] = output_padding
    of_source = solves_for == x
    mask = [of_source, not of_source, False]

    def call(*, weights: Tensor, bias: Tensor | None = None, **tensors: Tensor) -> Tensor:
        if pad:
            tensors["src"] = functional.pad(tensors["src"], outside)
        if solves_for == y:
            return forward(tensors[x], weights, bias, **keywords)
        gradients = torch.ops.aten.convolution_backward(
            tensors[y],
            tensors[x],
            weights,
            None,
            stride,
            both,
            dilation,
            transposed,
            output_padding if transposed else [0] * len(axes),
            conv.groups,
            mask,
        )
        return gradients[0 if of_source else 1]

    return call


def _crop(axes: tuple[Pads, ...], padded: tuple[int, ...]) -> tuple[slice, ...]:
    inside = (slice(p.begin, extent - p.end) for p, extent in zip(axes, padded[2:], strict=True))
    return (slice(None), slice(None), *inside)


# -- arrays and tensors ----------------------------------------------------------------------------------------------


def _tensor(operand: Array, rank: int) -> Tensor:
    """Return a contiguous copy of a canonical operand. If its rank is below ``rank``, add a first spatial axis of 1."""
    array = np.array(operand, order="C")
    tensor = tensor_of(array)
    return tensor if tensor.ndim == rank else tensor.unsqueeze(2)


def _array(shape: tuple[int, ...], tensor: Tensor) -> Array:
    return array_of(torch, tensor.contiguous()).reshape(shape)


def _contiguous(tensor: Tensor) -> Tensor:
    return tensor


def _channels_last(tensor: Tensor) -> Tensor:
    if tensor.ndim == 1:
        return tensor
    return tensor.contiguous(memory_format=_CHANNELS_LAST[tensor.ndim - 2])
