"""PyTorch's overrides: subclasses of tensors and modes see the functions of convgrad.torch as they see PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

__all__ = ["compiling", "handed_over", "has_torch_function", "overridable"]

# Dynamo ignores that an override has been disabled. It hands the operators over instead of the functions.
compiling = torch.compiler.is_compiling


def handed_over(
    function: Callable[..., Tensor], tensors: tuple[object, ...], *args: object, **settings: object
) -> Tensor:
    """Return what the overrides of a public function return; settings that are None are not passed."""
    options = {name: value for name, value in settings.items() if value is not None}
    result: Tensor = handle_torch_function(function, tensors, *args, **options)
    return result


def overridable(public: Mapping[str, Any], *tensors: int) -> Callable[[Any], Any]:
    """Decorate a helper of public functions of gradients.

    The helper gets the name of the public function, the number of axes, the function's first three arguments, and its
    others as LayerArguments. ``public`` has the functions by name, and ``tensors`` are the positions of the tensors
    among a function's arguments.
    """

    def decorate(helper: Callable[..., Any]) -> Any:
        @wraps(helper)
        def call(name: str, axes: int, *args: Any) -> Any:
            operands = tuple([args[at] for at in tensors])
            if has_torch_function(operands) and not compiling():
                *first, layer = args
                return handed_over(public[name], operands, *first, *layer.of_gradient)
            return helper(name, axes, *args)

        return call

    return decorate
