"""Powers, and products of elements."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.spec.elementwise.powers import EXPONENTS, power_name
from convgrad.torch.training.elements import are_integers
from convgrad.torch.training.functions import error_of
from convgrad.torch.training.row import ELEMENTWISE, PROMOTE, SEQUENTIAL, SUMMED, TYPE_CURE, UnservedError, row
from convgrad.torch.training.tensors import elements


@row(
    "pow.Tensor_Scalar",
    formula="products, sqrt and division for the exponents "
    f"{', '.join(f'{power:g}' for power in EXPONENTS)}; else as pow.Tensor_Tensor, but not of f64",
    bound="5 u abs(result)",
    types=ELEMENTWISE,
    integers=PROMOTE,
    passed_on=are_integers,
)
def power(self: Tensor, exponent: float, *, out: Tensor | None = None) -> Tensor:
    """Return self**exponent; products, square roots and divisions compute it for some exponents."""
    if exponent in EXPONENTS:
        return elements(power_name(exponent), self, out=out)
    if self.dtype == torch.float64:
        raise UnservedError(f"computes f64 only for the exponents {', '.join(map(str, EXPONENTS))}", TYPE_CURE)
    return elements("power", self, exponent, out=out)


@row(
    "pow.Tensor_Tensor",
    "pow.Scalar",
    formula="exp(exponent * log(self)) in f64, and IEEE's values for special numbers",
    bound=error_of("power"),
    integers=PROMOTE,
    passed_on=are_integers,
)
def power_of_numbers(self: Tensor | float, exponent: Tensor) -> Tensor:
    """Return self**exponent, which is contiguous for a number to the power of a tensor, as PyTorch's."""
    return elements("power", self, exponent if isinstance(self, torch.Tensor) else exponent.contiguous())


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
