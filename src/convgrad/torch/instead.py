"""Layers that are not one call of an operator: complex ones, ones without input channels, and ones per sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TypeAlias

import torch
from torch import Tensor

from convgrad.errors import ConvgradError
from convgrad.torch import complex_sums, expanded, plain
from convgrad.torch.arguments import LayerArguments, is_transposed
from convgrad.torch.errors import runtime_error
from convgrad.torch.problems import FORMATS

Layer = Callable[[str, int | None, Tensor, Tensor, Tensor | None, LayerArguments], Tensor]
Operand: TypeAlias = Tensor | Sequence[int]  # a tensor, or the size of one
_CLASSES = frozenset((torch.Tensor, torch.nn.Parameter))


def first(function: Layer) -> Layer:
    """Return a layer's function that computes these layers in their own way, and all others by ``function``.

    The parameters of ``function`` are name, axes, input, weight, bias and LayerArguments.
    """

    @wraps(function)
    def layer(
        name: str, axes: int | None, input: Tensor, weight: Tensor, bias: Tensor | None, arguments: LayerArguments
    ) -> Tensor:
        if (
            weight.__class__ in _CLASSES
            and (bias is None or bias.__class__ in _CLASSES)
            and weight.dtype in FORMATS
            and (torch._C._get_tracing_state() or 0 not in weight.shape)
        ):
            return function(name, axes, input, weight, bias, arguments)
        try:
            other = _other(layer, name, axes, (input, weight, bias), arguments)
        except ConvgradError as error:
            raise runtime_error(error) from None
        return function(name, axes, input, weight, bias, arguments) if other is None else other

    return layer


def _other(
    layer: Layer, name: str, axes: int | None, tensors: tuple[Tensor, Tensor, Tensor | None], arguments: LayerArguments
) -> Tensor | None:
    """Return a layer's result if it is computed in another way than by an operator, else None."""
    input, weight, bias = tensors
    if not isinstance(weight, torch.Tensor) or not isinstance(input, torch.Tensor):
        return None

    def compute(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return layer(name, axes, input, weight, bias, arguments)

    if expanded.is_expanded(weight) or expanded.is_expanded(bias):
        return expanded.layer(compute, name, input, weight, bias)
    if plain.has_no_channels(name, input, weight):
        return plain.convolution(name, input, weight, bias, arguments)
    if weight.is_complex():
        complex_sums.check(name, {"input": input, "weight": weight, "bias": bias}, arguments.activation)
        return complex_sums.layer(compute, is_transposed(name), input, weight, bias)
    return None


def gradient(of: str, transposed: bool) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Return a decorator like `first` for the gradient of a layer with respect to ``of``, "input" or "weight".

    The parameters of the decorated function are name, axes, the two arguments input_size and weight, or input and
    weight_size, then grad_output and LayerArguments.
    """

    def decorator(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @wraps(function)
        def layer(
            name: str, axes: int, first: Operand, second: Operand, grad: Tensor, arguments: LayerArguments
        ) -> Tensor:
            size, tensor = (first, second) if of == "input" else (second, first)
            try:
                if not transposed and plain.sums_nothing(second if of == "weight" else tensor):
                    return getattr(torch.nn.grad, name)(first, second, grad, *arguments.of_gradient)
                if isinstance(tensor, torch.Tensor) and isinstance(grad, torch.Tensor) and tensor.is_complex():
                    complex_sums.check(name, {"weight" if of == "input" else "input": tensor, "grad_output": grad})

                    def call(size: Sequence[int], tensor: Tensor, grad: Tensor) -> Tensor:
                        operands = (size, tensor) if of == "input" else (tensor, size)
                        return function(name, axes, *operands, grad, arguments)

                    kind = complex_sums.LayerGradient(of, transposed, axes)
                    return complex_sums.gradient(call, kind, tuple(size), tensor, grad)
            except ConvgradError as error:
                raise runtime_error(error) from None
            return function(name, axes, first, second, grad, arguments)

        return layer

    return decorator
