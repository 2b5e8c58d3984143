"""Layers of CUDA tensors: their bits on a GPU; and without one, dispatch keys, traced devices and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses import FakeTensorMode  # noqa: E402

from convgrad.errors import UnsupportedError  # noqa: E402
from convgrad.torch import kernels, operators, passes  # noqa: E402
from convgrad.torch.attributes import OpAttributes  # noqa: E402
from convgrad.torch.refused import LAYER, refused  # noqa: E402
from tests.torch.layers import LAST, LAYERS, Layer, all_of, bits, cotangent, ct, same  # noqa: E402

OPS = ("forward", "data_gradient", "weight_gradient", "bias_gradient")
GPU = {name: layer for name, layer in LAYERS.items() if layer.axes <= 3}  # the layers that GPU kernels compute
ATTRIBUTES = OpAttributes((1, 1), (0, 0), (0, 0), None, (1, 1), 1, False)


def fake(
    *shape: int, device: str = "cuda:0", dtype: Any = torch.float32, strides: tuple[int, ...] | None = None
) -> Any:
    """Return a tensor that has no memory but has all properties of a tensor on a device."""
    with FakeTensorMode():
        given = torch.empty(shape, device=device, dtype=dtype)
        return given if strides is None else torch.empty_strided(shape, strides, device=device, dtype=dtype)


# -- without a GPU -------------------------------------------------------------------------------------------------


def test_operators_have_kernels_for_both_devices() -> None:
    for name in OPS:
        for key in ("CPU", "CUDA"):
            assert torch._C._dispatch_has_kernel_for_dispatch_key(f"convgrad::{name}", key)
        assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"convgrad::{name}", "XPU")


def test_dispatch_keys_of_plain_tensors() -> None:
    """The keys that admit a direct call are those of PyTorch's own tensors, and no others."""
    keys = torch._C._dispatch_keys
    with torch.inference_mode():
        alone = keys(torch.empty(0)).raw_repr()
    assert operators._of_memory("CPU") == (alone, keys(torch.empty(0)).raw_repr())
    special = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)
    assert operators._of_memory("CUDA")[1] == (keys(fake(1)) - special).raw_repr()
    assert keys(torch._neg_view(torch.empty(1))).raw_repr() not in operators._OF_MEMORY


@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="there is one CUDA device")
def test_prepared_calls_differ_by_device() -> None:
    given = [fake(1, device=device) for device in ("cpu", "cuda:0", "cuda:1")]
    lying = [kernels._key((one,))[0] for one in given]
    assert len(set(lying)) == 3
    assert [kernels._device(number) for ((*_, number),) in lying] == [one.device for one in given]


# Without a GPU, PyTorch lets fake tensors be on any; with one, they must be on it.
LAST_GPU = f"cuda:{torch.cuda.device_count() - 1 if torch.cuda.is_available() else 1}"
two_gpus = pytest.mark.skipif(torch.cuda.device_count() == 1, reason="there is one CUDA device")


@pytest.mark.parametrize("name", GPU)
@pytest.mark.parametrize("last", [False, True])
def test_traced_results_are_on_the_device(name: str, last: bool) -> None:
    """Shapes, types and strides are those of the layer on the CPU."""
    layer = GPU[name]
    operands = layer.operands(torch.bfloat16, 0)
    if last and layer.axes > 1:
        operands[0] = operands[0].contiguous(memory_format=LAST[layer.axes + 2])
    expected = layer(*operands)
    with FakeTensorMode() as mode:
        found = layer(*[mode.from_tensor(one).to(LAST_GPU) for one in operands])
    assert found.device == torch.device(LAST_GPU)
    assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())


def forward(src: Any, weights: Any, *more: Any) -> Any:
    return kernels.compute(passes.forward(src, weights, None, OpAttributes(*ATTRIBUTES[:7], *more)))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mixed": (
        lambda: forward(torch.ones(1, 2, 3, 3), fake(2, 2, 1, 1)),
        r"must be on one device; got cpu, cuda:0 \[D1\]",
    ),
    "two GPUs": (
        lambda: forward(fake(1, 2, 3, 3), fake(2, 2, 1, 1, device="cuda:1")),
        r"on one device; got cuda:0, cuda:1 \[D1\]",
    ),
    "f64": (
        lambda: forward(fake(1, 2, 3, 3, dtype=torch.float64), fake(2, 2, 1, 1, dtype=torch.float64)),
        "operands of f32, bf16 and f16; got f64",
    ),
    "f64 without terms": (
        lambda: forward(fake(0, 2, 3, 3, dtype=torch.float64), fake(2, 2, 1, 1, dtype=torch.float64)),
        "operands of f32, bf16 and f16; got f64",
    ),
    "far apart": (
        lambda: forward(fake(1, 2, 3, 3, strides=(1, 1 << 31, 3, 1)), fake(2, 2, 1, 1)),
        r"an array spans 2\^31 elements or more",
    ),
    "max_error": (
        lambda: forward(fake(4, 64, 32, 32), fake(64, 64, 3, 3), 64.0),
        "compute direct sums only; leave out max_error",
    ),
}


@pytest.mark.parametrize(
    ("call", "words"),
    [pytest.param(*one, id=name, marks=[two_gpus] * (name == "two GPUs")) for name, one in REFUSED.items()],
)
def test_refused_before_a_device_is_used(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        call()


def test_another_device_is_refused_by_name() -> None:
    class Elsewhere(torch.Tensor):  # type: ignore[misc]
        is_cpu = is_cuda = False
        device = "xpu:0"

    given = {"input": torch.ones(1).as_subclass(Elsewhere)}
    with pytest.raises(UnsupportedError, match=r"conv1d: input must be in CPU memory or on a CUDA device; got .*xpu:0"):
        refused("conv1d", RuntimeError(), given, LAYER)


def test_a_message_of_the_driver_is_kept_whole() -> None:
    words = "the CUDA driver returned error 2 from cuLaunchKernel: out of memory"
    with pytest.raises(UnsupportedError, match=f"^conv1d: {words}$"):
        refused("conv1d", UnsupportedError(words), {}, LAYER)


# -- on a GPU ------------------------------------------------------------------------------------------------------

on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
WIDE = {  # enough rows, columns and terms for tiles and for several chains
    "wide": Layer((4, 64, 14, 14), (96, 64, 3, 3), begin=1),
    "wide strided": Layer((3, 48, 15, 17), (80, 48, 3, 3), begin=1, stride=2),
    "wide groups": Layer((2, 64, 9, 9), (128, 32, 3, 3), begin=2, dilation=2, groups=2),
    "wide 1-D": Layer((8, 40, 100), (72, 40, 5), begin=2),
    "wide transposed": Layer((2, 64, 8, 8), (64, 48, 4, 4), True, stride=2, begin=1),
    "wide 3-D": Layer((2, 16, 5, 6, 7), (32, 16, 3, 3, 3), begin=1),
}


@on_device
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fmt", TYPES)
@pytest.mark.parametrize("name", [*GPU, *WIDE])
def test_bits_of_a_layer_and_its_gradients(name: str, fmt: str, last: bool) -> None:
    layer = (GPU | WIDE)[name]
    operands = layer.operands(TYPES[fmt], 0)
    assert operators._straight(*[one.cuda() for one in operands])
    assert same(all_of(layer, operands, "cuda", last), all_of(layer, operands, "cpu", last))


@on_device
@pytest.mark.parametrize("name", ["1-D", "all", "transposed"])
def test_bits_of_second_derivatives(name: str) -> None:
    def second(device: str) -> list[Any]:
        operands = [one.to(device).requires_grad_() for one in GPU[name].operands(torch.float32, 0)]
        result = GPU[name](*operands)
        v = cotangent(result, 1).to(device).requires_grad_()
        first = torch.autograd.grad(result, operands[:2], v, create_graph=True)
        cotangents = [cotangent(one, 2).to(device) for one in first]
        return [one.cpu() for one in torch.autograd.grad(first, [*operands[:2], v], cotangents)]

    assert same(second("cuda"), second("cpu"))


@on_device
def test_operands_with_any_strides() -> None:
    x, w = torch.randn(3, 10, 12, 14)[:, 1::2, ::3, 2:], torch.randn(3, 3, 5, 6).permute(3, 2, 1, 0)
    v = torch.randn(1, 6, 1, 1).expand(3, 6, 2, 10)
    found = []
    for device in ("cuda", "cpu"):
        inside = torch.empty(3, 10, 12, 14, device=device)[:, 1::2, ::3, 2:].copy_(x).requires_grad_()
        weight = torch.empty(3, 3, 5, 6, device=device).permute(3, 2, 1, 0).copy_(w).requires_grad_()
        result = ct.conv2d(inside, weight)
        spread = torch.empty(1, 6, 1, 1, device=device).copy_(v[:1, :, :1, :1]).expand(3, 6, 2, 10)
        found.append([one.detach().cpu() for one in (result, *torch.autograd.grad(result, [inside, weight], spread))])
    assert same(*found)


@on_device
def test_calls_on_other_streams() -> None:
    """The calls are ordered by the stream that is current, in the backward pass too."""
    layer = WIDE["wide"]
    operands = layer.operands(torch.float32, 0)
    expected = all_of(layer, operands)
    for _ in range(2):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            slow = torch.zeros(2000, 2000, device="cuda")
            for _ in range(20):
                slow = slow @ slow
            given = [(one.cuda() + slow[0, 0]).requires_grad_() for one in operands]
            result = layer(*given)
            grads = torch.autograd.grad(result, given, cotangent(result, 1).cuda())
        stream.synchronize()
        assert same([one.detach().cpu() for one in (result, *grads)], expected)


@on_device
@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler
@pytest.mark.parametrize("words", [{"backend": "aot_eager"}, {}, {"mode": "reduce-overhead"}], ids=str)
def test_bits_of_compiled_layers(words: dict[str, Any]) -> None:
    if words.get("backend") is None:
        pytest.importorskip("triton")
    torch._dynamo.reset()
    layer = WIDE["wide strided"]
    compiled = torch.compile(layer, fullgraph=True, **words)
    for seed in range(4):  # the later calls replay a CUDA graph if the mode makes one
        operands = layer.operands(torch.float32, seed)
        found, expected = all_of(compiled, operands, "cuda"), all_of(layer, operands)
        assert [bits(one) for one in found] == [bits(one) for one in expected], seed
    torch._dynamo.reset()


@on_device
def test_a_cuda_graph_is_captured_and_replayed() -> None:
    layer = WIDE["wide"]
    static = [one.cuda().requires_grad_() for one in layer.operands(torch.float32, 0)]
    v = cotangent(layer(*static), 1).cuda()

    def step() -> list[Any]:
        result = layer(*static)
        return [result, *torch.autograd.grad(result, static, v)]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    kernels._known.cache_clear()  # the graph keeps its calls
    kernels._known_gradients.cache_clear()
    filler = [torch.full((1 << 16,), 255, dtype=torch.uint8, device="cuda") for _ in range(64)]
    for seed in (1, 2):
        operands = layer.operands(torch.float32, seed)
        with torch.no_grad():
            for one, values in zip(static, operands, strict=True):
                one.copy_(values)
        graph.replay()
        assert same([one.detach().cpu() for one in results], all_of(layer, operands))
    del filler


@on_device
def test_the_first_call_is_refused_in_a_capture() -> None:
    x, w = torch.ones(1, 3, 41, device="cuda"), torch.ones(5, 3, 7, device="cuda")
    with (  # with a kernel in the graph, because PyTorch warns of an empty one
        pytest.raises(UnsupportedError, match="must be before the capture of a CUDA graph"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        ct.conv1d(x + 1, w)
    torch.cuda.synchronize()
    assert bits(ct.conv1d(x, w).cpu()) == bits(ct.conv1d(x.cpu(), w.cpu()))


@on_device
def test_autocast_is_of_the_device() -> None:
    x, w, b = WIDE["wide"].operands(torch.float32, 0)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = ct.conv2d(x.cuda(), w.cuda(), b.cuda())
        assert ct.conv2d(x, w, b).dtype is torch.float32
    assert same([found.cpu()], [ct.conv2d(x.bfloat16(), w.bfloat16(), b.bfloat16())])


@on_device
def test_refused_on_a_device() -> None:
    x, w = torch.ones(4, 64, 32, 32, device="cuda"), torch.ones(64, 64, 3, 3, device="cuda")
    for call, words in (
        (lambda: ct.conv2d(x.double(), w.double()), "conv2d: kernels for GPUs have operands of f32"),
        (lambda: ct.conv2d(x, w, max_error=64), "conv2d: kernels for GPUs compute direct sums only"),
        (lambda: ct.conv2d(x, w.cpu()), "conv2d: all tensors must be on one device; got cuda:0, cpu"),
        (lambda: ct.conv2d(x.to_sparse(), w), r"conv2d: input must be dense"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            call()


@on_device
def test_special_tensors() -> None:
    """Empty batches, pending signs and views that are not aligned."""
    x, w, b = GPU["plain"].operands(torch.float32, 0)
    there = x.cuda(), w.cuda(), b.cuda()
    assert ct.conv2d(there[0][:0], *there[1:]).shape == (0, *ct.conv2d(x, w, b).shape[1:])
    assert bits(ct.conv2d(torch._neg_view(there[0]), there[1]).cpu()) == bits(ct.conv2d(-x, w))
    assert ct.fingerprint(list(there)) == ct.fingerprint([x, w, b])
    wide, weight = torch.randn(4 * 64 * 32 + 8), torch.randn(64, 64, 1)
    for begin in (0, 1, 2, 4):
        views = [one[begin : begin + 4 * 64 * 32].view(4, 32, 64).mT for one in (wide, wide.cuda())]
        assert bits(ct.conv1d(views[1], weight.cuda()).cpu()) == bits(ct.conv1d(views[0], weight)), begin


@on_device
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # which forward mode itself calls
def test_bits_of_tangents() -> None:
    x, w, _ = GPU["plain"].operands(torch.float32, 0)
    tangents = [torch.func.jvp(ct.conv2d, (x.to(d), w.to(d)), (x.to(d), w.to(d)))[1].cpu() for d in ("cuda", "cpu")]
    assert same(tangents[:1], tangents[1:])


@on_device
def test_a_report_has_times_of_both_passes() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Conv2d(8, 4, 3))
    model = ct.reproducible(model.cuda())
    state = torch.cuda.get_rng_state()
    found = ct.report(model, torch.ones(2, 3, 9, 9, device="cuda"))
    assert found.steps is not None
    step = found.steps.as_is
    assert (len(step.forward), len(step.backward)) == (2, 5)
    assert 0 < step.kernel_seconds < step.seconds
    assert list(found.unknown.values()) == ["ReLU", "Dropout"]
    assert torch.equal(torch.cuda.get_rng_state(), state)


@on_device
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_a_device_that_is_not_the_current_one() -> None:
    for name in ("all", "transposed"):
        operands = GPU[name].operands(torch.float32, 0)
        assert same(all_of(GPU[name], operands, "cuda:1"), all_of(GPU[name], operands))
    assert torch.cuda.current_device() == 0
