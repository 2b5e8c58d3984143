"""A model made reproducible is what it was, but for who computes its convolutions; what is left out is named."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from itertools import permutations
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

import convgrad.torch  # noqa: E402
from convgrad.errors import InvalidDataTypeError  # noqa: E402
from convgrad.torch.modules import is_reproducible  # noqa: E402
from convgrad.torch.varying import VARIES_WITH  # noqa: E402
from tests.torch.layers import bits, integers  # noqa: E402

SIZES = {1: (11,), 2: (9, 7), 3: (6, 5, 7)}
KINDS = {  # by PyTorch's class: attributes of 4 channels in, 6 out
    "Conv1d": [
        {"kernel_size": 3},
        {"kernel_size": 4, "padding": "same", "dilation": 2},
        {"kernel_size": 2, "padding": "valid", "groups": 2, "bias": False},
        {"kernel_size": 3, "padding": 2, "padding_mode": "circular"},
    ],
    "Conv2d": [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (3, 2), "stride": (1, 3), "padding": (0, 2), "dilation": (2, 1), "groups": 2},
        {"kernel_size": 4, "padding": "same", "padding_mode": "reflect"},
        {"kernel_size": 3, "padding": (1, 2), "padding_mode": "replicate", "stride": 2},
    ],
    "Conv3d": [{"kernel_size": 2, "stride": 2, "padding": 1}, {"kernel_size": 3, "padding": "same"}],
    "ConvTranspose1d": [
        {"kernel_size": 4, "stride": 3, "output_padding": 2},
        {"kernel_size": 2, "dilation": 3, "output_padding": 2},
    ],
    "ConvTranspose2d": [
        {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1, "groups": 2, "output_padding": (1, 0)},
        {"kernel_size": 3, "bias": False},
    ],
    "ConvTranspose3d": [{"kernel_size": 2, "stride": 2}],
}
LONG = {"Conv1d-2", "Conv2d-3", "Conv3d-1", "ConvTranspose1d-1"}  # each compiles kernels of its own
CASES = [
    pytest.param(name, attributes, id=f"{name}-{number}", marks=[pytest.mark.long] * (f"{name}-{number}" in LONG))
    for name, several in KINDS.items()
    for number, attributes in enumerate(several)
]


def filled(module: Any) -> Any:
    """Give a module's parameters integers, so that all sums are exact and any right result has the same bits."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=seed))
    return module


def passes(module: Any, *shape: int, **options: Any) -> list[Any]:
    """Return a module's output, and the gradients by its input and parameters."""
    module.zero_grad()
    given = integers(*shape, seed=9).requires_grad_()
    output = module(given, **options)
    output.backward(integers(*output.shape, seed=10))
    return [output.detach(), given.grad, *(parameter.grad.clone() for parameter in module.parameters())]


def same(ones: list[Any], others: list[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.every(2)
@pytest.mark.parametrize(("name", "attributes"), CASES)
def test_every_layer_computes_what_it_did(name: str, attributes: dict[str, Any]) -> None:
    layer = filled(getattr(nn, name)(4, 6, **attributes))
    extents = SIZES[int(name[-2])]
    expected = passes(layer, 2, 4, *extents), passes(layer, 4, *extents)
    assert convgrad.torch.reproducible(layer) is layer
    assert is_reproducible(layer)
    assert same(passes(layer, 2, 4, *extents), expected[0])
    assert same(passes(layer, 4, *extents), expected[1])  # without a batch


def test_an_output_size_is_told_as_before() -> None:
    layer = filled(nn.ConvTranspose2d(4, 6, 3, stride=3, padding=1))
    expected = passes(layer, 2, 4, 5, 5, output_size=[14, 15])
    assert expected[0].shape[2:] == (14, 15)
    assert same(passes(convgrad.torch.reproducible(layer), 2, 4, 5, 5, output_size=[14, 15]), expected)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.long)])
def test_the_bits_are_the_library_s(dtype: str) -> None:
    torch.manual_seed(0)
    layer = convgrad.torch.reproducible(nn.Conv2d(40, 20, 3, stride=2, padding=1, dtype=getattr(torch, dtype)))
    given = torch.randn(3, 40, 19, 19, dtype=layer.weight.dtype, requires_grad=True)
    output = layer(given)
    cotangent = torch.randn_like(output)
    output.backward(cotangent)
    src, weights, diff_dst = given.detach(), layer.weight.detach(), cotangent
    same_layer = {"strides": 2, "pads_begin": 1, "pads_end": 1, "data_format": "NCX", "weights_format": "OIX"}
    for got, expected in (
        (output.detach(), convgrad.convolution(src, weights, layer.bias.detach(), **same_layer)),
        (given.grad, convgrad.convolution_backward_data(diff_dst, weights, tuple(src.shape), **same_layer)),
        (layer.weight.grad, convgrad.convolution_backward_weights(src, diff_dst, tuple(weights.shape), **same_layer)),
        (layer.bias.grad, convgrad.bias_add_backward(diff_dst, data_format="NCX")),
    ):
        assert bits(got) == bits(expected)


class Model(nn.Module):
    """A convolution under two names, one in a list, and what is none."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.again = self.first
        self.inner = nn.ModuleList([nn.ConvTranspose2d(4, 4, 2), nn.BatchNorm2d(4), nn.ReLU()])
        self.last = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        x = self.again(self.first(x))
        for layer in self.inner:
            x = layer(x)
        return self.last(x.mean((2, 3)))


def classes(model: Any) -> list[str]:
    return [type(module).__name__ for module in model.modules()]


def test_a_model_stays_what_it_is_and_has_a_way_back() -> None:
    model = Model()
    before = [(name, id(one)) for name, one in (*model.named_modules(), *model.named_parameters())]
    hashed, names = convgrad.torch.fingerprint(model), classes(model)
    called = []
    model.first.register_forward_hook(lambda *_: called.append("hook"))
    assert convgrad.torch.reproducible(convgrad.torch.reproducible(model)) is model
    assert [(name, id(one)) for name, one in (*model.named_modules(), *model.named_parameters())] == before
    assert convgrad.torch.fingerprint(model) == hashed
    assert classes(model) == [f"Reproducible{name}" if name.startswith("Conv") else name for name in names]
    assert isinstance(model.first, nn.Conv2d)
    model(torch.zeros(2, 4, 5, 5))
    assert called == ["hook"] * 2
    convgrad.torch.original(model)
    assert classes(model) == names
    assert type(model.first) is nn.Conv2d


def pickled(model: Any) -> Any:
    return pickle.loads(pickle.dumps(model))


def saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickled, saved])
def test_copies_are_reproducible_too(copied: Any) -> None:
    model = convgrad.torch.reproducible(Model().eval())
    other = copied(model)
    assert classes(other) == classes(model)
    assert convgrad.torch.fingerprint(other) == convgrad.torch.fingerprint(model)
    assert torch.equal(other(torch.ones(1, 4, 5, 5)), model(torch.ones(1, 4, 5, 5)))
    assert type(convgrad.torch.original(other).first) is nn.Conv2d


class Named(nn.Conv2d):
    """A convolution with attributes of its own, but not a forward."""


class Remade(nn.Conv2d):
    """A convolution that says how it is pickled: by a call, with or without a state."""

    def __init__(self, *channels: int, has_state: bool = False) -> None:
        super().__init__(*channels)
        self.has_state = has_state

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = type(self), (self.in_channels, self.out_channels, *self.kernel_size[:1])
        return (*arguments, vars(self)) if self.has_state else arguments


class RemadeByProtocol(Remade):
    """A convolution that does so for each protocol."""

    __reduce__ = object.__reduce__

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Remade.__reduce__(self)


class Tagged(nn.Conv2d):
    """A convolution that cannot be made without an argument."""

    def __new__(cls, *arguments: Any, tag: str) -> Any:
        made = super().__new__(cls)
        vars(made)["tag"] = tag
        return made

    def __init__(self, *channels: int, tag: str) -> None:
        super().__init__(*channels)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, str]]:
        return (), {"tag": self.tag}


class Doubled(nn.Module):
    def forward(self, weight: Any) -> Any:
        return 2 * weight


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled, saved])
@pytest.mark.parametrize("has_state", [False, True])
@pytest.mark.parametrize("kind", [Remade, RemadeByProtocol])
def test_a_subclass_that_says_how_it_is_pickled(kind: Any, has_state: bool, copied: Any) -> None:
    layer, x = kind(4, 6, 3, has_state=has_state), torch.ones(1, 4, 5, 5)
    other = copied(convgrad.torch.reproducible(layer, max_error=8))
    assert is_reproducible(other)
    assert other.convgrad_max_error == 8
    assert other(x).shape == (1, 6, 3, 3)
    assert torch.equal(other(x), layer(x)) == has_state
    assert type(convgrad.torch.original(other)) is kind


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_subclass_that_is_made_with_an_argument(protocol: int) -> None:
    layer = convgrad.torch.reproducible(Tagged(4, 6, 3, tag="first"))
    other = pickle.loads(pickle.dumps(layer, protocol))
    assert other.tag == "first"
    assert convgrad.torch.fingerprint(other) == convgrad.torch.fingerprint(layer)


def test_a_subclass_without_a_forward_of_its_own_is_a_convolution() -> None:
    layer = filled(Named(4, 6, 3))
    expected = passes(layer, 2, 4, 5, 5)
    assert same(passes(convgrad.torch.reproducible(layer), 2, 4, 5, 5), expected)
    assert is_reproducible(pickled(layer))
    assert type(convgrad.torch.original(pickled(layer))) is Named


@pytest.mark.parametrize("first", [True, False])
def test_parametrizations_are_kept_and_removed(first: bool) -> None:
    layer = filled(nn.Conv2d(4, 6, 3))
    expected = passes(parametrize.register_parametrization(copy.deepcopy(layer), "weight", Doubled()), 2, 4, 5, 5)
    if first:
        convgrad.torch.reproducible(layer)
    parametrize.register_parametrization(layer, "weight", Doubled())
    other = copy.deepcopy(layer)
    convgrad.torch.reproducible(layer)
    assert is_reproducible(layer)
    assert is_reproducible(other) is first  # its class was the same: it is not changed with it
    assert same(passes(layer, 2, 4, 5, 5), expected)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer).__name__ == "ReproducibleConv2d"
    assert type(convgrad.torch.original(layer)) is nn.Conv2d


def test_no_weight_is_computed_on_the_way() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 6, 3))  # whose buffers change whenever it is
    before = convgrad.torch.fingerprint(layer)
    convgrad.torch.report(convgrad.torch.original(convgrad.torch.reproducible(layer)))
    assert convgrad.torch.fingerprint(layer) == before


@pytest.mark.parametrize(
    "seen_by",
    [
        *(pytest.param(slow, marks=pytest.mark.long) for slow in ("compile", "torchscript")),
        *("fx", "functional_call", "autocast"),
    ],
)
def test_what_pytorch_makes_of_models_it_makes_of_this_one(seen_by: str) -> None:
    model = convgrad.torch.reproducible(Model().eval())
    given = torch.ones(2, 4, 5, 5)
    expected = model(given)
    if seen_by == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            assert model.first(given).dtype == torch.bfloat16
    elif seen_by == "functional_call":
        twice = {name: 2 * parameter for name, parameter in model.named_parameters() if name.startswith("first")}
        got = torch.func.functional_call(model.first, {name[6:]: p for name, p in twice.items()}, (given,))
        assert torch.equal(got, 2 * model.first(given))
    elif seen_by == "torchscript":  # whose tracer says that sizes become constants
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(torch.jit.trace(model, given)(2 * given), model(2 * given))
    elif seen_by == "compile":
        assert torch.equal(torch.compile(model, fullgraph=True, backend="eager")(given), expected)
    else:
        traced = torch.fx.symbolic_trace(model)
        assert torch.equal(traced(given), expected)
        assert [is_reproducible(module) for module in traced.modules()].count(True) == 2


@pytest.mark.parametrize("function", ["reproducible", "original", "report"])
def test_what_is_no_model_is_refused(function: str) -> None:
    with pytest.raises(InvalidDataTypeError, match=f"^{function}: model must be a torch.nn.Module; got type$"):
        getattr(convgrad.torch, function)(nn.Conv2d)


def test_a_lazy_layer_is_a_convolution_once_it_was_called() -> None:
    layer = nn.LazyConv2d(6, 3)
    layer(torch.zeros(1, 4, 5, 5))
    assert is_reproducible(convgrad.torch.reproducible(layer))


def test_the_report_names_every_module() -> None:
    class Unknown(nn.Module):
        pass

    model = nn.Sequential(convgrad.torch.reproducible(Model()), nn.Conv1d(1, 1, 1), Unknown(), nn.LayerNorm(3))
    report = convgrad.torch.report(model)
    assert report.reproducible == {"0.first": "ReproducibleConv2d", "0.inner.0": "ReproducibleConvTranspose2d"}
    assert report.left_out == {"1": "a Conv1d: reproducible(model) was not called since it was added"}
    assert report.varying == {
        name: (kind, VARIES_WITH[kind])
        for name, kind in {"0.inner.1": "BatchNorm2d", "0.last": "Linear", "3": "LayerNorm"}.items()
    }
    assert report.steady == {"0.inner.2": "ReLU"}
    assert report.unknown == {"2": "Unknown"}
    lines = str(report).splitlines()
    assert lines[0] == "layers of convgrad, with the same bits on any threads and instruction set: 2"
    for words in ("added: 1 module (1)", "1 module (0.last)", "Unknown: 1 module (2)", "ReLU: 1 module (0.inner.2)"):
        assert sum(words in line for line in lines) == 1, words


def test_the_report_sees_types_that_changed() -> None:
    model = convgrad.torch.reproducible(Model()).double()
    report = convgrad.torch.report(model)
    assert report.reproducible == {}
    kernels = "there are kernels for f32, bf16, f16, f8_e4m3, f8_e5m2, complex64"
    assert report.left_out["first"] == f"a ReproducibleConv2d of torch.float64: {kernels}"


def test_a_measured_class_with_another_forward_is_unknown() -> None:
    class Other(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x

    class Same(nn.Linear):
        pass

    report = convgrad.torch.report(nn.ModuleList([Other(1, 1), Same(1, 1)]))
    assert (list(report.unknown), list(report.varying)) == (["0"], ["1"])


class Mixed:
    """A class that a library mixes into a module's class, as fully_shard does."""


def mixed(layer: Any) -> None:
    layer.__class__ = type(f"Mixed{type(layer).__name__}", (Mixed, type(layer)), {})


CHANGES: dict[str, Any] = {
    "mixed": mixed,
    "parametrized": lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
    "reproducible": convgrad.torch.reproducible,
}


@pytest.mark.parametrize("changes", list(permutations(CHANGES)))
def test_classes_that_are_derived_from_a_layers_class(changes: tuple[str, ...]) -> None:
    layer = filled(nn.Conv2d(4, 6, 3))
    expected = passes(CHANGES["parametrized"](copy.deepcopy(layer)), 2, 4, 5, 5)
    for change in changes:
        CHANGES[change](layer)
    assert is_reproducible(layer)
    for module in (layer, convgrad.torch.original(layer)):
        assert same(passes(module, 2, 4, 5, 5), expected)
        assert isinstance(module, Mixed)
    assert not is_reproducible(layer)
