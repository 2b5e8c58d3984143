"""Gradients with the strides of the tensor whose gradient they are, on axes of size 1 too.

Such axes have no effect on the order of elements in memory, but DistributedDataParallel compares all strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = Any


def strides_of(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Return the strides of tensors, for `laid`; None for a missing tensor."""
    return tuple([None if tensor is None else tensor.stride() for tensor in tensors])


def laid(gradients: Sequence[Tensor | None], strides: Sequence[Any]) -> tuple[Tensor | None, ...]:
    """Return gradients with these strides where the strides differ on axes of size 1 only. Change tensors in place.

    The first gradients belong to the strides. The gradients must be new tensors, to which nobody else refers.
    """
    for gradient, wanted in zip(gradients, strides, strict=False):
        if gradient is not None and wanted is not None and gradient.stride() != wanted:
            _restride(gradient, wanted)
    return tuple(gradients)


def _restride(gradient: Tensor, wanted: tuple[int, ...]) -> None:
    if torch._C._functorch.is_functorch_wrapped_tensor(gradient):
        return  # the transform has axes of its own
    axes = tuple(zip(gradient.shape, gradient.stride(), wanted, strict=True))
    if all(type(number) is int for axis in axes for number in axis) and all(
        extent == 1 or own == other for extent, own, other in axes
    ):
        with torch.no_grad():  # a change of strides is not an operation that has a derivative
            gradient.as_strided_(gradient.shape, wanted)
