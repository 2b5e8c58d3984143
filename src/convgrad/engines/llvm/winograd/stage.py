"""A call by tiles, and a stage of it: a driver whose arguments are settled but for what a run of the call brings."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import pool, pools, scratch
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.engine import Strides
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.execute import executable
from convgrad.engines.llvm.samples import driver_arguments
from convgrad.engines.llvm.winograd import points
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.passes import dense
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED
from convgrad.plan.winograd.recipe import TiledPlan, at_once, of_point, pitch
from convgrad.spec.activation import activate
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem, canonical_shape, canonical_shapes
from convgrad.spec.toom_cook import Variant

Array = NDArray[Any]
LAYOUTS = {"weights": "XIO", "src": "NXC", "dst": "NXC"}  # of results that are rounded last


@dataclass(frozen=True)
class Stage:
    """A driver, and all of its arguments but those that differ from one run of a call to the next."""

    kernel: jit.Kernel
    names: tuple[str, ...]
    settled: Mapping[str, int]
    scratch_bytes: int
    time_ms: float  # on all threads,
    call_ms: float  # and of the whole call: what is worth waking threads for, and waiting for them

    def run(self, threads: int, held: object, **given: int) -> None:
        """Run it on so many threads, or on one where others are not there."""
        arguments = driver_arguments(self.names, {**self.settled, **given})
        time_ms = max(self.time_ms, min(self.call_ms, pool.LONG_MS / 2))
        used = threads if threads > 1 and pools.helped(threads, time_ms) else 1
        pools.run(self.kernel, arguments, self.scratch_bytes, used, time_ms * threads / used, held)


@dataclass(frozen=True)
class Tiled:
    """A problem in a variant, on arrays of certain strides, ready to run."""

    problem: Problem
    strides: Strides
    machine: Machine
    plan: TiledPlan

    @property
    def memory_bytes(self) -> int:
        """What running it takes: what threads share, scratch of each, and tables."""
        raise NotImplementedError

    def execute(self, operands: Sequence[Array], out: Array) -> None:
        """Compute into ``out``, canonical, from canonical operands."""
        self.at([address_of(array) for array in operands], address_of(out), (operands, out))

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute from canonical operands that begin at these addresses; ``keep`` is what they are addresses in.

        Where a result is not finite, all are computed again by the direct sum.
        """
        kept = scratch.shared.take(-(-(self.plan.shared_bytes + LINE_BYTES) // 8))
        begin = address_of(kept)
        begin += -begin % LINE_BYTES
        where = {name: begin + offset for name, offset in self.plan.places.items()}
        infinite, to = ctypes.c_int64(0), where.get("out", out)
        *steps, out_step = self.group_steps
        for group in range(self.groups):
            given = [address + group * step for address, step in zip(operands, steps, strict=True)]
            self.by_tiles(given, to + group * out_step, where, infinite, (self, keep, kept, infinite))
        if infinite.value:
            direct = executable(replace(self.problem, variant=""), self.strides, self.machine, self.plan.threads)
            direct.at(operands, out, keep)
        elif not at_once(self.problem):
            self._rounded(where["out"], out)
        scratch.shared.give_back(kept)

    @property
    def groups(self) -> int:
        """Groups of channels, each of which is computed by itself."""
        assert isinstance(self.problem.geometry, Conv)
        return self.problem.geometry.groups

    @cached_property
    def group_steps(self) -> tuple[int, ...]:
        """Bytes from a group to the next of the operands, and last of what is written."""
        tensors = (*self.problem.operands, self.problem.output)
        shapes, strides = canonical_shapes(self.problem), (*self.strides[:-1], written(self.problem, self.strides))
        axes = [int(tensor in ("src", "dst")) for tensor in tensors]
        return tuple(
            [shape[axis] // self.groups * each[axis] for axis, shape, each in zip(axes, shapes, strides, strict=True)]
        )

    def by_tiles(
        self, operands: Sequence[int], out: int, where: Mapping[str, int], infinite: ctypes.c_int64, held: object
    ) -> None:
        """Compute a group into ``out``, or dense what is rounded last; ``infinite`` is told if any result is."""
        raise NotImplementedError

    def _rounded(self, made: int, out: int) -> None:
        """Round dense results to the output, the old ones added before if asked, and activated."""
        shape, fmt = canonical_shape(self.problem.geometry, self.problem.output), self.problem.output_format
        results = array_at(made, shape, written(self.problem, self.strides), np.dtype(np.float32))
        there = array_at(out, shape, self.strides[-1], fmt.dtype)
        with np.errstate(all="ignore"):
            results = results + there.astype(np.float32) if self.problem.accumulate else results
            there[...] = activate(results, self.problem)


def written(problem: Problem, strides: Strides) -> tuple[int, ...]:
    """Return the strides of what results are written to first."""
    if at_once(problem):
        return strides[-1]
    return dense(canonical_shape(problem.geometry, problem.output), LAYOUTS[problem.output], F32_BYTES)


def contiguous_axis(items: int, terms: int) -> str:
    """Return what lies together of channels that are so many bytes apart, and of positions of a row."""
    return CHANNELS if items == F32_BYTES else SPATIAL if terms == F32_BYTES else STRIDED


@dataclass(frozen=True)
class Transform:
    """What transforms tiles: by what lies together in their tensor, its arguments, and bytes of planes in scratch.

    ``begin`` are bytes from the tensor's address to the first position that counts.
    """

    contiguous: str
    settled: Mapping[str, int]
    planes_bytes: int
    begin: int = 0


def points_of(
    isa: Isa, variant: Variant, met: bool, strides: Sequence[int], channels: int, extents: Sequence[int],
    pads: Sequence[int], grid: tuple[int, int], tiles: int, parts: int = 1,
) -> Transform:  # fmt: skip
    """Return what makes points of an operand's tiles, in a grid of rows and of the tiles of a stretch of one.

    Pads below 0 take positions away.
    """
    image, channel, *steps = strides
    away = [max(0, -pad) for pad in pads]
    sizes = [max(0, extent - count) for extent, count in zip(extents, away, strict=True)]
    contiguous, lanes = contiguous_axis(channel, steps[-1]), isa.lanes
    before = [max(0, pad) for pad in pads]
    size = variant.axis_points if met else variant.tile
    met_by = (grid[1] - 1) * variant.tile + size
    columns = max(before[-1] + -(-min(sizes[-1], met_by) // lanes) * lanes, met_by)
    settled = {
        "columns": columns, "parts": parts, "channels": channels, "image": image, "channel": channel,
        "point": of_point(tiles, channels), "tile": pitch(channels),
        **by_axis("grid", grid), **by_axis("size", sizes), **by_axis("pad", before), **by_axis("step", steps),
    }  # fmt: skip
    planes = size * columns * lanes * F32_BYTES if contiguous == SPATIAL else LINE_BYTES
    return Transform(contiguous, settled, planes, sum(count * step for count, step in zip(away, steps, strict=True)))


def points_stage(
    isa: Isa, variant: Variant, met: bool, one: Transform, time_ms: float, call_ms: float, **settled: int
) -> Stage:  # fmt: skip
    """Return what makes points as a stage of its own."""
    kernel, names = driver(isa, points.module, variant.name, met, one.contiguous), (*points.ADDRESSES, *points.NUMBERS)
    return Stage(kernel, names, {**one.settled, **settled}, one.planes_bytes, time_ms, call_ms)


def by_axis(name: str, numbers: Sequence[int]) -> dict[str, int]:
    """Return arguments of both axes, the outer one first."""
    return {f"{name}.{axis}": number for axis, number in zip("yx", numbers, strict=True)}


@cache
def driver(isa: Isa, module: Callable[..., str], *described: object) -> jit.Kernel:
    """Return the driver of a module, compiled once."""
    (kernel,) = jit.functions(isa, module, isa, *described, driver=(None, ctypes.c_void_p, ctypes.c_void_p))
    found: jit.Kernel = kernel
    return found
