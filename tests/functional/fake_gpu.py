"""NVIDIA's driver and CUDA arrays for tests without a GPU. Memory is the CPU's, and ``emulated`` runs the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from convgrad.engines.addresses import address_of
from convgrad.engines.cuda import driver, engine
from convgrad.engines.cuda.driver import PROTOTYPES, DeviceFunction, Driver
from convgrad.functional import on_gpu
from tests.support import emulated
from tests.support.engine_helpers import Array

UNKNOWN = 1  # error: invalid value


class CudaArray:
    """An array of a library for GPUs."""

    def __init__(self, array: Array, **described: Any) -> None:
        self.array = array
        dense = array.flags.c_contiguous
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (address_of(array) if array.size else 0, not array.flags.writeable),
            "strides": None if dense else array.strides,
            **described,
        }


class Entry:
    """A function of the driver. ctypes would pass numbers and handles by value."""

    argtypes: Any = ()
    restype: Any = None

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes)
        for kind, one in zip(self.argtypes, arguments, strict=True):
            if one is not None and not isinstance(one, FakeKernel):
                kind.from_param(one)
        return self.function(*arguments) or 0


class FakeKernel:
    """The handle of a kernel."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec


class FakeGpu:
    """NVIDIA's driver with two devices. Memory at the addresses ``second`` belongs to the second device."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.memory: dict[int, Array] = {}
        self.second: set[int] = set()
        self.captured = 0
        self.capability = (9, 0)

    def library(self) -> SimpleNamespace:
        """Return the library of the driver. Functions that are not defined here do nothing."""
        return SimpleNamespace(**{name: Entry(getattr(self, name, lambda *_: 0)) for name in PROTOTYPES})

    def cuDeviceGetCount(self, count: Any) -> None:
        count.value = 2

    def cuDeviceGet(self, device: Any, number: int) -> None:
        device.value = number

    def cuDeviceGetName(self, text: Any, size: int, device: int) -> None:
        text.value = b"Emulated GPU"

    def cuDeviceGetAttribute(self, number: Any, attribute: int, device: int) -> None:
        major, minor = self.capability
        number.value = {driver.PROCESSORS: emulated.PROCESSORS, driver.MAJOR: major, driver.MINOR: minor}[attribute]

    def cuDevicePrimaryCtxRetain(self, handle: Any, device: int) -> None:
        self.calls.append(("context", device))

    def cuPointerGetAttribute(self, number: Any, attribute: int, address: int) -> int:
        if attribute != driver.DEVICE_ORDINAL or not address:
            return UNKNOWN
        number.value = int(address in self.second)
        return 0

    def cuMemAlloc_v2(self, handle: Any, size: int) -> None:
        memory = emulated.nan_filled(size)
        handle.value = address_of(memory)
        self.memory[address_of(memory)] = memory

    def cuMemFree_v2(self, address: int) -> None:
        del self.memory[address]

    def cuMemAllocAsync(self, handle: Any, size: int, stream: int) -> None:
        self.cuMemAlloc_v2(handle, size)
        self.calls.append(("allocate", stream))

    def cuMemFreeAsync(self, address: int, stream: int) -> None:
        self.cuMemFree_v2(address)
        self.calls.append(("free", stream))

    def cuMemcpyHtoD_v2(self, address: Any, data: bytes, size: int) -> None:
        self.memory[address.value].view("u1")[:size] = bytearray(data)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: int) -> None:
        ctypes.memset(address, value, size)
        self.calls.append(("set", stream))

    def cuStreamIsCapturing(self, stream: int, status: Any) -> None:
        status.value = int(stream == self.captured)

    def cuEventCreate(self, event: Any, flags: int) -> None:
        event.value = 1000 + len(self.calls)

    def cuEventRecord(self, event: Any, stream: int) -> None:
        self.calls.append(("record", stream))

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> None:
        self.calls.append(("wait", stream))

    def cuLaunchKernel(self, kernel: FakeKernel, *given: Any) -> None:
        grid, stream, places = given[:3], given[7], given[8]
        self.calls.append(("launch", stream))
        emulated.launch(kernel.spec, grid, [ctypes.c_uint64.from_address(place).value for place in places])


@contextmanager
def fake_gpu() -> Iterator[FakeGpu]:
    """Replace NVIDIA's driver, and forget all that is prepared for it at the end."""
    gpu = FakeGpu()
    with pytest.MonkeyPatch.context() as patch:
        loaded = Driver(gpu.library())
        patch.setattr(driver, "_loaded", lambda: loaded)
        patch.setattr(driver, "_devices", {})
        patch.setattr(engine, "_function", lambda device, spec: DeviceFunction(FakeKernel(spec), spec.threads, 0))  # type: ignore[arg-type]
        on_gpu._kept.calls.clear()
        yield gpu
        on_gpu._kept.calls.clear()
    assert not gpu.memory, "memory is not freed"
