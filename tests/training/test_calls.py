"""Calls in a block of `same_bits`: what is refused, what convgrad computes, and what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import convgrad.torch as ct
from convgrad.errors import ConvgradError, UnsupportedError
from convgrad.torch import same_bits

pytestmark = pytest.mark.usefixtures("installed")


def test_operator_that_varies_is_named_with_its_line() -> None:
    with same_bits(), pytest.raises(UnsupportedError, match=r"aten::lgamma may vary, at test_calls.py:\d+") as caught:
        torch.lgamma(torch.ones(2))
    assert isinstance(caught.value, ConvgradError)


def test_warning_where_not_strict() -> None:
    with same_bits(strict=False), pytest.warns(UserWarning, match=r"same_bits: aten::lgamma may vary, at test_calls"):
        assert torch.equal(torch.lgamma(torch.ones(2)), torch.zeros(2))


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2, dtype=torch.float64).sum(),
        lambda: torch.ones(2, 2, dtype=torch.complex64) @ torch.ones(2, 2, dtype=torch.complex64),
        lambda: torch.ones(2, dtype=torch.complex64).sqrt(),
        lambda: torch.ones(2, 2).to_sparse() @ torch.ones(2, 2),
        lambda: torch.ones(2, 2).to_sparse(),
        lambda: torch.ones(2, dtype=torch.float64) ** 0.7,
        lambda: torch.ones(2) ** (2 + 0j),
        lambda: torch.lerp(torch.ones(2), torch.ones(2), 1 + 0j),
        lambda: torch.addcmul(torch.ones(2), torch.ones(2), torch.ones(2), value=1 + 0j),
        lambda: torch.linalg.vector_norm(torch.ones(2), 3),
        lambda: torch.ones(2).erfc(),
        lambda: F.scaled_dot_product_attention(*[torch.ones(1, 1, 4, 8, dtype=torch.float64)] * 3),
    ],
)
def test_unserved_calls_raise(call: object) -> None:
    with same_bits(), torch.no_grad(), pytest.raises((UnsupportedError, NotImplementedError)):
        call()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")
@pytest.mark.parametrize(
    "call",
    [torch.tanh, torch.relu, lambda x: x + x, lambda x: x.softmax(-1), lambda x: F.avg_pool2d(x, 2), lambda x: x * x],
)
def test_tensors_of_onednn_are_refused(call: Callable[[torch.Tensor], object]) -> None:
    given = torch.ones(1, 2, 4, 4).to_mkldnn()
    with same_bits(), pytest.raises(UnsupportedError, match="has no specified order for MkldnnCPU tensors"):
        call(given)
    call(given)
    with same_bits():
        assert given.clone().shape == given.shape


def test_integers_and_booleans_pass() -> None:
    with same_bits():
        assert torch.arange(5).sum() == 10
        assert (torch.arange(5) > 2).sum() == 2
        assert torch.add(torch.arange(3), torch.arange(3), alpha=2).tolist() == [0, 3, 6]
        assert torch.arange(6).reshape(2, 3).double().add(1).dtype == torch.float64


def test_backward_of_checkpoint() -> None:
    layer = nn.Linear(4, 4)
    x = torch.ones(2, 4, requires_grad=True)
    with same_bits():
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sum().backward()
    assert x.grad is not None


def test_autocast_computes_in_bf16() -> None:
    layer = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 5))
    x = torch.rand(4, 3, 8, 8)
    with same_bits(), torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
        F.cross_entropy(out, torch.arange(4)).backward()
    assert out.dtype == torch.bfloat16
    assert all(one.grad.dtype == torch.float32 and one.grad.isfinite().all() for one in layer.parameters())


def test_same_bits_as_reproducible_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9, 5))
    x = torch.rand(4, 3, 8, 8)
    with same_bits():
        plain = model(x)
        ct.reproducible(model, linear=True)
        assert torch.equal(plain, model(x))


def test_meta_and_fake_tensors_are_untouched() -> None:
    with same_bits():
        assert torch.lgamma(torch.ones(2, device="meta")).device.type == "meta"
