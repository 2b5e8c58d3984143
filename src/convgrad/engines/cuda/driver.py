"""NVIDIA's driver, called through ctypes: devices, their primary contexts, modules and launches."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from convgrad.engines.starting import forked_with
from convgrad.errors import UnsupportedError

LIBRARIES = ("libcuda.so.1", "nvcuda.dll")
PROCESSORS, MAJOR, MINOR = 16, 75, 76  # numbers of attributes of a device
SHARED_BYTES = 8  # number of an attribute of a function: the largest dynamic shared memory
NAME_BYTES = 256
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
}


class Driver:
    """The driver of a process. Its functions raise UnsupportedError if the driver returns an error."""

    def __init__(self, library: Any) -> None:
        self._functions = {}
        for name, parameters in PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = parameters, ctypes.c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver by name."""
        if code := self._functions[name](*arguments):
            text = ctypes.c_char_p()
            self._functions["cuGetErrorString"](code, text)
            said = (text.value or b"unknown error").decode()
            raise UnsupportedError(f"the CUDA driver returned error {code} from {name}: {said}")

    def number(self, name: str, *arguments: Any) -> int:
        """Return the integer that a function of the driver writes to its first parameter."""
        number = ctypes.c_int()
        self.call(name, number, *arguments)
        return number.value

    def handle(self, name: str, *arguments: Any) -> Handle:
        """Return the handle that a function of the driver writes to its first parameter."""
        handle = Handle()
        self.call(name, handle, *arguments)
        return handle


@cache
def _loaded() -> Driver | str:
    """Return the driver, or why there is none."""
    said = "NVIDIA's driver is not installed"
    for name in LIBRARIES:
        try:
            driver = Driver(ctypes.CDLL(name))
            driver.call("cuInit", 0)
        except (OSError, AttributeError) as error:
            said = f"NVIDIA's driver cannot be loaded: {error}"
        except UnsupportedError as error:
            return str(error)
        else:
            return driver
    return said


def refusal() -> str:
    """Return why no device can be used, or the empty string."""
    driver = _loaded()
    if isinstance(driver, str):
        return driver
    return "" if driver.number("cuDeviceGetCount") else "there is no CUDA device"


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel in a device's memory, and the shared memory of its blocks."""

    handle: Handle
    threads: int
    shared_bytes: int


class Device:
    """A device: its name, multiprocessors and compute capability, and its primary context, which frameworks share."""

    def __init__(self, number: int) -> None:
        driver = _loaded()
        if isinstance(driver, str):
            raise UnsupportedError(driver)
        self.driver = driver
        device = driver.number("cuDeviceGet", number)
        text = ctypes.create_string_buffer(NAME_BYTES)
        driver.call("cuDeviceGetName", text, NAME_BYTES, device)
        self.name = text.value.decode()
        processors, major, minor = (
            driver.number("cuDeviceGetAttribute", one, device) for one in (PROCESSORS, MAJOR, MINOR)
        )
        self.processors, self.capability = processors, (major, minor)
        if self.capability < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise UnsupportedError(f"{self.name} has compute capability {major}.{minor}; kernels need {oldest}")
        self.context = driver.handle("cuDevicePrimaryCtxRetain", device)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the primary context that of the calling thread in a ``with`` block."""
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.driver.handle("cuCtxPopCurrent_v2")

    def function(self, ptx: str, name: str, threads: int, shared_bytes: int) -> Function:
        """Load a kernel. The driver compiles its PTX for the device."""
        with self.current():
            module = self.driver.handle("cuModuleLoadData", ptx.encode())
            handle = self.driver.handle("cuModuleGetFunction", module, name.encode())
            self.driver.call("cuFuncSetAttribute", handle, SHARED_BYTES, shared_bytes)
        return Function(handle, threads, shared_bytes)

    def launch(self, function: Function, grid: Sequence[int], stream: int, arguments: Sequence[int]) -> None:
        """Launch a kernel on a stream. The context must be current; the arguments are addresses."""
        values = (ctypes.c_uint64 * len(arguments))(*arguments)
        first = ctypes.addressof(values)
        places = (Handle * len(arguments))(*range(first, first + 8 * len(arguments), 8))
        block = (function.threads, 1, 1)
        self.driver.call("cuLaunchKernel", function.handle, *grid, *block, function.shared_bytes, stream, places, None)


_lock = forked_with()
_devices: dict[int, Device] = {}


def device(number: int) -> Device:
    """Return a device by its number."""
    with _lock:
        if number not in _devices:
            _devices[number] = Device(number)
        return _devices[number]
