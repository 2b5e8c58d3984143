"""PyTorch's ExpandedWeights, and hooks as Opacus has them: each sample's gradient is that of a batch of one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
per_sample = pytest.importorskip("torch.nn.utils._per_sample_grad").call_for_per_sample_grads

import convgrad.torch as ct  # noqa: E402
from convgrad.torch.kernels import timed  # noqa: E402
from tests.torch.layers import bits  # noqa: E402

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "1-D": (lambda: nn.Conv1d(2, 4, 3, padding=1), (3, 2, 6)),
    "same": (lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2), (3, 2, 7, 7)),
    "3-D": (lambda: nn.Conv3d(2, 4, 2, stride=2, groups=2), (3, 2, 4, 4, 4)),
    "circular": (lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular", bias=False), (3, 2, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1), (3, 2, 4, 4)),
    "complex": (lambda: nn.Conv2d(2, 4, 3, dtype=torch.complex64), (3, 2, 5, 5)),
    "linear": (lambda: nn.Linear(5, 3), (3, 5)),
    "linear of positions": (lambda: nn.Linear(5, 3, bias=False), (3, 2, 5)),
}


def randoms(*shape: int, like: Any, seed: int = 0) -> Any:
    return torch.randn(*shape, dtype=like.dtype, generator=torch.Generator().manual_seed(seed))


def one_by_one(layer: Any, x: Any, v: Any) -> list[list[Any]]:
    """Return the gradients of each sample's own call, by sample and parameter."""
    samples = zip(x.detach().split(1), v.split(1), strict=True)
    return [list(torch.autograd.grad(layer(one), list(layer.parameters()), cotangent)) for one, cotangent in samples]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_expanded_weights(name: str, reduction: str) -> None:
    make, shape = LAYERS[name]
    layer = ct.reproducible(make(), linear=True)
    x = randoms(*shape, like=layer.weight).requires_grad_()
    plain = layer(x)
    v = randoms(*plain.shape, like=layer.weight, seed=1)
    (of_x,) = torch.autograd.grad(plain, x, v)
    with timed() as calls:
        result = per_sample(layer, loss_reduction=reduction)(x)
        result.backward(v)
    assert calls
    assert bits(result.detach()) == bits(plain.detach())
    assert bits(x.grad) == bits(of_x)
    for sample, gradients in enumerate(one_by_one(layer, x, v)):
        for parameter, gradient in zip(layer.parameters(), gradients, strict=True):
            assert parameter.grad is None
            assert bits(parameter.grad_sample[sample]) == bits(gradient * (3 if reduction == "mean" else 1))


def test_expanded_weights_of_a_model_and_of_functions() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(2, 4, 3), nn.Linear(4, 3)
            self.weight = nn.Parameter(torch.ones(4, 1, 2, 2))

        def forward(self, x: Any) -> Any:
            x = ct.conv2d(self.first(x).relu(), self.weight, stride=2, groups=4)
            return self.last(x.relu().mean((2, 3)))

    torch.manual_seed(0)
    model = ct.reproducible(Model(), linear=True)
    model.first.bias.requires_grad_(False)
    x, v = torch.randn(3, 2, 8, 8), torch.randn(3, 3)
    per_sample(model)(x).backward(v)
    assert not hasattr(model.first.bias, "grad_sample")
    model.first.bias.requires_grad_(True)
    for sample, gradients in enumerate(one_by_one(model, x, v)):
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            if parameter is not model.first.bias:
                assert bits(parameter.grad_sample[sample]) == bits(gradient)
    with torch.no_grad(), timed() as calls:
        for parameter in model.parameters():
            parameter.grad_sample = None
        per_sample(model)(x)
    assert len(calls) == 3


def test_a_batch_axis_behind_and_refusals() -> None:
    layer, x = ct.reproducible(nn.Linear(5, 4), linear=True), torch.randn(2, 3, 5)
    with pytest.raises(RuntimeError, match="must have a batch axis for per-sample gradients"):
        per_sample(ct.reproducible(nn.Conv1d(2, 4, 3)), batch_size=2)(torch.ones(2, 6))
    with pytest.raises(RuntimeError, match="batch size matching input"):
        per_sample(ct.reproducible(nn.Conv1d(2, 4, 3)), batch_size=5)(torch.ones(3, 2, 6))
    impl = pytest.importorskip("torch.nn.utils._expanded_weights.expanded_weights_impl")
    weight = impl.ExpandedWeight(layer.weight, 3, "sum")
    with pytest.raises(RuntimeError, match="mixture of ExpandedWeight"):
        ct.linear(x, weight, layer.bias)
    weight.set_batch_first(False)
    ct.linear(x, weight).sum().backward()
    wanted = [torch.autograd.grad(ct.linear(x[:, n : n + 1], layer.weight).sum(), layer.weight)[0] for n in range(3)]
    assert bits(layer.weight.grad_sample) == bits(torch.stack(wanted))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "complex"])
def test_hooks_as_opacus_has_them(name: str) -> None:
    """Opacus stores each layer's input and the gradient of its output, and its functorch rule maps over samples."""
    make, shape = LAYERS[name]
    layer, stored = ct.reproducible(make(), linear=True), {}
    bare = copy.deepcopy(layer)
    layer.register_forward_hook(lambda _, given, __: stored.update(x=given[0].detach()))
    layer.register_full_backward_hook(lambda _, __, given: stored.update(v=given[0].detach()))
    x = randoms(*shape, like=layer.weight).requires_grad_()
    result = layer(x)
    v = randoms(*result.shape, like=layer.weight, seed=1)
    result.backward(v)
    parameters = dict(layer.named_parameters())

    def product(values: Any, one: Any, cotangent: Any) -> Any:
        return (torch.func.functional_call(bare, values, (one[None],)) * cotangent[None]).sum()

    wanted = one_by_one(bare, x, v)
    each = torch.func.vmap(torch.func.grad(product), (None, 0, 0))(parameters, stored["x"], stored["v"])
    for index, parameter in enumerate(parameters):
        assert bits(each[parameter]) == bits(torch.stack([gradients[index] for gradients in wanted]))
