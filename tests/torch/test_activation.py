"""Activations of results, which a kernel computes, or PyTorch if autograd records them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convgrad.torch as ct  # noqa: E402
from convgrad.torch.problems import FORMATS  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402


@tiers("dtype, flush", FORMATS, [True], long=[(dtype, False) for dtype in FORMATS])
def test_an_activation_is_the_same_with_gradients(dtype: Any, flush: bool) -> None:
    """Of numbers with every upper half of their bits: zeros, denormals, infinities and NaN among them."""
    size = 8 * dtype.itemsize
    integer, upper = getattr(torch, f"int{size}"), torch.arange(-(2**15), 2**15)
    patterns = torch.arange(-(2**7), 2**7) if size == 8 else torch.cat([upper << size - 16, (upper << size - 16) + 1])
    numbers, one = patterns.to(integer).view(dtype)[None, None], torch.ones(1, 1, 1).to(dtype)
    expected = ct.conv1d(numbers, one, activation="relu")
    assert torch.set_flush_denormal(flush)
    try:
        found = ct.conv1d(numbers, weight := one.clone().requires_grad_(), activation="relu")
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(found.detach().view(integer), expected.view(integer))
    (gradient,) = torch.autograd.grad(found, weight, torch.ones_like(found))
    assert gradient.shape == weight.shape
