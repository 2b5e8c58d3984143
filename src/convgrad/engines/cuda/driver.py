"""NVIDIA's driver, called through ctypes: devices, their primary contexts, modules and launches."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from convgrad.cached import cached_property
from convgrad.errors import UnsupportedError
from convgrad.starting import forked_with

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
PROCESSORS, MAJOR, MINOR = 16, 75, 76  # numbers of attributes of a device
SHARED_BYTES = 8  # number of an attribute of a function: the largest dynamic shared memory
DEVICE_ORDINAL = 9  # number of an attribute of a pointer: the number of its device
WITHOUT_TIMES = 2  # flag of an event
LEGACY_STREAM = 1  # handle of the default stream, which all threads share
NAME_BYTES = 256
ASYNCHRONOUS = range(700, 720)  # errors of kernels, which any later call may return
OLDEST = (8, 0)  # compute capability
Handle = ctypes.c_void_p
# The driver's functions that are called, and the types of their parameters.
PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetName": (ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(Handle), ctypes.c_int),
    "cuCtxPushCurrent_v2": (Handle,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(Handle),),
    "cuModuleLoadData": (ctypes.POINTER(Handle), ctypes.c_char_p),
    "cuModuleGetFunction": (ctypes.POINTER(Handle), Handle, ctypes.c_char_p),
    "cuFuncSetAttribute": (Handle, ctypes.c_int, ctypes.c_int),
    "cuLaunchKernel": (Handle, *[ctypes.c_uint] * 7, Handle, ctypes.POINTER(Handle), Handle),
    "cuPointerGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, Handle),
    "cuMemAlloc_v2": (ctypes.POINTER(Handle), ctypes.c_size_t),
    "cuMemFree_v2": (Handle,),
    "cuMemcpyHtoD_v2": (Handle, ctypes.c_char_p, ctypes.c_size_t),
    "cuMemAllocAsync": (ctypes.POINTER(Handle), ctypes.c_size_t, Handle),
    "cuMemFreeAsync": (Handle, Handle),
    "cuMemsetD8Async": (Handle, ctypes.c_ubyte, ctypes.c_size_t, Handle),
    "cuCtxSynchronize": (),
    "cuStreamIsCapturing": (Handle, ctypes.POINTER(ctypes.c_int)),
    "cuStreamWaitEvent": (Handle, Handle, ctypes.c_uint),
    "cuEventCreate": (ctypes.POINTER(Handle), ctypes.c_uint),
    "cuEventRecord": (Handle, Handle),
    "cuEventDestroy_v2": (Handle,),
}


class Driver:
    """The driver of a process. Its functions raise UnsupportedError if the driver returns an error."""

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, parameters in PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = parameters, ctypes.c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the driver by name."""
        if code := self._functions[name](*arguments):
            text = ctypes.c_char_p()
            self._functions["cuGetErrorString"](code, text)
            said = (text.value or b"unknown error").decode()
            cause = "; an earlier kernel may be the cause" if code in ASYNCHRONOUS else ""
            raise UnsupportedError(f"the CUDA driver returned error {code} from {name}: {said}{cause}")

    def number(self, name: str, *arguments: object) -> int:
        """Return the integer that a function of the driver writes to its first parameter."""
        number = ctypes.c_int()
        self.call(name, number, *arguments)
        return number.value

    def handle(self, name: str, *arguments: object) -> Handle:
        """Return the handle that a function of the driver writes to its first parameter."""
        handle = Handle()
        self.call(name, handle, *arguments)
        return handle


@cache
def _loaded() -> Driver | str:
    """Return the driver, or why there is none."""
    try:
        driver = Driver(ctypes.CDLL(LIBRARY))
        driver.call("cuInit", 0)
    except (OSError, AttributeError) as error:
        return f"NVIDIA's driver cannot be loaded: {error}"
    except UnsupportedError as error:
        return str(error)
    return driver


def _driver() -> Driver:
    driver = _loaded()
    if isinstance(driver, str):
        raise UnsupportedError(driver)
    return driver


def refusal() -> str:
    """Return why no device can be used, or the empty string."""
    driver = _loaded()
    if isinstance(driver, str):
        return driver
    return "" if driver.number("cuDeviceGetCount") else "there is no CUDA device"


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A kernel in a device's memory, and the shared memory of its blocks."""

    handle: Handle
    threads: int
    shared_bytes: int


class Device:
    """A device: its name, multiprocessors and compute capability, and its primary context, which frameworks share."""

    def __init__(self, number: int) -> None:
        self.driver = driver = _driver()
        self._device = device = driver.number("cuDeviceGet", number)
        text = ctypes.create_string_buffer(NAME_BYTES)
        driver.call("cuDeviceGetName", text, NAME_BYTES, device)
        self.name = text.value.decode()
        processors, major, minor = (
            driver.number("cuDeviceGetAttribute", attribute, device) for attribute in (PROCESSORS, MAJOR, MINOR)
        )
        self.processors, self.capability = processors, (major, minor)
        if self.capability < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UnsupportedError(f"{self.name} has compute capability {major}.{minor}; kernels need {oldest}")

    @cached_property
    def context(self) -> Handle:
        """The primary context, which takes a fraction of a second to create."""
        return self.driver.handle("cuDevicePrimaryCtxRetain", self._device)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the primary context that of the calling thread in a ``with`` block."""
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.driver.handle("cuCtxPopCurrent_v2")

    def function(self, ptx: str, name: str, threads: int, shared_bytes: int) -> DeviceFunction:
        """Load a kernel. The driver compiles its PTX for the device."""
        with self.current():
            module = self.driver.handle("cuModuleLoadData", ptx.encode())
            handle = self.driver.handle("cuModuleGetFunction", module, name.encode())
            self.driver.call("cuFuncSetAttribute", handle, SHARED_BYTES, shared_bytes)
        return DeviceFunction(handle, threads, shared_bytes)

    def launch(self, function: DeviceFunction, grid: Sequence[int], stream: int, arguments: Sequence[int]) -> None:
        """Launch a kernel on a stream. The context must be current; the arguments are addresses."""
        values = (ctypes.c_uint64 * len(arguments))(*arguments)
        first = ctypes.addressof(values)
        places = (Handle * len(arguments))(*range(first, first + 8 * len(arguments), 8))
        block = (function.threads, 1, 1)
        self.driver.call("cuLaunchKernel", function.handle, *grid, *block, function.shared_bytes, stream, places, None)

    def copied(self, table: bytes) -> int:
        """Return the address of a copy of ``table`` in the device's memory, which is complete for all streams."""
        with self.current():
            address = self.driver.handle("cuMemAlloc_v2", len(table))
            self.driver.call("cuMemcpyHtoD_v2", address, table, len(table))
            self.driver.call("cuCtxSynchronize")
        return address.value or 0

    def free(self, address: int) -> None:
        """Free the memory of ``copied`` after all work that may read it."""
        with self.current():
            self.driver.call("cuCtxSynchronize")
            self.driver.call("cuMemFree_v2", address)

    @contextmanager
    def scratch(self, size: int, stream: int) -> Iterator[int]:
        """Allocate memory for the work that is added to a stream in a ``with`` block. The context must be current."""
        address = self.driver.handle("cuMemAllocAsync", size, stream).value or 0 if size else 0
        try:
            yield address
        finally:
            if address:
                self.driver.call("cuMemFreeAsync", address, stream)

    @contextmanager
    def ordered(self, stream: int, others: Sequence[int]) -> Iterator[None]:
        """Order the work that is added to a stream in a ``with`` block between earlier and later work of others."""
        for other in others:
            self._wait(stream, other)
        yield
        for other in others:
            self._wait(other, stream)

    def _wait(self, stream: int, other: int) -> None:
        event = self.driver.handle("cuEventCreate", WITHOUT_TIMES)
        self.driver.call("cuEventRecord", event, other)
        self.driver.call("cuStreamWaitEvent", stream, event, 0)
        self.driver.call("cuEventDestroy_v2", event)

    def is_captured(self, stream: int) -> bool:
        """Return whether the work of a stream is being captured in a CUDA graph."""
        status = ctypes.c_int()
        self.driver.call("cuStreamIsCapturing", stream, status)
        return status.value != 0

    def fill_with_zeros(self, address: int, size: int, stream: int) -> None:
        """Set bytes of the device's memory to 0, as work of a stream."""
        self.driver.call("cuMemsetD8Async", address, 0, size, stream)


_lock = forked_with()
_devices: dict[int, Device] = {}


def device(number: int) -> Device:
    """Return a device by its number."""
    with _lock:
        if number not in _devices:
            _devices[number] = Device(number)
        return _devices[number]


def number_of(address: int) -> int:
    """Return the number of the device whose memory has an address."""
    return _driver().number("cuPointerGetAttribute", DEVICE_ORDINAL, address)
