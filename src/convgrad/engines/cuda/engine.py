"""Prepared calls on a GPU. The caller allocates all memory on the device and orders the work by streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convgrad.engines.cuda import driver
from convgrad.engines.cuda.driver import Device, DeviceFunction
from convgrad.engines.cuda.kernels import ptx
from convgrad.engines.engine import Strides
from convgrad.errors import UnsupportedError
from convgrad.plan.cuda.plan import DevicePlan, plan, refusal
from convgrad.plan.cuda.recipe import LevelSpec, Spec
from convgrad.plan.passes import ONES
from convgrad.spec.problem import Problem
from convgrad.starting import forked_with, run_on_large_stack

_lock = forked_with()
_functions: dict[tuple[Device, Spec], DeviceFunction] = {}


class DeviceCall:
    """A problem, the strides of its canonical arrays, and a device; ``aligned`` is as in ``plan``.

    The table must be copied to the device once. A call needs ``scratch_bytes`` of the device's memory until the work
    that it adds to a stream has finished.
    """

    def __init__(self, problem: Problem, strides: Strides, number: int, aligned: bool = True) -> None:
        if why_not := refusal(problem, strides):
            raise UnsupportedError(f"{problem.operator}: {why_not}")
        self.device = driver.device(number)
        self.plan: DevicePlan = plan(problem, tuple(strides), self.device.processors, aligned)
        self.table_bytes, self.scratch_bytes = len(self.plan.table), self.plan.scratch_bytes
        self._functions = [_function(self.device, launch.spec) for launch in self.plan.launches]
        tensors: tuple[str, ...] = problem.operands
        self._a, self._b = (-1 if name == ONES else tensors.index(name) for name in self.plan.operands)
        self._bias = tensors.index("bias") if "bias" in tensors else -1

    def take_table(self) -> bytes:
        """Return the table, which may have hundreds of megabytes, and forget it."""
        table, self.plan = self.plan.table, replace(self.plan, table=b"")
        return table

    def launch(self, operands: Sequence[int], out: int, table: int, scratch: int, stream: int) -> None:
        """Add the work of a call to a stream. All arguments are addresses on the device, except the stream's handle."""
        addresses = (*operands, 0)
        a, b, bias = addresses[self._a], addresses[self._b], addresses[self._bias]
        with self.device.current():
            for function, launch in zip(self._functions, self.plan.launches, strict=True):
                first = scratch + launch.reads if isinstance(launch.spec, LevelSpec) else a
                second = scratch if launch.is_packed else b
                arguments = (first, second, out, bias, scratch + launch.writes, table + launch.table)
                self.device.launch(function, launch.grid, stream, arguments)


def _function(device: Device, spec: Spec) -> DeviceFunction:
    """Return the kernel of a specification on a device; kernels are loaded once."""
    with _lock:
        known = _functions.get((device, spec))
        if known is None:
            text = run_on_large_stack(lambda: ptx(spec))
            known = device.function(text, spec.name, spec.threads, spec.shared_bytes)
            _functions[device, spec] = known
        return known
