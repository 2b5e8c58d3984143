"""Complex layers are real ones with twice the channels: their bits are these layers', and integers are exact."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.support.tiers import tiers
from tests.torch.layers import LAST, bits

torch = pytest.importorskip("torch")
nn = torch.nn

import convgrad.torch as ct  # noqa: E402
from convgrad.torch import complex_sums  # noqa: E402
from convgrad.torch.kernels import timed  # noqa: E402

CHANNELS = ((2, 3, 1), (4, 6, 2), (3, 3, 3), (1, 1, 1))
LAYERS = ({}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2})


def integers(*shape: int, dtype: Any = torch.complex64) -> Any:
    return torch.complex(*torch.randint(-3, 4, (2, *shape)).double()).to(dtype)


def operands(axes: int, transposed: bool, channels: tuple[int, int, int], taps: int) -> list[Any]:
    torch.manual_seed(0)
    src, dst, groups = channels
    kernel = (src, dst // groups) if transposed else (dst, src // groups)
    return [integers(2, src, *[5] * axes), integers(*kernel, *[taps] * axes), integers(dst)]


def leaves(given: list[Any]) -> list[Any]:
    return [one.detach().clone().requires_grad_() for one in given]


CASES = list(product((1, 2, 3), (False, True), CHANNELS, (1, 3), ("", "last", "lazy"), LAYERS))


@tiers("axes, transposed, channels, taps, form, words", CASES, every=61)
def test_integers_are_exact(
    axes: int, transposed: bool, channels: tuple[int, int, int], taps: int, form: str, words: dict[str, int]
) -> None:
    """Result and gradients are PyTorch's, bit for bit, also where a conjugation or a change of signs is pending."""
    given = operands(axes, transposed, channels, taps)
    if form == "last" and axes > 1:
        given[:2] = [one.to(memory_format=LAST[axes + 2]) for one in given[:2]]
    given = leaves(given)
    name, groups = f"conv{'_transpose' * transposed}{axes}d", channels[2]
    found = []
    for module in (ct, nn.functional):
        x, weight, bias = [torch._neg_view(one.conj()) for one in given] if form == "lazy" else given
        result = getattr(module, name)(x, weight, bias, groups=groups, **words)
        torch.manual_seed(1)
        v = integers(*result.shape)
        found.append((result, *torch.autograd.grad(result, given, v)))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))
    if form == "last" and axes > 1:
        assert found[0][0].is_contiguous(memory_format=LAST[axes + 2])
    if form != "lazy":
        x, weight, v = given[0].detach(), given[1].detach(), v.conj().resolve_conj().conj()
        layer = (words.get(word, other) for word, other in (("stride", 1), ("padding", 0), ("dilation", 1)))
        layer = (*layer, groups)
        assert torch.equal(getattr(ct.grad, f"{name}_input")(x.shape, weight, v, *layer), found[0][1])
        assert torch.equal(getattr(ct.grad, f"{name}_weight")(x, weight.shape, v, *layer), found[0][2])


@pytest.mark.parametrize("transposed", [False, True])
def test_the_bits_are_the_real_layer_s(transposed: bool) -> None:
    """The definition, written out: interleaved channels, and a 2x2 matrix for each weight."""
    rng = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(*shape, dtype=torch.complex64, generator=rng).requires_grad_()
        for shape in ((2, 4, 6, 5), (4, 3, 3, 2), (6,) if transposed else (4,))
    )
    channels = 4, 3
    if not transposed:
        x = x[:, :3].detach().requires_grad_()
    else:
        bias = bias[:3].detach().requires_grad_()
    real = torch.empty(2 * channels[0], 2 * channels[1], 3, 2)
    for a, b in product(range(channels[0]), range(channels[1])):
        w = weight[a, b].detach()
        rows = ((w.real, w.imag), (-w.imag, w.real)) if transposed else ((w.real, -w.imag), (w.imag, w.real))
        for i, j in product((0, 1), (0, 1)):
            real[2 * a + i, 2 * b + j] = rows[i][j]
    parts = torch.stack((x.detach().real, x.detach().imag), 2).flatten(1, 2).requires_grad_()
    vector = torch.stack((bias.detach().real, bias.detach().imag), 1).flatten().requires_grad_()
    real.requires_grad_()
    function = ct.conv_transpose2d if transposed else ct.conv2d
    result, wanted = function(x, weight, bias, padding=1), function(parts, real, vector, padding=1)
    assert bits(result.detach().real) == bits(wanted.detach()[:, ::2])
    assert bits(result.detach().imag) == bits(wanted.detach()[:, 1::2])
    v = torch.randn(*result.shape, dtype=torch.complex64, generator=rng)
    of_x, of_weight, of_bias = torch.autograd.grad(result, (x, weight, bias), v)
    both = torch.stack((v.real, v.imag), 2).flatten(1, 2)
    of_parts, of_real, of_vector = torch.autograd.grad(wanted, (parts, real, vector), both)
    assert bits(of_x.real) == bits(of_parts[:, ::2])
    assert bits(of_x.imag) == bits(of_parts[:, 1::2])
    assert bits(of_bias) == bits(of_vector)
    imag = of_real[::2, 1::2] - of_real[1::2, ::2] if transposed else of_real[1::2, ::2] - of_real[::2, 1::2]
    assert bits(of_weight.real) == bits(of_real[::2, ::2] + of_real[1::2, 1::2])
    assert bits(of_weight.imag) == bits(imag)


def test_linear_and_any_number_of_axes() -> None:
    x, weight, bias = integers(2, 4, 3), integers(5, 3), integers(5)
    assert torch.equal(ct.linear(x, weight, bias), nn.functional.linear(x, weight, bias))
    images, kernel = integers(1, 2, 3, 3, 3, 2), integers(2, 2, 1, 3, 1, 2)
    found = ct.convolution(images, kernel, padding_begin=(0, 1, 0, 1), padding_end=(0, 0, 0, 0))
    parts = [ct.convolution(*map(torch.real, (images, kernel)), padding_begin=(0, 1, 0, 1), padding_end=0)]
    parts += [ct.convolution(*map(torch.imag, (images, kernel)), padding_begin=(0, 1, 0, 1), padding_end=0)]
    assert torch.equal(found.real, parts[0] - parts[1])
    alone = ct.conv2d(integers(2, 4, 4), integers(3, 2, 2, 2))
    assert (alone.shape, alone.dtype) == ((3, 3, 3), torch.complex64)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # what PyTorch loads for tangents
@pytest.mark.parametrize("transposed", [False, True])
def test_derivatives_in_double_precision(transposed: bool) -> None:
    function = ct.conv_transpose2d if transposed else ct.conv2d
    given = [integers(1, 2, 3, 3), integers(2, 1, 2, 2), integers(2)]
    given = leaves([one.to(torch.complex128) for one in given])
    layer = lambda *tensors: function(*tensors, groups=2, stride=2, padding=1)  # noqa: E731
    assert torch.autograd.gradcheck(layer, given, check_forward_ad=True, fast_mode=True)


@pytest.mark.long
@pytest.mark.parametrize("transposed", [False, True])
def test_second_derivatives_in_double_precision(transposed: bool) -> None:
    function = ct.conv_transpose2d if transposed else ct.conv2d
    given = [integers(1, 2, 3, 3), integers(2, 1, 2, 2), integers(2)]
    given = leaves([one.to(torch.complex128) for one in given])
    assert torch.autograd.gradgradcheck(lambda *tensors: function(*tensors, groups=2), given)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_transforms_see_complex_layers() -> None:
    x, weight = integers(3, 2, 2, 4, 4), integers(3, 2, 2, 2)
    each = torch.func.vmap(ct.conv2d, (0, None))(x, weight)
    assert torch.equal(each, torch.stack([nn.functional.conv2d(one, weight) for one in x]))
    tangent = integers(3, 2, 2, 2)
    _, found = torch.func.jvp(lambda w: ct.conv2d(x[0], w), (weight,), (tangent,))
    assert torch.equal(found, nn.functional.conv2d(x[0], tangent))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ct.conv2d(x[0], weight), nn.functional.conv2d(x[0], weight))


@pytest.mark.long
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_compiled_complex_layers(name: str) -> None:
    x, weight = integers(3, 2, 4, 4), integers(2, 2, 2, 2)
    compiled = torch.compile(getattr(ct, name), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, weight), getattr(nn.functional, name)(x, weight))


def test_models_of_complex_layers() -> None:
    words = {"dtype": torch.complex64}
    layers = nn.Conv2d(2, 4, 3, groups=2, **words), nn.ConvTranspose2d(4, 2, 2, **words), nn.Linear(3, 2, **words)
    model = ct.reproducible(nn.Sequential(*layers), linear=True)
    assert len(ct.report(model).reproducible) == 3
    with timed() as calls:
        model(integers(1, 2, 4, 4)).abs().sum().backward()
    assert len(calls) == 3 * 4 - 1  # the first layer's input needs no gradient
    with pytest.warns(UserWarning, match="a Conv1d of torch.complex128: there are kernels for .*, complex64"):
        ct.reproducible(nn.Conv1d(1, 1, 1, dtype=torch.complex128))


REAL = torch.ones(1, 2, 4, 4)
X, W = integers(1, 2, 4, 4), integers(3, 2, 1, 1)
REFUSED: dict[str, tuple[Any, str]] = {
    "channels": (lambda: ct.conv2d(X, integers(3, 4, 1, 1)), "channels must be .* = 4 x 1; got 2 and weight .3, 4, 1"),
    "extents": (lambda: ct.conv2d(X, integers(3, 2, 5, 5)), r"floor\(\(4 \+ 0 - 5\)/1\)"),
    "rank": (lambda: ct.conv2d(X[0, 0], W), r"input must be \(N, C, X...\).*; got \(4, 4\) \[G1\]"),
    "bias": (lambda: ct.conv2d(X, W, integers(2)), r"bias must be .*, 3; got shape \(2,\) \[G11\]"),
    "a real weight": (lambda: ct.conv2d(X, W.real), r"got input torch.complex64, weight torch.float32 \[T2\]"),
    "a real input": (lambda: ct.conv2d(REAL, W), r"one type; got input torch.float32, weight torch.complex64 \[T2\]"),
    "two types": (lambda: ct.conv2d(X, W.to(torch.complex128)), "got input torch.complex64, weight torch.complex128"),
    "half precision": (
        lambda: ct.conv2d(X, W.to(torch.complex32)),
        r"weight must be .*, torch.complex64, torch.complex128; got torch.complex32",
    ),
    "an activation": (lambda: ct.conv2d(X, W, activation="relu"), r"activation must be None for complex tensors; got"),
    "a gradient's rank": (
        lambda: ct.grad.conv2d_weight(X, (3, 2, 1), X),
        r"weight_size must hold 4 .* got \[3, 2, 1\]",
    ),
    "a gradient's channels": (
        lambda: ct.grad.conv2d_input((1, 3, 4, 4), W, X),
        r"input_size channels must be weight channels x groups = 2 x 1; got 3",
    ),
    "a gradient's type": (
        lambda: ct.grad.conv2d_weight(X, W.shape, REAL),
        r"one type; got input .*, grad_output .*32 \[T2\]",
    ),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_name_the_complex_tensors_shapes(call: Any, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        call()


def test_the_definition_is_in_one_place() -> None:
    """``folded`` is the derivative of ``weights``, which autograd computes for layers."""
    for transposed in (False, True):
        weight = integers(2, 3, 2).requires_grad_()
        real = complex_sums.weights(weight, transposed)
        v = torch.randn(real.shape)
        (found,) = torch.autograd.grad(real, weight, v)
        assert bits(found) == bits(complex_sums.folded(v, transposed))
