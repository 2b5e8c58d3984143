"""The operators on PyTorch's tensors: our functions' bits, PyTorch's values, layouts, types and refusals."""

from __future__ import annotations

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import compress, product
from typing import Any

import pytest

from tests.support.children import HANG_S
from tests.support.engine_helpers import HOST, watched
from tests.support.tiers import tiers

torch = pytest.importorskip("torch")

import convgrad  # noqa: E402
from convgrad.torch import kernels, operators, passes, plain  # noqa: E402
from convgrad.torch.arguments import LayerArguments  # noqa: E402
from convgrad.torch.schema import schema_of  # noqa: E402
from tests.torch.layers import LAST, LAYERS, TYPES, Layer, array_of, bits, cotangent, ct  # noqa: E402

F = torch.nn.functional
NAMED = [name for name, layer in LAYERS.items() if not layer.odd]
BY_RANK = [name for name, layer in LAYERS.items() if layer.axes in (2, 3) and layer.weight[1] > 1]


def run(layer: Layer, operands: list[Any], seed: int = 1, integers: bool = False) -> tuple[Any, ...]:
    """Return a layer's result and its gradients by all operands."""
    result = layer(*operands)
    return result, *torch.autograd.grad(result, operands, cotangent(result, seed, integers))


@tiers("name, fmt", list(LAYERS), list(TYPES), every=29)
def test_bits_are_those_of_our_functions(name: str, fmt: str) -> None:
    layer = LAYERS[name]
    operands = layer.operands(TYPES[fmt], 0, grad=True)
    result, *found = run(layer, operands)
    expected, gradients = layer.ours(*operands)
    assert bits(result) == bits(expected)
    for got, own in zip(found, gradients(array_of(cotangent(result, 1))), strict=True):
        assert bits(got) == bits(own)
    assert {t.dtype for t in (result, *found)} == {TYPES[fmt]}


@tiers("name", NAMED, every=4)
def test_integers_are_those_of_pytorch(name: str) -> None:
    """All sums are exact, so any other reading of an argument shows."""
    layer = LAYERS[name]
    operands = layer.operands(torch.float32, 0, integers=True, grad=True)
    ours, theirs = (layer.named(module, *operands) for module in (ct, F))
    assert torch.equal(ours, theirs)
    v = cotangent(theirs, 1, integers=True)
    for a, b in zip(*(torch.autograd.grad(y, operands, v) for y in (ours, theirs)), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(layer.named(ct, operands[0][0], *operands[1:]), theirs[0])  # without a batch


def test_arguments_stand_where_pytorch_has_them() -> None:
    x, w, b = LAYERS["plain"].operands(torch.float32, 0, integers=True)
    assert torch.equal(ct.conv2d(x, w[:, :2], b, 2, (1, 0), 2, 2), F.conv2d(x, w[:, :2], b, 2, (1, 0), 2, 2))
    w, b = w[:4, :3], b[:6]
    assert torch.equal(ct.conv_transpose2d(x, w, b, 2, 1, 1, 2, 2), F.conv_transpose2d(x, w, b, 2, 1, 1, 2, 2))


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_pads_by_name(padding: str, dilation: int) -> None:
    x, w, b = Layer((2, 3, 9, 8), (4, 3, 4, 3)).operands(torch.float32, 0, integers=True)
    words = {"padding": padding, "dilation": dilation}
    assert torch.equal(ct.conv2d(x, w, b, **words), F.conv2d(x, w, b, **words))


@tiers("name, x_last, w_last, v_last", BY_RANK, [False, True], [False, True], [False, True], every=19)
def test_memory_lies_as_pytorch_lays_it(name: str, x_last: bool, w_last: bool, v_last: bool) -> None:
    layer = LAYERS[name]
    operands = layer.operands(torch.float32, 0)
    for at, last in enumerate((x_last, w_last)):
        operands[at] = operands[at].contiguous(memory_format=LAST[layer.axes + 2] if last else torch.contiguous_format)
    operands = [t.requires_grad_() for t in operands]
    alone = layer.odd or (layer.transposed and layer.axes == 3)  # PyTorch's own lays these row-major, whatever it gets
    results = [layer(*operands)] if alone else [layer.named(module, *operands) for module in (ct, F)]
    v = cotangent(results[0], 1)
    v = v.contiguous(memory_format=LAST[layer.axes + 2]) if v_last else v
    found = [[y, *torch.autograd.grad(y, operands, v)] for y in results]
    last = [t.is_contiguous(memory_format=LAST[layer.axes + 2]) for t in found[0][:3]]
    assert last == [x_last or w_last] * 3
    assert len({tuple(t.stride() for t in each) for each in found}) == 1
    plain = [t.detach().contiguous().requires_grad_() for t in operands]
    for got, expected in zip(found[0], run(layer, plain), strict=True):
        assert bits(got) == bits(expected)


@pytest.mark.parametrize("shape", [(2, 1, 3, 4), (2, 3, 1, 1), (1, 1, 1, 1), (3, 2, 1, 4), (0, 2, 3, 3), (2, 1, 1, 4)])
@pytest.mark.parametrize("make", ["contiguous", "last", "sliced", "expanded"])
def test_which_channels_lie_last(shape: tuple[int, ...], make: str) -> None:
    """PyTorch's own decision, seen by what it makes of a layer of one tap."""
    x = torch.zeros(shape)
    x = x.contiguous(memory_format=torch.channels_last) if make in ("last", "sliced") else x
    x = {"sliced": lambda: x[:, :1], "expanded": lambda: x[:1].expand(shape)}.get(make, lambda: x)()
    theirs = torch._prims_common.suggest_memory_format(x) is torch.channels_last
    assert kernels.is_channels_last(x) == theirs


def test_no_operand_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watched(monkeypatch)
    for dtype, last in product((*TYPES.values(), torch.float8_e4m3fn, torch.float8_e5m2), (False, True)):
        x, w, b = LAYERS["plain"].operands(dtype, 0)
        x = x.contiguous(memory_format=torch.channels_last) if last else x[:, :, ::1]
        y = ct.conv2d(x[1:], w, b)
        assert seen[-1][1] == [t.data_ptr() for t in (x[1:], w, b, y)]


@pytest.mark.parametrize("wanted", list(product((False, True), repeat=3)))
def test_what_nobody_asks_for_is_not_computed(wanted: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is what it would need kept."""
    seen = watched(monkeypatch)
    operands = [t.requires_grad_(w) for t, w in zip(LAYERS["all"].operands(torch.float32, 0), wanted, strict=True)]
    y = LAYERS["all"](*operands)
    assert y.requires_grad == any(wanted)
    if any(wanted):
        assert [t is not None for t in y.grad_fn.saved_tensors] == [wanted[1], wanted[0]]
        y.sum().backward()
    assert [call.problem.solves_for for call, _ in seen] == ["dst", *compress(("src", "weights", "bias"), wanted)]
    assert [t.grad is not None for t in operands] == list(wanted)


def test_grads_of_any_memory() -> None:
    """Expanded, of every second position, with a pending sign: all read where they lie, or resolved."""
    layer = LAYERS["all"]
    operands = layer.operands(torch.float32, 0, grad=True)
    y = layer(*operands)
    rng = torch.Generator().manual_seed(0)
    twice = torch.randn(*y.shape[:3], 2 * y.shape[3], generator=rng)
    signed = torch.view_as_complex(torch.randn(*y.shape, 2, generator=rng)).conj().imag
    assert signed.is_neg()
    for v in (torch.ones(()).expand(y.shape), twice[..., ::2], twice.transpose(0, 3)[::2].transpose(0, 3), signed):
        plain = v.resolve_neg().clone(memory_format=torch.contiguous_format)
        for got, expected in zip(
            *(torch.autograd.grad(y, operands, g, retain_graph=True) for g in (v, plain)), strict=True
        ):
            assert bits(got) == bits(expected)


@pytest.mark.parametrize("name", ["all", "transposed", "3-D"])
def test_an_empty_batch(name: str) -> None:
    layer = LAYERS[name]
    x, w, b = layer.operands(torch.float32, 0, grad=True)
    y = layer(x[:0], w, b)
    assert y.shape == (0, *layer(x, w, b).shape[1:])
    grads = torch.autograd.grad(y.sum(), (x, w, b))
    assert all(torch.equal(grad, torch.zeros_like(t)) for grad, t in zip(grads, (x, w, b), strict=True))


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "a list": (lambda x, w, b: ct.conv2d([1.0], w, b), TypeError, "input must be a PyTorch tensor; got list .T1"),
    "no weight": (lambda x, w, b: ct.conv2d(x, None), TypeError, "weight must be a PyTorch tensor; got NoneType .T1"),
    "an array": (lambda x, w, b: ct.conv2d(x, w, b.numpy()), TypeError, "conv2d: bias must be .* got ndarray .T1"),
    "integers": (lambda x, w, b: ct.conv2d(x.int(), w.int()), TypeError, "conv2d: input .* got torch.int32 .T1"),
    "complex": (lambda x, w, b: ct.conv2d(x + 0j, w), TypeError, "got input torch.complex64, weight .* .T2"),
    "two types": (
        lambda x, w, b: ct.conv2d(x.half(), w, b), TypeError,
        "one type; got input torch.float16, weight torch.float32, bias torch.float32 .T2",
    ),
    "rank": (lambda x, w, b: ct.conv1d(x, w), ValueError, r"conv1d: weight must have 1 spatial axes .*\(6, 4, 3, 2\)"),
    "no axes": (lambda x, w, b: ct.convolution(x, w[..., 0, 0]), ValueError, "weight must have some spatial axes"),
    "input rank": (lambda x, w, b: ct.conv2d(x[0, 0], w), ValueError, r"conv2d: input must be \(N, C, X...\) or"),
    "channels": (
        lambda x, w, b: ct.conv2d(x[:, :3], w), ValueError,
        r"conv2d: input channels must be weight channels x groups = 4 x 1; got 3 and weight \(6, 4, 3, 2\) .G4",
    ),
    "a layout that PyTorch has not": (
        lambda x, w, b: ct.conv2d(x, w.permute(2, 3, 1, 0)), ValueError, r"weight \(3, 2, 4, 6\) .G4.$",
    ),
    "bias": (lambda x, w, b: ct.conv2d(x, w, b[:5]), ValueError, r"conv2d: bias .* of the output, 6; got .* \(5,"),
    "kernel": (lambda x, w, b: ct.conv2d(x[..., :1], w), ValueError, r"the output .*\(1 \+ 0 - 2\)/1\) \+ 1 = 0 .G8"),
    "axes": (lambda x, w, b: ct.conv2d(x, w, stride=(1, 1, 2)), ValueError, "conv2d: stride must have one value per"),
    "stride": (lambda x, w, b: ct.conv2d(x, w, stride=0), ValueError, "conv2d: stride must be positive"),
    "a fraction": (lambda x, w, b: ct.conv2d(x, w, dilation=1.5), ValueError, "dilation must be an integer or a list"),
    "pad": (lambda x, w, b: ct.conv2d(x, w, padding=-1), ValueError, "padding must be at least 0"),
    "pad at the end": (lambda x, w, b: ct.convolution(x, w, None, 1, 0, -1), ValueError, "padding_end must"),
    "name": (lambda x, w, b: ct.conv2d(x, w, padding="full"), ValueError, "padding must be 'same', 'valid' or"),
    "same": (lambda x, w, b: ct.conv2d(x, w, padding="same", stride=2), ValueError, "'same' needs stride 1"),
    "transposed by name": (
        lambda x, w, b: ct.conv_transpose2d(x, w[:4], padding="same"), ValueError, "padding must be integers; got",
    ),
    "output padding": (
        lambda x, w, b: ct.conv_transpose2d(x, w[:4], padding=1, output_padding=1), ValueError,
        "conv_transpose2d: output_padding must be at least 0 and below",
    ),
    "output padding of other axes": (
        lambda x, w, b: ct.conv_transpose2d(x, w[:4], output_padding=(0, 0, 0)), ValueError,
        "conv_transpose2d: output_padding must have one value per spatial axis, 2 here",
    ),
    "end pads of other axes": (
        lambda x, w, b: ct.conv_transpose(x, w[:4], padding_end=(0, 0, 0)), ValueError, "padding_end must have one",
    ),
    "two devices": (lambda x, w, b: ct.conv2d(x.to("meta"), w), NotImplementedError, "one device; got meta, cpu .D1"),
    "sparse": (lambda x, w, b: ct.conv2d(x.to_sparse(), w), NotImplementedError, r"conv2d: .* input.to_dense\(\) .*D1"),
    "blocked": (lambda x, w, b: ct.conv2d(x.to_mkldnn(), w), NotImplementedError, "conv2d: input must be dense; .*D1"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name(what: str) -> None:
    call, error, words = REFUSED[what]
    with pytest.raises(error, match=words):
        call(*LAYERS["plain"].operands(torch.float32, 0))


def test_errors_of_others_stay_theirs() -> None:
    """Of a mode of dispatch: nothing is wrong with these tensors."""
    mode = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode

    class Refusing(mode):  # type: ignore[misc,valid-type]
        def __torch_dispatch__(self, *_: Any) -> Any:
            raise RuntimeError("not today")

    with Refusing(), pytest.raises(RuntimeError, match=r"^not today$"):
        ct.conv2d(*LAYERS["plain"].operands(torch.float32, 0))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # what PyTorch loads for them
def test_meta_tensors_have_shapes() -> None:
    for name in NAMED:
        layer = LAYERS[name]
        operands = layer.operands(torch.float32, 0)
        found, expected = layer(*(t.to("meta") for t in operands)), layer(*operands)
        assert (found.device.type, found.shape, found.stride()) == ("meta", expected.shape, expected.stride())


@tiers(
    "name, types, lower",
    ["plain", "transposed"], [("f32",) * 3, ("f64",) * 3, ("f32", "bf16", "f16")], ["bf16", "f16"],
    every=7,
)  # fmt: skip
def test_autocast_decides_as_pytorch_does(name: str, types: tuple[str, ...], lower: str) -> None:
    layer = LAYERS[name]
    made = layer.operands(torch.float32, 0, integers=True)
    operands = [t.to(TYPES[fmt]).requires_grad_() for t, fmt in zip(made, types, strict=True)]
    with torch.autocast("cpu", dtype=TYPES[lower]):
        ours, theirs = (layer.named(module, *operands) for module in (ct, F))
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)
    v = cotangent(theirs, 1, integers=True)
    for a, b, t in zip(*(torch.autograd.grad(y, operands, v) for y in (ours, theirs)), operands, strict=True):
        assert a.dtype == b.dtype == t.dtype
        assert torch.equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize("isa", HOST)
def test_threads_and_instruction_sets_change_no_bit(
    isa: str, monkeypatch: pytest.MonkeyPatch, eight_cores: None
) -> None:
    layer = Layer((5, 32, 14, 15), (48, 32, 3, 3), begin=1)
    operands = layer.operands(torch.float32, 0, grad=True)
    expected = [bits(t) for t in run(layer, operands)]
    monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
    before = torch.get_num_threads()
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", "8")
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert [bits(t) for t in run(layer, operands)] == expected
    finally:
        torch.set_num_threads(before)


def test_threads_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as PyTorch has and OMP_NUM_THREADS allows, so that a DataLoader's worker stays on one; ours beat both."""
    seen = watched(monkeypatch)
    monkeypatch.delenv("CONVGRAD_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    operands = LAYERS["plain"].operands(torch.float32, 0, grad=True)
    for theirs in (1, 2, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda n=theirs: n)
        LAYERS["plain"](*operands)
    monkeypatch.setenv("CONVGRAD_NUM_THREADS", "6")
    LAYERS["plain"](*operands)
    with convgrad.threads(4):
        LAYERS["plain"](*operands).sum().backward()
    assert [call.threads for call, _ in seen] == [1, 2, 3, 6, *[4] * 4]


class _Rows(torch.utils.data.Dataset):  # type: ignore[misc]
    """A layer's results, computed by whoever loads them."""

    def __init__(self, layer: Layer, operands: list[Any]) -> None:
        self.layer, self.operands = layer, operands

    def __len__(self) -> int:
        return 4

    def __getitem__(self, at: int) -> Any:
        with torch.enable_grad():
            x, w, b = (t.detach().requires_grad_() for t in self.operands)
            return torch.autograd.grad(self.layer(x * (at + 1), w, b).square().sum(), w)[0]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_that_are_forked_and_threads_have_the_same_bits() -> None:
    """Where the pool is at work already, and whichever thread autograd runs in."""
    layer = Layer((5, 32, 14, 15), (48, 32, 3, 3), begin=1)
    rows = _Rows(layer, layer.operands(torch.float32, 0))
    expected = [bits(rows[at]) for at in range(len(rows))]
    loader = torch.utils.data.DataLoader(
        rows, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=HANG_S
    )
    assert [bits(row) for row in loader] == expected
    with ThreadPoolExecutor(4) as threads:
        assert [bits(row) for row in threads.map(rows.__getitem__, list(range(4)) * 8)] == expected * 8


def test_flushing_denormals_changes_no_bit() -> None:
    layer = LAYERS["all"]
    operands = [(t * 2.0**-64).requires_grad_() for t in layer.operands(torch.float32, 0)]
    expected = [bits(t) for t in run(layer, operands)]
    assert torch.set_flush_denormal(True)
    try:
        found = [bits(t) for t in run(layer, operands)]
    finally:
        torch.set_flush_denormal(False)
    assert found == expected


def test_without_pytorch_the_extra_is_named() -> None:
    program = "import sys; sys.modules['torch'] = None; import convgrad.torch"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: convgrad.torch needs PyTorch: pip install torch" in done.stderr


@pytest.mark.parametrize("name", ["forward", "data_gradient", "weight_gradient", "bias_gradient"])
def test_attributes_have_the_order_of_the_schema(name: str) -> None:
    """Each attribute of a schema is the field of OpAttributes with its name, and comes back to its place."""
    derived = operators._SCHEMAS[name]
    schema = tuple([argument.name for argument in getattr(torch.ops.convgrad, name).default._schema.arguments])
    assert derived.arguments == len(schema)
    *_, attributes = found = derived.gathered(schema)
    assert derived.flat(found) == schema
    assert [getattr(attributes, one, None) for one in schema[derived.heads :]] == [*schema[derived.heads :]]


_PADS = "SymInt[] strides, SymInt[]? pads_begin, SymInt[]? pads_end"
_REST = "SymInt[] dilations, SymInt groups, bool channels_last, float max_error=1., bool tune=False"
SCHEMAS = {
    "forward": f"Tensor src, Tensor weights, Tensor? bias, {_PADS}, {_REST}",
    "data_gradient": (
        f"Tensor diff_dst, Tensor weights, Tensor? bias, Tensor? src, {_PADS}, SymInt[]? output_padding, {_REST}"
    ),
    "weight_gradient": f"Tensor src, Tensor diff_dst, Tensor? weights, SymInt[]? kernel, {_PADS}, {_REST}",
    "bias_gradient": "Tensor diff_dst",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_of_saved_graphs(name: str) -> None:
    """Graphs that were saved by an earlier version must load, so schemas change only by new last arguments."""
    operator = getattr(torch.ops.convgrad, name)
    assert str(operator.default._schema) == f"convgrad::{name}({SCHEMAS[name]}) -> Tensor"
    sized = SCHEMAS[name].replace("SymInt[]", "Tensor").replace("SymInt", "Tensor")
    assert str(operator.sized._schema) == f"convgrad::{name}.sized({sized}) -> Tensor"


@pytest.mark.parametrize("name", SCHEMAS)
def test_arguments_of_a_schema_are_the_parameters_of_its_declaration(name: str) -> None:
    declared = inspect.signature(getattr(passes, name)).parameters
    arguments = [argument.name for argument in getattr(torch.ops.convgrad, name).default._schema.arguments]
    assert arguments[: operators._SCHEMAS[name].heads] == [one for one in declared if one != "layer"]


def test_a_parameter_without_a_type_of_the_dispatcher() -> None:
    def declaration(src: torch.Tensor, names: list[str]) -> None: ...

    with pytest.raises(KeyError, match="list"):
        schema_of(declaration)


def test_names_of_padding_in_an_export_to_onnx() -> None:
    """A name at the begin gives the pads at both ends, as in other calls, whatever the padding at the end is."""
    image, weight = torch.ones(1, 1, 4), torch.ones(1, 1, 3)
    layer = LayerArguments(1, "same", 2, 1, 1)
    assert torch.equal(
        plain.convolution("convolution", image, weight, None, layer), ct.convolution(image, weight, None, 1, "same", 2)
    )
