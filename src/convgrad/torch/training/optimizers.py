"""The fused steps of SGD, Adam and AdamW, with the operations of their unfused forms in the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from convgrad.torch.training.elements import add, addcdiv, addcmul, lerp, sqrt, sub
from convgrad.torch.training.row import Tensor, row

Tensors = Sequence[Tensor]


def _gradient(gradient: Tensor, scale: Tensor | None, maximize: bool) -> Tensor:
    """Return a gradient without the scale of autocast, for minimization."""
    if scale is not None:
        gradient.copy_(gradient / scale)
    return -gradient if maximize else gradient


def _is_skipped(found_inf: Tensor | None) -> bool:
    return found_inf is not None and bool(found_inf.item() == 1)


@row(
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    formula="g = grad + weight_decay * self; b = b * momentum + (1 - dampening) * g (first step: b = g); "
    "self - lr * b (Nesterov: lr * (g + momentum * b))",
    bound="2 u per operation",
)
def fused_sgd(
    self: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float | Tensor,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Do a step of SGD on each parameter."""
    if _is_skipped(found_inf):
        return
    for at, (parameter, gradient) in enumerate(zip(self, grads, strict=True)):
        g = _gradient(gradient, grad_scale, maximize)
        g = g if weight_decay == 0 else add(g, parameter, alpha=weight_decay)
        if momentum:
            buffer = momentum_buffer_list[at]
            if is_first_step:
                buffer.copy_(g)
            else:
                add(buffer.mul_(momentum), g, alpha=1 - dampening, out=buffer)
            g = add(g, buffer, alpha=momentum) if nesterov else buffer
        sub(parameter, g, alpha=float(lr), out=parameter)


def _adam(decoupled: bool) -> Any:
    """Return the fused step of AdamW if weight decay is decoupled, else that of Adam."""

    def step(
        self: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        max_exp_avg_sqs: Tensors,
        state_steps: Tensors,
        *,
        lr: float | Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        if _is_skipped(found_inf):
            return
        rate = float(lr)
        for at, parameter in enumerate(self):
            number = int(state_steps[at].item())
            g = _gradient(grads[at], grad_scale, maximize)
            if weight_decay and decoupled:
                parameter.mul_(1 - rate * weight_decay)
            elif weight_decay:
                g = g + parameter * weight_decay
            average, squares = exp_avgs[at], exp_avg_sqs[at]
            lerp(average, g, 1 - beta1, out=average)
            addcmul(squares.mul_(beta2), g, g, value=1 - beta2, out=squares)
            if amsgrad:
                squares = torch.maximum(max_exp_avg_sqs[at], squares, out=max_exp_avg_sqs[at])
            corrections = 1 - _power(beta1, number), 1 - _power(beta2, number)
            divisor = sqrt(squares).div_(math.sqrt(corrections[1])).add_(eps)
            addcdiv(parameter, average, divisor, value=-(rate / corrections[0]), out=parameter)

    return step


def _power(base: float, exponent: int) -> float:
    """Return base**exponent by products, because the bits of the C library's pow may differ between machines."""
    result = 1.0
    for bit in f"{exponent:b}":
        result = result * result * (base if bit == "1" else 1.0)
    return result


for _name, _decoupled in {"_fused_adam_": False, "_fused_adamw_": True}.items():
    row(
        _name,
        f"{_name}.tensor_lr",
        formula="m = lerp(m, g, 1 - beta1); v = v * beta2 + ((1 - beta2) * g) * g; "
        "self + (-lr/c1 * m) / (sqrt(v) / sqrt(c2) + eps), c = 1 - beta^step",
        bound="2 u per operation",
    )(_adam(_decoupled))
