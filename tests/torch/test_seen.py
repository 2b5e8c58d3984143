"""PyTorch's profiler and its counter of operations see our layers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import convgrad.torch as ct  # noqa: E402

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "plain": (nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
    "groups": (nn.Conv2d(4, 6, (3, 2), groups=2, dilation=2, bias=False), (2, 4, 9, 8)),
    "1-D": (nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "3-D": (nn.Conv3d(4, 6, 3), (2, 4, 5, 4, 3)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=3, output_padding=2, groups=2), (2, 4, 5, 4)),
    "linear": (nn.Linear(4, 6), (2, 5, 4)),
}


def counted(layer: Any, shape: tuple[int, ...], needs: bool) -> int:
    with FlopCounterMode(display=False) as counter:
        layer(torch.ones(shape, requires_grad=needs)).sum().backward()
    return int(counter.get_total_flops())


@pytest.mark.every(5)
@pytest.mark.parametrize("needs", [True, False], ids=["data gradient too", "first layer"])
@pytest.mark.parametrize("name", LAYERS)
def test_operations_are_those_of_pytorch_s_layers(name: str, needs: bool) -> None:
    layer, shape = LAYERS[name]
    expected = counted(layer, shape, needs)
    assert counted(ct.reproducible(copy.deepcopy(layer), linear=True), shape, needs) == expected > 0


@pytest.mark.parametrize("name", ["plain", "transposed"])
def test_the_profiler_names_the_operators(name: str) -> None:
    """Also those of the backward, where all gradients are one call without it; results are what they were."""
    layer, shape = LAYERS[name]
    layer = ct.reproducible(copy.deepcopy(layer))
    given = torch.ones(shape, requires_grad=True)
    with torch.profiler.profile() as profile:
        seen = torch.autograd.grad(layer(given).square().sum(), [given, *layer.parameters()])
    counts = {row.key: row.count for row in profile.key_averages() if row.key.startswith("convgrad::")}
    names = "forward", "data_gradient", "weight_gradient", "bias_gradient"
    assert counts == {f"convgrad::{name}": 1 for name in names}
    unseen = torch.autograd.grad(layer(given).square().sum(), [given, *layer.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(seen, unseen, strict=True))
