"""Layers without input channels sum nothing: the result is PyTorch's. Refusals are RuntimeErrors, as PyTorch's are."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import convgrad
from convgrad import errors

torch = pytest.importorskip("torch")
nn = torch.nn

import convgrad.torch as ct  # noqa: E402
from convgrad.torch.errors import runtime_error  # noqa: E402

WORDS = ({}, {"padding": "same"}, {"stride": 2, "padding": 1, "dilation": 2}, {"groups": 3})


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("leading", [(2, 0), (0,), (0, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_convolutions_without_input_channels(axes: int, leading: tuple[int, ...], dtype: Any) -> None:
    given = [torch.zeros(*leading, *[5] * axes), torch.zeros(3, 0, *[3] * axes), torch.ones(3)]
    for words in WORDS:
        found = []
        for module in (ct, nn.functional):
            tensors = [one.to(dtype).requires_grad_() for one in given]
            result = getattr(module, f"conv{axes}d")(*tensors, **words)
            result.abs().sum().backward()
            found.append([(one.shape, one.dtype, one.tolist()) for one in (result, *(t.grad for t in tensors))])
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("input", "weight"), [((2, 0), (3, 0)), ((2, 3), (0, 3)), ((2, 4, 0), (3, 0)), ((0, 0), (1, 0))]
)
@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers_without_features(input: tuple[int, ...], weight: tuple[int, ...], bias: bool) -> None:
    given = [torch.zeros(input), torch.zeros(weight), *[torch.ones(weight[:1])] * bias]
    assert ct.linear(*given).tolist() == nn.functional.linear(*given).tolist()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_input_channels() -> None:
    layer, x = ct.reproducible(nn.Conv2d(0, 3, 3)), torch.zeros(2, 0, 5, 5)
    assert layer(x).shape == ct.original(layer)(x).shape


def test_gradients_without_input_channels() -> None:
    x, weight, v = torch.zeros(2, 0, 5, 5), torch.zeros(3, 0, 3, 3), torch.ones(2, 3, 3, 3)
    assert ct.grad.conv2d_input(x.shape, weight, v).shape == x.shape
    assert ct.grad.conv2d_weight(x, weight.shape, v).shape == weight.shape


X, W = torch.ones(1, 2, 4, 4), torch.ones(3, 2, 2, 2)
REFUSED: dict[str, tuple[Any, type[Exception]]] = {
    "shape": (lambda: ct.conv2d(X, W[:, :1]), ValueError),
    "attribute": (lambda: ct.conv2d(X, W, stride=0), ValueError),
    "type": (lambda: ct.conv2d(X, W.half()), TypeError),
    "no tensor": (lambda: ct.conv2d(X, 3), TypeError),
    "device": (lambda: ct.conv2d(X, W.to("meta")), NotImplementedError),
    "no channels": (lambda: ct.conv_transpose2d(X[:, :0], W[:0]), ValueError),
    "no outputs": (lambda: ct.conv2d(X, W[:0]), ValueError),
    "linear": (lambda: ct.linear(X, W), ValueError),
    "complex": (lambda: ct.conv2d(X + 0j, W), TypeError),
    "a gradient's shape": (lambda: ct.grad.conv2d_input((1, 2, 4, 4), W, X), ValueError),
    "a gradient's size": (lambda: ct.grad.conv2d_weight(X, (3, 2), X), ValueError),
    "a layer": (lambda: ct.reproducible(nn.Conv2d(2, 1, 1))(X[:, :1]), ValueError),
}


@pytest.mark.parametrize(("call", "kind"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_runtime_errors(call: Any, kind: type[Exception]) -> None:
    """Code that catches PyTorch's errors catches these, and code that catches convgrad's errors still does."""
    with pytest.raises(convgrad.ConvgradError) as caught:
        call()
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert isinstance(error, kind)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


def test_every_error_of_a_rule_has_its_runtime_error() -> None:
    for rule in convgrad.spec.rules.RULES.values():
        error = runtime_error(rule.error("conv2d: words"))
        assert isinstance(error, RuntimeError)
        assert isinstance(error, rule.error)
        assert runtime_error(error) is error
    assert issubclass(errors.UnsupportedError, RuntimeError)
