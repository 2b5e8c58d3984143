"""Gradients with the strides of the tensor whose gradient they are, on axes of size 1 too.

Such axes have no effect on the order of elements in memory, but DistributedDataParallel compares all strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def strides_of(*tensors: Tensor | None) -> tuple[tuple[int, ...] | None, ...]:
    """Return the strides of tensors, for `laid`; None for a missing tensor."""
    return tuple([None if tensor is None else tensor.stride() for tensor in tensors])


def laid(gradients: Sequence[Tensor | None], strides: Sequence[tuple[int, ...] | None]) -> tuple[Tensor | None, ...]:
    """Return gradients with these strides where the strides differ on axes of size 1 only. Change tensors in place.

    The first gradients belong to the strides. The gradients must be new tensors, to which nobody else refers.
    """
    for gradient, wanted in zip(gradients, strides, strict=False):
        if gradient is not None and wanted is not None and gradient.stride() != wanted:
            _restride(gradient, wanted)
    return tuple(gradients)


def followed(parts: Tensor) -> Tensor:
    """Return the real view of a complex tensor. Its gradient gets its strides, as in `laid`, where autograd allows."""
    wanted = parts.stride()

    def laid_out(gradient: Tensor | None) -> Tensor | None:
        if gradient is None:  # autograd's way to pass zeros
            return None
        dense = gradient if gradient.stride()[-1] == 1 else gradient.contiguous()  # as autograd would
        return dense.as_strided(dense.shape, wanted) if _differ(dense, wanted) else dense

    if parts.requires_grad and not torch.compiler.is_compiling() and _is_alone(parts):
        parts.register_hook(laid_out)
    return parts


def _restride(gradient: Tensor, wanted: tuple[int, ...]) -> None:
    if _is_alone(gradient) and _differ(gradient, wanted):
        with torch.no_grad():  # a change of strides is not an operation that has a derivative
            gradient.as_strided_(gradient.shape, wanted)


def _is_alone(tensor: Tensor) -> bool:
    """Return whether no transform of torch.func has given the tensor axes of its own."""
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _differ(gradient: Tensor, wanted: tuple[int, ...]) -> bool:
    """Return whether strides differ, and only on axes of size 1. Symbols are not compared."""
    axes = tuple(zip(gradient.shape, gradient.stride(), wanted, strict=True))
    if gradient.stride() == wanted or any(type(number) is not int for axis in axes for number in axis):
        return False
    return all(extent == 1 or own == other for extent, own, other in axes)
