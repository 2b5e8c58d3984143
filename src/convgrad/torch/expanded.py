"""Layers with PyTorch's ExpandedWeights, whose backward pass puts each sample's gradient into ``grad_sample``.

``torch.nn.utils._per_sample_grad.call_for_per_sample_grads`` makes these weights. Each sample is a call of its own, so
that its gradient has the bits of a batch of one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from convgrad.spec.rules import refuse

_PACKAGE = "torch.nn.utils._expanded_weights.expanded_weights"


def is_expanded(tensor: object) -> bool:
    """Return whether a tensor is an ExpandedWeight, without an import of PyTorch's package for them."""
    package = sys.modules.get(f"{_PACKAGE}_impl")
    return package is not None and isinstance(tensor, package.ExpandedWeight)


def layer(compute: Callable[..., Tensor], name: str, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the result of a layer with ExpandedWeights. ``compute`` is the layer as a function of plain tensors.

    PyTorch's own functions check the batch, and put gradients into ``grad_sample``.
    """
    utils = sys.modules[f"{_PACKAGE}_utils"]
    at = 0 if utils.is_batch_first((weight, bias)) else 1

    def of_samples(batch: Tensor, plain: Tensor, vector: Tensor | None) -> Tensor:
        if batch.dim() < 2 or (name != "linear" and batch.dim() != plain.dim()):  # G1
            refuse("G1", name, f"input must have a batch axis for per-sample gradients; got {tuple(batch.shape)}")
        if not torch.is_grad_enabled():
            return compute(batch, plain, vector)
        samples = batch.split(1, at)
        parameters = [_per_sample(weight, plain, len(samples)), _per_sample(bias, vector, len(samples))]
        return torch.cat([compute(*operands) for operands in zip(samples, *parameters, strict=True)], at)

    of_samples.__name__ = name  # for PyTorch's messages
    for parameter in (weight, bias):
        utils.unpack_expanded_weight_or_tensor(parameter)  # refuses a mixture of expanded and trained parameters
    result: Tensor = utils.forward_helper(of_samples, (input, weight), {"vector": bias})
    return result


def _per_sample(expanded: Tensor | None, plain: Tensor | None, samples: int) -> tuple[Tensor | None, ...]:
    """Return a parameter for each sample."""
    if not is_expanded(expanded):
        return (plain,) * samples
    return tuple(_PerSample.apply(plain, expanded, samples).unbind(0))


class _SavedParameter(Protocol):
    """What PyTorch keeps from a forward to a backward pass."""

    expanded: Tensor


class _PerSample(torch.autograd.Function):  # type: ignore[misc]
    """A parameter, repeated for each sample. Its gradients go into ``grad_sample``, and none into ``grad``."""

    @staticmethod
    def forward(ctx: _SavedParameter, parameter: Tensor, expanded: Tensor, samples: int) -> Tensor:
        """Return the parameter's values, once for each sample."""
        ctx.expanded = expanded
        return parameter.detach().expand(samples, *parameter.shape)

    @staticmethod
    def backward(ctx: _SavedParameter, gradients: Tensor) -> tuple[None, None, None]:
        """Put the gradients into the parameter's ``grad_sample``; PyTorch scales them if the loss is a mean."""
        utils = sys.modules[f"{_PACKAGE}_utils"]
        utils.set_grad_sample_if_exists(ctx.expanded, lambda _: gradients.detach())
        return None, None, None
