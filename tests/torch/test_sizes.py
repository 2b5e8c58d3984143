"""Traces at other sizes than they were made for: right results and gradients, or an error."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import convgrad.torch as ct  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402
from tests.torch.layers import integers  # noqa: E402

F = torch.nn.functional
# What PyTorch itself warns of: TorchScript is deprecated, and "same" with even kernels copies the input.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:Using padding='same'", "ignore:The .grad"
)
SIZES = (5, 6, 11)  # traced at the first; with a stride of 2, the first two have dst of one extent


@dataclass(frozen=True)
class Case:
    """A layer as one function of input, weight and bias, for our functions or PyTorch's."""

    transposed: bool
    axes: int
    groups: int
    bias: bool
    words: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        return f"conv{'_transpose' * self.transposed}{self.axes}d"

    def __call__(self, module: Any, *operands: Any) -> Any:
        return getattr(module, self.name)(*operands, groups=self.groups, **dict(self.words))

    def operands(self, size: int, kernel: int = 3) -> list[Any]:
        """Return operands with this extent on the first axis, which the other axes follow at a distance."""
        extents = [size, 4, 3][: self.axes]
        kernels = [kernel, 2, 1][: self.axes]
        shapes = [(2, 4, *extents), (4, 4 // self.groups, *kernels)] + [(4,)] * self.bias
        return [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]

    def __str__(self) -> str:
        words = "-".join(f"{word}={value}" for word, value in self.words)
        return f"{self.name}-g{self.groups}-{'bias' if self.bias else 'none'}-{words}"


def words(**given: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(given.items())


PLAIN = [words(padding=pad) for pad in ("same", "valid", 2)]
PLAIN += [words(stride=2), words(stride=3, padding=1, dilation=2), words(padding="same", dilation=2)]
TRANSPOSED = [words(), words(stride=2, padding=1), words(stride=2, output_padding=1)]
TRANSPOSED += [words(stride=2, dilation=3, output_padding=2), words(stride=3, padding=2, output_padding=2)]
TABLE = [
    Case(transposed, axes, groups, bias, given)
    for transposed, axes, groups, bias in itertools.product((False, True), (1, 2, 3), (1, 2), (True, False))
    for given in (TRANSPOSED if transposed else PLAIN)
]


def result(layer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: (layer(*operands),)


def gradients(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradients of the layer; its last operand is the cotangent."""

    def both(*operands: Any) -> tuple[Any, ...]:
        *given, v = operands
        given = [t.detach().requires_grad_() for t in given]
        return torch.autograd.grad(layer(*given), given, v)

    return both


def tangent(layer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: torch.func.jvp(layer, operands, operands)


def second(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return derivatives of the layer's gradients by input, weight and the cotangent, along the operands."""

    def both(*operands: Any) -> tuple[Any, ...]:
        given = [t.detach().requires_grad_() for t in operands]
        first = torch.autograd.grad(layer(*given[:-1]), given[:-1], given[-1], create_graph=True)
        return tuple(torch.autograd.grad(first, [*given[:2], given[-1]], operands[:-1]))

    return both


def scripted(function: Callable[..., Any], operands: list[Any]) -> Any:
    return torch.jit.trace(function, tuple(operands), check_trace=False)


def fx(mode: str) -> Callable[..., Any]:
    return lambda function, operands: make_fx(function, tracing_mode=mode)(*operands)


def compiled(function: Callable[..., Any], _operands: list[Any]) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=True, fullgraph=True, backend="aot_eager")


TRACED = {"jit": scripted, "fx": fx("real"), "fx fake": fx("fake"), "fx symbolic": fx("symbolic")}
DERIVED = {"result": result, "gradients": gradients, "second": second, "jvp": tangent}
# PyTorch cannot trace torch.autograd.grad by torch.jit.trace, so its traces are differentiated when they are called.
WAYS = [("jit", "result"), ("jit", "later"), *itertools.product([way for way in TRACED if way != "jit"], DERIVED)]


def flat(values: Any) -> list[Any]:
    return [values] if isinstance(values, torch.Tensor) else [one for value in values for one in flat(value)]


def same(found: Any, wanted: Any) -> bool:
    pairs = zip(flat(found), flat(wanted), strict=True)
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def operands_of(case: Case, size: int, kernel: int, wanted: str) -> list[Any]:
    """Return the operands of the layer, and a cotangent if ``wanted`` needs one."""
    operands = case.operands(size, kernel)
    return operands if wanted in ("result", "jvp") else [*operands, integers(*case(F, *operands).shape, seed=7)]


@tiers("way, case", WAYS, TABLE, every=263)
def test_table(way: tuple[str, str], case: Case) -> None:
    """Traced at one size and called at three, also with another kernel: integers, so == to PyTorch's own."""
    kind, wanted = way
    derive = gradients if wanted == "later" else DERIVED[wanted]

    def layer(*operands: Any) -> Any:
        return case(ct, *operands)

    given = operands_of(case, SIZES[0], 3, wanted)
    later = wanted == "later"
    traced = gradients(TRACED[kind](layer, given[:-1])) if later else TRACED[kind](derive(layer), given)
    for size, kernel in zip(SIZES, (3, 3, 4), strict=True):
        operands = operands_of(case, size, kernel, wanted)
        assert same(traced(*operands), derive(lambda *o: case(F, *o))(*operands))


@pytest.mark.long
@pytest.mark.parametrize("wanted", ["result", "gradients"])
@pytest.mark.parametrize("case", TABLE[::5], ids=str)
def test_compiled_with_dynamic_sizes(case: Case, wanted: str) -> None:
    layer = compiled(lambda *operands: case(ct, *operands), [])
    derive = DERIVED[wanted]
    for size, kernel in zip(SIZES, (3, 3, 4), strict=True):
        operands = operands_of(case, size, kernel, wanted)
        assert same(derive(layer)(*operands), derive(lambda *o: case(F, *o))(*operands))


class Model(nn.Module):
    """The layer as a model with parameters."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        _, *parameters = case.operands(SIZES[0])
        self.case, self.parameters_ = case, nn.ParameterList(map(nn.Parameter, parameters))

    def forward(self, x: Any) -> Any:
        return self.case(ct, x, *self.parameters_)


@pytest.mark.long
@pytest.mark.parametrize("case", TABLE[::5], ids=str)
def test_exported_with_dynamic_sizes(case: Case) -> None:
    model = Model(case)
    dims = ({0: torch.export.Dim("images", min=1), 2: torch.export.Dim("extent", min=4, max=64)},)
    exported = torch.export.export(model, tuple(case.operands(SIZES[0])[:1]), dynamic_shapes=dims).module()
    for size in SIZES:
        x = case.operands(size)[0]
        assert same(exported(x), model(x))


# -- layers, and functions of gradients ----------------------------------------------------------------------------


def reproduced(layer: Any) -> tuple[Any, Any]:
    """Return convgrad's copy of a layer of integers, and PyTorch's."""
    with torch.no_grad():
        for parameter in layer.requires_grad_(False).parameters():
            parameter.copy_(integers(*parameter.shape))
    return ct.reproducible(copy.deepcopy(layer), linear=True), layer


Calls = tuple[Callable[..., Any], Callable[..., Any], list[tuple[Any, ...]]]


def layers() -> Iterator[tuple[str, Calls]]:
    """Yield a name, our function, PyTorch's, and operands: those of the trace first."""
    up, up_too = reproduced(nn.ConvTranspose2d(3, 4, 3, 2))
    yield "transposed", (up, up_too, [(integers(2, 3, n, n),) for n in (4, 5, 8)])
    fixed = integers(2, 3, 4, 4)
    yield "output_size", (
        lambda x: up(x, output_size=(10, 10)), lambda x: up_too(x, output_size=[10, 10]), [(fixed,), (-fixed,)]
    )  # fmt: skip
    yield "output_size of a tensor", (
        lambda x, y: up(x, output_size=y.size()[2:]), lambda x, y: up_too(x, output_size=y.size()[2:]),
        [(integers(2, 3, n, n), integers(2, 1, m, m)) for n, m in ((4, 9), (4, 10), (5, 12), (8, 17))],
    )  # fmt: skip
    for rank in (1, 2, 3, 4):
        ours, theirs = reproduced(nn.Linear(6, 5))
        shapes = [(3, 4, 2)[: rank - 1], (2, 5, 2)[: rank - 1], (6, 2, 2)[: rank - 1]]
        yield f"linear of rank {rank}", (ours, theirs, [(integers(*shape, 6),) for shape in shapes])
    yield "padding of a size", (*functions("conv1d", lambda x, w: {"padding": w.shape[-1] // 2}), [
        (integers(2, 3, n), integers(4, 3, k)) for n, k in ((9, 3), (10, 5), (11, 4))
    ])  # fmt: skip
    yield "groups of a size", (*functions("conv1d", lambda x, w: {"groups": x.shape[1]}), [
        (integers(2, c, n), integers(c, 1, 3)) for n, c in ((9, 3), (10, 5), (11, 4))
    ])  # fmt: skip
    yield "output_padding of a size", (
        *functions("conv_transpose1d", lambda x, w, y: {"stride": 2, "output_padding": y.shape[2] - 2 * x.shape[2]}),
        [(integers(2, 3, n), integers(3, 4, 2), integers(1, 1, m)) for n, m in ((4, 9), (4, 8), (5, 11))],
    )  # fmt: skip
    sizes = [(9, 3), (10, 3), (11, 4)]
    given = [(integers(2, 3, n), integers(4, 3, k), integers(2, 4, (n - k) // 2 + 1)) for n, k in sizes]
    own, torchs = ct.grad, torch.nn.grad
    yield "conv1d_input", (
        lambda x, w, v: own.conv1d_input(x.shape, w, v, 2), lambda x, w, v: torchs.conv1d_input(x.shape, w, v, 2), given
    )  # fmt: skip
    yield "conv1d_weight", (
        lambda x, w, v: own.conv1d_weight(x, w.shape, v, 2), lambda x, w, v: torchs.conv1d_weight(x, w.shape, v, 2),
        given,
    )  # fmt: skip
    sizes = [(4, 3, 0), (4, 3, 1), (5, 3, 2), (6, 2, 0)]  # the last is the output_padding
    given = [(integers(2, 3, n), integers(3, 4, k), integers(2, 4, 2 * n + 3 * k - 4 + more)) for n, k, more in sizes]
    yield "conv_transpose1d_input", (
        lambda x, w, v: own.conv_transpose1d_input(x.shape, w, v, 2, 0, 3), lambda *o: transposed_gradients(*o)[0],
        given,
    )  # fmt: skip
    yield "conv_transpose1d_weight", (
        lambda x, w, v: own.conv_transpose1d_weight(x, w.shape, v, 2, 0, 3), lambda *o: transposed_gradients(*o)[1],
        given,
    )  # fmt: skip


def functions(name: str, words_of: Callable[..., dict[str, Any]]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return our function and PyTorch's, with keywords that are computed from the sizes of operands."""
    one, other = (
        lambda *o, module=module: getattr(module, name)(*o[:2], **words_of(*o)) for module in (ct, F)
    )  # fmt: skip
    return one, other


def transposed_gradients(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
    more = v.shape[2] - F.conv_transpose1d(x, w, stride=2, dilation=3).shape[2]
    return gradients(lambda *o: F.conv_transpose1d(*o, stride=2, dilation=3, output_padding=more))(x, w, v)


LAYERS: dict[str, Calls] = dict(layers())


# PyTorch's own _output_padding compares sizes, for its errors.
@pytest.mark.filterwarnings(
    "ignore:Converting a tensor to a Python boolean:torch.jit.TracerWarning:torch.nn.modules.conv"
)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "way", ["jit", pytest.param("fx symbolic", marks=pytest.mark.long), pytest.param("compile", marks=pytest.mark.long)]
)
def test_numbers_that_are_sizes(name: str, way: str) -> None:
    """Sizes that a caller computes from tensors are followed, and without a warning of ours."""
    ours, theirs, calls = LAYERS[name]
    if way == "fx symbolic":
        traced = make_fx(ours, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*calls[0])
    else:
        traced = (compiled if way == "compile" else scripted)(ours, list(calls[0]))
    for operands in calls:
        assert same(traced(*operands), theirs(*operands))


@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize("way", ["jit", "fx", "fx symbolic"])
def test_an_output_size_that_does_not_fit_is_refused(way: str) -> None:
    """A trace with a fixed output_size is right for inputs that can have it, and raises for others."""
    ours, _ = reproduced(nn.ConvTranspose1d(1, 1, 2, 2))
    x = torch.ones(1, 1, 4)
    kind = {"jit": scripted}.get(
        way, lambda f, o: make_fx(f, tracing_mode={"fx": "real"}.get(way, "symbolic"), _allow_non_fake_inputs=True)(*o)
    )
    traced = kind(lambda x: ours(x, output_size=(9,)), [x])
    assert traced(x).shape == (1, 1, 9)
    for extent in (3, 5, 8):
        with pytest.raises((ValueError, RuntimeError), match=r"src must have \d+ to \d+ positions|output_padding must"):
            traced(torch.ones(1, 1, extent))


def test_a_size_beside_a_number_of_numpy() -> None:
    def layer(x: Any) -> Any:
        return ct.conv2d(x, torch.ones(1, 1, 2, 2), padding=(x.shape[-1] // 3, np.int64(1)), stride=np.int32(2))

    x = integers(2, 1, 5, 9)
    assert torch.equal(scripted(layer, [integers(1, 1, 6, 3)])(x), layer(x))


@pytest.mark.parametrize("given", [(3, 1), (2, 3, 4, 1), (1,)])
def test_a_trace_of_another_rank_is_refused(given: tuple[int, ...]) -> None:
    """Also where sizes of 1 would let it pass."""
    layer, _ = reproduced(nn.Linear(1, 5))
    traced = scripted(layer, [torch.ones(3, 4, 1)])
    assert traced(torch.ones(2, 7, 1)).shape == (2, 7, 5)
    with pytest.raises(RuntimeError):
        traced(torch.ones(given))


@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")  # PyTorch compares the cotangent's shape
def test_a_gradient_in_a_trace_has_the_extents_of_its_input() -> None:
    """The cotangent of 5 and of 6 positions has one extent, so only the input tells them."""

    def both(x: Any, w: Any) -> Any:
        return torch.autograd.grad(ct.conv1d(x, w, stride=2).sum(), (x, w))

    w = integers(1, 1, 1).requires_grad_()
    traced = scripted(both, [integers(1, 1, 5).requires_grad_(), w])
    for extent in (6, 5):
        x = integers(1, 1, extent, seed=1).requires_grad_()
        assert same(traced(x, w), both(x, w))
    with pytest.raises(RuntimeError):  # PyTorch has recorded the extent of the sum's gradient
        traced(integers(1, 1, 8).requires_grad_(), w)


@tiers("last, grad", [False, True], [False, True], every=3)
def test_symbols_through_the_dispatcher(last: bool, grad: bool) -> None:
    """A saved trace is loaded and has the results and the memory format of the call that was traced."""
    x = integers(2, 4, 5, 5)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    file = io.BytesIO()
    torch.jit.save(scripted(lambda x, w: ct.conv2d(x, w, padding="same"), [x, integers(4, 4, 3, 3)]), file)
    file.seek(0)
    x, w = integers(1, 4, 7, 6).requires_grad_(grad), integers(4, 4, 3, 2)
    found = torch.jit.load(file)(x, w)
    assert torch.equal(found, F.conv2d(x, w, padding="same"))
    assert found.is_contiguous(memory_format=torch.channels_last) == last
    assert found.requires_grad == grad
