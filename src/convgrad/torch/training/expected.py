"""The type and the strides that PyTorch gives a result, and its errors, from the operator's kernel for ``meta``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from convgrad.float_environment import in_default_environment

Kind = tuple[object, ...]
Results: TypeAlias = Tensor | tuple[Tensor | None, ...]
Forms = tuple[tuple[torch.dtype, bool] | None, ...]  # the type of each result, and whether it is contiguous
FACTORS = "alpha", "value"  # keywords that functions pass unchanged to one map; a factor of 1 may need no map
_NUMBERS = frozenset((float, int, bool, type(None)))


def kind_of(args: tuple[object, ...], kwargs: dict[str, object]) -> Kind:
    """Return types, shapes and strides of tensors, and the other arguments themselves, but the types of FACTORS."""
    described: list[object] = [torch.get_default_dtype(), *[_described(value) for value in args]]
    for name, value in kwargs.items():
        described += name, (type(value), value == 1) if name in FACTORS else _described(value)
    return tuple(described)


def kind_of_lists(args: tuple[object, ...], kwargs: dict[str, object]) -> Kind:
    """Return only the types of tensors and numbers, for operators on lists: each call finds and checks the rest."""
    types = set[object]()
    for value in (*args, *kwargs.values()):
        if isinstance(value, list | tuple):
            types.update([tensor.dtype for tensor in value])
        else:
            types.add(value.dtype if isinstance(value, torch.Tensor) else type(value))
    return (frozenset(types),)


def expected(operator: Callable[..., Results], args: tuple[object, ...], kwargs: dict[str, object]) -> Forms | None:
    """Return what the operator's ``meta`` kernel returns, which raises as PyTorch does; None if there is no kernel.

    Return None also if the kernel divides by zero, as that of batch norm does for one value per channel.
    """
    try:
        results = operator(*map(_meta, args), **{name: _meta(value) for name, value in kwargs.items()})
    except (NotImplementedError, ZeroDivisionError):
        return None
    except AssertionError as error:  # of kernels in Python
        raise RuntimeError(str(error)) from error
    in_tuple = results if isinstance(results, tuple) else (results,)
    return tuple([None if result is None else (result.dtype, result.is_contiguous()) for result in in_tuple])


@in_default_environment
def as_expected(results: Results, forms: Forms) -> Results | None:
    """Return results in the expected types, and contiguous where PyTorch's results are."""
    if not isinstance(results, tuple):
        return _as_expected(results, forms[0])
    return tuple([_as_expected(result, form) for result, form in zip(results, forms, strict=False)])


def _as_expected(result: Tensor | None, form: tuple[torch.dtype, bool] | None) -> Tensor | None:
    if result is None or form is None:
        return result
    dtype, is_contiguous = form
    result = result if result.dtype == dtype else _converted(result, dtype)
    return result.contiguous() if is_contiguous else result


@in_default_environment
def _converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in a type, rounded as in the default environment."""
    return tensor.to(dtype)


def _described(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if type(value) in _NUMBERS:
        return type(value), value or repr(value)  # 0 and -0 are equal, but have other texts
    if isinstance(value, list | tuple):
        return tuple([_described(part) for part in value])
    return None if isinstance(value, torch.Generator) else (type(value), value)


def _meta(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return [_meta(part) for part in value]
    return None if isinstance(value, torch.Generator) else value
