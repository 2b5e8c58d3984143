"""Batches of matrix products, with any strides, and attention, of any number of heads at a time: the same bits."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from convgrad.torch import same_bits
from convgrad.torch.kernels import products
from convgrad.torch.training import attention
from tests.support.tiers import tiers
from tests.training.digests import digest

pytestmark = pytest.mark.usefixtures("installed")


def spread(x: torch.Tensor, step: int) -> torch.Tensor:
    """Return the same numbers, with gaps between matrices, rows and columns."""
    wide = torch.full([extent * step for extent in x.shape], math.nan, dtype=x.dtype)
    return wide[tuple([slice(None, None, step)] * x.dim())].copy_(x)


STRIDES = {
    "dense": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "last is the batch": lambda x: x.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "with gaps": lambda x: spread(x, 2),
    "one matrix": lambda x: x[:1].expand(x.shape),
    "one row": lambda x: x[:, :1].expand(x.shape),
    "one column": lambda x: x[..., :1].expand(x.shape),
}
SIZES = [(3, 5, 7, 9), (1, 17, 40, 33), (7, 1, 3, 20), (2, 20, 1, 1), (40, 4, 33, 16), (2, 1, 1, 1)]
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@tiers("first, second, size, dtype", STRIDES, STRIDES, SIZES, TYPES, every=7)
def test_products_of_any_strides(first: str, second: str, size: tuple[int, ...], dtype: torch.dtype) -> None:
    batch, rows, inner, columns = size
    generator = torch.Generator().manual_seed(sum(size))
    a, b = (
        torch.randint(-2, 3, shape, generator=generator).to(dtype)
        for shape in ((batch, rows, inner), (batch, inner, columns))
    )
    a, b = STRIDES[first](a), STRIDES[second](b)
    with same_bits():
        found = torch.bmm(a, b)
    assert found.dtype == dtype
    assert found.is_contiguous()
    assert torch.equal(found.long(), torch.bmm(a.long(), b.long()))


LAYOUTS = {
    "heads first": lambda x: x.contiguous(),
    "heads last": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "heads of three": lambda x: torch.cat((x, x, x), -1).transpose(1, 2).contiguous().chunk(3, -1)[1].transpose(1, 2),
}
B, H, T, S, D = 3, 4, 5, 7, 6
ORDERS = {"rows": lambda x: x, "columns": lambda x: x.mT.contiguous().mT, "gaps": lambda x: spread(x, 2)}
MASKS = {
    "none": (),
    "one number": (1, 1),
    "each key": (S,),
    "each score": (T, S),
    "each batch": (B, 1, T, S),
    "each head": (1, H, T, S),
    "each row": (B, H, T, S),
}


@tiers("layout, masks, order, is_causal, shared, dtype", LAYOUTS, MASKS, ORDERS, (False, True), (1, 2), TYPES, every=11)
def test_attention_of_some_heads_at_a_time(
    layout: str,
    masks: str,
    order: str,
    is_causal: bool,
    shared: int,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    shapes = (B, H, T, D), (B, H // shared, S, D), (B, H // shared, S, D)
    tensors = [LAYOUTS[layout](torch.randn(shape).to(dtype)).detach().requires_grad_() for shape in shapes]
    mask = torch.randn(MASKS[masks]).to(dtype) if MASKS[masks] else None
    if mask is not None and len(MASKS[masks]) > 1:
        mask[..., -1, :] = mask[..., 0, -1] = -math.inf  # a row sees no key
        mask = ORDERS[order](mask)
    factor = torch.randn(B, H, T, D).to(dtype)

    def step() -> list[torch.Tensor]:
        result, logarithms = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *tensors, is_causal=is_causal, attn_mask=mask
        )
        return [result, logarithms, *torch.autograd.grad((result * factor).sum(), tensors)]

    results = []
    with same_bits():
        for scores in (1, 2 * T * S, H * T * S, 2 * H * T * S, *[1 << 19] * 3):
            monkeypatch.setattr(attention, "SCORES", scores)
            results.append(step())
    assert len({digest(found) for found in results}) == 1
    wide = [tensor.detach().double().requires_grad_() for tensor in tensors]
    repeated = [x.repeat_interleave(H // x.shape[1], 1) for x in wide]
    scores = repeated[0] @ repeated[1].mT / math.sqrt(D) + (0 if mask is None else mask.double())
    if is_causal:
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).tril().logical_not(), -math.inf)
    expected = torch.softmax(scores, -1).nan_to_num(0) @ repeated[2]
    bound = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}[dtype]
    torch.testing.assert_close(results[0][0].double(), expected, rtol=bound, atol=bound)
    logarithms = torch.logsumexp(scores, -1).nan_to_num(neginf=0)
    torch.testing.assert_close(results[0][1].double(), logarithms, rtol=bound, atol=bound)


@tiers("batches, heads, positions, keys", (0, 2), (0, 3), (0, 4), (0, 5))
def test_attention_of_empty_tensors(batches: int, heads: int, positions: int, keys: int) -> None:
    query, key = torch.ones(batches, heads, positions, 8), torch.ones(batches, heads, keys, 8)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with same_bits():
        result, logarithms = flash(query, key, key)
        assert functional.scaled_dot_product_attention(query, query, query).shape == query.shape
    assert (result.shape, logarithms.shape) == (query.shape, query.shape[:-1])
    assert torch.equal(result, torch.full(query.shape, float(keys > 0)))


def test_factors_that_do_not_fit_are_refused() -> None:
    """Attention calls the products itself, without the check of ATen's operator."""
    query, key, value = (torch.ones(2, 3, positions, 8) for positions in (4, 5, 6))
    with same_bits():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="first two dimensions"):
                functional.scaled_dot_product_attention(query, key, value)
            with pytest.raises(RuntimeError, match="first two dimensions"):
                products(query[0], key[0])


@tiers("first, second, size", STRIDES, STRIDES, SIZES, every=5)
def test_products_without_compiled_kernels(
    first: str, second: str, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NumPy engine gets the stride of groups, too."""
    batch, rows, inner, columns = size
    shapes = (batch, rows, inner), (batch, inner, columns)
    a, b = (torch.arange(math.prod(shape)).remainder(5).sub(2.0).reshape(shape).float() for shape in shapes)
    a, b = STRIDES[first](a), STRIDES[second](b)
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    assert torch.equal(products(a, b), torch.bmm(a.double(), b.double()).float())
