"""Sums and writes at places that an index selects, and the gradient of an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import numpy as np
import torch
from torch import Tensor

from convgrad.arrays.libraries.torch import TORCH
from convgrad.engines.addresses import array_at
from convgrad.engines.settings import on
from convgrad.functional import elementwise
from convgrad.torch.kernels import threads_of_call
from convgrad.torch.training.row import ELEMENTWISE, LOW, SEQUENTIAL, SERVE, common_type, row
from convgrad.torch.training.tensors import check_numbers, memory_bytes, read_address, write_address

_BOUND = "(number of terms) u sum(abs(terms))"
_PLACES = torch.int32, torch.int64
_MASKS = torch.bool, torch.uint8


def _is_within(index: Tensor, extent: int) -> bool:
    """Return whether all places of an index are from 0 to extent - 1."""
    return not index.numel() or 0 <= int(index.min()) <= int(index.max()) < extent


def _is_own(target: Tensor, *others: Tensor) -> bool:
    """Return whether sums can be computed in the memory of a tensor, which other ones do not share."""
    begin, end = write_address(target), write_address(target) + target.nbytes
    shared = [read_address(other) < end and begin < read_address(other) + memory_bytes(other) for other in others]
    return target.dtype == torch.float32 and target.is_contiguous() and not any(shared)


def _add_rows(sums: Tensor, index: Tensor, rows: Tensor, dim: int = 0) -> Tensor:
    """Add the slices of ``rows`` to contiguous f32 sums at the places of an index, one after another in its order."""
    shape = prod(sums.shape[:dim]), sums.shape[dim], prod(sums.shape[dim + 1 :])
    places, terms = index.reshape(-1).to(torch.int64).contiguous(), rows.to(torch.float32).contiguous()
    addresses = [sums.data_ptr(), read_address(places), read_address(terms)]
    owners = sums, places, terms
    on(TORCH.pool, elementwise.add_rows, shape, places.numel(), addresses, threads_of_call(), owners)
    return sums


@row(
    "index_add",
    formula="self + (alpha * source) at each place of index, in the order of index",
    order=SEQUENTIAL,
    bound=_BOUND,
)
def index_add(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1, out: Tensor | None = None
) -> Tensor:
    """Return self plus the slices of source at the places of index."""
    check_numbers(alpha)
    if index.dtype not in _PLACES or self.dtype != source.dtype:
        types = index.dtype, self.dtype, source.dtype
        raise RuntimeError(f"index_add: index must be i32 or i64, and self and source have one type; got {types}")
    (to, (x, y)), dim = common_type(self, source), dim % max(self.dim(), 1)
    slices = source.shape if self.dim() or source.dim() else (1,)
    if slices != (*self.shape[:dim], index.numel(), *self.shape[dim:][1:]):
        raise RuntimeError(f"index_add: source must have a slice per index; got {tuple(source.shape)}")
    if not self.numel():
        return self.clone().to(to)
    extent = (self.shape or (1,))[dim]
    if not _is_within(index, extent):
        raise IndexError(f"index_add: index must be from 0 to {extent - 1}")
    y = y if alpha == 1 else y * alpha
    sums = x if out is self and _is_own(x, y, index) else x.clone(memory_format=torch.contiguous_format)
    _add_rows(sums.view(x.shape or (1,)), index, y, dim)
    return sums.to(to)


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
    gradient = torch.zeros((num_weights, grad_output.shape[-1]), dtype=torch.float32)
    return _add_rows(gradient, places.masked_fill(places == padding_idx, -1), rows).to(grad_output.dtype)


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
    inner = torch.float32 if self.dtype in LOW else self.dtype
    axes = self.dim()
    if inner == torch.float32 and not any([index is None for index in indices]):  # whole slices have one index
        axes = sum([index.dim() if index.dtype in _MASKS else 1 for index in indices if index is not None])
    leading, width = self.shape[:axes], prod(self.shape[axes:])
    places = torch.arange(prod(leading)).reshape(leading)[where]
    flat = self if _is_own(self, values) else self.to(inner, copy=True).contiguous()
    flat = flat.detach().view(prod(leading), width)
    rows = values.to(inner).expand((*places.shape, *self.shape[axes:])).reshape(places.numel(), width)
    if accumulate and inner == torch.float32:
        _add_rows(flat, places, rows)
    else:
        terms, item = rows.numpy(), rows.element_size()
        array = array_at(flat.data_ptr(), tuple(flat.shape), (width * item, item), terms.dtype)  # see reading_array_of
        if not accumulate:
            array[places.reshape(-1).numpy()] = terms
        else:
            with np.errstate(all="ignore"):  # PyTorch does not warn of infinite and NaN terms
                np.add.at(array.reshape(-1), places.reshape(-1).numpy(), terms.reshape(-1))
    return self if flat.data_ptr() == self.data_ptr() else self.copy_(flat.reshape(self.shape))


def _scattered(self: Tensor, dim: int, index: Tensor, src: Tensor) -> tuple[Tensor, Tensor]:
    """Return the places of a contiguous tensor like self to which elements of src belong, and these elements."""
    if self.dtype != src.dtype:
        raise RuntimeError(f"scatter: self and src must have one dtype; got {self.dtype} and {src.dtype}")
    index = index.to(torch.int64)
    places, last = index, (self.shape or (1,))[dim] - 1
    if not _is_within(index, last + 1):
        raise RuntimeError(f"scatter: index must be from 0 to {last}")
    for axis, extent in enumerate(self.shape):
        own = torch.arange(index.shape[axis]).reshape([-1 if axis == other else 1 for other in range(self.dim())])
        places = (index if axis == dim % self.dim() else own) + (places * extent if axis else 0)
    return places.reshape(-1), src[tuple([slice(count) for count in index.shape])].reshape(-1)


@row(
    "scatter_add",
    formula="self + each element of src at its place along dim, in the row-major order of index",
    order=SEQUENTIAL,
    bound=_BOUND,
)
def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """Return self plus the elements of src, each at the place along a dimension that index has for it."""
    return scatter_reduce(self, dim, index, src, "sum")


_REDUCE = {"prod": (np.multiply, 1.0), "amax": (np.maximum, -inf), "amin": (np.minimum, inf)}  # and its neutral number


@row(
    "scatter_reduce.two",
    formula="sum, product, largest or smallest of the elements at each place, in the row-major order of index; "
    "mean is sum / count",
    order=SEQUENTIAL,
    bound=_BOUND,
)
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return self combined with the elements of src at the places that index has for them."""
    if reduce not in (*_REDUCE, "sum", "mean"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    places, terms = _scattered(self, dim, index, src)
    ufunc, neutral = _REDUCE.get(reduce, (None, 0.0))
    sums = self.float().clone(memory_format=torch.contiguous_format)
    flat = sums.view(-1)
    if not include_self:
        flat[places] = neutral
    if ufunc is None:
        _add_rows(flat.view(-1, 1), places, terms.unsqueeze(1))
    else:
        with np.errstate(all="ignore"):  # PyTorch does not warn of NaN
            ufunc.at(flat.detach().numpy(), places.numpy(), terms.float().detach().numpy())
    if reduce == "mean":
        counts = torch.bincount(places, minlength=flat.numel()) + include_self
        flat /= counts.clamp(min=1)
    return sums.to(self.dtype)
