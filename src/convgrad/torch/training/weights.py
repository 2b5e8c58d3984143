"""Weight normalization and its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.torch.training.row import SECTIONS, row
from convgrad.torch.training.sums import axis_of


def _other_axes(v: Tensor, dim: int) -> list[int]:
    """Return the axes other than dim after a new first axis, because an empty list means all axes."""
    return [0, *[axis + 1 for axis in range(v.dim()) if axis != axis_of(v, dim)]]


@row(
    "_weight_norm_interface",
    formula="v * (g / norm), norm the root of the sum of squares of v along the axes other than dim",
    order=SECTIONS,
    bound="that of the norm, and 2 u abs(result)",
)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Return weights of the direction v and the length g, and the norms of v in f32."""
    norms = torch.linalg.vector_norm(v.float().unsqueeze(0), 2, _other_axes(v, dim), keepdim=True).squeeze(0)
    return (v.float() * (g.float() / norms)).to(v.dtype), norms


@row(
    "_weight_norm_interface_backward",
    formula="grad_v = (g / norm) * (grad_w - v * (s / norm / norm)), grad_g = s / norm, s the sum of grad_w * v",
    order=SECTIONS,
    bound="that of the sum, and 6 u times the sum of the absolute terms",
)
def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the direction and of the length."""
    gradient, v, norms = grad_w.float(), saved_v.float(), saved_norms.float()
    of_length = (gradient * v).unsqueeze(0).sum(_other_axes(v, dim), keepdim=True).squeeze(0) / norms
    of_direction = (saved_g.float() / norms) * (gradient - v * (of_length / norms))
    return of_direction.to(saved_v.dtype), of_length.to(saved_g.dtype)
