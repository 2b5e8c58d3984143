"""The numbers of optimizers in Python, such as ``beta ** step``: the bits of the C library's pow differ by machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.table import MAPS

Replaced = list[tuple[dict[str, Any], str, Any, Any]]  # groups of parameters, keys, the caller's values, and ours


def power(base: float, exponent: float) -> float:
    """Return a power by products if the exponent is a whole number, by a root if it is 1/2, or by the map in f64."""
    if exponent == 0.5 and base >= 0:
        return math.sqrt(base)
    if exponent >= 0 and float(exponent).is_integer():
        result = 1.0
        for bit in f"{int(exponent):b}":
            result = result * result * (base if bit == "1" else 1.0)
        return result
    operands = np.array([base]), np.array([exponent])
    with np.errstate(all="ignore"):
        return float(MAPS["power"].definition(NumpyOperations(np.float64), *operands)[0])


class SpecifiedFloat(float):
    """A float whose powers, and those of results that are computed from it, have specified bits."""

    def __pow__(self, exponent: Any, modulo: None = None) -> Any:
        """Return a power of the number."""
        return SpecifiedFloat(power(self, exponent)) if isinstance(exponent, float | int) else NotImplemented

    def __rpow__(self, base: Any, modulo: None = None) -> Any:
        """Return a power whose exponent is the number."""
        return SpecifiedFloat(power(base, self)) if isinstance(base, float | int) else NotImplemented


def _in_class(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return a float's operation with a result of this class."""

    @wraps(operation)
    def computed(*numbers: Any) -> Any:
        result = operation(*numbers)
        return SpecifiedFloat(result) if isinstance(result, float) else result

    return computed


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "mod",
    "neg",
    "pos",
    "abs",
]:
    setattr(SpecifiedFloat, f"__{_name}__", _in_class(getattr(float, f"__{_name}__")))


@contextmanager
def specified_numbers(is_active: Callable[[], bool]) -> Iterator[None]:
    """Replace the floats of an optimizer's groups during each of its steps for which ``is_active()``.

    A fused step is one operator of the table, which has no powers in Python. After a step, groups and state have plain
    floats, because ``torch.load`` refuses others.
    """
    steps = WeakKeyDictionary[Optimizer, Replaced]()

    def restore(optimizer: Optimizer, *_: Any) -> None:
        replaced = steps.pop(optimizer, ())
        for group, key, value, number in replaced:
            if group.get(key) is number:
                group[key] = value
        for state in optimizer.state.values() if replaced else ():  # LBFGS keeps its rate there
            for key, value in state.items():
                if type(value) is SpecifiedFloat:
                    state[key] = float(value)

    def replace(optimizer: Optimizer, *_: Any) -> None:
        restore(optimizer)  # after a step that raised
        if is_active():
            groups = [group for group in optimizer.param_groups if not group.get("fused")]
            places = [(group, *item, _specified(item[1])) for group in groups for item in group.items()]
            steps[optimizer] = [place for place in places if place[2] is not place[3]]
            for group, key, _, number in steps[optimizer]:
                group[key] = number

    hooks = register_optimizer_step_pre_hook(replace), register_optimizer_step_post_hook(restore)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for optimizer in [*steps]:
            restore(optimizer)


def _specified(value: Any) -> Any:
    """Return a float or a tuple of floats, such as betas, with specified powers; other values as they are."""
    if type(value) is float:
        return SpecifiedFloat(value)
    if type(value) is tuple and any(type(number) is float for number in value):
        return tuple([_specified(number) for number in value])
    return value
