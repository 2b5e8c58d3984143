"""CUDA arrays of any library: on an emulated GPU, refused ones, and CuPy's arrays on a real GPU."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import InvalidDataTypeError, InvalidShapeError, UnsupportedError
from convgrad.cli import info
from convgrad.engines.cuda import driver, kept
from convgrad.engines.llvm import isas
from convgrad.functional import on_gpu
from tests.functional.fake_gpu import CudaArray, FakeGpu, fake_gpu
from tests.functional.other_arrays import Theirs
from tests.support.roles import BF16, DTYPES, F32, LAYOUTS, ROLES, WRITABLE, Array, Role, Tensor, same
from tests.support.tiers import tiers

pytestmark = pytest.mark.skipif(not isas.host_isas(), reason="no generated kernels run here")
SUMS = {name: role for name, role in ROLES.items() if name != "bias_add"}
sums = pytest.mark.parametrize("role", SUMS.values(), ids=SUMS)
CONV = ROLES["convolution"]


@pytest.fixture
def gpu() -> Iterator[FakeGpu]:
    with fake_gpu() as gpu:
        yield gpu


def on(array: Array, **described: Any) -> Any:
    return CudaArray(array, **described)


def room(role: Role, dtype: Any = F32) -> Array:
    return np.full(role.output, 3, dtype)


def computed(role: Role, operands: list[Array], out: Array, **options: Any) -> Array:
    """Compute a role on the emulated GPU and return the result."""
    target = on(out)
    assert role(*map(on, operands), out=target, **options) is target
    return out


# -- results -----------------------------------------------------------------------------------------------------------


@tiers("dtype, is_wide, accumulate, name", ["f32", "bf16", "f16"], [False, True], [False, True], SUMS, every=11)
def test_same_bits_as_on_the_cpu(dtype: str, is_wide: bool, accumulate: bool, name: str, gpu: FakeGpu) -> None:
    role, options = SUMS[name], {"accumulate": accumulate}
    operands = [(array + 0.3).astype(DTYPES[dtype]) for array in role.operands(F32)]
    to = F32 if is_wide else DTYPES[dtype]
    expected = role(*operands, out=room(role, to), dtype=to, **options)
    assert same(computed(role, operands, room(role, to), dtype=to, **options), expected)
    gc.collect()
    tables, runs = len(gpu.memory), len(gpu.calls)
    assert same(computed(role, operands, room(role, to), dtype=to, **options), expected)
    assert len(gpu.memory) == tables, "a later call uses the table again and frees its scratch memory"
    assert len(gpu.calls) > runs


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - {"unaligned", "record_field"}))
def test_layouts(layout: str, gpu: FakeGpu) -> None:
    operands = [LAYOUTS[layout](array) for array in CONV.operands(F32)]
    out = WRITABLE.get(layout, np.copy)(room(CONV))
    assert same(np.ascontiguousarray(computed(CONV, operands, out)), CONV(*operands))


@pytest.mark.parametrize("activation", [None, "relu"])
def test_run_with_activation(activation: str | None, gpu: FakeGpu) -> None:
    src, weights, bias = CONV.operands(F32)
    attributes: dict[str, Any] = {name: [*value] for name, value in CONV.rest.items() if name != "groups"} | {
        "groups": 2
    }
    expected = convgrad.run("Convolution", src, weights, bias, activation=activation, **attributes)
    assert np.signbit(expected).any() == (activation is None)
    out = on(room(CONV))
    convgrad.run("Convolution", on(src), on(weights), on(bias), activation=activation, out=out, **attributes)
    assert same(out.array, expected)


def test_shape_operand_and_empty_bias(gpu: FakeGpu) -> None:
    role = ROLES["backward_weights"]
    src, diff_dst = role.operands(F32)
    rest = {name: value for name, value in role.rest.items() if name != "weights_shape"}
    out = on(room(role))
    convgrad.convolution_backward_weights(on(src), on(diff_dst), np.array(role.output), out=out, **rest)
    assert same(out.array, role(src, diff_dst))
    src, weights = CONV.operands(F32)[:2]
    assert same(computed(CONV, [src, weights], room(CONV)), CONV(src, weights, None))


def test_addresses_between_two_vectors(gpu: FakeGpu) -> None:
    """Emulated kernels refuse vectors that are not aligned, so another kernel must be prepared."""
    src, weights = np.ones((1, 65, 32), F32), np.ones((1, 32, 32), F32)
    room = np.zeros(src.size + 17, F32)
    for begin in (0, 1, 0):
        view = room[begin : begin + src.size].reshape(src.shape)
        view[...] = src
        out = np.empty_like(src)
        convgrad.convolution(on(view), on(weights), out=on(out))
        assert same(out, convgrad.convolution(src, weights))
    assert len(on_gpu._kept.calls) == 2


def test_addresses_between_two_vectors_of_wider_results(gpu: FakeGpu) -> None:
    """An address that suits vectors of bf16 may not suit those of f32."""
    src, weights = np.ones((1, 64, 32), BF16), np.ones((1, 32, 32), BF16)
    room = np.zeros(src.size + 16, F32)
    for begin in range(0, 8, 2):
        out = room[begin : begin + src.size].reshape(src.shape)
        convgrad.convolution(on(src), on(weights), out=on(out), dtype=F32)
        assert (out == 32).all()


@pytest.mark.parametrize("batch", [0, 1])
def test_sums_without_terms(batch: int, gpu: FakeGpu) -> None:
    """Without images, a weight gradient is 0 and a forward pass has no results."""
    src, diff_dst, weights = np.ones((batch, 0, 3), F32), np.ones((batch, 0, 4), F32), np.ones((1, 3, 4), F32)
    out = weights.copy()
    assert convgrad.convolution_backward_weights(on(src), on(diff_dst), (1, 3, 4), out=on(out)).array is out
    assert not out.any()
    convgrad.convolution(on(src), on(weights), out=on(diff_dst))
    for accumulate, target in ((True, out), (False, np.asfortranarray(out))):
        with pytest.raises(UnsupportedError, match=r"nothing to sum. Kernels for GPUs then need a contiguous out"):
            convgrad.convolution_backward_weights(
                on(src), on(diff_dst), (1, 3, 4), out=on(target), accumulate=accumulate
            )
    assert gpu.calls == [("context", 0), ("set", driver.LEGACY_STREAM)]


# -- memory and streams ------------------------------------------------------------------------------------------------


def test_streams(gpu: FakeGpu) -> None:
    """The work is on the stream of out, else of an operand; other streams are ordered before and after it."""
    src, weights = (np.ones(shape, F32) for shape in ((1, 4, 1), (2, 1, 1)))
    given = [on(src), on(weights)], on(np.empty((1, 3, 1), F32))
    for streams, used, others in (
        ((None, None, None), driver.LEGACY_STREAM, []),
        ((None, 7, None), 7, []),
        ((7, 7, 7), 7, []),
        ((5, 7, 9), 9, [5, 7]),
    ):
        gpu.calls.clear()
        for array, stream in zip((*given[0], given[1]), streams, strict=True):
            array.__cuda_array_interface__["stream"] = stream
        convgrad.convolution(*given[0], out=given[1])
        calls = [call for call in gpu.calls if call[0] != "context"]
        before = [each for other in others for each in (("record", other), ("wait", used))]
        after = [each for other in others for each in (("record", used), ("wait", other))]
        work = calls[len(before) : len(calls) - len(after)]
        assert calls == [*before, *work, *after]
        assert {stream for _, stream in work} == {used}
        assert "launch" in dict(work)


def test_tables_are_freed_with_their_calls(gpu: FakeGpu) -> None:
    computed(CONV, CONV.operands(F32), room(CONV))
    assert len(gpu.memory) == 1
    on_gpu._kept.calls.clear()
    gc.collect()
    assert not gpu.memory


def test_tables_of_many_shapes_are_freed(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit, weight gradients of images of many sizes fill the device's memory. No copy is in CPU memory."""
    monkeypatch.setattr(kept, "TABLES_BYTES", 1 << 13)
    for extent in (100, 110, 120, 100):
        src, diff_dst, out = np.ones((1, extent, 1), F32), np.ones((1, extent, 2), F32), np.zeros((1, 1, 2), F32)
        convgrad.convolution_backward_weights(on(src), on(diff_dst), (1, 1, 2), out=on(out))
        assert out.tolist() == [[[extent] * 2]]
        gc.collect()
        assert len(gpu.memory) <= 2
    assert not any(one._call.plan.table for one in on_gpu._kept.calls.values())


def test_captured_stream(gpu: FakeGpu) -> None:
    gpu.captured = 7
    src, weights, _ = CONV.operands(F32)
    with pytest.raises(UnsupportedError, match=r"Convolution: .* captured in a CUDA graph. Use convgrad.torch"):
        CONV(on(src, stream=7), on(weights), out=on(room(CONV)))
    assert not gpu.memory


# -- refusals ----------------------------------------------------------------------------------------------------------


class Copied(CudaArray):
    """An array that NumPy can copy from the GPU, such as Numba's."""

    def __array__(self, *_: Any, **__: Any) -> Array:
        return self.array


class Exported(Tensor):
    """An array of a GPU that only DLPack describes."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


SRC, WEIGHTS, BIAS = CONV.operands(F32)
OUT = room(CONV)
LARGE = [np.zeros(shape, F32) for shape in ((4, 14, 14, 64), (3, 3, 64, 64), (4, 12, 12, 64))]
RECORDS = np.zeros(SRC.shape, [("value", F32), ("more", np.uint16)])
SHARED = np.zeros(OUT.size + 4, F32)
REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "no out": (UnsupportedError, "out must be an array on the GPU of src; got no out. Use out= or convgrad.torch",
               lambda: CONV(on(SRC), on(WEIGHTS))),
    "out on the CPU": (UnsupportedError, "out must be on the GPU of src; got a ndarray in CPU .*D1",
                       lambda: CONV(on(SRC), on(WEIGHTS), out=OUT)),
    "weights on the CPU": (UnsupportedError, "weights must be on the GPU of src; got a ndarray in CPU .*D1",
                           lambda: CONV(on(SRC), WEIGHTS, out=on(OUT))),
    "bias as a list": (UnsupportedError, "bias must be on the GPU of src; got a list .*D1",
                       lambda: CONV(on(SRC), on(WEIGHTS), [1.0] * 6, out=on(OUT))),
    "wrong bias": (InvalidDataTypeError, "bias must be an array .*T1",
                   lambda: CONV(on(SRC), on(WEIGHTS), "bias", out=on(OUT))),
    "src on the CPU": (UnsupportedError, "weights must be in CPU memory; got a Copied on a GPU; copy .* in all .*D1",
                       lambda: CONV(SRC, Copied(WEIGHTS), out=on(OUT))),
    "operands on the CPU": (UnsupportedError, "out must be in CPU memory; got a CudaArray on a GPU.*D1",
                            lambda: CONV(SRC, WEIGHTS, out=on(OUT))),
    "shape": (InvalidShapeError, "output's shape .*D2", lambda: CONV(on(SRC), on(WEIGHTS), out=on(SRC.copy()))),
    "read-only": (InvalidShapeError, "out must be writable.*D3",
                  lambda: CONV(on(SRC), on(WEIGHTS), out=on(LAYOUTS["read_only"](OUT)))),
    "overlap": (InvalidShapeError, "memory shared with bias.*D4",
                lambda: CONV(on(SRC), on(WEIGHTS), on(SHARED[:6]), out=on(SHARED[4:].reshape(OUT.shape)))),
    "type of out": (InvalidDataTypeError, "of f32, the output's type; got bf16.*T5",
                    lambda: CONV(on(SRC), on(WEIGHTS), out=on(OUT.astype(BF16)))),
    "two types": (InvalidDataTypeError, "one type.*T2",
                  lambda: CONV(on(SRC), on(WEIGHTS.astype(BF16)), out=on(OUT))),
    "f64": (UnsupportedError, "operands of f32, bf16 and f16; got f64",
            lambda: CONV(on(SRC.astype("f8")), on(WEIGHTS.astype("f8")), out=on(OUT.astype("f8")))),
    "int32": (InvalidDataTypeError, "src must be an array of f32, bf16 or f16; got the type string '<i4'.*T1",
              lambda: CONV(on(SRC.astype("i4")), on(WEIGHTS), out=on(OUT))),
    "f8": (InvalidDataTypeError, "src must be an array of f32, bf16 or f16; got the type string.*T1",
           lambda: CONV(on(SRC.astype(DTYPES["f8_e5m2"])), on(WEIGHTS), out=on(OUT))),
    "foreign byte order": (InvalidDataTypeError, "got the type string '>f4'.*T1",
                           lambda: CONV(on(SRC.astype(">f4")), on(WEIGHTS), out=on(OUT))),
    "mask": (InvalidDataTypeError, "weights must be a plain array; got a masked array.*T1",
             lambda: CONV(on(SRC), on(WEIGHTS, mask=on(WEIGHTS)), out=on(OUT))),
    "unaligned": (UnsupportedError, "src must begin at a multiple of the size of an element; got the address.*D1",
                  lambda: CONV(on(LAYOUTS["unaligned"](SRC)), on(WEIGHTS), out=on(OUT))),
    "packed records": (UnsupportedError, "strides must be multiples of the size of an element",
                       lambda: CONV(on(RECORDS["value"]), on(WEIGHTS), out=on(OUT))),
    "max_error": (UnsupportedError, "direct sums only; leave out max_error",
                  lambda: convgrad.convolution(*map(on, LARGE[:2]), out=on(LARGE[2]), max_error=100)),
    "bias_add": (UnsupportedError, "no kernel for GPUs that solves for bias_add",
                 lambda: convgrad.bias_add(on(SRC), on(BIAS[:4]), out=on(SRC.copy()))),
    "too many operands": (convgrad.InvalidOpError, "O2",
                          lambda: convgrad.run("BiasAddBackward", on(SRC), on(SRC), on(SRC), out=on(BIAS))),
    "shape on the GPU": (UnsupportedError, "dst_shape must be in CPU memory; got a CudaArray on a GPU.*D1",
                         lambda: convgrad.convolution_backward_data(on(OUT), on(WEIGHTS), on(np.array(SRC.shape)),
                                                                    out=on(SRC.copy()))),
    "accumulate": (convgrad.InvalidAttributeError, "accumulate must be a bool.*D5",
                   lambda: CONV(on(SRC), on(WEIGHTS), out=on(OUT), accumulate=1)),
    "only DLPack": (UnsupportedError, r"got DLPack device \(2, 0\); copy .*__cuda_array_interface__.*D1",
                    lambda: CONV(Exported(SRC), Exported(WEIGHTS), out=on(OUT))),
    "compiled": (UnsupportedError, "diff_dst must be in CPU memory.*D1",
                 lambda: convgrad.compile("BiasAddBackward", SRC)(on(SRC), out=on(BIAS))),
    "all gradients": (UnsupportedError, "src must be in CPU memory.*D1",
                      lambda: convgrad.convolution_backward(on(SRC), on(OUT), on(WEIGHTS))),
    "parts": (UnsupportedError, "diff_dst must be in CPU memory.*D1",
              lambda: convgrad.partials("BiasAddBackward", Copied(SRC))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, gpu: FakeGpu) -> None:
    error, message, call = REFUSED[name]
    with pytest.raises(error, match=message):
        call()
    assert not {call[0] for call in gpu.calls} & {"launch", "set"}


def test_two_devices(gpu: FakeGpu) -> None:
    target = on(OUT)
    gpu.second.add(target.__cuda_array_interface__["data"][0])
    with pytest.raises(UnsupportedError, match=r"src must be on the GPU of out, which is GPU 1; got GPU 0 .*D1"):
        CONV(on(SRC), on(WEIGHTS), out=target)
    gpu.second |= {on(array).__cuda_array_interface__["data"][0] for array in (SRC, WEIGHTS)}
    CONV(on(SRC), on(WEIGHTS), out=target)
    assert ("context", 1) in gpu.calls


def test_arrays_without_a_description(gpu: FakeGpu) -> None:
    class Broken(Theirs):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("no")

    assert same(CONV(Broken(SRC), Broken(WEIGHTS)), CONV(SRC, WEIGHTS))
    with pytest.raises(UnsupportedError, match=r"weights must be in CPU memory; got a CudaArray on a GPU.*D1"):
        CONV(Broken(SRC), on(WEIGHTS), out=on(OUT))


# -- the driver --------------------------------------------------------------------------------------------------------


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_loaded", lambda: "NVIDIA's driver is not installed")
    with pytest.raises(UnsupportedError, match="NVIDIA's driver is not installed"):
        CONV(on(SRC), on(WEIGHTS), out=on(OUT))
    assert info.collect()["gpu"] == "none (NVIDIA's driver is not installed)"


def test_info_names_the_gpu(gpu: FakeGpu) -> None:
    assert json.loads(json.dumps(info.collect()))["gpu"] == "Emulated GPU, compute capability 9.0"
    assert not gpu.calls, "a context takes long to create"
    gpu.capability = (7, 5)
    driver._devices.clear()
    assert info.collect()["gpu"] == "none (Emulated GPU has compute capability 7.5; kernels need 8.0)"


# -- a real GPU --------------------------------------------------------------------------------------------------------


@sums
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("stream", ["default", "own"])
def test_cupy(role: Role, dtype: str, stream: str) -> None:
    cupy = pytest.importorskip("cupy")
    if reason := driver.refusal():
        pytest.skip(reason)
    operands = [(array + 0.3).astype(DTYPES[dtype]) for array in role.operands(F32)]
    with cupy.cuda.Stream(non_blocking=True) if stream == "own" else cupy.cuda.Stream.null:
        for accumulate in (False, True):
            out = cupy.asarray(room(role, DTYPES[dtype]))
            for _ in range(3):
                assert role(*map(cupy.asarray, operands), out=out, accumulate=accumulate) is out
            expected = room(role, DTYPES[dtype])
            for _ in range(3):
                role(*operands, out=expected, accumulate=accumulate)
            assert same(cupy.asnumpy(out), expected)


@sums
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_torch(role: Role, dtype: str, accumulate: bool) -> None:
    torch = pytest.importorskip("torch")
    if reason := driver.refusal():
        pytest.skip(reason)
    kind = getattr(torch, DTYPES[dtype].name)
    operands = [torch.from_numpy(array + F32(0.3)).to(kind) for array in role.operands(F32)]
    expected, out = (torch.full(role.output, 3.0, device=device) for device in ("cpu", "cuda"))
    role(*operands, out=expected, dtype="f32", accumulate=accumulate)
    assert role(*[one.cuda() for one in operands], out=out, dtype="f32", accumulate=accumulate) is out
    assert out._version == 1
    assert same(out.cpu().numpy(), expected.numpy())
