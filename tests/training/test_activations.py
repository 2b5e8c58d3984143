"""Activations are correctly rounded but for one in a thousand, also in their tails; infinities are as in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from convgrad.torch import same_bits
from convgrad.torch.training import row

pytestmark = pytest.mark.usefixtures("installed")
Map = Callable[[torch.Tensor], torch.Tensor]
SCALE = 2 * math.sqrt(2 / math.pi)
NUMBERS = torch.cat([
    torch.linspace(-100, 100, 20_001), torch.logspace(-40, 2, 2_001), -torch.logspace(-40, 2, 2_001),
    torch.tensor([0.0, -0.0, 1e-45, -1e-45]),
])  # fmt: skip


def _by_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


# PyTorch's GELU loses all digits in its tail, in f64 too, so its results are not the exact ones.
EXACT: dict[str, tuple[Map, Map]] = {
    "erf": (torch.erf, torch.erf),
    "expm1": (torch.expm1, torch.expm1),
    "silu": (F.silu, F.silu),
    "gelu": (F.gelu, lambda x: x * 0.5 * torch.erfc(-x * math.sqrt(0.5))),
    "gelu by tanh": (_by_tanh, lambda x: x * torch.sigmoid(SCALE * (x + 0.044715 * x**3))),
    "elu": (F.elu, F.elu),
    "selu": (F.selu, F.selu),
    "celu": (lambda x: F.celu(x, 0.75), lambda x: F.celu(x, 0.75)),
    "softplus": (lambda x: F.softplus(x, 2, 10), lambda x: F.softplus(x, 2, 10)),
}


def assert_rounded(found: torch.Tensor, exact: torch.Tensor) -> None:
    """Assert that f32 numbers are within 0.501 units in the last place of numbers in f64."""
    finite = torch.isfinite(found) & torch.isfinite(exact)
    ulp = torch.nextafter(found.abs(), torch.tensor(math.inf)).double() - found.abs().double()
    assert ((found.double() - exact).abs() <= 0.501 * ulp)[finite].all()
    assert torch.equal(torch.isfinite(found), torch.isfinite(exact.float()))


@pytest.mark.parametrize("name", EXACT)
def test_results_are_nearly_correctly_rounded(name: str) -> None:
    function, exact = EXACT[name]
    with same_bits():
        found = function(NUMBERS)
    assert_rounded(found, exact(NUMBERS.double()))


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu by tanh", "elu", "selu", "celu", "softplus"])
def test_gradients_are_nearly_correctly_rounded(name: str) -> None:
    function, exact = EXACT[name]
    x, y = NUMBERS.clone().requires_grad_(), NUMBERS.double().requires_grad_()
    with same_bits():
        found = function(x)
        found.backward(torch.ones_like(found))
    expected = exact(y)
    expected.backward(torch.ones_like(expected))
    assert x.grad is not None
    assert y.grad is not None
    root = (y.grad.abs() < 1e-3) & (y.abs() < 10)  # a derivative near 0 is a difference of numbers near 1
    assert_rounded(x.grad[~root], y.grad[~root])
    assert ((x.grad - y.grad).abs() <= 2.0**-24 * y.grad.abs() + 2.0**-50)[root].all()


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_special_numbers_are_those_in_f64(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0], dtype=dtype)
    function, _ = EXACT[name]
    with same_bits():
        found = function(x)
    expected = function(x.double()).to(dtype)  # GELU of infinity depends on PyTorch's kernel in f32
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    real = ~expected.isnan()
    assert torch.equal(torch.signbit(found)[real], torch.signbit(expected)[real])


@pytest.mark.parametrize("shape", [(4, 6, 5, 7), (2, 300), (3, 1, 9)])
@pytest.mark.parametrize("kind", ["layer", "group", "instance"])
def test_norms_of_rows_are_within_their_bounds(kind: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, g = torch.randn(shape) + 3, torch.randn(shape)
    groups = shape[1] if kind == "instance" else math.gcd(shape[1], 3)
    norm = torch.nn.LayerNorm(shape[2:] or shape[1:]) if kind == "layer" else torch.nn.GroupNorm(groups, shape[1])
    for one in norm.parameters():
        torch.nn.init.normal_(one)
    exact = type(norm)(*((norm.normalized_shape,) if kind == "layer" else (groups, shape[1]))).double()
    exact.load_state_dict(norm.state_dict())
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    with same_bits():
        found = norm(a)
        found.backward(g)
    expected = exact(b)
    expected.backward(g.double())
    height, u = 256 + 16 + 16 + 12, 2.0**-24  # a chain, two levels of the tree, and the other roundings
    terms = x.numel() // (shape[0] if kind == "layer" else 1)
    rows = x.double().reshape((-1, math.prod(norm.normalized_shape)) if kind == "layer" else (shape[0], groups, -1))
    inverse = (rows.var(-1, unbiased=False) + 1e-5).rsqrt().max()
    weight = norm.weight.detach().abs().max()
    of_output = expected.detach().abs().max() + x.abs().max() * inverse * weight
    of_gradient = inverse * (g * weight).abs().max() * 4
    for one, other, size in ((found, expected, of_output), (a.grad, b.grad, of_gradient)):
        assert ((one.double() - other).abs() <= height * u * size).all()
    for mine, theirs in zip(norm.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert ((mine.grad.double() - theirs.grad).abs() <= height * u * 16 * max(terms, shape[0])).all()


LAYOUTS: dict[str, Map] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.permute(2, 0, 3, 1),
    "every second": lambda x: x[:, :, ::2],
    "expanded": lambda x: x[:, :1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["exp", "sigmoid", *EXACT])
def test_blocks_change_neither_bits_nor_strides(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = EXACT[name][0] if name in EXACT else getattr(torch, name)
    x = LAYOUTS[layout](torch.randn(3, 5, 7, 11) * 4)
    strides = function(x).stride()
    both = []
    for size in (10_000, 100):
        monkeypatch.setattr(row, "BLOCK", size)
        given = x.detach().requires_grad_()
        with same_bits():
            result = function(given)
            result.backward(torch.ones_like(result))
        assert result.stride() == strides
        both.append((result.detach().numpy().tobytes(), given.grad.numpy().tobytes()))  # type: ignore[union-attr]
    assert both[0] == both[1]
