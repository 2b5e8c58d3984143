"""Layers that ATen has as one operator: the bits of the operators that PyTorch makes them of, for all options."""

from __future__ import annotations

import copy
import warnings
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from convgrad.torch import same_bits
from convgrad.torch.training.cells import Direction
from tests.training.digests import digest

pytestmark = [
    pytest.mark.usefixtures("installed"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]
T, N, INPUTS, HIDDEN = 5, 3, 4, 6
MODES = {mode.__name__: mode for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode)}
LSTM = [
    dict(zip(("num_layers", "bias", "batch_first", "bidirectional", "proj_size"), values, strict=True))
    for values in product((1, 2), (True, False), (True, False), (True, False), (0, 2))
]


def lstm(options: dict[str, Any], dtype: torch.dtype = torch.float32) -> tuple[nn.LSTM, torch.Tensor]:
    torch.manual_seed(0)
    shape = (N, T, INPUTS) if options["batch_first"] else (T, N, INPUTS)
    return nn.LSTM(INPUTS, HIDDEN, **options).to(dtype), torch.randn(shape, dtype=dtype, requires_grad=True)


def step(layer: nn.LSTM | nn.GRU, x: torch.Tensor, *start: torch.Tensor) -> list[torch.Tensor]:
    """Return the results of a layer and all gradients of their weighted sum."""
    output, states = layer(x, *start)
    results = [output, states] if isinstance(states, torch.Tensor) else [output, *states]
    loss = (output * output).sum() + sum((number * state).sum() for number, state in enumerate(results[1:], 1))
    return [*results, *torch.autograd.grad(loss, [x, *start, *layer.parameters()])]


def without_onednn(layer: nn.LSTM, x: torch.Tensor) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about Intel's GPUs
        with torch.backends.mkldnn.flags(enabled=False):
            return step(layer, x)


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", LSTM, ids=str)
def test_lstm_has_the_bits_of_its_operators(options: dict[str, Any], dtype: torch.dtype) -> None:
    layer, x = lstm(options, dtype)
    with same_bits():
        found, expected = step(layer, x), without_onednn(layer, x)
    names = ["output", "h", "c", "x", *[name for name, _ in layer.named_parameters()]]
    for name, ours, theirs in zip(names, found, expected, strict=True):
        if "_hh" not in name or dtype != torch.float32 or options["proj_size"]:  # else all steps are one product
            assert digest([ours]) == digest([theirs]), name


@pytest.mark.every(3)
@pytest.mark.parametrize("options", LSTM, ids=str)
def test_lstm_is_that_of_pytorch(options: dict[str, Any]) -> None:
    layer, x = lstm(options)
    with same_bits():
        found = step(layer, x)
    exact = step(copy.deepcopy(layer).double(), x.detach().double().requires_grad_())
    plain = step(layer, x)
    for ours, theirs, value in zip(found, plain, exact, strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
        torch.testing.assert_close(ours.double(), value, rtol=1e-4, atol=1e-4)


GRU = [options for options in LSTM if not options["proj_size"]]


def gru(options: dict[str, Any], dtype: torch.dtype = torch.float32) -> tuple[nn.GRU, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    shape = (N, T, INPUTS) if options["batch_first"] else (T, N, INPUTS)
    layer = nn.GRU(INPUTS, HIDDEN, **{key: value for key, value in options.items() if key != "proj_size"}).to(dtype)
    states = options["num_layers"] * (2 if options["bidirectional"] else 1)
    x, start = (torch.randn(extents, dtype=dtype, requires_grad=True) for extents in (shape, (states, N, HIDDEN)))
    return layer, x, start


@pytest.mark.every(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("options", GRU, ids=str)
def test_gru_has_the_bits_of_its_operators(options: dict[str, Any], dtype: torch.dtype) -> None:
    """For packed sequences, PyTorch calls one operator after another."""
    layer, x, start = gru(options, dtype)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.full((N,), T), batch_first=layer.batch_first)
    with same_bits():
        output, hidden, _, of_start, *_ = step(layer, x, start)
        by_operators, last = layer(packed, start)
        (expected,) = torch.autograd.grad((by_operators.data**2).sum() + last.sum(), [start])
    output = output.transpose(0, 1) if layer.batch_first else output
    assert digest([output.flatten(0, 1), hidden]) == digest([by_operators.data, last])
    if options["num_layers"] == 1:  # between layers, the gradients of steps are added in another order
        assert digest(of_start) == digest(expected)


@pytest.mark.every(3)
@pytest.mark.parametrize("options", GRU, ids=str)
def test_gru_is_that_of_pytorch(options: dict[str, Any]) -> None:
    layer, x, start = gru(options)
    with same_bits():
        found = step(layer, x, start)
    wide = [value.detach().double().requires_grad_() for value in (x, start)]
    exact = step(copy.deepcopy(layer).double(), *wide)
    plain = step(layer, x, start)
    for ours, theirs, value in zip(found, plain, exact, strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
        torch.testing.assert_close(ours.double(), value, rtol=1e-4, atol=1e-4)


CELLS = [*product(("LSTM", "GRU"), (1, 2, T), (0, 1, N), (True, False), (True, False))]


@pytest.mark.every(3)
@pytest.mark.parametrize(("kind", "length", "batch", "bias", "reverse"), CELLS)
def test_a_direction_has_the_bits_of_its_operators(
    kind: str, length: int, batch: int, bias: bool, reverse: bool
) -> None:
    """The gradients of weight and bias are a matrix product and a sum of the gradients of all steps."""
    gates, states = {"LSTM": (4, 2), "GRU": (3, 1)}[kind]
    torch.manual_seed(0)
    shapes = [(length, batch, gates * HIDDEN), (gates * HIDDEN, HIDDEN), (gates * HIDDEN,), *[(batch, HIDDEN)] * states]
    of_input, weight, added, *start = [torch.randn(shape, requires_grad=True) for shape in shapes]
    direction = Direction(of_input, weight, added if bias else None, reverse, tuple(start))
    factors = [torch.randn(length, batch, HIDDEN), *[torch.randn(batch, HIDDEN) for _ in start]]

    def results(outputs: torch.Tensor, last: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """Return the values, and the gradients of input, states, weight and bias."""
        loss = sum((factor * value).sum() for factor, value in zip(factors, (outputs, *last), strict=True))
        inputs = [of_input, *start, weight, *[added] * bias]
        return [outputs, *last, *torch.autograd.grad(loss, inputs)]

    with same_bits():
        found, expected = results(*direction.computed()), results(*direction.by_operators())
        same = 2 * (states + 1)  # without weight and bias
        assert digest(found[:same]) == digest(expected[:same])
        for ours, theirs in zip(found[same:], expected[same:], strict=True):
            torch.testing.assert_close(ours, theirs)
        if kind == "LSTM":  # the products of the input and of h have the same gradients
            flat, before = found[states + 1].flatten(0, 1), (start[0][None], found[0][:-1])
            h = torch.cat((found[0][1:], start[0][None]) if reverse else before).flatten(0, 1)
            assert digest(found[same:]) == digest([flat.t() @ h, *[flat.sum(0)] * bias])


@pytest.mark.parametrize("train", [True, False])
def test_gru_drops_outputs_between_layers_while_it_trains(train: bool) -> None:
    layer, x = nn.GRU(INPUTS, HIDDEN, 2, dropout=0.5).train(train), torch.randn(T, N, INPUTS)
    with same_bits():
        assert torch.equal(layer(x)[0], layer(x)[0]) == (not train)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_second_gradients_of_recurrent_layers(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    layer, x = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS, requires_grad=True)

    def second(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        (first,) = torch.autograd.grad((model(x)[0] ** 2).sum(), x, create_graph=True)
        (result,) = torch.autograd.grad((first**2).sum(), x)
        return result

    with same_bits():
        found = second(layer, x)
    exact = second(copy.deepcopy(layer).double(), x.detach().double().requires_grad_())
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def carried(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the output of a layer whose first states and input depend on its weights."""
    output, states = layer(x)
    return layer(x + output.mean(), states)[0].square().sum()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gradients_with_a_graph_are_those_without(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    layer, x, calls = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS, requires_grad=True), list[int]()
    layer.weight_hh_l0.register_hook(lambda gradient: calls.append(1))
    inputs = [x, *layer.parameters()]
    with same_bits():
        found = torch.autograd.grad(carried(layer, x), inputs, create_graph=True)
        expected = torch.autograd.grad(carried(layer, x), inputs)
    assert len(calls) == 2
    for with_graph, without in zip(found, expected, strict=True):
        torch.testing.assert_close(with_graph, without)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_batches_of_gradients_and_changed_outputs(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    layer, x = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS)
    with same_bits():
        found, expected = (
            torch.autograd.functional.jacobian(lambda values: layer(values)[0].sum((1, 2)), x, vectorize=vectorize)
            for vectorize in (True, False)
        )
        torch.testing.assert_close(found, expected)
        output, _ = layer(x)
        (changed,) = torch.autograd.grad(output.relu_().sum(), layer.weight_hh_l0)
        output, _ = layer(x)
        (kept,) = torch.autograd.grad(output.relu().sum(), layer.weight_hh_l0)
    assert digest(changed) == digest(kept)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_bias_of_one_element_is_repeated(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    layer, x = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS)
    layer.bias_hh_l0 = nn.Parameter(torch.ones(1))
    with same_bits():
        (gradient,) = torch.autograd.grad(layer(x)[0].sum(), layer.bias_hh_l0)
        layer.bias_hh_l0 = nn.Parameter(torch.ones(len(layer.weight_hh_l0)))
        (expected,) = torch.autograd.grad(layer(x)[0].sum(), layer.bias_hh_l0)
    torch.testing.assert_close(gradient, expected.sum(0, keepdim=True))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_in_forward_mode_and_tracing(kind: type[nn.LSTM | nn.GRU]) -> None:
    torch.manual_seed(0)
    layer, x = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS)

    def run(values: torch.Tensor) -> torch.Tensor:
        return layer(values)[0].square().sum()

    with same_bits():
        expected = run(x)
        value, slope = torch.func.jvp(run, (x,), (torch.ones_like(x),))
        gradient = torch.func.grad(run)(x)
        traced = make_fx(run)(x)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert layer(mode.from_tensor(x))[0].shape == (T, N, HIDDEN)
    assert torch.equal(value, expected)
    torch.testing.assert_close(slope, gradient.sum())
    assert "recurrence" not in traced.code
    torch.testing.assert_close(traced(x), expected)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(nn.LSTM, torch.bfloat16), (nn.GRU, torch.bfloat16), (nn.GRU, torch.float16)]
)
def test_recurrent_layers_in_autocast(kind: type[nn.LSTM | nn.GRU], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer, x = kind(INPUTS, HIDDEN), torch.randn(T, N, INPUTS)
    with torch.autocast("cpu", dtype=dtype):
        plain = layer(x)[0]
        with same_bits():
            found = layer(x)[0]
    assert found.dtype == plain.dtype
    torch.testing.assert_close(found, plain, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "start", "count", "match"),
    [
        ((T, N, INPUTS), (1, N, HIDDEN), 3, "incorrect number of RNN parameters"),
        ((N, INPUTS), (1, N, HIDDEN), 4, None),
        ((0, N, INPUTS), (1, N, HIDDEN), 4, "sequence length to be larger than 0"),
    ],
)
def test_arguments_of_gru_are_refused_as_by_pytorch(shape: Any, start: Any, count: int, match: str | None) -> None:
    weights = [torch.ones(3 * HIDDEN, INPUTS), torch.ones(3 * HIDDEN, HIDDEN), *[torch.ones(3 * HIDDEN)] * 2][:count]
    arguments = torch.ones(shape), torch.ones(start), weights, True, 1, 0.0, True, False, False
    with pytest.raises((RuntimeError, IndexError), match=match) as theirs:
        torch.gru(*arguments)
    with same_bits(), pytest.raises(type(theirs.value), match=match):
        torch.gru(*arguments)


def test_a_gradient_of_lstm_after_the_block() -> None:
    layer, x = lstm(LSTM[0])
    with same_bits():
        output, _ = layer(x)
    (output * output).sum().backward()
    assert x.grad is not None
    exact = x.detach().double().requires_grad_()
    (copy.deepcopy(layer).double()(exact)[0] ** 2).sum().backward()
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=1e-4, atol=1e-4)


def test_lstm_without_gradients_has_the_same_bits() -> None:
    layer, x = lstm(LSTM[0])
    with same_bits():
        expected = digest(list(layer(x)[0]))
        for mode in MODES.values():
            with mode():
                assert digest(list(layer(x)[0])) == expected


def test_packed_sequences_and_initial_values() -> None:
    layer, x = lstm(LSTM[0])
    start = torch.randn(2, N, HIDDEN), torch.randn(2, N, HIDDEN)  # of both directions
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 2]), batch_first=LSTM[0]["batch_first"])
    exact = copy.deepcopy(layer).double()
    for given in (x, packed):
        with same_bits():
            found, (_, cell) = layer(given, start)
        wide = given.double() if isinstance(given, torch.Tensor) else given.to(torch.float64)
        expected, (_, wide_cell) = exact(wide, tuple(value.double() for value in start))
        if not isinstance(given, torch.Tensor):
            found, expected = found.data, expected.data
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(cell.double(), wide_cell, rtol=1e-5, atol=1e-5)


ENCODERS = [
    dict(zip(("norm_first", "activation", "batch_first"), values, strict=True))
    for values in product((True, False), ("relu", "gelu"), (True, False))
]
PADDING = torch.tensor([[False] * T, [False] * (T - 2) + [True] * 2, [False] * (T - 1) + [True]])
MASKS: dict[str, dict[str, Any]] = {
    "no mask": {},
    "causal": {"mask": nn.Transformer.generate_square_subsequent_mask(T), "is_causal": True},
    "bools": {"mask": torch.ones(T, T, dtype=torch.bool).triu(1)},
    "padding": {"src_key_padding_mask": PADDING},
    "both": {"mask": torch.ones(T, T, dtype=torch.bool).triu(1), "src_key_padding_mask": PADDING},
}


@pytest.mark.every(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("options", ENCODERS, ids=str)
def test_encoders_have_the_same_bits_with_and_without_gradients(options: dict[str, Any], masks: str) -> None:
    """Without gradients, PyTorch calls an operator for the whole layer; with them, one for each part."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, **options)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn((N, T, 8) if options["batch_first"] else (T, N, 8))
    with same_bits():
        expected = model(x.clone().requires_grad_(), **MASKS[masks])
        for mode in MODES.values():
            with mode():
                assert torch.equal(model(x, **MASKS[masks]), expected)
    exact = copy.deepcopy(model).double().train(False)
    exact.requires_grad_(True)
    kinds = {key: value.double() if value is not PADDING and torch.is_tensor(value) and value.is_floating_point()
             else value for key, value in MASKS[masks].items()}  # fmt: skip
    torch.testing.assert_close(expected.double(), exact(x.double().requires_grad_(), **kinds), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": PADDING}, {"attn_mask": MASKS["bools"]["mask"]}], ids=str)
def test_attention_of_heads_has_the_same_bits_without_gradients(
    masks: dict[str, Any], average: bool, weights: bool
) -> None:
    torch.manual_seed(0)
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(N, T, 8)
    options = {"need_weights": weights, "average_attn_weights": average, **masks}
    with same_bits():
        expected = layer(x, x, x, **options)
        with torch.no_grad():
            found = layer(x, x, x, **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


SHARED = {
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x, x, x) + x,
    "tensordot": lambda x: torch.tensordot(x, x, 4),
    "tensordot of two axes": lambda x: torch.tensordot(x, x, ([0, 1], [0, 1])),
    "inner": lambda x: torch.inner(x[0, 0, :, 0], x[0, 0, :, 0]),
    "inner in vmap": lambda x: torch.func.vmap(lambda y: torch.inner(y, y))(x[0, 0].T),
    "linear": lambda x: nn.functional.linear(x, x[0, 0], x[0, 0, :, 0]) + x.sum(-1, keepdim=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SHARED)
def test_strides_change_neither_values_nor_gradients(name: str, dtype: torch.dtype) -> None:
    """Autograd adds the gradients of a shared tensor in the order of the nodes, which copies must not change."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 10, 8, dtype=dtype)
    found = set()
    for axis in (1, 3):
        moved = x.transpose(axis, -1).clone(memory_format=torch.contiguous_format).transpose(axis, -1)
        moved.requires_grad_()
        with same_bits():
            y = SHARED[name](moved)
            found.add(digest([y, *torch.autograd.grad((y * y).sum(), moved)]))
    assert len(found) == 1
