"""Prepared calls of Winograd's algorithm. A call has one or two stages, and only addresses differ between its runs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct

from convgrad.array_types import Array
from convgrad.cached import cached_property
from convgrad.engines import pool, pools, scratch
from convgrad.engines.addresses import Words, address_of, array_at
from convgrad.engines.engine import CompiledKernel, Strides
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.execute import copied, executable, filled
from convgrad.engines.llvm.winograd.tasks import module_of
from convgrad.float_environment import in_default_environment
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.passes import dense, winograd_plan
from convgrad.plan.records import FLAGS
from convgrad.plan.winograd.plans import WinogradPlan
from convgrad.plan.winograd.schedule import CALL, arguments, schedules
from convgrad.plan.winograd.spec import spec_of
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem, canonical_shape, canonical_shapes

CAPACITY = 64  # the largest number of cached calls
_ADDRESSES = Struct(f"{len(CALL.columns) - len(FLAGS.columns)}q")
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of a call: a driver and all its arguments except the addresses."""

    kernel: CompiledKernel
    arguments: Words
    scratch_bytes: int  # per thread
    time_ms: float  # the expected time on all threads

    def run(self, plan: WinogradPlan, addresses: Sequence[int], held: object) -> None:
        """Run the driver on the threads of a plan, or on one thread if more would not help.

        The expected time of the plan's call, with all of its stages, determines whether threads are woken.
        """
        arguments, _ = copied(self.arguments)
        _ADDRESSES.pack_into(arguments, FLAGS.bytes, *addresses)
        time_ms = max(self.time_ms, min(plan.time_ms, pool.LONG_MS / 2))
        used = plan.threads if plan.threads > 1 and pools.helped(plan.threads, time_ms) else 1
        pools.run(self.kernel, arguments, self.scratch_bytes, used, time_ms * plan.threads / used, held)


@dataclass(frozen=True)
class Tiled:
    """A prepared call of a problem with Winograd's algorithm, for arrays of known strides."""

    problem: Problem
    strides: Strides
    machine: Machine
    plan: WinogradPlan
    stages: tuple[Stage, ...]

    @property
    def memory_bytes(self) -> int:
        """The bytes that a call needs besides its arrays: the shared memory and the scratch of all threads."""
        return self.plan.shared_bytes + self.plan.threads * max(stage.scratch_bytes for stage in self.stages)

    def execute(self, operands: Sequence[Array], out: Array) -> None:
        """Compute the problem from canonical operands into the canonical view ``out``."""
        self.at([address_of(array) for array in operands], address_of(out), (operands, out))

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute the problem from the canonical operands at these addresses into the output at ``out``.

        ``keep`` is an object that keeps the memory of operands and output alive. If an f32 sum is not finite
        before the bias is added, all results are computed again by the direct sum. For this, the old values are copied
        first if the call accumulates.
        """
        memory = scratch.shared.take(-(-(self.plan.shared_bytes + LINE_BYTES) // 8))
        begin = address_of(memory)
        begin += -begin % LINE_BYTES
        if self.problem.accumulate:
            result, at = self._results(out, self.strides[-1]), begin + self.plan.shared["old"]
            old = self._results(at, dense(self._shape, self.problem.layouts[-1], result.itemsize))
            old[...] = result
        infinite = ctypes.c_int64(0)
        addresses = {"bias": 0, **dict(zip((*self.problem.operands, "out"), (*operands, out), strict=True))}
        fixed, held = (ctypes.addressof(infinite), begin), (self, keep, memory, infinite)
        for group in range(self._groups):
            moving = [addresses[name] + group * step for name, step in self._group_steps.items()]
            for stage in self.stages:
                stage.run(self.plan, (*moving, *fixed), held)
        if infinite.value:
            if self.problem.accumulate:
                result[...] = old
            direct = executable(replace(self.problem, algorithm=""), self.strides, self.machine, self.plan.threads)
            direct.at(operands, out, keep)
        scratch.shared.give_back(memory)

    @cached_property
    def _group_steps(self) -> dict[str, int]:
        """The distance in bytes between two groups, for A, B, bias and output. Groups are computed one by one."""
        names, steps = (*self.problem.operands, "out"), dict.fromkeys((*self.plan.operands, "bias", "out"), 0)
        for name, shape, strides in zip(names, canonical_shapes(self.problem), self.strides, strict=True):
            axis = int((self.problem.output if name == "out" else name) in ("src", "dst"))
            steps[name] = shape[axis] // self._groups * strides[axis]
        return steps

    @property
    def _groups(self) -> int:
        assert isinstance(self.problem.geometry, Conv)
        return self.problem.geometry.groups

    @cached_property
    def _shape(self) -> Ints:
        return canonical_shape(self.problem.geometry, self.problem.output)

    def _results(self, address: int, strides: Ints) -> Array:
        """Return an array of the results over the memory at an address."""
        return array_at(address, self._shape, strides, self.problem.output_format.dtype)


@lru_cache(maxsize=CAPACITY)
@in_default_environment
def tiled(problem: Problem, strides: Strides, machine: Machine, threads: int) -> Tiled:
    """Return the cached prepared call of a problem with Winograd's algorithm, for canonical arrays of these strides."""
    plan = winograd_plan(problem, machine, threads)
    strides_of = dict(zip((*problem.operands, "out"), strides, strict=True))
    strides_of = {
        name: plan.slices.strides(of_tensor) if len(of_tensor) > 1 else of_tensor
        for name, of_tensor in strides_of.items()
    }
    spec = spec_of(problem, machine.isa, strides_of, plan)
    stages = tuple(
        Stage(jit.compile(stage, module_of), filled(arguments(spec), schedule.numbers), schedule.scratch_bytes, time_ms)
        for stage, schedule, time_ms in schedules(spec, strides_of, plan)
    )
    return Tiled(problem, strides, machine, plan, stages)
