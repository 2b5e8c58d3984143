"""Sums and writes at places that an index selects: index_add, index_put and the gradient of an embedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from convgrad.torch.training.row import ELEMENTWISE, LOW, SEQUENTIAL, SERVE, common_type, row
from convgrad.torch.training.tensors import check_numbers

_BOUND = "(number of terms) u sum(abs(terms))"


def _add_rows(sums: Tensor, index: Tensor, rows: Tensor) -> Tensor:
    """Add rows to ``sums`` at the places of an index, one after another in the order of the index."""
    with np.errstate(all="ignore"):  # PyTorch does not warn of infinite and NaN terms
        np.add.at(sums.detach().numpy(), index.reshape(-1).numpy(), rows.detach().numpy())
    return sums


@row(
    "index_add",
    formula="self + (alpha * source) at each place of index, in the order of index",
    order=SEQUENTIAL,
    bound=_BOUND,
)
def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Return self plus the slices of source at the places of index."""
    check_numbers(alpha)
    (to, (x, y)), dim = common_type(self, source), dim % max(self.dim(), 1)
    if self.dim() and source.shape != (*self.shape[:dim], index.numel(), *self.shape[dim:][1:]):
        raise RuntimeError(f"index_add: source must have a slice per index; got {tuple(source.shape)}")
    if not self.numel():
        return self.clone().to(to)
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < (self.shape[dim] if self.dim() else 1):
        raise IndexError(f"index_add: index must be from 0 to {self.shape[dim] - 1}")
    y = y if alpha == 1 else y * alpha
    sums = x.clone().reshape(x.shape or (1,))
    _add_rows(sums.movedim(dim, 0), index, y.reshape(y.shape or (1,)).movedim(dim, 0))
    return sums.reshape(x.shape).to(to)


@row(
    "embedding_dense_backward",
    formula="sum of grad_output over the positions of each index, in their order; / frequency first, if scaled",
    order=SEQUENTIAL,
    bound=_BOUND,
)
def embedding_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Tensor:
    """Return the gradient of an embedding's weights."""
    places = indices.reshape(-1)
    rows = grad_output.float().reshape(places.numel(), grad_output.shape[-1])
    if scale_grad_by_freq:
        rows = rows / torch.bincount(places, minlength=num_weights)[places].float().unsqueeze(1)
    used = (places != padding_idx) & (places >= 0) & (places < num_weights)
    gradient = torch.zeros((num_weights, grad_output.shape[-1]), dtype=torch.float32)
    return _add_rows(gradient, places[used], rows[used]).to(grad_output.dtype)


@row(
    "_index_put_impl_",
    formula="self[indices] = values, or the sum of self and the values with accumulate; in order of the indices",
    order=SEQUENTIAL,
    bound=_BOUND,
    types=ELEMENTWISE,
    integers=SERVE,
)
def index_put(
    self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Tensor:
    """Write or add values at indices, one after another, so that the last of equal indices wins."""
    if self.dtype != values.dtype:
        raise RuntimeError(f"index_put: self and values must have one dtype; got {self.dtype} and {values.dtype}")
    where = tuple([slice(None) if index is None else index for index in indices])
    places = torch.arange(self.numel()).reshape(self.shape)[where]
    inner = torch.float32 if self.dtype in LOW else self.dtype
    flat = self.to(inner, copy=True).contiguous().reshape(-1)
    flat_values = values.to(inner).expand(places.shape).reshape(-1)
    if accumulate:
        _add_rows(flat, places, flat_values)
    else:
        flat.numpy()[places.reshape(-1).numpy()] = flat_values.numpy()
    return self.copy_(flat.reshape(self.shape))
