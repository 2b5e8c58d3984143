"""Linear layers as convolutions with one tap: PyTorch's values, the library's bits, on any threads."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import convgrad  # noqa: E402
import convgrad.torch as ct  # noqa: E402
from convgrad.torch.modules import is_reproducible  # noqa: E402
from tests.torch.layers import array_of, bits, integers  # noqa: E402

F = torch.nn.functional
LEADING = [(), (5,), (3, 4), (2, 3, 2), (0,), (0, 4), (3, 0)]


def passes(function: Any, *operands: Any) -> list[Any]:
    """Return a result and its gradients by all operands."""
    given = [t.detach().clone().requires_grad_() for t in operands]
    result = function(*given)
    return [result.detach(), *torch.autograd.grad(result, given, integers(*result.shape, seed=7))]


SHAPES = [(leading, 6, 5, bias) for leading in LEADING for bias in (True, False)]
SHAPES += [((2, 3), 1, 3, False), ((2, 3), 3, 1, False)]


@pytest.mark.parametrize(("leading", "inputs", "outputs", "bias"), SHAPES, ids=str)
def test_integers_are_those_of_pytorch(leading: tuple[int, ...], inputs: int, outputs: int, bias: bool) -> None:
    operands = [integers(*leading, inputs), integers(outputs, inputs, seed=1), *[integers(outputs, seed=2)] * bias]
    for ours, theirs in zip(passes(ct.linear, *operands), passes(F.linear, *operands), strict=True):
        assert torch.equal(ours, theirs)
        assert ours.is_contiguous()


def test_the_bits_are_those_of_a_convolution() -> None:
    x, w, b, v = torch.randn(6, 5, 40), torch.randn(24, 40), torch.randn(24), torch.randn(6, 5, 24)
    given = [t.requires_grad_() for t in (x, w, b)]
    result = ct.linear(*given)
    found = torch.autograd.grad(result, given, v)
    src, weights, bias, diff_dst = (array_of(t) for t in (x, w[..., None], b, v))
    layer: dict[str, Any] = {"weights_format": "OIX"}
    gradients = convgrad.convolution_backward(src, diff_dst, weights, **layer)
    assert bits(result) == bits(convgrad.convolution(src, weights, bias, **layer))
    assert [bits(one) for one in found] == [bits(gradients.src), bits(gradients.weights), bits(gradients.bias)]


def test_second_derivatives() -> None:
    operands = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 4), (5, 4), (5,))]
    assert torch.autograd.gradgradcheck(ct.linear, operands)


@pytest.mark.parametrize(
    ("input", "weight", "words"),
    [
        ((2, 3), (4, 3, 1), r"linear: weight must have two axes, \(O, C\); got \(4, 3, 1\) \[G1\]"),
        ((2, 5), (4, 3), r"linear: input must have 3 features on its last axis; got \(2, 5\) \[G4\]"),
        ((), (4, 3), r"linear: input must have 3 features on its last axis; got \(\) \[G4\]"),
    ],
)
def test_shapes_of_no_layer_are_refused(input: tuple[int, ...], weight: tuple[int, ...], words: str) -> None:
    with pytest.raises(convgrad.InvalidShapeError, match=words):
        ct.linear(torch.ones(input), torch.ones(weight))


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(convgrad.InvalidDataTypeError, match="linear: weight must be a PyTorch tensor; got list"):
        ct.linear(torch.ones(2, 3), [[1.0]])


@pytest.mark.parametrize("threads", [2, 3])
def test_a_model_s_bits_on_any_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own linear layer varies with its threads at these sizes."""
    torch.manual_seed(0)
    model = ct.reproducible(nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)), linear=True)
    given = torch.randn(64, 512, requires_grad=True)

    def step() -> list[bytes]:
        result = model(given)
        return [bits(t) for t in (result, *torch.autograd.grad(result.square().sum(), [given, *model.parameters()]))]

    before = torch.get_num_threads()
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", str(threads))
    try:
        torch.set_num_threads(threads)
        found = step()
        monkeypatch.setenv("CONVGRAD_NUM_THREADS", "1")
        torch.set_num_threads(1)
        assert step() == found
    finally:
        torch.set_num_threads(before)


class Scaled(nn.Linear):
    def forward(self, x: Any) -> Any:
        return 2 * super().forward(x)


def test_linear_layers_are_computed_if_asked_for() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.Linear(5, 4))
    plain = copy.deepcopy(model)
    assert not is_reproducible(ct.reproducible(model)[1])
    words = "ReproducibleLinear(in_features=5, out_features=4, bias=True)"
    assert repr(ct.reproducible(model, linear=True)[1]) == words
    assert isinstance(model[1], nn.Linear)
    report = ct.report(model)
    assert report.reproducible == {"0": "ReproducibleConv1d", "1": "ReproducibleLinear"}
    assert report.varying == report.left_out == {}
    assert is_reproducible(copy.deepcopy(model)[1])
    assert type(ct.original(model)[1]) is nn.Linear
    assert [type(module) for module in model] == [type(module) for module in plain]


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_linear_layers_left_out_are_named() -> None:
    attention = nn.MultiheadAttention(4, 2)
    left = nn.ModuleList([Scaled(2, 2), nn.Linear(2, 2).double(), nn.LazyLinear(2), attention])
    with pytest.warns(UserWarning, match="^reproducible: PyTorch still computes 0, a Scaled") as caught:
        ct.reproducible(left, linear=True)
    (warning,) = caught
    for words in (
        "0, a Scaled, whose forward is its own",
        "1, a Linear of torch.float64",
        "2, a LazyLinear, whose shape",
        "3.out_proj, a NonDynamicallyQuantizableLinear, whose weights MultiheadAttention reads",
    ):
        assert words in str(warning.message)
    assert not any(map(is_reproducible, left.modules()))


@pytest.mark.parametrize("leading", [pytest.param(each, marks=pytest.mark.long) for each in LEADING[:4]], ids=str)
@pytest.mark.parametrize("dynamic", [True, False])
def test_compiled_and_exported(leading: tuple[int, ...], dynamic: bool) -> None:
    torch._dynamo.reset()
    layer = ct.reproducible(nn.Linear(6, 5), linear=True)
    given = integers(*leading, 6)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for ours, expected in zip(passes(compiled, given), passes(layer, given), strict=True):
        assert bits(ours) == bits(expected)
    assert bits(torch.export.export(layer, (given,)).module()(given)) == bits(layer(given))


def test_autocast_and_vmap() -> None:
    operands = integers(3, 4, 6), integers(5, 6, seed=1), integers(5, seed=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = ct.linear(*operands), F.linear(*operands)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(ours, theirs)
    mapped = torch.func.vmap(ct.linear, in_dims=(0, None, None))(*operands)
    assert bits(mapped) == bits(ct.linear(*operands))
