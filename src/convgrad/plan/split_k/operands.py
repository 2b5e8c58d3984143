"""A and B of a weight gradient: strides, the contiguous axis, and whether a kernel can read the operand in place."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.formats import F32
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, Operands, positions_axis
from convgrad.plan.split_k.constants import MAX_B_STRIDE_BYTES
from convgrad.plan.split_k.nest import WeightsNest, collapsed, per_group
from convgrad.plan.split_k.recipe import SplitKOperand, SplitKSpec
from convgrad.spec.problem import Problem


@dataclass(frozen=True)
class OperandStrides:
    """A or B of a weight gradient: its tensor, how the kernel reads it, and its strides in bytes."""

    tensor: str
    operand: SplitKOperand
    channels: int  # channels per group
    channel: int  # bytes from a channel to the next
    k: int  # bytes from a position of the tensor to the next
    group: int  # bytes from a group to the next
    image: int  # bytes from an image to the next
    step: int  # bytes from a position to the next where the kernel reads it: packed, or in the tensor
    stride: int  # positions of the tensor (not bytes) from a position of dst to the next
    out: int  # bytes from a channel to the next in the weights


def operands_of(nest: WeightsNest, spec: SplitKSpec, tensors: Operands) -> tuple[OperandStrides, OperandStrides]:
    """Return the strides of A and of B for a kernel."""
    a, b = tensors
    return _strides_of(nest, spec, spec.a, a), _strides_of(nest, spec, spec.b, b)


def _strides_of(nest: WeightsNest, spec: SplitKSpec, operand: SplitKOperand, tensor: str) -> OperandStrides:
    (image, channel, *_), k, channels = nest.strides(tensor), inner_step(nest, tensor), per_group(nest)[tensor]
    step = k if operand.in_place else spec.k_bytes(operand)
    stride = nest.conv.axes[-1].stride if tensor == "src" else 1
    out = dict(zip(("dst", "src"), nest.weights_strides, strict=False))[tensor]
    return OperandStrides(tensor, operand, channels, channel, k, channels * channel, image, step, stride, out)


def inner_step(nest: WeightsNest, tensor: str) -> int:
    """Return the stride of positions in bytes: of the image if all its positions have one stride, or else of a row."""
    of_all = _step_of_all(nest, tensor) if nest.pointwise else None
    return nest.strides(tensor)[-1] if of_all is None else of_all


def evenly_apart(nest: WeightsNest, tensor: str) -> bool:
    """Return whether the positions of each row have one stride. A pointwise image is one row."""
    return not nest.pointwise or _step_of_all(nest, tensor) is not None


def _step_of_all(nest: WeightsNest, tensor: str) -> int | None:
    return collapsed(tuple(axis.dst for axis in nest.conv.axes), nest.strides(tensor)[2:])


def contiguous_axis(problem: Problem, nest: WeightsNest, tensor: str) -> tuple[str, int]:
    """Return the contiguous axis of src or dst, and the stride of positions in elements, which is 1 for other axes.

    A tensor with one channel has contiguous channels.
    """
    size, conv = problem.operand_format.itemsize, nest.conv
    channels = conv.src_channels if tensor == "src" else conv.dst_channels
    if nest.strides(tensor)[1] == size or channels == 1:
        return CHANNELS, 1
    return positions_axis(inner_step(nest, tensor), size)


def readable_in_place(problem: Problem, nest: WeightsNest, tensor: str) -> bool:
    """Return whether kernels can read a tensor in place: f32, contiguous channels, one stride per row of positions."""
    by_channels = contiguous_axis(problem, nest, tensor)[0] == CHANNELS
    return problem.operand_format is F32 and by_channels and evenly_apart(nest, tensor)


def b_in_place(problem: Problem, nest: WeightsNest, isa: Isa, tensor: str, vectors: int) -> bool:
    """Return whether to read B in place. This needs whole panels, and pays only if the stride of positions is small."""
    whole = per_group(nest)[tensor] % (vectors * isa.lanes) == 0
    return whole and abs(inner_step(nest, tensor)) <= MAX_B_STRIDE_BYTES and readable_in_place(problem, nest, tensor)
