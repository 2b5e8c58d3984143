"""Formulas for torch.utils.flop_counter: it counts convgrad's operators as it counts PyTorch's own operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.flop_counter import conv_flop_count, register_flop_formula

from convgrad.torch import operators as _registered  # noqa: F401  (this import defines the operators)

Shape = Sequence[int]
_OPS = torch.ops.convgrad


@register_flop_formula(_OPS.forward)  # type: ignore[untyped-decorator]
def forward(src: Shape, weights: Shape, *_: object, out_shape: Shape, **__: object) -> int:
    """Return the number of floating-point operations of ``convgrad::forward``."""
    operations: int = conv_flop_count(src, weights, out_shape)
    return operations


@register_flop_formula(_OPS.data_gradient)  # type: ignore[untyped-decorator]
def data_gradient(diff_dst: Shape, weights: Shape, *_: object, out_shape: Shape, **__: object) -> int:
    """Return the number of floating-point operations of ``convgrad::data_gradient``, also for transposed layers."""
    operations: int = conv_flop_count(diff_dst, weights, out_shape, transposed=True)
    return operations


@register_flop_formula(_OPS.weight_gradient)  # type: ignore[untyped-decorator]
def weight_gradient(src: Shape, diff_dst: Shape, *_: object, out_shape: Shape, **__: object) -> int:
    """Return the number of floating-point operations of ``convgrad::weight_gradient``.

    PyTorch's formula ignores groups, so this formula ignores them too.
    """
    operations: int = conv_flop_count(_swapped(src), _swapped(diff_dst), _swapped(out_shape))
    return operations


def _swapped(shape: Shape) -> list[int]:
    """Return a shape with its first two axes exchanged."""
    return [shape[1], shape[0], *shape[2:]]
