"""The fused steps of SGD, Adam and AdamW, with the operations of their unfused forms in the same order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from convgrad.spec.elementwise.steps import adam_name, sgd_name
from convgrad.torch.training.row import row
from convgrad.torch.training.tensors import update_lists

Tensors = Sequence[Tensor]


def _gradients(gradients: Tensors, scale: Tensor | None, maximize: bool) -> Tensors:
    """Return gradients without the scale of autocast, for minimization."""
    if scale is not None:
        for gradient in gradients:
            gradient.copy_(gradient / scale)
    return [-gradient for gradient in gradients] if maximize else gradients


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
    kind = "none" if not momentum else "first" if is_first_step else "later"
    name = sgd_name(weight_decay != 0, kind, nesterov and momentum != 0)
    factors = float(lr), momentum, weight_decay, 1 - dampening
    gradients = _gradients(grads, grad_scale, maximize)
    update_lists(name, [self, momentum_buffer_list or self, gradients], factors, 2 if momentum else 1)


def _adam(decoupled: bool) -> Callable[..., None]:
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
        rate, weight = float(lr), 1 - beta1
        kind = "none" if not weight_decay else "decoupled" if decoupled else "coupled"
        decay_factor = 1 - rate * weight_decay if decoupled else weight_decay
        is_low = abs(weight) < 0.5
        name = adam_name(kind, is_low, amsgrad)
        lists = [self, exp_avgs, exp_avg_sqs, max_exp_avg_sqs if amsgrad else exp_avg_sqs]
        lists.append(_gradients(grads, grad_scale, maximize))
        steps = [int(step_count.item()) for step_count in state_steps]
        for number in dict.fromkeys(steps):
            corrections = 1 - _power(beta1, number), 1 - _power(beta2, number)
            averages = weight if is_low else 1 - weight, beta2, 1 - beta2
            scales = math.sqrt(corrections[1]), eps, -(rate / corrections[0])
            of_step = [[tensor for tensor, at in zip(tensors, steps, strict=True) if at == number] for tensors in lists]
            update_lists(name, of_step, (decay_factor, *averages, *scales), 4 if amsgrad else 3)

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
        formula="AdamW: self = self * (1 - lr * weight_decay); Adam: g = grad + self * weight_decay; "
        "m = lerp(m, g, 1 - beta1); v = v * beta2 + ((1 - beta2) * g) * g, or its maximum with amsgrad; "
        "self + (-lr/c1 * m) / (sqrt(v) / sqrt(c2) + eps), c = 1 - beta^step",
        bound="2 u per operation",
    )(_adam(_decoupled))
