"""An accuracy belongs to a layer's forward: its gradients take the same, whatever context is open in the backward."""

from __future__ import annotations

import copy
import pickle
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import pytest

from tests.support.engine_helpers import HOST

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad  # noqa: E402
import convgrad.torch as ct  # noqa: E402
from convgrad.torch.kernels import timed  # noqa: E402
from tests.torch.layers import array_of, bits, cotangent  # noqa: E402

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")
X, W = torch.randn(2, 40, 32, 32), torch.randn(50, 40, 3, 3)
V = cotangent(torch.empty(2, 50, 32, 32), 1)


def opened(most: float | None) -> AbstractContextManager[None]:
    return nullcontext() if most is None else convgrad.max_error(most)


def layer(x: Any, w: Any, **given: Any) -> Any:
    return ct.conv2d(x, w, padding=1, **given)


def passes(function: Any, forward: float | None, backward: float | None, **given: Any) -> list[bytes]:
    """Return the bits of a result and its gradients, each pass under a context of its own."""
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    with opened(forward):
        result = function(x, w, **given)
    with opened(backward):
        return [bits(t) for t in (result, *torch.autograd.grad(result, (x, w), V))]


@cache
def expected(most: float | None) -> list[bytes]:
    """Return the bits of passes that all have one accuracy."""
    return passes(layer, most, most)


@pytest.mark.parametrize(
    ("argument", "forward", "backward", "most"),
    [(None, 64, None, 64), (None, None, 64, None), (64, None, None, 64), (64, 1, 1, 64), (1, 64, 64, None)],
)
def test_gradients_follow_their_forward(argument: Any, forward: Any, backward: Any, most: Any) -> None:
    assert all(one != other for one, other in zip(expected(None), expected(64), strict=True))
    assert passes(layer, forward, backward, max_error=argument) == expected(most)


def test_tiles_are_those_of_our_functions() -> None:
    same: dict[str, Any] = {"pads_begin": 1, "pads_end": 1, "data_format": "NCX", "weights_format": "OIX"}
    x, w, v = map(array_of, (X, W, V))
    gradients = convgrad.convolution_backward(x, v, w, **same, max_error=64)
    ours = convgrad.convolution(x, w, **same, max_error=64), gradients.src, gradients.weights
    assert [bits(one) for one in ours] == expected(64)


def test_second_derivatives_follow_the_forward() -> None:
    def second(most: float | None, later: float | None) -> list[bytes]:
        x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
        with opened(most):
            result = layer(x, w)
        with opened(later):
            first = torch.autograd.grad(result, (x, w), V, create_graph=True)
            return [bits(t) for t in (*first, *torch.autograd.grad(first, (x, w), first))]

    assert second(64, None) == second(64, 64) != second(None, 64)
    assert second(None, 64) == second(None, None)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which forward mode itself calls
@pytest.mark.parametrize("transform", ["vjp", pytest.param("jvp", marks=pytest.mark.long)])
def test_transformations_follow_the_forward(transform: str) -> None:
    def found(**given: Any) -> list[bytes]:
        if transform == "jvp":
            return [bits(t) for t in torch.func.jvp(lambda x: layer(x, W, **given), (X,), (X,))]
        result, pullback = torch.func.vjp(lambda x, w: layer(x, w, **given), X, W)
        return [bits(t) for t in (result, *pullback(V))]

    direct, tiles = found(), found(max_error=64)
    assert all(one != other for one, other in zip(direct, tiles, strict=True))
    with convgrad.max_error(64):
        assert found() == tiles
        assert found(max_error=1) == direct


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")  # which inductor itself calls
@pytest.mark.parametrize(
    "backend", ["eager", *(pytest.param(slow, marks=pytest.mark.long) for slow in ("aot_eager", "inductor"))]
)
def test_what_is_compiled_follows_the_context(backend: str) -> None:
    """It is compiled again where another accuracy is in force; threads have contexts of their own."""
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    assert passes(compiled, None, 64) == expected(None)
    assert passes(compiled, 64, None) == expected(64)
    assert passes(compiled, None, None) == expected(None)
    assert passes(compiled, 1, None, max_error=64) == expected(64)
    torch._dynamo.reset()


def convolutions() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(40, 50, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(50, 40, 3, padding=1))


def step(model: Any, forward: float | None = None, backward: float | None = None) -> list[bytes]:
    with opened(forward):
        loss = model(X).square().sum()
    with opened(backward):
        return [bits(t) for t in (loss, *torch.autograd.grad(loss, list(model.parameters())))]


def test_a_model_s_own_beats_the_context() -> None:
    model = ct.reproducible(convolutions())
    direct, tiles = step(model), step(model, 64, 64)
    assert direct != tiles
    assert ct.reproducible(model, max_error=64) is model
    assert step(model) == step(model, 1, 8) == step(ct.reproducible(model)) == tiles
    assert repr(model[0]).endswith("kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), max_error=64)")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert step(other) == tiles
    assert step(ct.reproducible(model, max_error=1), 64, 64) == direct
    plain = ct.original(ct.reproducible(model, max_error=64))
    assert "max_error" not in repr(plain)
    assert step(ct.reproducible(plain)) == direct


def test_layers_have_their_own() -> None:
    model = convolutions()
    ct.reproducible(model[0], max_error=64)
    ct.reproducible(model)
    assert [getattr(layer, "convgrad_max_error", None) for layer in model] == [64, None, None]


@pytest.mark.every(5)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_biases_in_16_bits(dtype: Any, autocast: bool) -> None:
    """Of modules and under autocast, channels last too. Of integers, tiles have the bits of the direct sum."""
    model, x = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1)), torch.randint(-2, 3, (2, 64, 32, 32)).float()
    for one in model.parameters():
        one.data = torch.randint(-2, 3, (*one.shape, 2)).float()[..., 0]  # biases with a stride of 2
    if not autocast:
        model, x = model.to(dtype), x.to(dtype)
    for each in (x, x.to(memory_format=torch.channels_last)):
        with torch.autocast("cpu", dtype, enabled=autocast):
            ct.reproducible(model[0], max_error=1)
            direct = model[0](each)
            ct.reproducible(model[0], max_error=64)
            with timed() as calls:
                tiles = model[0](each)
        assert [(call.problem.algorithm, len(call.problem.operands)) for call in calls] == [("4x4", 3)]
        assert bits(tiles) == bits(direct)
        assert tiles.dtype is dtype


@pytest.mark.parametrize("most", [0, "64", True])
def test_what_is_no_accuracy_is_refused(most: Any) -> None:
    model, words = convolutions(), f"max_error must be a number, 1 at least; got {most!r}"
    with pytest.raises(convgrad.InvalidAttributeError, match=f"^reproducible: {words}"):
        ct.reproducible(model, max_error=most)
    assert type(model[0]) is nn.Conv2d
    with pytest.raises(convgrad.InvalidAttributeError, match=f"^conv2d: {words}"):
        ct.conv2d(X, W, max_error=most)
    with pytest.raises(convgrad.InvalidAttributeError, match=f"^conv_transpose2d: {words}"):
        ct.conv_transpose2d(X, W[:40], max_error=most)


def test_an_exported_program_keeps_it() -> None:
    model = ct.reproducible(convolutions(), max_error=64)
    program = torch.export.export(model, (X,)).module()
    assert bits(program(X)) == bits(model(X)) != bits(ct.original(model)(X))
