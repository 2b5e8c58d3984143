"""The arguments of layers as the operators need them: a value per spatial axis, pads, and tensors with a batch axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import NamedTuple, ParamSpec, cast

import numpy as np
import torch
from torch import Tensor

from convgrad.parameters import with_parameters
from convgrad.spec.check import as_integer, few
from convgrad.spec.rules import refuse
from convgrad.torch import recorded
from convgrad.torch.extents import Ints, Pads
from convgrad.words import shown

PerAxis = int | Sequence[int]
P = ParamSpec("P")


class LayerArguments(NamedTuple):
    """The arguments of a layer's function as a caller gives them, except tensors.

    ``tune`` measures plans in all passes of the layer. Convolutions that are not transposed have no ``output_padding``.
    ``output_size`` ends with the spatial extents from which ``output_padding`` was computed, if it was: a
    trace for other inputs must keep these.
    """

    stride: PerAxis
    begin: PerAxis | str
    end: PerAxis | str
    dilation: PerAxis
    groups: int
    max_error: float | None = None
    activation: str | None = None
    tune: bool = False
    output_padding: PerAxis | None = None
    output_size: Sequence[int] | None = None

    @property
    def of_gradient(self) -> tuple[PerAxis | str, ...]:
        """The arguments of the functions of torch.nn.grad after the tensors."""
        return self.stride, self.begin, self.dilation, self.groups


Arguments = tuple[tuple[object, ...], LayerArguments]  # the tensors and sizes of a call, and its other arguments


def declared_as(
    declaration: Callable[P, Arguments], compute: Callable[..., Tensor], axes: int
) -> Callable[[Callable[[], None]], Callable[P, Tensor]]:
    """Return a decorator that gives a name and a docstring to a function with the parameters of ``declaration``.

    The function calls ``compute`` with its name, ``axes``, the tensors and sizes, and LayerArguments.

    >>> def declaration(input: Tensor, stride: int = 1) -> Arguments:
    ...     return (input,), LayerArguments(stride, 0, 0, 1, 1)
    >>> @declared_as(declaration, lambda *arguments: arguments[:3], 1)
    ... def conv1d() -> None:
    ...     "Convolve. Shapes: input (N, C, I)."
    >>> conv1d("x", stride=2)
    ('conv1d', 1, 'x')
    """

    def decorator(named: Callable[[], None]) -> Callable[P, Tensor]:
        name, signature = named.__name__, inspect.signature(declaration)
        read = cast(FunctionType, declaration)
        # Python's own TypeError about wrong arguments names the function that raises it.
        read = FunctionType(read.__code__, read.__globals__, name, read.__defaults__, read.__closure__)
        read.__kwdefaults__, read.__qualname__ = cast(FunctionType, declaration).__kwdefaults__, name

        @wraps(named)
        def function(*args: P.args, **options: P.kwargs) -> Tensor:
            operands, layer = read(*args, **options)
            return compute(name, axes, *operands, layer)

        vars(function)["__signature__"] = signature.replace(return_annotation="Tensor")
        function.__doc__ = with_parameters(named.__doc__, signature.parameters)
        return function

    return decorator


def is_transposed(name: str) -> bool:
    """Return whether the function ``name`` computes transposed convolutions."""
    return "transpose" in name


def spread(attribute: str, value: PerAxis, axes: int) -> Ints:
    """Return one value per spatial axis; an int, or the only value of a list, is used for all axes."""
    items = few("", attribute, value)
    if not isinstance(items, tuple):
        return (cast(int, items),) * axes
    if not items:  # A6: the operators use the default
        refuse("A6", "", f"{attribute} must have one value per spatial axis, {axes} here; got {value}")
    return items if len(items) != 1 else items * axes


def integer(attribute: str, value: int) -> int:
    """Return a number, which may be a symbol, or raise by rule A2."""
    if isinstance(value, int) or (hasattr(value, "__index__") and not isinstance(value, np.ndarray)):
        return value
    number = as_integer(value)
    if number is None:  # A2
        refuse("A2", "", f"{attribute} must be an integer; got {shown(value)} ({type(value).__name__})")
    return number


def at_end(name: str, end: PerAxis, axes: int) -> Ints:
    """Return the pads at the end, which the operators accept below 0, but a layer does not."""
    ends = spread("pads_end", end, axes)
    if ends and min(recorded.numbers(ends)) < 0:  # A4
        refuse("A4", name, f"pads_end must be at least 0; got {ends}")
    return ends


def by_name(name: str, padding: str, strides: Ints) -> Pads:
    """Return the pads at the begin and at the end for "same" or "valid"."""
    if padding == "valid":
        return (0,) * len(strides), (0,) * len(strides)
    if padding != "same":  # A5
        refuse("A5", name, f"padding must be 'same', 'valid' or integers; got {padding!r:.200}")
    if any(stride != 1 for stride in recorded.numbers(strides)):  # A5
        refuse("A5", name, f"padding='same' needs stride 1 on every axis; got {strides}")
    return None, None


def taken(
    name: str, axes: int | None, input: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, int, bool]:
    """Return input, weight and bias, the number of spatial axes, and whether ``input`` was given with a batch axis.

    The returned tensors have autocast's type if autocast is on, and the returned input always has a batch axis. If
    ``axes`` is None, the rank of ``weight`` determines the number of spatial axes.
    """
    device = "cuda" if input.is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        to = torch.get_autocast_dtype(device)
        input, weight, bias = (_cast(tensor, device, to) for tensor in (input, weight, bias))
    rank = weight.dim() if axes is None else axes + 2
    if weight.dim() != rank or rank < 3:  # G1
        sentence = f"weight must have {rank - 2 if rank > 2 else 'some'} spatial axes after two axes of channels"
        refuse("G1", name, f"{sentence}; got {tuple(weight.shape)}")
    if input.dim() == rank:
        return input, weight, bias, rank - 2, True
    if input.dim() != rank - 1:  # G1
        sentence = f"input must be (N, C, X...) or (C, X...) with {rank - 2} spatial axes"
        refuse("G1", name, f"{sentence}; got {tuple(input.shape)}")
    return input.unsqueeze(0), weight, bias, rank - 2, False


def _cast(tensor: Tensor | None, device: str, to: torch.dtype) -> Tensor | None:
    """Return a tensor in the type of a device's autocast if PyTorch's own convolutions would cast it."""
    if tensor is None or tensor.device.type != device:
        return tensor
    return tensor.to(to) if tensor.is_floating_point() and tensor.dtype is not torch.float64 else tensor
