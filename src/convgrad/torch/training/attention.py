"""Scaled dot-product attention and its gradient, by matrix products and softmax in f32."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from convgrad.torch.training.row import OF_OPERATOR, SUMMED, row
from convgrad.torch.training.tensors import check_numbers


class _Attention(NamedTuple):
    """The operands of attention in f32, with a key and a value for each head of the query, and their products.

    The query is already multiplied by the scale, because it has fewer elements than the scores.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    scores: Tensor  # (scale * query) key^T + mask
    largest: Tensor | None  # of the scores of each row; None if no mask needs it
    shares: Tensor  # softmax of the scores; 0 in rows whose scores are all -infinity


def _attention(
    operands: tuple[Tensor, Tensor, Tensor], is_causal: bool, mask: Tensor | None, scale: float | None
) -> _Attention:
    """Return the products of attention; each position of a causal query sees the keys up to its own place."""
    heads, dtypes = operands[0].shape[1], {x.dtype for x in operands}
    if len(dtypes) > 1 or not dtypes <= SUMMED:
        raise RuntimeError(f"attention: query, key and value must have one type of floats; got {dtypes}")
    query, key, value = [
        x.float() if x.shape[1] == heads else x.float().repeat_interleave(heads // x.shape[1], 1) for x in operands
    ]
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    check_numbers(factor)
    query = query * factor
    scores = torch.matmul(query, key.transpose(-1, -2))
    if is_causal:
        sees = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores.masked_fill_(sees.logical_not(), -math.inf)
    if mask is None:
        return _Attention(query, key, value, factor, scores, None, torch.softmax(scores, -1))
    scores = scores + mask
    largest = scores.amax(-1)
    shares = torch.softmax(scores, -1).masked_fill((largest == -math.inf).unsqueeze(-1), 0)
    return _Attention(query, key, value, factor, scores, largest, shares)


@row(
    "_scaled_dot_product_flash_attention_for_cpu",
    formula="P value, P = softmax((scale * query) key^T + attn_mask), in f32; logsumexp = max(scores) - log(max(P))",
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
    computed = _attention((query, key, value), is_causal, attn_mask, scale)
    largest = computed.scores.amax(-1) if computed.largest is None else computed.largest
    logarithms = largest - torch.log(computed.shares.amax(-1))
    logarithms = logarithms.masked_fill(largest == -math.inf, 0)
    result = torch.matmul(computed.shares, computed.value).to(query.dtype)
    return result if query.is_contiguous() else _heads_last(result), logarithms


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
    computed = _attention((query, key, value), is_causal, attn_mask, scale)
    gradient = grad_out.float().contiguous()
    of_shares = torch.matmul(gradient, computed.value.transpose(-1, -2))
    of_scores = torch.ops.aten._softmax_backward_data(of_shares, computed.shares, -1, torch.float32)
    of_query = torch.matmul(of_scores, computed.key) * computed.scale
    # The transposes of scores would be large copies.
    of_key = torch.matmul(computed.query.transpose(-1, -2), of_scores).transpose(-1, -2)
    of_value = torch.matmul(gradient.transpose(-1, -2), computed.shares).transpose(-1, -2)
    return _heads_last(of_query.to(query.dtype)), _per_head(of_key, key), _per_head(of_value, value)


def _heads_last(x: Tensor) -> Tensor:
    """Return a tensor (batch, heads, positions, numbers) whose heads follow the positions in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _per_head(gradient: Tensor, operand: Tensor) -> Tensor:
    """Return the sums of a gradient over the heads that share a head of the operand."""
    if gradient.shape[1] != operand.shape[1]:
        gradient = gradient.unflatten(1, (operand.shape[1], -1)).sum(2)
    return _heads_last(gradient.to(operand.dtype))
