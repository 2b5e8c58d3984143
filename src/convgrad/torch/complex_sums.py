"""Complex convolutions, each as one real convolution with twice the channels.

Real channel 2c is the real part of complex channel c, and 2c + 1 is its imaginary part. A complex weight w between two
channels is the 2x2 matrix ((real w, -imag w), (imag w, real w)), whose rows are the output's parts. So the order of
sums, their bits and their bound are those of the real operator, and autograd derives gradients in PyTorch's convention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from convgrad.errors import ConvgradError
from convgrad.spec.rules import refuse
from convgrad.torch.kernels import LAST, is_channels_last
from convgrad.torch.refused import check_types
from convgrad.torch.strides import followed


def check(name: str, tensors: Mapping[str, Tensor | None], activation: str | None = None) -> None:
    """Raise by rule T1, T2 or D13 if tensors are not all of one complex type, or if there is an activation."""
    check_types(name, tensors)
    if activation is not None:  # D13
        refuse("D13", name, f"activation must be None for complex tensors; got {activation!r:.200}")


def named(compute: Callable[..., Tensor], real: Sequence[object], own: Sequence[object]) -> Tensor:
    """Return ``compute(*real)``. If it refuses the real tensors, raise the error for the complex tensors' own shapes.

    ``own`` has the real parts of the complex tensors.
    """
    try:
        return compute(*real)
    except ConvgradError:
        compute(*own)
        raise


def layer(
    compute: Callable[..., Tensor], transposed: bool, input: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Return the result of a layer of complex tensors. ``compute`` is the layer as a function of real tensors."""
    axes = weight.dim() - 2
    own = (input.real, weight.real, None if bias is None else bias.real)
    if axes < 1 or input.dim() not in (axes + 1, axes + 2) or (bias is not None and bias.dim() != 1):
        return compute(*own)  # it refuses the ranks
    vector = None if bias is None else _parts(bias).flatten()
    real = (channels(input, axes), weights(weight, transposed), vector)
    with torch.autocast("cuda" if input.is_cuda else "cpu", enabled=False):  # PyTorch casts no complex tensors either
        return complex_of(named(compute, real, own), axes)


class LayerGradient(NamedTuple):
    """The gradient of a layer with respect to ``of``, "input" or "weight"; and the layer's number of spatial axes."""

    of: str
    transposed: bool
    axes: int


def gradient(
    compute: Callable[..., Tensor], layer: LayerGradient, size: tuple[int, ...], tensor: Tensor, grad: Tensor
) -> Tensor:
    """Return the gradient of a complex layer.

    ``compute(size, tensor, grad)`` is the gradient of real tensors. ``size`` is the gradient's size, and ``tensor`` is
    the weight or the input.
    """
    of, transposed, axes = layer
    own = (size, tensor.real, grad.real)
    if {len(size), tensor.dim(), grad.dim()} != {axes + 2}:
        return compute(*own)  # it refuses the ranks
    channel_axes = 2 if of == "weight" else 1  # all axes of channels are twice as long, and the batch is not
    doubled = (*[2 * extent for extent in size[2 - channel_axes : 2]], *size[2:])
    operand = channels(tensor, axes) if of == "weight" else weights(tensor, transposed)
    result = named(compute, ((*size[: 2 - channel_axes], *doubled), operand, channels(grad, axes)), own)
    return folded(result, transposed) if of == "weight" else complex_of(result, axes)


def channels(tensor: Tensor, axes: int) -> Tensor:
    """Return (C, X...) or (N, C, X...) with twice the real channels."""
    at = tensor.dim() - axes - 1
    return _parts(tensor).movedim(-1, at + 1).flatten(at, at + 1)


def complex_of(tensor: Tensor, axes: int) -> Tensor:
    """Return the complex tensor with these real channels, in the same memory format: the inverse of ``channels``."""
    at = tensor.dim() - axes - 1
    last = is_channels_last(tensor)
    parts = tensor.unflatten(at, (-1, 2)).movedim(at + 1, -1)
    return torch.view_as_complex(parts if last else parts.contiguous())


def weights(tensor: Tensor, transposed: bool) -> Tensor:
    """Return the weights between real channels: (2O, 2C/groups, K...), or of a transposed layer (2C, 2O/groups, K...).

    The second axis of a transposed layer's weights has the output's parts, so its 2x2 matrices are transposed.
    """
    real, imag = _parts(tensor).unbind(-1)
    above, below = (imag, -imag) if transposed else (-imag, imag)
    rows = torch.stack((real, above), 2), torch.stack((below, real), 2)
    matrices = torch.stack(rows, 1).flatten(2, 3).flatten(0, 1)
    return matrices.contiguous(memory_format=LAST[matrices.dim()]) if is_channels_last(tensor) else matrices


def folded(gradient: Tensor, transposed: bool) -> Tensor:
    """Return the gradient of complex weights from the gradient of the real ones: the derivative of ``weights``."""
    four = gradient.unflatten(1, (-1, 2)).unflatten(0, (-1, 2))  # (O, 2, C, 2, K...)
    (real, above), (below, other) = (row.unbind(2) for row in four.unbind(1))
    return torch.complex(real + other, above - below if transposed else below - above)


def _parts(tensor: Tensor) -> Tensor:
    """Return real and imaginary parts on a last axis, with no conjugation and no change of signs pending."""
    return followed(torch.view_as_real(tensor.resolve_conj().resolve_neg()))
