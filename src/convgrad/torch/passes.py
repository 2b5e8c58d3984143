"""The operators of PyTorch's dispatcher. Each function declares one operator by its name and its parameters.

A function returns the call of the operator's kernel. ``kernels.py`` computes calls, and ``traced.py`` returns tensors
like their results. ``schema.py`` makes the operator's schema from the parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from convgrad.spec.problem import Problem
from convgrad.torch.attributes import OpAttributes
from convgrad.torch.extents import Ints
from convgrad.torch.problems import bias_problem, dst_problem, kernel_problem, transposed_problem
from convgrad.torch.schema import Like, Unpadded

# The function that poses the problem, the operands in its order, the attributes, and extents that the operands lack. A
# plain tuple is faster than a named one.
Call = tuple[Callable[..., Problem], tuple[Tensor, ...], OpAttributes, tuple[Ints | None, ...]]

NO_LAYER = OpAttributes((), None, None, None, (), 1, False)  # of bias gradients


def forward(src: Tensor, weights: Tensor, bias: Tensor | None, layer: Unpadded) -> Call:
    """Return the call that computes dst."""
    return dst_problem, (src, weights) if bias is None else (src, weights, bias), layer, ()


def data_gradient(diff_dst: Tensor, weights: Tensor, bias: Tensor | None, src: Like, layer: OpAttributes) -> Call:
    """Return the call that computes diff_src. This is also a transposed layer, with an optional bias.

    The extents are those of ``src``, whose values are not read. If ``src`` is None, the extents of ``diff_dst`` and
    ``output_padding`` determine them.
    """
    operands = (diff_dst, weights) if bias is None else (diff_dst, weights, bias)
    return transposed_problem, operands, layer, (None if src is None else src.shape[2:],)


def weight_gradient(src: Tensor, diff_dst: Tensor, weights: Like, kernel: Ints | None, layer: Unpadded) -> Call:
    """Return the call that computes diff_weights.

    The spatial extents are ``kernel``, or those of ``weights``, whose values are not read.
    """
    return kernel_problem, (diff_dst, src), layer, (kernel if weights is None else weights.shape[2:],)


def bias_gradient(diff_dst: Tensor) -> Call:
    """Return the call that computes diff_bias, the sum of diff_dst per channel."""
    return bias_problem, (diff_dst,), NO_LAYER, ()
