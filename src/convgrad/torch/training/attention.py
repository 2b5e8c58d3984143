"""Scaled dot product attention and its gradient, by matrix products and softmax in f32.

Both compute some heads at a time, whose scores a cache holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from convgrad.torch.training.products import products
from convgrad.torch.training.replay import replayed
from convgrad.torch.training.row import OF_OPERATOR, SUMMED, row
from convgrad.torch.training.softmax import softmax_backward, softmax_of_rows
from convgrad.torch.training.tensors import check_numbers, elements

SCORES = 1 << 19  # of the heads that are computed at a time, unless one head has more
Heads: TypeAlias = tuple[slice, slice]  # all heads of some batches, or some heads of one batch


class _Attention(NamedTuple):
    """The operands of attention, with a key and a value for each head of the query.

    Scores are scale * query key^T + mask, and -infinity where ``bounds`` is not infinity.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mask: Tensor | None
    bounds: Tensor | None

    @classmethod
    def of(
        cls, operands: tuple[Tensor, Tensor, Tensor], is_causal: bool, mask: Tensor | None, scale: float | None
    ) -> _Attention:
        """Return the operands; each position of a causal query sees the keys up to its own place."""
        (batches, heads, positions, size), dtypes = operands[0].shape, {x.dtype for x in operands}
        if len(dtypes) > 1 or not dtypes <= SUMMED:
            raise RuntimeError(f"attention: query, key and value must have one type of floats; got {dtypes}")
        query, key, value = [
            x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1) for x in operands
        ]
        factor, extents = 1 / math.sqrt(size) if scale is None else scale, (positions, key.shape[2])
        check_numbers(factor)
        sees = torch.ones(extents, dtype=torch.bool).tril() if is_causal else None
        bounds = None if sees is None else torch.where(sees, math.inf, -math.inf)
        added = None if mask is None else mask.float().contiguous().expand(batches, heads, *extents)
        return cls(query, key, value, factor, added, bounds)

    def heads(self) -> Iterator[Heads]:
        """Yield the heads that are computed at a time."""
        batches, heads, positions, _ = self.query.shape
        if not heads * positions:
            return
        at_once = max(1, SCORES // max(1, positions * self.key.shape[2]))
        some, all_batches = (at_once, 1) if at_once < heads else (heads, at_once // heads)
        for batch in range(0, batches, all_batches):
            for head in range(0, heads, some):
                yield slice(batch, batch + all_batches), slice(head, head + some)

    def shares(self, heads: Heads) -> tuple[Tensor, Tensor]:
        """Return softmax of the scores of heads, which is 0 in rows whose scores are all -infinity, and logsumexp."""
        mask = None if self.mask is None else _flat(self.mask[heads])
        query, key = _flat(self.query[heads]), _flat(self.key[heads])
        shares, largest, logarithms = _shares(query, key, self.bounds, mask, self.scale)
        if mask is not None:
            sees_none = largest == -math.inf
            shares.flatten(0, 1).masked_fill_(sees_none.unsqueeze(-1), 0)
            logarithms.masked_fill_(sees_none, 0)
        return shares, logarithms


def _flat(x: Tensor) -> Tensor:
    """Return the matrices of some heads in f32."""
    return x.float().flatten(0, 1)


@replayed
def _shares(
    query: Tensor, key: Tensor, bounds: Tensor | None, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return softmax of the scores, and the largest score and logsumexp of each row."""
    scores = products(elements("product", query, scale), key.mT)  # the query has fewer elements than the scores
    if bounds is not None:
        elements("fmin", scores, bounds, out=scores)
    if mask is not None:
        elements("add", scores, mask, 1.0, out=scores)
    return softmax_of_rows(scores)


_product = replayed(products)


@replayed
def _gradients(
    shares: Tensor, gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value."""
    of_scores = softmax_backward(products(gradient, value.mT), shares, -1, torch.float32)
    of_query = products(of_scores, key)
    elements("product", of_query, scale, out=of_query)
    return of_query, products(of_scores.mT, elements("product", query, scale)), products(shares.mT, gradient)


@row(
    "_scaled_dot_product_flash_attention_for_cpu",
    formula="P value, P = softmax((scale * query) key^T + attn_mask), in f32; logsumexp = max(scores) + log(s), "
    "s that of softmax",
    order=OF_OPERATOR,
    bound="that of each matrix product and of softmax",
)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return attention, and the logarithms of the sums of exp(scores), which PyTorch's own gradient needs."""
    operands = _Attention.of((query, key, value), is_causal, attn_mask, scale)
    shape, dtype = (*query.shape[:-1], value.shape[-1]), query.dtype
    result = torch.empty(shape, dtype=dtype) if query.is_contiguous() else _heads_last(shape, dtype)
    logarithms = torch.empty(query.shape[:-1])
    for heads in operands.heads():
        shares, of_heads = operands.shares(heads)
        _store(_product(shares, _flat(operands.value[heads])), result[heads])
        _store(of_heads, logarithms[heads])
    return result, logarithms


@row(
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    formula="scale * (D key), D^T (scale * query) and P^T grad_out, D the gradient of softmax for grad_out value^T",
    order=OF_OPERATOR,
    bound="that of each matrix product and of the gradient of softmax",
)
def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value. Heads that share a key or value are added."""
    operands = _Attention.of((query, key, value), is_causal, attn_mask, scale)
    tensors = operands.query, operands.key, operands.value
    dtypes = [x.dtype if x is of else torch.float32 for x, of in zip(tensors, (query, key, value), strict=True)]
    results = [_heads_last(tuple(x.shape), dtype) for x, dtype in zip(tensors, dtypes, strict=True)]
    for heads in operands.heads():
        shares, _ = operands.shares(heads)
        of_out, q, k, v = [_flat(x[heads]) for x in (grad_out, *tensors)]
        for gradient, result in zip(_gradients(shares, of_out, q, k, v, operands.scale), results, strict=True):
            _store(gradient, result[heads])
    return tuple([_per_head(x, of) for x, of in zip(results, (query, key, value), strict=True)])


def _store(values: Tensor, target: Tensor) -> None:
    """Write the results of some heads to their part of a tensor."""
    target.copy_(values.view(target.shape))


def _heads_last(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return a new tensor (batch, heads, positions, numbers) whose heads follow the positions in memory."""
    batches, heads, positions, numbers = shape
    return torch.empty(batches, positions, heads, numbers, dtype=dtype).transpose(1, 2)


def _per_head(gradient: Tensor, operand: Tensor) -> Tensor:
    """Return the sums of a gradient over the heads that share a head of the operand."""
    if gradient.shape[1] == operand.shape[1]:
        return gradient
    sums = gradient.unflatten(1, (operand.shape[1], -1)).sum(2).to(operand.dtype)
    return _heads_last(tuple(operand.shape), operand.dtype).copy_(sums)
