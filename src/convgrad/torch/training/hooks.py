"""What a block changes in an optimizer's groups of parameters during each step: numbers, and whether it is fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from convgrad.torch.training.numbers import SpecifiedFloat, specified

Group = dict[str, Any]
Replaced = list[tuple[Group, str, Any, Any]]  # groups of parameters, keys, the caller's values, and ours
_FUSED = {"fused": True, "foreach": False}
_STEP_OF_TENSORS = "capturable", "differentiable"  # options with which numbers of a step are tensors


@contextmanager
def specified_steps(is_active: Callable[[], bool]) -> Iterator[None]:
    """Change the groups of an optimizer during each of its steps for which ``is_active()``.

    A step of SGD, Adam or AdamW becomes one fused operator, where it has the same bits. In other steps, floats are
    ``SpecifiedFloat``. After a step, groups and state have plain floats, because ``torch.load`` refuses others.
    """
    steps = WeakKeyDictionary[Optimizer, Replaced]()

    def restore(optimizer: Optimizer, *_: Any) -> None:
        replaced = steps.pop(optimizer, ())
        for group, key, value, ours in replaced:
            if group.get(key) is ours:
                group[key] = value
        for state in optimizer.state.values() if any(type(ours) is not bool for *_, ours in replaced) else ():
            for key, value in state.items():
                if type(value) is SpecifiedFloat:  # LBFGS keeps its rate there
                    state[key] = float(value)

    def replace(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        restore(optimizer)  # after a step that raised
        if not is_active():
            return
        has_closure = any(value is not None for value in (*args[1:], *kwargs.values()))
        places = steps[optimizer] = []
        for group in optimizer.param_groups:
            if group.get("fused"):
                continue
            if _has_bits_of_fused_step(optimizer, group, has_closure):
                places += [(group, key, group[key], ours) for key, ours in _FUSED.items()]
            else:
                items = [(key, value, specified(value)) for key, value in group.items()]
                places += [(group, key, value, ours) for key, value, ours in items if value is not ours]
        for group, key, _, ours in places:
            group[key] = ours

    hooks = register_optimizer_step_pre_hook(replace), register_optimizer_step_post_hook(restore)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for optimizer in [*steps]:
            restore(optimizer)


def _has_bits_of_fused_step(optimizer: Optimizer, group: Group, has_closure: bool) -> bool:
    """Return whether a step has the same bits, and the same types of its state, if it is fused.

    Steps in 16 bits have more roundings than fused ones. A closure may compute the gradients that are not there yet.
    """
    if type(optimizer) not in (SGD, Adam, AdamW) or any(group.get(option) for option in _STEP_OF_TENSORS):
        return False
    numbers = group["lr"], group["weight_decay"], *group.get("betas", ())
    is_of_numbers = all(isinstance(number, float | int) for number in numbers)
    if not is_of_numbers or torch.get_default_dtype() != torch.float32:  # the latter is the type of Adam's count
        return False
    pairs = [(parameter, parameter.grad) for parameter in group["params"]]
    known = [pair for pair in pairs if pair[1] is not None]
    if has_closure and len(known) < len(pairs):
        return False
    if any(
        [tensor.dtype != torch.float32 or tensor.is_sparse or not tensor.is_cpu for pair in known for tensor in pair]
    ):
        return False
    if type(optimizer) is not SGD or not group["momentum"]:
        return True
    are_first = {optimizer.state.get(parameter, {}).get("momentum_buffer") is None for parameter, _ in known}
    return len(are_first) < 2  # a fused step is the first one for all parameters, or for none
