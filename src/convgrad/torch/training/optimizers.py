"""The fused steps of SGD, Adam and AdamW, in the order of their unfused forms, and sums of lists and a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import compress
from typing import NotRequired, TypedDict, Unpack

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from convgrad.formats import F32
from convgrad.spec.elementwise.steps import adam_name, sgd_name
from convgrad.torch.training.numbers import power
from convgrad.torch.training.row import ELEMENTWISE, row
from convgrad.torch.training.tensors import update_lists

Tensors = Sequence[Tensor]
_FEW = 8  # tensors, for which single calls take less time than a call on lists


class StepOptions(TypedDict):
    """The keywords of ATen's fused step of any optimizer."""

    lr: float | Tensor
    weight_decay: float
    maximize: bool
    grad_scale: NotRequired[Tensor | None]
    found_inf: NotRequired[Tensor | None]


class SgdOptions(StepOptions):
    """The keywords of ATen's fused step of SGD."""

    momentum: float
    dampening: float
    nesterov: bool
    is_first_step: bool


class AdamOptions(StepOptions):
    """The keywords of ATen's fused steps of Adam and AdamW."""

    beta1: float
    beta2: float
    eps: float
    amsgrad: bool


def _has_other_types(self: Tensors, scalar: float) -> bool:
    return any([tensor.dtype != torch.float32 for tensor in self])


@row(
    "_foreach_add_.Scalar",
    formula="self + scalar for each tensor",
    bound="u abs(result)",
    types=ELEMENTWISE,
    passed_on=_has_other_types,
)
def add_to_each(self: Tensors, scalar: float) -> None:
    """Add a number to each tensor of a list, for example to the numbers of their steps, in one call of a driver."""
    if len(self) < _FEW:
        for tensor in self:
            tensor.add_(scalar)
        return
    if abs(scalar) > F32.largest:
        scalar = math.copysign(math.inf, scalar)
    update_lists("add", [self], (scalar, 1.0), 1)
    increment_version(self)


def _gradients(gradients: Tensors, options: StepOptions) -> Tensors:
    """Return gradients without the scale of autocast, for minimization."""
    scale = options.get("grad_scale")
    if scale is not None:
        for gradient in gradients:
            gradient.copy_(gradient / scale)
    return [-gradient for gradient in gradients] if options["maximize"] else gradients


def _is_skipped(options: StepOptions) -> bool:
    is_infinite = options.get("found_inf")
    return is_infinite is not None and bool(is_infinite.item() == 1)


@row(
    "_fused_sgd_",
    "_fused_sgd_.tensor_lr",
    formula="g = grad + weight_decay * self; b = b * momentum + (1 - dampening) * g (first step: b = g); "
    "self - lr * b (Nesterov: lr * (g + momentum * b))",
    bound="2 u per operation",
)
def fused_sgd(self: Tensors, grads: Tensors, momentum_buffer_list: Tensors, **options: Unpack[SgdOptions]) -> None:
    """Do a step of SGD on each parameter."""
    if _is_skipped(options):
        return
    momentum, weight_decay = options["momentum"], options["weight_decay"]
    kind = "none" if not momentum else "first" if options["is_first_step"] else "later"
    name = sgd_name(weight_decay != 0, kind, options["nesterov"] and momentum != 0)
    factors = float(options["lr"]), momentum, weight_decay, 1 - options["dampening"]
    gradients = _gradients(grads, options)
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
        **options: Unpack[AdamOptions],
    ) -> None:
        if _is_skipped(options):
            return
        beta1, beta2 = options["beta1"], options["beta2"]
        amsgrad, weight_decay = options["amsgrad"], options["weight_decay"]
        rate, weight = float(options["lr"]), 1 - beta1
        kind = "none" if not weight_decay else "decoupled" if decoupled else "coupled"
        decay_factor = 1 - rate * weight_decay if decoupled else weight_decay
        is_low = abs(weight) < 0.5
        name = adam_name(kind, is_low, amsgrad)
        lists = [self, exp_avgs, exp_avg_sqs, max_exp_avg_sqs if amsgrad else exp_avg_sqs]
        lists.append(_gradients(grads, options))
        steps = [step_count.item() for step_count in state_steps]
        for number in (numbers := dict.fromkeys(steps)):
            corrections = 1 - power(beta1, number), 1 - power(beta2, number)
            averages = weight if is_low else 1 - weight, beta2, 1 - beta2
            scales = math.sqrt(corrections[1]), options["eps"], -(rate / corrections[0])
            of_step: list[Tensors] = lists
            if len(numbers) > 1:
                of_step = [[*compress(tensors, [at == number for at in steps])] for tensors in lists]
            update_lists(name, of_step, (decay_factor, *averages, *scales), 4 if amsgrad else 3)

    return step


for _name, _decoupled in {"_fused_adam_": False, "_fused_adamw_": True}.items():
    row(
        _name,
        f"{_name}.tensor_lr",
        formula="AdamW: self = self * (1 - lr * weight_decay); Adam: g = grad + self * weight_decay; "
        "m = lerp(m, g, 1 - beta1); v = v * beta2 + ((1 - beta2) * g) * g, or its maximum with amsgrad; "
        "self + (-lr/c1 * m) / (sqrt(v) / sqrt(c2) + eps), c = 1 - beta^step",
        bound="2 u per operation",
    )(_adam(_decoupled))
