"""Gradients under torch.nn.grad's names are autograd's of any layer, on integers bit for bit; no layer is refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from convgrad.errors import ConvgradError, InvalidAttributeError, InvalidDataTypeError, InvalidShapeError  # noqa: E402
from convgrad.torch import conv2d, conv_transpose2d, grad  # noqa: E402

CALLS = 6


def layers(*quick: str) -> pytest.MarkDecorator:
    """Parametrize by all layers: the quick tier runs those that are named, the long one the others."""
    every = [(f"conv{kind}{axes}d", axes) for kind, axes in product(("", "_transpose"), (1, 2, 3))]
    cases = [pytest.param(*layer, marks=[pytest.mark.long] * (layer[0] not in quick)) for layer in every]
    return pytest.mark.parametrize(("name", "axes"), cases)


def integers(rng: np.random.Generator, *shape: int) -> Any:
    return torch.from_numpy(rng.integers(-3, 4, shape).astype(np.float32))


def drawn(name: str, axes: int, rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Return an input and a weight, the attributes of a layer's gradients, and what its forward takes besides."""
    groups, inner, outer, batch = rng.integers(1, 4, 4).tolist()
    kernel, stride, dilation = (rng.integers(1, 4, axes).tolist() for _ in range(3))
    axes_of = list(zip(kernel, dilation, strict=True))
    # Of a transposed layer less padding, so that something is left.
    padding = [int(rng.integers(d * (k - 1) // (1 + (name != f"conv{axes}d")) + 1)) for k, d in axes_of]
    layer = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    rest: dict[str, Any] = {}
    extents = [int(rng.integers(d * (k - 1) + 1, 12)) for k, d in zip(kernel, dilation, strict=True)]
    weight = integers(rng, groups * outer, inner, *kernel)
    channels = groups * inner
    if "transpose" in name:
        rest = {"output_padding": [int(rng.integers(max(s, d))) for s, d in zip(stride, dilation, strict=True)]}
        channels = groups * outer
    return integers(rng, batch, channels, *extents), weight, layer, rest


@layers("conv2d", "conv_transpose1d")
def test_they_are_autograd_s_of_random_layers(name: str, axes: int) -> None:
    rng = np.random.default_rng([16, axes, len(name)])
    for _ in range(CALLS):
        given, weight, layer, rest = drawn(name, axes, rng)
        given.requires_grad_(), weight.requires_grad_()
        output = getattr(functional, name)(given, weight, None, **layer, **rest)
        grad_output = integers(rng, *output.shape)
        expected = torch.autograd.grad(output, [given, weight], grad_output)
        by_input = getattr(grad, f"{name}_input")(given.shape, weight.detach(), grad_output, **layer)
        by_weight = getattr(grad, f"{name}_weight")(given.detach(), weight.shape, grad_output, **layer)
        assert torch.equal(by_input, expected[0]), (given.shape, weight.shape, layer, rest)
        assert torch.equal(by_weight, expected[1]), (given.shape, weight.shape, layer, rest)


@pytest.mark.parametrize("name", [n for n in vars(torch.nn.grad) if n.startswith("conv")])
def test_names_and_arguments_are_torch_nn_grad_s(name: str) -> None:
    def arguments(module: Any) -> list[tuple[str, Any]]:
        return [(p.name, p.default) for p in inspect.signature(getattr(module, name)).parameters.values()]

    assert arguments(grad) == arguments(torch.nn.grad)
    assert arguments(grad) == [
        (n.name, n.default)
        for n in inspect.signature(getattr(grad, name.replace("conv", "conv_transpose"))).parameters.values()
    ]


@layers("conv1d", "conv_transpose2d")
def test_they_have_derivatives(name: str, axes: int) -> None:
    rng = np.random.default_rng(3)
    given, weight, layer, rest = drawn(name, axes, rng)
    output = getattr(functional, name)(given, weight, None, **layer, **rest)
    grad_output = integers(rng, *output.shape)
    first = [tensor.clone().requires_grad_() for tensor in (given, weight, grad_output)]
    other = [tensor.clone().requires_grad_() for tensor in (given, weight, grad_output)]
    made = [
        getattr(grad, f"{name}_input")(given.shape, first[1], first[2], **layer),
        getattr(grad, f"{name}_weight")(first[0], weight.shape, first[2], **layer),
    ]
    output = getattr(functional, name)(other[0], other[1], None, **layer, **rest)
    expected = torch.autograd.grad(output, other[:2], other[2], create_graph=True)
    for one, another in zip(made, expected, strict=True):
        cotangent = integers(rng, *one.shape)
        got = torch.autograd.grad(one, first, cotangent, allow_unused=True)
        wanted = torch.autograd.grad(another, other, cotangent, allow_unused=True, retain_graph=True)
        for x, y in zip(got, wanted, strict=True):
            assert (x is None and (y is None or not y.any())) or torch.equal(x, y)


def test_channels_that_are_neighbours_stay_so() -> None:
    given = torch.ones(2, 4, 5, 5).to(memory_format=torch.channels_last)
    weight, grad_output = torch.ones(6, 4, 3, 3), torch.ones(2, 6, 3, 3).to(memory_format=torch.channels_last)
    made = grad.conv2d_input(given.shape, weight, grad_output)
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(made, grad.conv2d_input(given.shape, weight, grad_output.contiguous()))


ONE = torch.ones
REFUSED = {
    "input_size is too large": (
        InvalidShapeError, "conv1d_input", ((1, 1, 6), ONE(1, 1, 2), ONE(1, 1, 2), 2),
        "on spatial axis 0 input_size .* legal extents: 4, 5 .G6",
    ),
    "channels of no group": (
        InvalidShapeError, "conv1d_input", ((1, 3, 3), ONE(2, 2, 2), ONE(1, 2, 2), 1, 0, 1, 2), "input_size channels",
    ),
    "batches differ": (
        InvalidShapeError, "conv1d_weight", (ONE(2, 1, 3), (1, 1, 2), ONE(3, 1, 2)), "input and grad_output .* batch",
    ),
    "weight_size is too small": (
        InvalidShapeError, "conv1d_weight", (ONE(1, 1, 4), (1, 1, 2), ONE(1, 1, 2)), "grad_output .* that fit: 3",
    ),
    "weight_size is too large": (
        InvalidShapeError, "conv1d_weight", (ONE(1, 1, 4), (1, 1, 9), ONE(1, 1, 2)),
        r"\. Twice the padding that fits: 6\. Kernels that fit: 3",
    ),
    "an axis too many": (
        InvalidShapeError, "conv1d_input", ((1, 1, 3, 3), ONE(1, 1, 2, 2), ONE(1, 1, 2, 2)), "stride .* 2 here",
    ),
    "no such input": (
        InvalidShapeError, "conv_transpose1d_input", ((1, 1, 3), ONE(1, 1, 2), ONE(1, 1, 5), 2),
        "grad_output .* legal extents: 6, 7",
    ),
    "no such channels": (
        InvalidShapeError, "conv_transpose1d_input", ((1, 3, 2), ONE(2, 4, 2), ONE(1, 4, 3)),
        r"input_size channels must be weight channels = 2; got 3 and weight \(2, 4, 2\) .G4",
    ),
    "no such output": (
        InvalidShapeError, "conv_transpose1d_weight", (ONE(1, 1, 2), (1, 1, 2), ONE(1, 1, 6), 2),
        "grad_output .* legal extents: 4, 5",
    ),
    "types differ": (
        InvalidDataTypeError, "conv1d_input", ((1, 1, 3), ONE(1, 1, 2).double(), ONE(1, 1, 2)),
        "got weight torch.float64, grad_output torch.float32 .T2",
    ),
    "an array": (
        InvalidDataTypeError, "conv1d_weight", (ONE(1, 1, 3), (1, 1, 2), ONE(1).numpy()), "grad_output .* ndarray",
    ),
    "a word": (
        InvalidAttributeError, "conv1d_input", ((1, 1, 3), ONE(1, 1, 2), ONE(1, 1, 2), 1, "same"), "padding must be",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_layer_is_refused(what: str) -> None:
    error, name, arguments, words = REFUSED[what]
    with pytest.raises(error, match=f"^{name}: .*{words}"):
        getattr(grad, name)(*arguments)


def calls_with(argument: str, value: Any) -> Iterator[Callable[[], Any]]:
    """Yield a call of each function of two axes with one argument that no layer can have."""
    large, kernel, small = torch.ones(1, 1, 5, 5), torch.ones(1, 1, 3, 3), torch.ones(1, 1, 3, 3)
    given = {argument: value}
    yield lambda: conv2d(large, kernel, **given)
    yield lambda: conv_transpose2d(small, kernel, **given)
    if argument != "activation":
        yield lambda: grad.conv2d_input(large.shape, kernel, small, **given)
        yield lambda: grad.conv2d_weight(large, kernel.shape, small, **given)
        yield lambda: grad.conv_transpose2d_input(small.shape, kernel, large, **given)
        yield lambda: grad.conv_transpose2d_weight(small, kernel.shape, large, **given)


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        *[(name, empty, r"one value per spatial axis, 2 here") for name in ("stride", "padding", "dilation")
          for empty in ([], ())],
        *[("groups", value, "groups must be an integer") for value in (None, [1], {}, np.ones(1, int), 1.0, "1", True)],
        *[("activation", value, "activation must be") for value in (["relu"], {}, 1, True)],
    ],
)  # fmt: skip
def test_arguments_that_no_layer_has_are_refused(argument: str, value: Any, words: str) -> None:
    for call in calls_with(argument, value):
        with pytest.raises(ConvgradError, match=words):
            call()
