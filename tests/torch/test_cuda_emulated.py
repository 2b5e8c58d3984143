"""Calls on CUDA tensors as far as the CPU can run them: the kernels and the device are emulated, all else is real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from convgrad import engines  # noqa: E402
from convgrad.engines.addresses import address_of  # noqa: E402
from convgrad.engines.cuda import driver, engine  # noqa: E402
from convgrad.errors import UnsupportedError  # noqa: E402
from convgrad.plan.cuda.recipe import Spec  # noqa: E402
from convgrad.torch import cuda, kernels, passes  # noqa: E402
from convgrad.torch.attributes import OpAttributes  # noqa: E402
from tests.support import emulated  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402
from tests.torch.layers import LAYERS, all_of, bits, ct, same  # noqa: E402


class Stream:
    """The only stream of an emulated device."""

    cuda_stream = 7


class Table:
    """A table in the memory of an emulated device."""

    def __init__(self, table: bytes, device: Any) -> None:
        self.words = emulated.nan_filled(len(table))
        self.words.view("u1")[: len(table)] = bytearray(table)
        self.streams: list[Any] = []

    def data_ptr(self) -> int:
        return address_of(self.words)

    def record_stream(self, stream: Any) -> None:
        self.streams.append(stream)


class Device:
    """A device that runs kernels on the CPU, in the place of ``driver.Device``."""

    processors, current = emulated.PROCESSORS, nullcontext

    def launch(self, spec: Spec, grid: tuple[int, ...], stream: int, arguments: tuple[int, ...]) -> None:
        assert stream == Stream.cuda_stream
        emulated.launch(spec, grid, arguments)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Let calls on CPU tensors run the prepared calls of CUDA tensors on an emulated device; list those calls."""
    made: list[Any] = []

    def on_gpu(problem: Any, strides: Any, threads: int) -> Any:
        made.append(cuda.ready(problem, strides, torch.device("cpu")))
        return made[-1]

    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(driver, "device", lambda number: Device())
    monkeypatch.setattr(engine, "_function", lambda device, spec: spec)
    monkeypatch.setattr(cuda, "_on_device", Table)
    monkeypatch.setattr(engines, "ready", on_gpu)
    _forget()
    yield made
    _forget()


def _forget() -> None:
    kernels._known.cache_clear()
    kernels._known_gradients.cache_clear()
    cuda._kept.calls.clear()


def prepared() -> list[Any]:
    """Return the calls that are kept, the latest at the end."""
    return [*cuda._kept.calls.values()]


@tiers("name", [name for name, layer in LAYERS.items() if layer.axes <= 3], every=3)
def test_calls_on_an_emulated_gpu(name: str, gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    operands = LAYERS[name].operands(torch.float32, 0)
    found = all_of(LAYERS[name], operands)
    assert len(gpu) == 3 + LAYERS[name].bias
    assert all(one.table.streams for one in prepared())
    _forget()
    monkeypatch.undo()
    assert same(found, all_of(LAYERS[name], operands))


def test_the_first_call_must_precede_a_capture(gpu: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured call is kept, because a graph has the address of its table."""
    src, weights = torch.ones(1, 1, 4), torch.ones(1, 1, 2)
    capturing: list[bool] = [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[-1])
    with pytest.raises(UnsupportedError, match=r"conv1d: the first call .* must be before the capture of a CUDA graph"):
        ct.conv1d(src, weights)
    (call,) = gpu
    assert not prepared()
    capturing.append(False)
    assert ct.conv1d(src, weights).tolist() == [[[2.0] * 3]]
    (first,) = prepared()
    assert first not in cuda._captured
    capturing.append(True)
    assert ct.conv1d(src, weights).tolist() == [[[2.0] * 3]]
    assert (gpu, prepared(), len(first.table.streams)) == ([call], [first], 1)
    assert first in cuda._captured
    cuda._captured.discard(first)


def test_tensors_that_are_not_aligned(gpu: list[Any]) -> None:
    """A kernel that loads vectors is replaced for views that begin between two vectors."""
    weights = torch.ones(32, 32, 1)
    for begin in (0, 1, 0):
        src = torch.arange(1 + 32.0 * 64)[begin:].as_strided((1, 32, 64), (0, 1, 32))
        assert ct.conv1d(src, weights)[0, 0].tolist() == src[0].sum(0).tolist()
    assert len(gpu) == 1
    assert [one.call.plan.launches[0].spec.width_a for one in prepared()] == [1, 4]


@pytest.mark.parametrize(("batch", "extent"), [(0, 3), (2, 0), (2, 3)])
def test_sums_without_terms(batch: int, extent: int, gpu: list[Any]) -> None:
    """The results are the activated bias, with NaN as the canonical NaN, and gradients are 0."""
    src, weights, bias = torch.ones(batch, 3, extent), torch.ones(4, 3, 4), torch.tensor([-1.5, -0.0, torch.nan, 2.0])
    bias.view(torch.int32)[2] = -1  # another NaN
    result = ct.conv1d(src, weights, bias, padding=4, activation="relu")
    gradient = kernels.compute(
        passes.weight_gradient(
            src, torch.ones_like(result), None, (4,), OpAttributes((1,), (4,), (4,), None, (1,), 1, False)
        )
    )
    assert (result.shape, gradient.shape) == ((batch, 4, extent + 5), weights.shape)
    if batch * extent:
        assert [type(call) for call in gpu] == [cuda.DeviceKernel] * 2
    else:
        assert [type(call) for call in gpu] == [cuda.Zeros] * 2
        assert bits(result) == bits(torch.tensor([0.0, 0.0, torch.nan, 2.0])[:, None].expand_as(result))
        assert bits(gradient) == bits(torch.zeros_like(weights))
