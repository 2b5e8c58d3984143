"""PyTorch's overrides: subclasses of tensors and modes see the functions of convgrad.torch as they see PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from convgrad.torch.arguments import LayerArguments

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


def overridable(
    public: Mapping[str, Callable[..., Tensor]], *tensors: int
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Decorate a helper of public functions of gradients.

    The helper gets the name of the public function, the number of axes, the function's first three arguments, and its
    others as LayerArguments. ``public`` has the functions by name, and ``tensors`` are the positions of the tensors
    among a function's arguments.
    """

    def decorate(helper: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(helper)
        def call(name: str, axes: int, first: object, second: object, grad: object, layer: LayerArguments) -> Tensor:
            arguments = first, second, grad
            operands = tuple([arguments[at] for at in tensors])
            if has_torch_function(operands) and not compiling():
                return handed_over(public[name], operands, *arguments, *layer.of_gradient)
            return helper(name, axes, *arguments, layer)

        return call

    return decorate
