"""Elementary functions, which are maps, and the gradients of some."""

from __future__ import annotations

from torch import Tensor

from convgrad.spec.elementwise.table import MAPS
from convgrad.torch.training.row import ELEMENTWISE, PROMOTE, row
from convgrad.torch.training.tensors import elements

BY_MAP = "by f32 operations"


def error_of(name: str) -> str:
    """Return the largest error of a map."""
    return f"{MAPS[name].ulps:g} ulp"


def add_map(name: str, formula: str, integers: str = PROMOTE) -> None:
    """Add the row of a function of one tensor that is a map of the same name."""

    def mapped(self: Tensor) -> Tensor:
        return elements(name, self)

    how = "in f64" if MAPS[name].wide else BY_MAP
    row(name, formula=f"{formula} {how}", bound=error_of(name), integers=integers)(mapped)


_FUNCTIONS = """
    exp exp2 expm1 log log2 log10 log1p sigmoid tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh
"""
for _name in _FUNCTIONS.split():
    add_map(_name, f"{_name}(self)")


def _gradient_row(name: str, formula: str, bound: str) -> None:
    """Add the row of a gradient that is computed from the function's result."""

    def gradient(grad_output: Tensor, output: Tensor) -> Tensor:
        return elements(name, grad_output, output)

    row(name, formula=formula, bound=bound, types=ELEMENTWISE)(gradient)


_gradient_row("sigmoid_backward", "(grad_output * (1 - output)) * output", "3 u abs(result)")
_gradient_row("tanh_backward", "grad_output * (1 - output * output)", "2 u abs(grad_output)")


@row("log_sigmoid_forward", formula=f"min(self, 0) - log1p(exp(-abs(self))) {BY_MAP}", bound=error_of("log_sigmoid"))
def log_sigmoid(self: Tensor) -> tuple[Tensor, Tensor]:
    """Return log(sigmoid(self)), and exp(-abs(self)), from which PyTorch computes a gradient outside of the context."""
    x = self.contiguous()  # PyTorch's results are contiguous
    return elements("log_sigmoid", x), elements("exp", -x.abs())


@row("log_sigmoid_backward", formula=f"grad_output * sigmoid(-self) {BY_MAP}", bound="3 ulp")
def log_sigmoid_backward(grad_output: Tensor, self: Tensor, buffer: Tensor) -> Tensor:
    """Return the gradient of log_sigmoid."""
    return elements("log_sigmoid_backward", grad_output, self)


@row("atan2", formula="the angle of the point (other, self) in f64", bound="0.501 ulp", integers=PROMOTE)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """Return the angle of a point."""
    return elements("atan2", self, other)


@row("logaddexp", formula="log(exp(self) + exp(other)) in f64", bound="0.501 ulp + 2^-50")
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """Return the logarithm of a sum of exponentials."""
    return elements("logaddexp", self, other)


@row(
    "xlogy.Tensor",
    formula=f"self * log(other), 0 if self is 0, {BY_MAP}",
    bound="2 ulp",
)
def xlogy(self: Tensor, other: Tensor) -> Tensor:
    """Return self * log(other)."""
    return elements("xlogy", self, other)
