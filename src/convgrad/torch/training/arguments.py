"""Arguments of replaced kernels: tensors for Python numbers, and tensors in lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor

from convgrad.float_environment import in_default_environment
from convgrad.torch.training.row import LOW

_NUMBERS = 1024  # numbers whose tensors are kept


def with_tensor(args: tuple[object, ...], at: int) -> tuple[object, ...]:
    """Return arguments with a tensor for the Python number at a place, where PyTorch passes ``x + 2`` like this."""
    number, other = cast(float, args[at]), next(arg for arg in args if isinstance(arg, torch.Tensor))
    kind = other.dtype, other.dim() > 0, torch.get_default_dtype()
    return (*args[:at], _tensor_of_number(repr(number), number, *kind), *args[at + 1 :])


@lru_cache(_NUMBERS, typed=True)
@in_default_environment
def _tensor_of_number(text: str, number: complex, other: torch.dtype, has_axes: bool, default: torch.dtype) -> Tensor:
    """Return a number as an operand besides a tensor of type ``other``, rounded once.

    Its ``text`` distinguishes 0 and -0, which are equal as keys. Besides bools, it has the ``default`` type.
    """
    dtype = torch.result_type(torch.empty((1,) * has_axes, dtype=other), number)
    dtype = torch.bool if isinstance(number, bool) else torch.float32 if dtype in LOW and has_axes else dtype
    exact = {float: torch.float64, complex: torch.complex128}.get(type(number))
    return torch.tensor(number, dtype=exact).to(dtype)


@in_default_environment
def promoted(value: object) -> object:
    """Return a tensor of integers or bools in PyTorch's default type, and any other value as it is."""
    if isinstance(value, torch.Tensor) and not value.is_floating_point():
        return value.to(torch.get_default_dtype())
    return value


def tensors_in(values: Iterable[object]) -> Iterator[Tensor]:
    """Yield the tensors among values and lists of values."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)
