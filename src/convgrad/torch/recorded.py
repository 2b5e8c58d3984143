"""Traces that record sizes as numbers, and the numbers of TorchScript's traces, which are tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch._ops import OpOverloadPacket

_SIZED = "sized"  # the name of the overloads whose numbers are tensors
_recording: ContextVar[bool] = ContextVar("convgrad_torch_recording", default=False)


def sizes_are_recorded() -> bool:
    """Return whether a trace records sizes as numbers: torch.jit.trace, or make_fx with fixed sizes.

    The operators then take sizes from tensors, so that the trace is right for other sizes. torch.compile needs no such
    tensors, because it checks the sizes for which it compiled.
    """
    if torch.compiler.is_compiling():
        return False
    if _recording.get() or torch.jit.is_tracing():
        return True
    mode = torch._C._TorchDispatchModeKey.PROXY
    return bool(torch._C._get_dispatch_mode(mode) or torch._ops._get_dispatch_mode_pre_dispatch(mode))


@contextmanager
def _recorded() -> Iterator[None]:
    """Tell the operator that is called in a ``with`` block that a trace records it: its own code is not traced."""
    token = _recording.set(True)
    try:
        yield
    finally:
        _recording.reset(token)


def call(operator: OpOverloadPacket, tensors: int, args: Sequence[object]) -> Tensor:
    """Call an operator in a trace of TorchScript. Numbers that are tensors are recorded, not their values."""
    with _recorded():
        if not any(map(_has_tensor, args[tensors:])):
            result: Tensor = operator.default(*args)
            return result
        result = getattr(operator, _SIZED)(*args[:tensors], *map(_as_tensor, args[tensors:]))
        return result


def _has_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or (isinstance(value, tuple) and any(map(_has_tensor, value)))


def _as_tensor(value: object) -> object:
    """Return a number or a list of numbers as a tensor; other values are returned unchanged."""
    if isinstance(value, tuple):
        return torch.stack([_as_tensor(number) for number in value])
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return torch.full((), int(value), dtype=torch.int64)
    return value


def _from_tensor(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    numbers = value.tolist()
    return tuple(numbers) if isinstance(numbers, list) else numbers


def register_sized(
    library: torch.library.Library, name: str, schema: str, operator: Callable[..., Tensor], tensors: int
) -> None:
    """Register an operator's overload that takes each number, or list of numbers, as a tensor."""

    def sized(*args: object) -> Tensor:
        numbers = [_from_tensor(number) for number in args[tensors:]]
        return operator(*args[:tensors], *numbers)

    schema = schema.replace("SymInt[]", "Tensor").replace("SymInt", "Tensor")
    library.define(f"{name}.{_SIZED}({schema}) -> Tensor")
    library.impl(f"{name}.{_SIZED}", sized, "CompositeImplicitAutograd")


def numbers(values: Sequence[int]) -> tuple[int, ...]:
    """Return numbers for a check: in a trace of TorchScript, those that are tensors become integers."""
    if not torch.jit.is_tracing():
        return tuple(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # what is recorded is checked when it is called
        return tuple([int(number) if isinstance(number, torch.Tensor) else number for number in values])


def of_shape(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return a tensor of this shape that has one element in memory, for operators that read only its shape."""
    return like.new_empty(1).expand(tuple(shape))
