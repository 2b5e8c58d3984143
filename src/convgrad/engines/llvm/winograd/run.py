"""Prepared calls of Winograd's algorithm. A call has one or two stages, and only addresses differ between its runs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from numpy.typing import NDArray

from convgrad.cached import cached_property
from convgrad.engines import pool, pools, scratch
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.engine import Strides
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.execute import executable
from convgrad.engines.llvm.samples import driver_arguments
from convgrad.engines.llvm.winograd import tasks
from convgrad.engines.llvm.winograd.back import positions_numbers, weights_numbers
from convgrad.engines.llvm.winograd.into import filter_numbers, input_numbers
from convgrad.engines.llvm.winograd.sums import level_bytes, sum_numbers
from convgrad.engines.llvm.winograd.vectors import prefixed
from convgrad.float_environment import in_default_environment
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.passes import dense, winograd_plan
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.tables import placed
from convgrad.plan.tree import levels_of
from convgrad.plan.winograd.plans import PositionsPlan, WeightsPlan, WinogradPlan, of_panel
from convgrad.plan.winograd.spec import WinogradSpec, spec_of
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem, canonical_shape, canonical_shapes
from convgrad.spec.winograd.algorithms import MET
from convgrad.spec.winograd.tile_order import BLOCK

CAPACITY = 64  # the largest number of cached calls
Array = NDArray[Any]
Ints = tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A stage of a call: a driver and all its arguments except the addresses."""

    kernel: jit.Kernel
    addresses: tuple[str, ...]  # the names of the arguments that are addresses
    settled: Mapping[str, int]  # the values of all other arguments, by name
    scratch_bytes: int  # per thread
    time_ms: float  # the expected time on all threads
    call_ms: float  # the expected time of all stages of the call, which determines whether threads are woken

    def run(self, threads: int, given: Mapping[str, int], held: object) -> None:
        """Run the driver on ``threads`` threads, or on one thread if more would not help."""
        arguments = driver_arguments((*self.addresses, *self.settled), {**self.settled, **given})
        time_ms = max(self.time_ms, min(self.call_ms, pool.LONG_MS / 2))
        used = threads if threads > 1 and pools.helped(threads, time_ms) else 1
        pools.run(self.kernel, arguments, self.scratch_bytes, used, time_ms * threads / used, held)


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
        places = {name: begin + offset for name, offset in self.plan.shared.items()}
        if self.problem.accumulate:
            result = self._results(out, self.strides[-1])
            old = self._results(places["old"], dense(self._shape, self.problem.layouts[-1], result.itemsize))
            old[...] = result
        infinite = ctypes.c_int64(0)
        moving = {f"{tensor}.data": address for tensor, address in zip(self.problem.operands, operands, strict=True)}
        moving["out.data"] = out
        fixed = {"bias.data": 0, **places, "out.infinite": ctypes.addressof(infinite)}
        held = (self, keep, memory, infinite)
        for group in range(self._groups):
            here = {name: address + group * self._group_steps[name] for name, address in moving.items()}
            for stage in self.stages:
                stage.run(self.plan.threads, fixed | here, held)
        if infinite.value:
            if self.problem.accumulate:
                result[...] = old
            direct = executable(replace(self.problem, algorithm=""), self.strides, self.machine, self.plan.threads)
            direct.at(operands, out, keep)
        scratch.shared.give_back(memory)

    @cached_property
    def _group_steps(self) -> dict[str, int]:
        """The distance in bytes between two groups, for each operand and the output. Groups are computed one by one."""
        names, steps = (*self.problem.operands, "out"), dict[str, int]()
        for name, shape, strides in zip(names, canonical_shapes(self.problem), self.strides, strict=True):
            axis = int((self.problem.output if name == "out" else name) in ("src", "dst"))
            steps[f"{name}.data"] = shape[axis] // self._groups * strides[axis]
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
    chosen: Any = winograd_plan(problem, machine, threads)
    given = dict(zip((*problem.operands, "out"), strides, strict=True))
    stages: Any = _weights_stages if problem.solves_for == "weights" else _positions_stages
    given = {name: chosen.slices.strides(each) if len(each) > 1 else each for name, each in given.items()}
    return Tiled(problem, strides, machine, chosen, stages(spec_of(problem, machine.isa, given, chosen), given, chosen))


@cache
def driver(task: tasks.Task, spec: WinogradSpec, addresses: tuple[str, ...], numbers: tuple[str, ...]) -> jit.Kernel:
    """Return the compiled driver that runs ``task`` for each number that a thread claims."""
    prototype = (None, ctypes.c_void_p, ctypes.c_void_p)
    (found,) = jit.functions(spec.isa, tasks.module, task, spec, addresses, numbers, driver=prototype)
    kernel: jit.Kernel = found
    return kernel


def _positions_stages(spec: WinogradSpec, strides: Mapping[str, Ints], chosen: PositionsPlan) -> tuple[Stage, ...]:
    """Return the two stages of forward or backward data.

    The first stage transforms one operand. The second transforms the other operand by cache blocks, multiplies, and
    applies the output transform.
    """
    slices, tensor, isa = chosen.slices, MET[spec.solves_for], spec.isa
    conv, taps = slices.conv, slices.axes[0].kernel
    grid, levels = spec.transforms.covering(conv), levels_of(-(-conv.src_channels // BLOCK))
    met = input_numbers(spec, True, slices, strides[tensor], slices.channels, grid, chosen.tiles, taps=taps)
    weights = filter_numbers(spec, slices, strides["weights"], chosen.results)
    out = positions_numbers(spec, slices, strides["out"], chosen.results, grid, chosen.tiles)
    of_b = (weights["point"], weights["panel"], of_panel(1, isa))
    gemm = sum_numbers(spec, (met["point"], met["tile"], F32_BYTES), of_b, (out["point"], out["tile"]))
    places, scratch_bytes = placed(
        {
            "points_at": chosen.block_bytes,
            "sums_at": chosen.sums_bytes,
            "room_at": levels * level_bytes(isa),
            "bias_at": chosen.results * F32_BYTES,
            "staging_at": max(each["staging"] for each in (met, weights, out)),
        }
    )
    operands = prefixed(tensor, met) | prefixed("weights", weights)
    block = {
        "count": chosen.tasks,
        "each": chosen.each,
        "all": chosen.every,
        "all_rows": chosen.all_rows,
        "k": conv.src_channels,
        "levels": levels,
        "bias.step": strides["bias"][0] if "bias" in strides else 0,
        **operands,
        **prefixed("gemm", gemm),
        **prefixed("out", out),
        **places,
    }
    transform, count, multiply = (
        (tasks.filter_points, weights["count"], tasks.rows_block)
        if chosen.by_rows
        else (tasks.input_points, chosen.all_rows, tasks.results_block)
    )
    addresses = (f"{tensor}.data", "weights.data", "bias.data", "points", "out.data", "out.infinite")
    points = (transform, {"count": count, **operands}, chosen.points_ms)
    return _stages(spec, chosen, addresses, scratch_bytes, points, (multiply, block, chosen.blocks_ms))


def _weights_stages(spec: WinogradSpec, strides: Mapping[str, Ints], chosen: WeightsPlan) -> tuple[Stage, ...]:
    """Return the stages of backward weights: the sums of each unit of tiles and, if there are several, their total."""
    slices, turns, several = chosen.slices, chosen.turns, chosen.turns.units > 1
    conv, grid = slices.conv, (turns.rows, turns.length)
    src, dst = (
        input_numbers(spec, tensor == "src", slices, strides[tensor], channels, grid, chosen.tiles, turns.parts)
        for tensor, channels in (("src", chosen.down), ("dst", chosen.across))
    )
    sizes = (slices.channels, conv.dst_channels, slices.axes[0].kernel) if several else (*chosen.block, 1)
    out = weights_numbers(spec, strides["out"], *sizes)
    of_a, of_b = (src["point"], F32_BYTES, src["tile"]), (dst["point"], of_panel(1, spec.isa), dst["tile"])
    gemm = sum_numbers(spec, of_a, of_b, (out["point"], out["sums_row"]))
    places, scratch_bytes = placed(
        {
            "a_at": chosen.stored * chosen.src_bytes,
            "b_at": chosen.stored * chosen.dst_bytes,
            "sums_at": 0 if several else chosen.sums_bytes,
            "staging_at": max(each["staging"] for each in (src, dst, out)),
        }
    )
    common = {"unit": chosen.sums_bytes, "units": turns.units, "levels": levels_of(turns.units), **prefixed("out", out)}
    unit = {
        "count": chosen.tasks,
        "parts": chosen.tasks // turns.units,
        "m.parts": chosen.parts[0],
        "n.parts": chosen.parts[1],
        "m.each": chosen.down,
        "m.all": slices.channels,
        "n.each": chosen.across,
        "n.all": conv.dst_channels,
        "chains.each": turns.blocks,
        "chains.all": -(-turns.stretches // turns.each),
        "segments.each": turns.each,
        "segments.all": turns.stretches,
        "length": turns.length,
        "block.m": chosen.block[0],
        "block.n": chosen.block[1],
        "src_bytes": chosen.src_bytes,
        "dst_bytes": chosen.dst_bytes,
        **common,
        **prefixed("src", src),
        **prefixed("dst", dst),
        **prefixed("gemm", gemm),
        **places,
    }
    addresses = ("src.data", "dst.data", "out.data", "out.infinite")
    if not several:
        task = tasks.only_unit if chosen.block == (chosen.down, chosen.across) else tasks.blocks_of_unit
        return _stages(spec, chosen, addresses, scratch_bytes, (task, unit, chosen.units_ms))
    vectors = -(-conv.dst_channels // spec.isa.lanes)
    sums = {"count": vectors if spec.out == BY_TAPS else conv.src_channels, **common}
    units = ((tasks.unit, unit, chosen.units_ms), (tasks.units_sum, sums, chosen.weights_ms))
    return _stages(spec, chosen, (*addresses, "sums"), scratch_bytes, *units)


def _stages(
    spec: WinogradSpec,
    chosen: WinogradPlan,
    addresses: tuple[str, ...],
    scratch_bytes: int,
    *stages: tuple[tasks.Task, Mapping[str, int], float],
) -> tuple[Stage, ...]:
    """Return stages that have the same addresses and scratch. Each is given by its task, arguments and time in ms."""
    return tuple(
        Stage(driver(task, spec, addresses, tuple(settled)), addresses, settled, scratch_bytes, time_ms, chosen.time_ms)
        for task, settled, time_ms in stages
    )
