"""A layer of which somebody replaced a method, in any place, is left to that method, and named."""

from __future__ import annotations

import functools
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.modules import conv  # noqa: E402
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd  # noqa: E402

import convgrad.torch as ct  # noqa: E402
from convgrad.torch.kernels import timed  # noqa: E402

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(2, 3, 2), (1, 2, 4)),
    "Conv2d": (lambda: nn.Conv2d(2, 3, 2), (1, 2, 4, 4)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 3, 3, 3)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(2, 3, 2), (1, 2, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2), (1, 2, 4, 4)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (1, 2, 3, 3, 3)),
    "Linear": (lambda: nn.Linear(4, 3), (2, 4)),
}


def changed(function: Any) -> Any:
    """Return a function that doubles what a method returns, and calls itself as the method."""

    @functools.wraps(function)
    def doubled(*args: Any, **words: Any) -> Any:
        return function(*args, **words) * 2

    return doubled


def code_of(function: Any) -> Any:
    """Return a function with the name and the file of another, but with other code."""
    source = f"def {function.__name__}(self, *args, **words):\n    return args[0]\n"
    names: dict[str, Any] = {}
    exec(compile(source, function.__code__.co_filename, "exec"), names)
    made = functools.wraps(function)(names[function.__name__])
    made.__code__ = made.__code__.replace(co_qualname=function.__qualname__)
    return made


PLACES = [(kind, getattr(nn, kind), "forward") for kind in LAYERS]
PLACES += [(kind, getattr(nn, kind), "_conv_forward") for kind in ("Conv1d", "Conv2d", "Conv3d")]
PLACES += [(kind, nn.Module, name) for kind in LAYERS for name in ("__call__", "_wrapped_call_impl", "_call_impl")]
PLACES += [("Conv2d", _ConvNd, "__call__"), ("ConvTranspose2d", _ConvTransposeNd, "_call_impl")]
PLACES += [("ConvTranspose2d", nn.ConvTranspose2d, "_output_padding"), ("Linear", nn.Linear, "__call__")]


def left_out(layer: Any, reason: str) -> None:
    kind = type(layer)
    with pytest.warns(UserWarning, match=f"PyTorch still computes 0, a {kind.__name__}, whose {reason}: call"):
        ct.reproducible(nn.Sequential(layer), linear=True)
    assert type(layer) is kind


@pytest.mark.parametrize("change", [changed, code_of])
@pytest.mark.parametrize(("kind", "owner", "method"), PLACES, ids=lambda value: getattr(value, "__name__", value))
def test_a_method_replaced_in_a_class_of_torch(
    kind: str, owner: type, method: str, change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, change(getattr(owner, method)))
    left_out(LAYERS[kind][0](), rf"{owner.__name__}\.{method} was replaced")


def test_a_method_of_another_class_or_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of PyTorch's in the wrong place, or with other globals, and code that was changed in place."""
    forward = nn.Conv2d._conv_forward
    other = types.FunctionType(forward.__code__, {**vars(conv), "F": None})
    for method in (nn.Conv1d._conv_forward, other, functools.partialmethod(forward)):
        with monkeypatch.context() as patch:
            patch.setattr(nn.Conv2d, "_conv_forward", method)
            left_out(nn.Conv2d(1, 1, 1), r"Conv2d\._conv_forward was replaced")
    with monkeypatch.context() as patch:
        patch.setattr(forward, "__code__", changed(forward).__code__.replace(co_freevars=()))
        left_out(nn.Conv2d(1, 1, 1), r"Conv2d\._conv_forward was replaced")


@pytest.mark.parametrize("kind", LAYERS)
def test_a_function_replaced_in_torch_nn_functional(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "linear" if kind == "Linear" else f"conv{'_transpose' * ('Transpose' in kind)}{kind[-2:]}"
    function = getattr(nn.functional, name)
    monkeypatch.setattr(nn.functional, name, changed(function))
    left_out(LAYERS[kind][0](), rf"function torch\.nn\.functional\.{name} was replaced")
    monkeypatch.setattr(nn.functional, name, getattr(ct, name))
    layer, shape = LAYERS[kind]
    assert served(layer(), torch.ones(shape))


@pytest.mark.parametrize("kind", LAYERS)
def test_a_method_replaced_in_a_layer_or_its_class(kind: str) -> None:
    make, _ = LAYERS[kind]
    for method in ("forward", *["_conv_forward"] * kind.startswith("Conv") * ("Trans" not in kind), "_call_impl"):
        layer = make()
        setattr(layer, method, changed(getattr(layer, method)))
        left_out(layer, f"{method} is its own")
    for derived in ("before", "after"):
        mixin = type("Mixin", (), {"forward": lambda self, x: x})
        bases = (mixin, getattr(nn, kind)) if derived == "before" else (type("Base", (getattr(nn, kind),), {}),)
        layer = make()
        layer.__class__ = type("Own", bases, {} if derived == "before" else {"forward": lambda self, x: x})
        left_out(layer, "forward is its own")


def served(layer: Any, given: Any) -> bool:
    """Return whether convgrad computes a layer, with PyTorch's shape."""
    shape = layer(given).shape
    ct.reproducible(layer, linear=True)
    with timed() as calls:
        return layer(given).shape == shape and len(calls) == 1


def method_of(base: type, name: str) -> Callable[..., Any]:
    """Return a method that only calls the method of a base class."""

    def method(self: Any, *args: Any) -> Any:
        return getattr(base, name)(self, *args)

    return method


@pytest.mark.parametrize("kind", LAYERS)
def test_what_only_surrounds_the_computation_stays(kind: str) -> None:
    """Hooks, parametrizations, subclasses without a forward, and a __call__ around the layer's own."""
    make, shape = LAYERS[kind]
    hooked, normed, weighted, derived = make(), make(), make(), make()
    hooked.register_forward_hook(lambda layer, given, result: result + 1)
    nn.utils.parametrizations.weight_norm(normed)
    nn.utils.parametrize.register_parametrization(weighted, "weight", nn.Identity())
    base = getattr(nn, kind)
    around = {name: method_of(base, name) for name in ("__call__", "_output_padding")}
    derived.__class__ = type("Derived", (type("Mixin", (), {}), base), around)
    for layer in (hooked, normed, weighted, derived):
        assert served(layer, torch.ones(shape))


def test_a_patch_after_reproducible_gives_the_layer_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ct.reproducible(nn.Sequential(nn.Conv2d(1, 1, 1)))
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", changed(nn.Conv2d._conv_forward))
    with pytest.warns(UserWarning, match=r"still computes 0, a Conv2d, whose Conv2d._conv_forward was replaced"):
        ct.reproducible(model)
    assert type(model[0]) is nn.Conv2d


PROGRAM = """if True:
    import warnings, torch
    plain = torch.nn.Conv2d
    {patch}
    import convgrad.torch as ct
    model, x = torch.nn.Sequential(plain(1, 1, 1), torch.nn.Conv2d(1, 1, 1)), torch.ones(1, 1, 2, 2)
    before = model(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(ct.reproducible(model)(x), before)
    print(*[warning.message for warning in caught], type(model[0]).__name__)
"""
HINT = "call convgrad.torch's functions in it"
BEFORE_IMPORT = {
    "torch.nn.Conv2d._conv_forward = lambda self, x, weight, bias: x * 3": (
        f"0, a Conv2d, whose Conv2d._conv_forward was replaced: {HINT}; 1, a Conv2d, whose"
    ),
    "torch.nn.Conv2d = type('Conv2d', (plain,), {'forward': lambda self, x: x * 3})": (
        f"1, a Conv2d, whose forward is its own: {HINT} ReproducibleConv2d"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("patch", BEFORE_IMPORT)
def test_a_patch_before_the_import_of_convgrad(patch: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(patch=patch)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert f"PyTorch still computes {BEFORE_IMPORT[patch]}" in done.stdout
