"""Softmax and its logarithm, with their gradients: exponentials by f32 operations, then sums in one order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from convgrad.torch.training.channels import ChannelProgram, ChannelView, Floats, rows_of
from convgrad.torch.training.row import SECTIONS, row
from convgrad.torch.training.sums import axis_of
from convgrad.torch.training.tensors import allocated, elements

_EXPONENTIALS = "e = exp(self - max) by f32 operations, s = sum of e"


def _slices(x: Tensor, dim: int) -> ChannelView:
    """Return a tensor in row-major order, as channels whose positions are the elements along a dimension."""
    dim %= max(x.dim(), 1)
    outer, inner = prod(x.shape[:dim]), prod(x.shape[dim + 1 :])
    length = x.numel() // (outer * inner)
    return rows_of(x, outer, length) if inner == 1 else ChannelView(x.contiguous(), (outer, inner, length), True)


class _SliceProgram:
    """A program of sums of slices, and of maps on tensors and coefficients, which have a number per slice."""

    def __init__(self, view: ChannelView) -> None:
        self.view, self.program = view, ChannelProgram.by_channel(view)
        self.shape = view.shape[:2] if view.last else view.shape[1:2]

    def sums(self, name: str, *others: Tensor, **options: Any) -> Floats:
        """Return the sums of a map on the view and tensors like it, in f64."""
        sums: Floats = self.program.sums_of(name, self.view, *others, combined=not self.view.last, **options)[0]
        return sums

    def sums_of_exponentials(self, terms: Tensor | None = None) -> tuple[Tensor, Floats]:
        """Return the largest element of each slice, and the sum of e = exp(x - largest), which ``terms`` receives."""
        outer, inner, length = self.view.shape
        if self.view.last:
            largest = self.view.tensor.reshape(outer, length, inner).amax(1).float()
        else:
            largest = self.program.largest(self.view)
        return largest, self.sums("exp_of_difference", coefficients=(largest,), products=False, terms=terms)

    def coefficients(self, name: str, sums: Floats, *numbers: float) -> Tensor:
        """Return a map of sums as coefficients."""
        return self.program.coefficients(name, self.shape, [sums, *numbers], 1)[0]

    def result(self, name: str, *tensors: Tensor, coefficients: Sequence[Tensor], out: Tensor) -> Tensor:
        """Return the result of a map, after all that was added."""
        self.program.mapped(name, self.view, *tensors, coefficients=coefficients, out=out)
        self.program.run()
        return out


def _empty(view: ChannelView, dtype: torch.dtype) -> Tensor:
    return allocated(torch.empty_like(view.tensor, dtype=dtype))


@row(
    "_log_softmax",
    formula=f"{_EXPONENTIALS}; (self - max) - log(s), log(s) in f64, then rounded to f32",
    order=SECTIONS,
    bound="(6 + abs(self - max) + abs(log(s)) + abs(result) + mean of abs(self - max) with weights softmax) u",
)
def log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the logarithm of softmax along a dimension."""
    to = torch.float32 if half_to_float else self.dtype
    if not self.numel():
        return torch.empty_like(self, dtype=to)
    view = _slices(self, dim)
    program = _SliceProgram(view)
    largest, sums = program.sums_of_exponentials()
    coefficients = largest, program.coefficients("log64", sums)
    return program.result("difference_of_two", view.tensor, coefficients=coefficients, out=_empty(view, to))


@row(
    "_log_softmax_backward_data",
    formula="grad_output - exp(output) * (sum of grad_output), fused; exp by f32 operations",
    order=SECTIONS,
    bound="3 u exp(output) abs(sum of grad_output) + u abs(result) + h v exp(output) sum(abs(grad_output))",
)
def log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of log_softmax from its output."""
    return _gradient("log_softmax_backward", grad_output, output, dim, input_dtype, products=False)


def _gradient(name: str, g: Tensor, output: Tensor, dim: int, to: torch.dtype, *, products: bool) -> Tensor:
    """Return a gradient from the sums of g, or those of its products with the output, along a dimension."""
    if g.shape != output.shape:
        raise RuntimeError(f"softmax: grad_output has shape {tuple(g.shape)}, but output {tuple(output.shape)}")
    if not g.numel():
        return torch.empty_like(g)
    view, output = _slices(g, dim), output.contiguous()
    program = _SliceProgram(view)
    sums = program.sums("products", output, plain=not products, products=products)
    coefficients = (program.coefficients("mean", sums, 1.0),)
    return program.result(name, view.tensor, output, coefficients=coefficients, out=_empty(view, to))


@row(
    "_softmax",
    formula=f"{_EXPONENTIALS}; e / (s rounded to f32)",
    order=SECTIONS,
    bound="(6 + abs(self - max) + mean of abs(self - max) with weights result) u result",
)
def softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return softmax along a dimension."""
    dim = axis_of(self, dim)  # PyTorch's kernel for meta does not check it
    to = torch.float32 if half_to_float else self.dtype
    if not self.numel():
        return torch.empty_like(self, dtype=to)
    view = _slices(self, dim)
    program, e = _SliceProgram(view), _empty(view, torch.float32)
    _, sums = program.sums_of_exponentials(e)
    coefficients = (program.coefficients("mean", sums, 1.0),)
    out = e if to == torch.float32 else _empty(view, to)
    return program.result("quotient", e, coefficients=coefficients, out=out)


def softmax_of_rows(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax along the last dimension in f32, the largest element of each row, and logsumexp."""
    view = _slices(x, -1)
    program, e = _SliceProgram(view), _empty(view, torch.float32)
    largest, sums = program.sums_of_exponentials(e)
    logarithms, means = program.coefficients("log64", sums), program.coefficients("mean", sums, 1.0)
    program.result("quotient", e, coefficients=(means,), out=e)
    return e, largest, elements("add", largest, logarithms, 1.0)


@row(
    "_softmax_backward_data",
    formula="output * (grad_output - (sum of grad_output * output, rounded to f32))",
    order=SECTIONS,
    bound="abs(output) (u abs(sum) + h v sum(abs(grad_output output))) + 2 u abs(result)",
)
def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
    """Return the gradient of softmax from its output."""
    return _gradient("softmax_backward", grad_output, output, dim, input_dtype, products=True)
