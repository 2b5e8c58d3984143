"""Powers with any exponent, and products of elements, in f64 and rounded once."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.torch.training.functions import error_of
from convgrad.torch.training.row import PROMOTE, SEQUENTIAL, SUMMED, TYPE_CURE, UnservedError, row
from convgrad.torch.training.tensors import elements


def _are_integers(self: Tensor | float, exponent: Tensor | float, **_: object) -> bool:
    """Return whether ATen computes products of integers."""
    return not any(x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float) for x in (self, exponent))


@row(
    "pow.Tensor_Tensor",
    "pow.Scalar",
    formula="exp(exponent * log(self)) in f64, and IEEE's values for special numbers",
    bound=error_of("power"),
    integers=PROMOTE,
    passed_on=_are_integers,
)
def power_of_numbers(self: Tensor | float, exponent: Tensor | float) -> Tensor:
    """Return self**exponent."""
    return elements("power", self, exponent)


@row(
    "prod",
    "prod.dim_int",
    formula="product of the elements in f64",
    order=SEQUENTIAL,
    bound="0.501 ulp for up to 100,000 elements",
)
def product_of_elements(
    self: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the product of all elements in row-major order, or of those along a dimension."""
    x = self.reshape(-1) if dim is None else self.reshape(self.shape or (1,))
    to, axis = dtype or self.dtype, 0 if dim is None else dim
    if not (to.is_floating_point or to.is_complex):
        return self.to(to).prod() if dim is None else self.to(to).prod(dim, keepdim)
    if to not in SUMMED:
        raise UnservedError(f"has no specified order for {to}", TYPE_CURE)
    if not x.shape[axis]:
        product = x.new_ones([n for at, n in enumerate(x.shape) if at != axis % x.dim()])
    else:
        product = x.to(to).double().cumprod(axis).select(axis, -1)
    return (product.unsqueeze(axis) if keepdim and self.dim() else product).to(to)
