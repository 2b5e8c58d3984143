"""Powers with any exponent, in f64 and rounded once."""

from __future__ import annotations

from torch import Tensor

from convgrad.torch.training.functions import error_of
from convgrad.torch.training.row import PROMOTE, row
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
