"""What a block changes in an optimizer's groups of parameters during each step: numbers, and whether it is fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer, optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from convgrad.formats import F32
from convgrad.torch.training.numbers import SpecifiedFloat, specified

Group = dict[str, Any]
Replaced = list[tuple[Group, str, Any, Any]]  # groups of parameters, keys, the caller's values, and ours
Call = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of a step
_FUSED = {"fused": True, "foreach": False}
_WITH_FUSED_STEPS = SGD, Adam, AdamW
_STEP_OF_TENSORS = "capturable", "differentiable"  # options with which numbers of a step are tensors
_NUMBERS = "lr", "weight_decay", "eps", "momentum", "dampening"
_PLAIN = {Tensor, Parameter}
_KINDS = {(torch.device("cpu"), torch.float32)}


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
            if key == "fused":  # single operators tell autograd what they change
                increment_version(_changed(optimizer, group))
        for state in optimizer.state.values() if any(type(ours) is not bool for *_, ours in replaced) else ():
            for key, value in state.items():
                if type(value) is SpecifiedFloat:  # LBFGS keeps its rate there
                    state[key] = float(value)

    def replace(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        restore(optimizer)  # after a step that raised
        if not is_active():
            return None
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None or type(optimizer) not in _WITH_FUSED_STEPS:
            steps[optimizer] = _replaced(optimizer)
            return None

        def computed() -> Any:  # first, because a closure computes the gradients
            loss = closure()
            steps[optimizer] = _replaced(optimizer)
            return loss

        return (args[0], computed), {}

    hooks = register_optimizer_step_pre_hook(replace), register_optimizer_step_post_hook(restore)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for optimizer in [*steps]:
            restore(optimizer)


def _replaced(rule: Optimizer) -> Replaced:
    """Change the groups of an optimizer for a step, and return what was changed."""
    places: Replaced = []
    for group in rule.param_groups:
        if group.get("fused"):
            continue
        if has_bits_of_fused_step(rule, group):
            places += [(group, key, group[key], ours) for key, ours in _FUSED.items()]
        else:
            items = [(key, value, specified(value)) for key, value in group.items()]
            places += [(group, key, value, ours) for key, value, ours in items if value is not ours]
    for group, key, _, ours in places:
        group[key] = ours
    return places


def has_bits_of_fused_step(rule: Optimizer, group: Group) -> bool:
    """Return whether a step has the same bits, and the same types of its state, if it is fused.

    Steps in 16 bits have more roundings than fused ones. Hooks of the user may change gradients, or look at the group.
    """
    gradients = [parameter.grad for parameter in _with_gradient(group)]
    is_other = type(rule) not in _WITH_FUSED_STEPS or any(group.get(option) for option in _STEP_OF_TENSORS)
    if is_other or not gradients:
        return False
    numbers = *[group[name] for name in _NUMBERS if name in group], *group.get("betas", ())
    if not all([isinstance(number, float | int) and abs(number) <= F32.largest for number in numbers]):
        return False
    if _has_other_hooks(rule) or torch.get_default_dtype() != torch.float32:  # the type of Adam's count
        return False
    tensors = _changed(rule, group) + gradients
    of_kinds = Optimizer._group_tensors_by_device_and_dtype([tensors])
    is_plain = {*of_kinds} <= _KINDS and {*map(type, tensors)} <= _PLAIN and not any([x.is_sparse for x in gradients])
    return is_plain and len({*map(id, tensors)}) == len(tensors) and _is_first_for_all_or_none(rule, group)


def _is_first_for_all_or_none(rule: Optimizer, group: Group) -> bool:
    """Return whether all momentums are new, or none is: a fused step has one formula for all parameters."""
    if type(rule) is not SGD or not group["momentum"]:
        return True
    are_first = {rule.state.get(parameter, {}).get("momentum_buffer") is None for parameter in _with_gradient(group)}
    return len(are_first) < 2


def _with_gradient(group: Group) -> list[Parameter]:
    return [parameter for parameter in group["params"] if parameter.grad is not None]


def _changed(rule: Optimizer, group: Group) -> list[Tensor]:
    """Return the tensors that a step changes: parameters with a gradient, and their state."""
    parameters = _with_gradient(group)
    states: Sequence[dict[str, Any]] = [rule.state[parameter] for parameter in parameters if parameter in rule.state]
    return [*parameters, *[value for state in states for value in state.values() if isinstance(value, Tensor)]]


def _has_other_hooks(rule: Optimizer) -> bool:
    """Return whether an optimizer's steps call hooks besides those of a block."""
    shared = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    own = rule._optimizer_step_pre_hooks, rule._optimizer_step_post_hooks
    return any(len(hooks) > 1 for hooks in shared) or any(own)
