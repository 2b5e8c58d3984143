"""Activations are within their stated errors, also in their tails; infinities are as in f64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from convgrad.spec.elementwise.table import MAPS
from convgrad.torch import same_bits

pytestmark = pytest.mark.usefixtures("installed")
Map = Callable[[torch.Tensor], torch.Tensor]
SCALE = 2 * math.sqrt(2 / math.pi)
NUMBERS = torch.cat([
    torch.linspace(-100, 100, 20_001), torch.logspace(-40, 2, 2_001), -torch.logspace(-40, 2, 2_001),
    torch.tensor([0.0, -0.0, 1e-45, -1e-45]),
])  # fmt: skip


def _by_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _gated(x: torch.Tensor) -> torch.Tensor:
    return F.glu(torch.stack([x, x]), 0)


# PyTorch's GELU loses all digits in its tail, in f64 too, so its results are not the exact ones.
EXACT: dict[str, tuple[Map, Map]] = {
    "erf": (torch.erf, torch.erf),
    "expm1": (torch.expm1, torch.expm1),
    "silu": (F.silu, F.silu),
    "gelu": (F.gelu, lambda x: x * 0.5 * torch.erfc(-x * math.sqrt(0.5))),
    "gelu by tanh": (_by_tanh, lambda x: x * torch.sigmoid(SCALE * (x + 0.044715 * x**3))),
    "mish": (F.mish, F.mish),
    "glu": (_gated, _gated),
    "softshrink": (F.softshrink, F.softshrink),
    "elu": (F.elu, F.elu),
    "selu": (F.selu, F.selu),
    "celu": (lambda x: F.celu(x, 0.75), lambda x: F.celu(x, 0.75)),
    "softplus": (lambda x: F.softplus(x, 2, 10), lambda x: F.softplus(x, 2, 10)),
}


_GLU = torch.where(NUMBERS > -85, 3.5, 3.5 + NUMBERS.abs())  # sigmoid of the gate may be subnormal
LIMITS: dict[str, float | torch.Tensor] = {name: MAPS[name].ulps or 3 for name in EXACT if name in MAPS}
LIMITS |= {"gelu by tanh": MAPS["gelu_tanh"].ulps, "glu": _GLU}


def assert_near(found: torch.Tensor, exact: torch.Tensor, limit: float | torch.Tensor) -> None:
    """Assert that f32 numbers are within ``limit`` units in the last place of numbers in f64."""
    finite = torch.isfinite(found) & torch.isfinite(exact)
    ulp = torch.ldexp(torch.ones_like(exact), torch.frexp(exact.abs()).exponent - 24).clamp(min=2.0**-149)
    assert ((found.double() - exact).abs() <= limit * ulp)[finite].all()
    assert torch.equal(torch.isfinite(found), torch.isfinite(exact.float()))


@pytest.mark.parametrize("name", EXACT)
def test_results_are_within_their_errors(name: str) -> None:
    function, exact = EXACT[name]
    with same_bits():
        found = function(NUMBERS)
    assert_near(found, exact(NUMBERS.double()), LIMITS.get(name, 3))


@pytest.mark.parametrize(
    "name", ["silu", "mish", "glu", "softshrink", "gelu", "gelu by tanh", "elu", "selu", "celu", "softplus"]
)
def test_gradients_are_within_their_errors(name: str) -> None:
    function, exact = EXACT[name]
    x, y = NUMBERS.clone().requires_grad_(), NUMBERS.double().requires_grad_()
    with same_bits():
        found = function(x)
        found.backward(torch.ones_like(found))
    expected = exact(y)
    expected.backward(torch.ones_like(expected))
    assert x.grad is not None
    assert y.grad is not None
    assert ((x.grad - y.grad).abs() <= 5 * 2.0**-24).all()
    if name in ("elu", "selu", "celu", "softplus"):
        steepness = 2 * NUMBERS.abs() / 0.75 if name == "celu" else 0.0  # the rounding of 1/alpha, in an exponent
        assert_near(x.grad, y.grad, 5 + steepness)


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
    u = 2.0**-24
    rows = x.double().reshape((-1, math.prod(norm.normalized_shape)) if kind == "layer" else (shape[0], groups, -1))
    inverse = (rows.var(-1, unbiased=False) + 1e-5).rsqrt().max()
    weight = norm.weight.detach().abs().max()
    of_gradient = inverse * (g * weight).abs().max() * 4
    for one, other, size in (
        (found, expected, expected.detach().abs().max() + weight * 4),
        (a.grad, b.grad, of_gradient),
    ):
        assert ((one.double() - other).abs() <= 6 * u * size).all()
    for mine, theirs in zip(norm.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert ((mine.grad.double() - theirs.grad).abs() <= 6 * u * g.abs().max() * x.numel()).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["layer", "group", "batch"])
def test_gradients_of_norms_in_16_bits(norm: str, dtype: torch.dtype) -> None:
    """Their error is that of one rounding to 16 bits, although the mean is much larger than the deviation."""
    torch.manual_seed(0)
    x, g, weight = (torch.randn(4, 8, 64) + 30).to(dtype), torch.randn(4, 8, 64).to(dtype), torch.rand(8).to(dtype)
    calls: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "layer": lambda x, w: F.layer_norm(x.mT, (8,), w).mT,
        "group": lambda x, w: F.group_norm(x, 2, w),
        "batch": lambda x, w: F.batch_norm(x, None, None, w, training=True),
    }

    def gradients(to: torch.dtype) -> tuple[torch.Tensor, ...]:
        learnt = [one.to(to, copy=True).requires_grad_() for one in (x, weight)]
        return torch.autograd.grad(calls[norm](*learnt), learnt, g.to(to))

    with same_bits():
        found = gradients(dtype)
    exact = gradients(torch.float64)
    for one, other in zip(found, exact, strict=True):
        assert ((one.double() - other).norm() <= torch.finfo(dtype).eps / 2 * other.norm()).all()


LAYOUTS: dict[str, Map] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.permute(2, 0, 3, 1),
    "every second": lambda x: x[:, :, ::2],
    "expanded": lambda x: x[:, :1].expand(x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["exp", "sigmoid", *EXACT])
def test_layouts_change_no_bits_and_keep_strides(name: str, layout: str) -> None:
    function = EXACT[name][0] if name in EXACT else getattr(torch, name)
    x = LAYOUTS[layout](torch.randn(3, 5, 7, 11) * 4)
    both = []
    for start in (x, x.contiguous()):
        given = start.detach().requires_grad_()
        with same_bits():
            result = function(given)
            result.backward(torch.ones_like(result))
        assert result.stride() == function(start).stride()
        assert given.grad is not None
        both.append((result.detach(), given.grad))
    for one, other in zip(*both, strict=True):
        assert torch.equal(one, other)
