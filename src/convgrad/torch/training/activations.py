"""Activations and their gradients: SiLU, GELU, Mish, GLU, ELU, softplus and softshrink."""

from __future__ import annotations

import torch
from torch import Tensor

from convgrad.torch.training.functions import BY_MAP, add_map, error_of
from convgrad.torch.training.row import ELEMENTWISE, PASS, UnservedError, row
from convgrad.torch.training.tensors import allocated, check_numbers, elements, update

add_map("silu", "self * sigmoid(self)", integers=PASS)  # PyTorch has none of integers


@row(
    "silu_backward",
    formula=f"grad_output * (sigmoid(self) * (1 + self * sigmoid(-self))) {BY_MAP}",
    bound="7 u abs(grad_output)",
)
def silu_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of SiLU."""
    return elements("silu_backward", grad_output, self)


def _by_tanh(approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        raise UnservedError(f"takes approximate none or tanh; got {approximate}", "Use one of these approximations")
    return approximate == "tanh"


@row(
    "gelu",
    formula=f'self * P(self), P the normal distribution function; with approximate="tanh", '
    f"self * sigmoid(2 sqrt(2/pi) (self + 0.044715 self^3)); {BY_MAP}",
    bound=f"{error_of('gelu')}, with tanh {error_of('gelu_tanh')}",
)
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return GELU."""
    return elements("gelu_tanh" if _by_tanh(approximate) else "gelu", self)


@row(
    "gelu_backward",
    formula="grad_output * (P(self) + self * p(self)), p the normal density; "
    f'with approximate="tanh", the derivative of that formula; {BY_MAP}',
    bound="7 u abs(grad_output)",
)
def gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return the gradient of GELU."""
    return elements("gelu_tanh_backward" if _by_tanh(approximate) else "gelu_backward", grad_output, self)


@row(
    "elu",
    formula=f"(exp(self * input_scale) - 1) * (alpha * scale) if self <= 0, else self * scale, {BY_MAP}",
    bound="3 ulp, and the roundings of the scales",
)
def elu(self: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """Return ELU, or SELU or CELU for other scales."""
    return elements("elu", self, alpha * scale, scale, input_scale)


@row("celu", formula="elu(self, alpha, 1, 1/alpha)", bound="3 ulp, and the rounding of 1/alpha")
def celu(self: Tensor, alpha: float = 1) -> Tensor:
    """Return CELU."""
    if not alpha:
        raise RuntimeError("celu: alpha must not be 0")
    return elu(self, alpha, 1, 1 / alpha)


@row(
    "elu_backward",
    formula="grad_output * scale for positive elements, else grad_output * input_scale * (result + alpha * scale), or "
    f"* alpha * scale * exp(self * input_scale); {BY_MAP}",
    bound="5 ulp + 2 u abs(self * input_scale * result)",
)
def elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Tensor:
    """Return the gradient of ELU from its result, or from its input."""
    if is_result and min(alpha, scale, input_scale) < 0:  # the sign of a result is not that of its input
        raise RuntimeError(
            "In-place elu has no gradient for a negative slope. Use the function that returns a new tensor; got "
            f"alpha={alpha}, scale={scale} and input_scale={input_scale}"
        )
    name = "elu_backward_of_result" if is_result else "elu_backward"
    return elements(name, grad_output, self_or_result, alpha * scale, scale, input_scale)


@row(
    "softplus",
    formula=f"self if self * beta > threshold, else log1p(exp(self * beta)) / beta, {BY_MAP}",
    bound="3 ulp, and the rounding of self * beta",
)
def softplus(self: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return softplus."""
    return elements("softplus", self, beta, threshold)


@row(
    "softplus_backward",
    formula=f"grad_output if self * beta > threshold, else grad_output * sigmoid(self * beta), {BY_MAP}",
    bound="4 ulp, and the rounding of self * beta",
)
def softplus_backward(grad_output: Tensor, self: Tensor, beta: float, threshold: float) -> Tensor:
    """Return the gradient of softplus."""
    return elements("softplus_backward", grad_output, self, beta, threshold)


add_map("mish", "self * tanh(log(1 + exp(self)))", integers=PASS)


@row(
    "mish_backward",
    formula=f"grad_output * (t + self * sigmoid(self) * (1 - t * t)), t = tanh(log(1 + exp(self))), {BY_MAP}",
    bound="9 u abs(grad_output)",
)
def mish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of Mish."""
    return elements("mish_backward", grad_output, self)


@row(
    "glu",
    formula=f"x * sigmoid(gate), x and gate the halves of self along a dimension, {BY_MAP}",
    bound="2.5 ulp of sigmoid(gate), times abs(x), + u abs(result)",
    integers=PASS,
)
def glu(self: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of a tensor along a dimension times the sigmoids of the second half."""
    return elements("glu", *_halves(self, dim))


@row(
    "glu_backward",
    formula=f"grad_output * sigmoid(gate), then (grad_output * x) * (sigmoid(gate) * sigmoid(-gate)), {BY_MAP}",
    bound="2.5 ulp of each sigmoid, times the other factors, + 3 u abs(result)",
)
def glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    """Return the gradient of glu."""
    result = allocated(torch.empty(self.shape, dtype=self.dtype))
    update("glu_backward", _halves(result, dim), grad_output, *_halves(self, dim))
    return result


def _halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the halves of a tensor along a dimension."""
    if not x.dim() or x.shape[dim] % 2:
        raise RuntimeError(f"glu: the halved dimension must have an even size; got {tuple(x.shape)}, dim={dim}")
    first, second = x.split(x.shape[dim] // 2 or 1, dim) if x.shape[dim] else (x, x)
    return first, second


@row(
    "softshrink",
    formula="self - lambd above lambd, self + lambd below -lambd, else self * 0",
    bound="u abs(result), and the rounding of lambd",
    types=ELEMENTWISE,
    integers=PASS,
)
def softshrink(self: Tensor, lambd: float = 0.5) -> Tensor:
    """Return softshrink."""
    return elements("softshrink", self, _limit(lambd, self), lambd)


def _limit(lambd: float, x: Tensor) -> float:
    """Return a limit as PyTorch compares elements with it, which is rounded to their type."""
    if x.dtype != torch.float64:
        check_numbers(lambd)
    return float(torch.tensor(lambd, dtype=torch.float64).to(x.dtype)) if x.is_floating_point() else lambd


# -- gradients that PyTorch computes as 0 or not at NaN, depending on the memory format -----------------------------


@row(
    "softshrink_backward",
    "hardshrink_backward",
    formula="0 where abs(self) <= lambd, else grad_output",
    bound="0",
    types=ELEMENTWISE,
    integers=PASS,
)
def shrink_backward(grad_output: Tensor, self: Tensor, lambd: float) -> Tensor:
    """Return the gradient of softshrink or hardshrink."""
    return elements("shrink_backward", grad_output, self, _limit(lambd, self))


@row(
    "hardtanh_backward",
    formula="grad_output where min_val < self < max_val, else 0",
    bound="0",
    types=ELEMENTWISE,
    integers=PASS,
)
def hardtanh_backward(grad_output: Tensor, self: Tensor, min_val: float, max_val: float) -> Tensor:
    """Return the gradient of hardtanh, also that of ReLU6."""
    return elements("hardtanh_backward", grad_output, self, min_val, max_val)


@row(
    "hardswish_backward",
    formula="0 where self <= -3, grad_output where self >= 3, else grad_output * (self / 3 + 0.5)",
    bound="3 u abs(grad_output)",
    types=ELEMENTWISE,
    integers=PASS,
)
def hardswish_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    """Return the gradient of hardswish."""
    return elements("hardswish_backward", grad_output, self)
