"""Layers that are not one call of an operator: complex ones, ones without input channels, and ones per sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from convgrad.errors import ConvgradError
from convgrad.torch import complex_sums, expanded, plain
from convgrad.torch.arguments import LayerArguments
from convgrad.torch.errors import runtime_error
from convgrad.torch.problems import FORMATS

_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter))


def first(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a layer's function that computes these layers in their own way, and all others by ``function``.

    The parameters of ``function`` are name, axes, input, weight, bias and LayerArguments.
    """

    @wraps(function)
    def layer(*args: Any) -> Tensor:
        weight, bias = args[3:5]
        if (
            weight.__class__ in _CLASSES
            and (bias is None or bias.__class__ in _CLASSES)
            and weight.dtype in FORMATS
            and (torch._C._get_tracing_state() or 0 not in weight.shape)
        ):
            return function(*args)
        try:
            other = _other(layer, args)
        except ConvgradError as error:
            raise runtime_error(error) from None
        return function(*args) if other is None else other

    return layer


def _other(layer: Callable[..., Tensor], args: tuple[Any, ...]) -> Tensor | None:
    """Return a layer's result if it is computed in another way than by an operator, else None."""
    name, axes, input, weight, bias, arguments = args
    if not isinstance(weight, torch.Tensor) or not isinstance(input, torch.Tensor):
        return None

    def compute(*operands: Tensor | None) -> Tensor:
        return layer(name, axes, *operands, arguments)

    if expanded.is_expanded(weight) or expanded.is_expanded(bias):
        return expanded.layer(compute, name, input, weight, bias)
    if plain.has_no_channels(name, input, weight):
        return plain.convolution(name, input, weight, bias, arguments)
    if weight.is_complex():
        complex_sums.check(name, {"input": input, "weight": weight, "bias": bias}, arguments.activation)
        return complex_sums.layer(compute, arguments.output_padding is not None, input, weight, bias)
    return None


def gradient(of: str, transposed: bool) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Return a decorator like `first` for the gradient of a layer with respect to ``of``, "input" or "weight".

    The parameters of the decorated function are name, axes, the two arguments input_size and weight, or input and
    weight_size, then grad_output and LayerArguments.
    """

    def decorator(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(function)
        def layer(name: str, axes: int, first: Any, second: Any, grad: Tensor, arguments: LayerArguments) -> Tensor:
            size, tensor = (first, second) if of == "input" else (second, first)
            try:
                if not transposed and plain.sums_nothing(second if of == "weight" else tensor):
                    return getattr(torch.nn.grad, name)(first, second, grad, *arguments.of_gradient)
                if isinstance(tensor, torch.Tensor) and isinstance(grad, torch.Tensor) and tensor.is_complex():
                    complex_sums.check(name, {"weight" if of == "input" else "input": tensor, "grad_output": grad})

                    def call(size: Any, tensor: Tensor, grad: Tensor) -> Tensor:
                        both = (size, tensor) if of == "input" else (tensor, size)
                        return function(name, axes, *both, grad, arguments)

                    return complex_sums.gradient(call, of, transposed, axes, tuple(size), tensor, grad)
            except ConvgradError as error:
                raise runtime_error(error) from None
            return function(name, axes, first, second, grad, arguments)

        return layer

    return decorator
