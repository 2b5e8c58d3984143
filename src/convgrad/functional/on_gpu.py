"""Calls on arrays in the memory of NVIDIA GPUs, which their libraries describe by ``__cuda_array_interface__``.

The checks of a call see NumPy arrays that have the addresses, shapes, strides and types of the arrays on the GPU.
Nothing reads or writes the memory of these NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize

import numpy as np

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.arrays import libraries
from convgrad.arrays.libraries import dlpack
from convgrad.arrays.libraries.cuda_interface import read
from convgrad.arrays.libraries.jax import JAX
from convgrad.engines.addresses import address_of
from convgrad.engines.cuda import driver
from convgrad.engines.cuda.kept import KeptCalls
from convgrad.engines.engine import Strides
from convgrad.errors import UnsupportedError
from convgrad.plan.reach import unsupported
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.starting import deferred

if TYPE_CHECKING:
    from convgrad.engines.cuda.engine import DeviceCall


REMEMBERED = 256  # cached calls
INTERFACE = "__cuda_array_interface__"


@deferred
def _device_call() -> type[DeviceCall]:
    """Return the class of calls, which needs the compiler."""
    from convgrad.engines.cuda.engine import DeviceCall  # noqa: PLC0415

    return DeviceCall


@deferred
def _refusal() -> Callable[[Problem, Strides], str]:
    """Return the function that says why there is no kernel, which needs the planner."""
    from convgrad.plan.cuda.plan import refusal  # noqa: PLC0415

    return refusal


@deferred
def _are_aligned() -> Callable[[Problem, Iterable[int]], bool]:
    """Return the check of addresses, which needs the planner."""
    from convgrad.plan.cuda.vectors import are_aligned  # noqa: PLC0415

    return are_aligned


class GpuArray(NamedTuple):
    """An array on a GPU: the NumPy array for the checks, and the stream that the library names, if any."""

    array: Array
    stream: int | None
    owner: object  # keeps the memory


class GpuOperands(NamedTuple):
    """The operands of a call whose arrays are on a GPU. ``operands`` has NumPy arrays in their places."""

    operands: tuple[object, ...]
    gpu_arrays: tuple[GpuArray, ...]

    def execute(self, problem: Problem, operands: tuple[Array, ...], taken: Mapping[str, Array], out: object) -> None:
        """Add the work of a checked call to a stream. ``operands`` are the canonical views of ``taken``."""
        operator, first = problem.operator, next(iter(taken))
        if out is None:  # D1
            refuse(
                "D1", operator, f"out must be an array on the GPU of {first}; got no out. Use out= or convgrad.torch"
            )
        gpu_out = _gpu_array(out, operator, "out")
        result: object = out if gpu_out is None else gpu_out.array
        result = arrays.check_out(result, problem.output_shape, problem.output_format, taken, operator)
        if gpu_out is None:  # D1
            refuse("D1", operator, f"out must be on the GPU of {first}; got a {type(out).__name__} in CPU memory")
        if not result.size:
            return
        number = driver.number_of(address_of(result))
        for name, array in taken.items():
            if array.size and (its := driver.number_of(address_of(array))) != number:  # D1
                refuse("D1", operator, f"{name} must be on the GPU of out, which is GPU {number}; got GPU {its}")
        streams = dict.fromkeys(
            gpu_array.stream for gpu_array in (gpu_out, *self.gpu_arrays) if gpu_array.stream is not None
        )
        _add(problem, operands, result, number, [*streams] or [driver.LEGACY_STREAM])


def gpu_operands(operator: str, operands: tuple[object, ...]) -> GpuOperands | None:
    """Return the operands of a call whose first operand is on a GPU; None for other calls."""
    if not operands or _interface(operands[0], to_write=False) is None:
        return None
    op = find(operator, shape_second=len(operands) > 1 and arrays.is_shape(operands[1]))
    replaced, gpu_arrays = [*operands], list[GpuArray]()
    for place, (port, value) in enumerate(zip(op.operands, operands, strict=False)):
        if value is None or port.is_shape:
            continue
        gpu_array = _gpu_array(value, op.name, port.name)
        if gpu_array is None:
            arrays.take(value, op.name, port.name)  # raises a more specific error for some values
            sentence = f"{port.name} must be on the GPU of {op.operands[0].name}; got a {type(value).__name__}"
            refuse("D1", op.name, f"{sentence} in CPU memory")  # D1
        replaced[place] = gpu_array.array
        gpu_arrays.append(gpu_array)
    return GpuOperands(tuple(replaced), tuple(gpu_arrays))


def _interface(value: object, to_write: bool) -> tuple[object, object] | None:
    """Return the description of an array on a GPU, and its owner; None for arrays that the checks must refuse."""
    if type(value) is np.ndarray:
        return None
    library = libraries.library_of(value)
    if library is JAX:  # which names no stream; the checks refuse its arrays on a GPU
        return None
    if library is not None and library.refusal(value, library.not_written * to_write + library.refused):
        return None
    try:
        if getattr(value, "is_cpu", False):  # PyTorch describes no tensor on the CPU, slowly
            return None
        owner = value if library is None else dlpack.resolved(library.detached(library.loaded, value))
        described = getattr(owner, INTERFACE)
        return None if described is None else (described, owner)
    except Exception:  # a library may raise any exception for an array that it cannot describe
        return None


def _gpu_array(value: object, operator: str, name: str) -> GpuArray | None:
    """Return an array on a GPU as the checks see it; None for other values."""
    interface = _interface(value, to_write=name == "out")
    if interface is None:
        return None
    described, owner = interface
    array, stream = read(described, operator, name)
    return GpuArray(array, stream, owner)


class _Kernels:
    """The kernels of a problem on a device, and their table in the device's memory."""

    def __init__(self, problem: Problem, strides: Strides, number: int, aligned: bool) -> None:
        self._call = _device_call()(problem, strides, number, aligned)
        self._device: driver.Device = self._call.device
        self.table_bytes = self._call.table_bytes
        self._table = self._device.copied(self._call.take_table())
        finalize(self, self._device.free, self._table).atexit = False

    def add(self, operands: list[int], out: int, stream: int) -> None:
        """Add the work of a call to a stream."""
        with self._device.scratch(self._call.scratch_bytes, stream) as scratch:
            self._call.launch(operands, out, self._table, scratch, stream)


_kept = KeptCalls[_Kernels](REMEMBERED)


def _add(problem: Problem, operands: tuple[Array, ...], result: Array, number: int, streams: list[int]) -> None:
    """Add the work of a call to the first of the streams, after earlier and before later work of the others."""
    device, (stream, *others) = driver.device(number), streams
    strides = (*[array.strides for array in operands], result.transpose(problem.output_order).strides)
    addresses, out = [address_of(array) for array in operands], address_of(result)
    nothing = unsupported(problem)
    if nothing and (why_not := _refusal()(problem, strides)):
        raise UnsupportedError(f"{problem.operator}: {why_not}")
    if nothing and ("bias" in problem.operands or problem.accumulate or not result.flags.c_contiguous):
        raise UnsupportedError(
            f"{problem.operator}: {nothing}. Kernels for GPUs then need a contiguous out, no bias and no accumulate"
        )
    with device.current():
        if any(map(device.is_captured, streams)):
            raise UnsupportedError(
                f"{problem.operator}: this call cannot be captured in a CUDA graph. Use convgrad.torch"
            )
        with device.ordered(stream, others):
            if nothing:
                device.fill_with_zeros(out, result.nbytes, stream)
            else:
                aligned = _are_aligned()(problem, (*addresses, out))
                key = problem, strides, number, aligned
                _kept.get(key, lambda: _Kernels(*key)).add(addresses, out, stream)
