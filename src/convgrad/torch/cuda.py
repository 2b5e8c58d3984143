"""Kernel calls on CUDA tensors. PyTorch allocates all memory, and its current stream orders the work."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from convgrad.engines.cuda.engine import DeviceCall
from convgrad.engines.cuda.kept import KeptCalls
from convgrad.engines.engine import Strides
from convgrad.errors import UnsupportedError
from convgrad.functional.call import REMEMBERED
from convgrad.plan.cuda.plan import refusal
from convgrad.plan.cuda.vectors import are_aligned
from convgrad.plan.reach import unsupported
from convgrad.spec.problem import Problem
from convgrad.starting import run_on_large_stack

_captured: set[_Prepared] = set()  # calls in CUDA graphs, which may run after the cache has removed the call


class _Prepared:
    """A call of the engine for GPUs whose table is in the device's memory, and the streams that have used the table."""

    def __init__(self, problem: Problem, strides: Strides, device: torch.device, aligned: bool) -> None:
        if torch.cuda.is_current_stream_capturing():
            raise UnsupportedError(
                f"{problem.operator}: the first call with tensors of a shape loads kernels, so it must be before the"
                " capture of a CUDA graph. Make one call before the capture"
            )
        self.call = DeviceCall(problem, strides, device.index, aligned)
        self.table_bytes = self.call.table_bytes
        self.table, self.streams = _on_device(self.call.take_table(), device), set[int]()


_kept = KeptCalls[_Prepared](REMEMBERED)


class DeviceKernel:
    """A call on a device: a problem and the strides of its tensors.

    The first call loads the kernels and copies their table, and waits for the GPU. So the first call must be before the
    capture of a CUDA graph; later calls can be captured. Unaligned tensors need other kernels.
    """

    def __init__(self, problem: Problem, strides: Strides, device: torch.device) -> None:
        self.problem, self.strides, self.device = problem, strides, device

    def at(self, operands: Sequence[int], out: int, tensors: tuple[Tensor, ...]) -> None:
        """Add the work of a call to the current stream of the device. ``tensors`` are the operands and the result.

        The scratch memory is freed at once. PyTorch reuses it only for later work of the same stream.
        """
        key = self.problem, self.strides, self.device, are_aligned(self.problem, (*operands, out))
        with torch.cuda.device(self.device):
            prepared, stream = _kept.get(key, lambda: _Prepared(*key)), torch.cuda.current_stream()
            handle: int = stream.cuda_stream
            if handle not in prepared.streams:  # PyTorch then reuses the table's memory only after this stream's work
                prepared.table.record_stream(stream)
                prepared.streams.add(handle)
            if torch.cuda.is_current_stream_capturing():
                _captured.add(prepared)
            scratch = torch.empty(prepared.call.scratch_bytes, dtype=torch.uint8, device=self.device)
            prepared.call.launch(operands, out, prepared.table.data_ptr(), scratch.data_ptr(), handle)


class Zeros:
    """A call on a device with sums of no terms: each result is 0, plus the bias."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def at(self, operands: Sequence[int], out: int, tensors: tuple[Tensor, ...]) -> None:
        """Write the results into the last of the tensors. The others are the operands."""
        result, names = tensors[-1].zero_(), self.problem.operands
        if "bias" in names:
            result += tensors[names.index("bias")].reshape(-1, *[1] * (result.dim() - 2))
            result.masked_fill_(result.isnan(), torch.nan)  # the canonical NaN, as kernels store it
        if self.problem.activation:
            result.clamp_(min=0)


def ready(problem: Problem, strides: Strides, device: torch.device) -> DeviceKernel | Zeros:
    """Return the prepared call of a problem on a device, or raise UnsupportedError if no GPU kernel computes it."""
    if why_not := refusal(problem, strides):
        raise UnsupportedError(f"{problem.operator}: {why_not}")
    return Zeros(problem) if unsupported(problem) else DeviceKernel(problem, strides, device)


def now(*devices: torch.device) -> float:
    """Return the time in seconds, after all work on these devices."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    return perf_counter()


def _on_device(table: bytes, device: torch.device) -> Tensor:
    """Return a table in a device's memory. The copy is complete, so that any stream can use the table.

    A new thread allocates the memory, because the caller's thread or stream may allocate from a CUDA graph's pool.
    """

    def copied() -> Tensor:
        with torch.cuda.device(device):
            tensor = torch.frombuffer(bytearray(table), dtype=torch.uint8).to(device)
            torch.cuda.current_stream().synchronize()
        return tensor

    return run_on_large_stack(copied)
