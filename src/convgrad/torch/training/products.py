"""Convolutions and matrix products, by the kernels of convgrad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import NamedTuple, cast

import torch
from torch import Tensor

from convgrad.engines.settings import accuracy
from convgrad.errors import ConvgradError
from convgrad.torch import kernels, passes
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints, less, rests_of
from convgrad.torch.kernels import is_channels_last
from convgrad.torch.refused import LAYER, of_gradient, refused
from convgrad.torch.training.row import OF_OPERATOR, Function, row
from convgrad.torch.training.tensors import check_numbers

_BOUND = "h u sum(abs(products))"
_WORDS = *of_gradient(diff_dst="grad_output", diff_src="the gradient of input"), *LAYER
Gradients = tuple[Tensor | None, ...]


class _Layer(NamedTuple):
    """The arguments of ATen that describe a convolution, in ATen's order."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int

    def per_axis(self, axes: int) -> list[Ints]:
        """Return stride, padding, dilation and output padding per axis; ATen accepts a single value for all axes."""
        lists = self.stride, self.padding, self.dilation, self.output_padding
        return [tuple(values) if len(values) == axes else tuple(values) * axes for values in lists]

    def attributes(self, input: Tensor, weight: Tensor) -> OpAttributes:
        """Return the attributes of the operator."""
        strides, pads, dilations, more = self.per_axis(input.dim() - 2)
        last = is_channels_last(input) or is_channels_last(weight)
        return OpAttributes(strides, pads, pads, more, dilations, self.groups, last, accuracy(None))

    def call(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> passes.Call:
        """Return the call that computes the layer's result."""
        if self.transposed:
            return passes.data_gradient(input, weight, bias, None, self.attributes(input, weight))
        return passes.forward(input, weight, bias, self.attributes(input, weight))

    def check_gradient(self, gradient: Tensor, input: Tensor, weight: Tensor) -> None:
        """Refuse a gradient that has not the shape of the layer's result."""
        pose, operands, attributes, sizes = self.call(input, weight, None)
        shape = pose(kernels.kinds(operands), attributes, *sizes).output_shape
        if tuple(gradient.shape) != tuple(shape):
            raise RuntimeError(f"convolution_backward: grad_output must be {shape}; got {tuple(gradient.shape)}")


def _of_layer(first: int, *tensors: str) -> Callable[[Function], Function]:
    """Return a decorator of a function that gets a ``_Layer`` for ATen's arguments from number ``first`` on.

    Its refusals are RuntimeErrors, and have PyTorch's names of its first arguments, ``tensors``.
    """
    end = first + len(_Layer._fields)

    def decorator(function: Function) -> Function:
        @wraps(function)
        def computed(*args: object) -> object:
            try:
                return function(*args[:first], _Layer._make(args[first:end]), *args[end:])
            except ConvgradError as error:
                named = cast(dict[str, Tensor | None], dict(zip(tensors, args, strict=False)))
                refused(function.__name__, error, named, _WORDS)

        return computed

    return decorator


@row("convolution", formula="Convolution or ConvTranspose", order=OF_OPERATOR, bound=_BOUND)
@_of_layer(3, "input", "weight", "bias")
def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, layer: _Layer) -> Tensor:
    """Return the convolution, plain or transposed."""
    return kernels.compute(layer.call(input, weight, bias))


@row(
    "convolution_backward",
    formula="the data, weight and bias gradients of the operator",
    order=OF_OPERATOR,
    bound=_BOUND,
)
@_of_layer(4, "grad_output", "input", "weight")
def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    layer: _Layer,
    output_mask: Sequence[bool],
) -> Gradients:
    """Return the gradients of a convolution with respect to input, weight and bias."""
    layer.check_gradient(grad_output, input, weight)
    kernel, extents = tuple(weight.shape[2:]), tuple(input.shape[2:])
    attributes = layer.attributes(input, weight)._replace(output_padding=None)
    if not layer.transposed:
        return kernels.gradients(grad_output, input, weight, tuple(output_mask), (extents, kernel), attributes)
    strides, pads, dilations, _ = layer.per_axis(len(extents))
    ends = less((0,) * len(pads), rests_of(grad_output.shape[2:], extents, kernel, strides, pads, dilations))
    of_input, of_weight, of_bias = output_mask
    attributes = attributes.padded((pads, ends))
    return (
        kernels.compute(passes.forward(grad_output, weight, None, attributes)) if of_input else None,
        kernels.compute(passes.weight_gradient(grad_output, input, None, kernel, attributes)) if of_weight else None,
        kernels.compute(passes.bias_gradient(grad_output)) if of_bias else None,
    )


# -- matrix products -----------------------------------------------------------------------------------------------


_ONE_TAP = OpAttributes((1,), (0,), (0,), None, (1,), 1, False)


def _check_one_type(*tensors: Tensor) -> None:
    """Refuse factors of two types, as PyTorch does."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise RuntimeError(
            f"expected matrices of one dtype, but got {', '.join(str(tensor.dtype) for tensor in tensors)}"
        )


def product(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the matrix product of (M, K) and (K, N), plus a bias (N,), as a convolution with one tap."""
    if not (a.numel() and b.numel()):
        zeros = a.new_zeros(a.shape[0], b.shape[1])
        return zeros if bias is None else zeros + bias
    return kernels.compute(passes.forward(a.unsqueeze(2), b.t().unsqueeze(2), bias, _ONE_TAP)).squeeze(2)


def products(a: Tensor, b: Tensor) -> Tensor:
    """Return the matrix products of (B, M, K) and (B, K, N), as one convolution of an image with B groups."""
    return kernels.products(a, b) if a.numel() and b.numel() else a.new_zeros(*a.shape[:2], b.shape[2])


@row("mm", formula="Convolution with one tap: rows are images, columns are channels", order=OF_OPERATOR, bound=_BOUND)
def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """Return the product of two matrices."""
    _check_one_type(self, mat2)
    return product(self, mat2)


@row(
    "bmm",
    formula="Convolution with one tap and a group per product: rows are channels",
    order=OF_OPERATOR,
    bound=_BOUND,
)
def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """Return the products of two batches of matrices."""
    return products(self, mat2)


@row("mv", formula="mm with one column", order=OF_OPERATOR, bound=_BOUND)
def mv(self: Tensor, vec: Tensor) -> Tensor:
    """Return the product of a matrix and a vector."""
    _check_one_type(self, vec)
    return product(self, vec.unsqueeze(1)).squeeze(1)


_PLUS = "alpha * product + beta * self, in f32; bf16 and f16 are rounded once"


@row("addmm", formula=_PLUS, order=OF_OPERATOR, bound=f"{_BOUND} + 3 u abs(result)")
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the product of two matrices plus a matrix or a bias."""
    _check_one_type(self, mat1, mat2)
    if beta == alpha == 1 and self.dim() == 1 and self.shape == mat2.shape[1:] and self.dtype == mat1.dtype:
        return product(mat1, mat2, self)
    return _plus(self, product(mat1.float(), mat2.float()), beta, alpha, mat1.dtype)


@row("addmv", formula=_PLUS, order=OF_OPERATOR, bound=f"{_BOUND} + 3 u abs(result)")
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the product of a matrix and a vector plus a vector."""
    return _plus(self, mv(mat.float(), vec.float()), beta, alpha, mat.dtype)


@row("baddbmm", formula=_PLUS, order=OF_OPERATOR, bound=f"{_BOUND} + 3 u abs(result)")
def baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return the products of two batches of matrices plus a batch."""
    return _plus(self, products(batch1.float(), batch2.float()), beta, alpha, batch1.dtype)


def _plus(self: Tensor, result: Tensor, beta: float, alpha: float, to: torch.dtype) -> Tensor:
    check_numbers(beta, alpha)
    result = result if alpha == 1 else result * alpha
    if beta != 0:
        added = self.float().expand(result.shape) if beta == 1 else self.float().expand(result.shape) * beta
        result = result + added
    return result.to(to)
