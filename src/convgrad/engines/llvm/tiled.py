"""Running a weight gradient by Toom-Cook: points, their sums by the kernel of a 1x1 weight gradient, then weights."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.engines import pool, scratch
from convgrad.engines.addresses import address_of, array_at
from convgrad.engines.llvm import jit, tiles
from convgrad.engines.llvm.execute import Executable, Lies, executable, tabled
from convgrad.engines.llvm.samples import driver_arguments
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import F32_BYTES, ITEMS, NEITHER, TERMS
from convgrad.plan.roles import dense
from convgrad.plan.tiled import TiledPlan, at_once, pitch, plan
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant

CAPACITY = 64  # prepared calls kept
Array = NDArray[Any]


@dataclass(frozen=True)
class _Stage:
    """A driver, and all of its arguments but those that differ from one run of a call to the next."""

    kernel: jit.Kernel
    names: tuple[str, ...]
    settled: Mapping[str, int]
    scratch_bytes: int
    time_ms: float  # on all threads

    def run(self, threads: int, held: object, **given: int) -> None:
        """Run it on so many threads, or on one where others are not there."""
        arguments = driver_arguments(self.names, {**self.settled, **given})
        used = threads if threads > 1 and pool.helped(threads, self.time_ms) else 1
        pool.run(self.kernel, arguments, self.scratch_bytes, used, self.time_ms * threads / used, held)


@dataclass(frozen=True)
class Tiled:
    """A weight gradient in a variant, on arrays of certain strides, ready to run."""

    problem: Problem
    lies: Lies
    machine: Machine
    plan: TiledPlan
    points: Mapping[Tensor, _Stage]  # of the operands, in their order
    sums: Executable  # of all points,
    more: Executable  # and added to those of the units before
    weights: _Stage
    units: range  # the first of those that are computed at a time
    rows: range  # the first of the src channels that become weights at a time
    unit_rows: int  # rows of tiles of a unit
    out_row: int  # bytes from a src channel's weights to the next one's, where they are written to

    @property
    def memory_bytes(self) -> int:
        """What running it takes: what threads share, and what the sums take."""
        return self.plan.shared_bytes + self.sums.memory_bytes

    def execute(self, operands: Sequence[Array], out: Array) -> None:
        """Compute into ``out``, canonical, from canonical operands."""
        self.at([address_of(array) for array in operands], address_of(out), (operands, out))

    def at(self, operands: Sequence[int], out: int, keep: object) -> None:
        """Compute from canonical operands that begin at these addresses; ``keep`` is what they are addresses in.

        Where a weight is not finite, all are computed again by the direct sum.
        """
        kept = scratch.shared.take(-(-(self.plan.shared_bytes + LINE_BYTES) // 8))
        begin = address_of(kept)
        begin += -begin % LINE_BYTES
        where = {name: begin + offset for name, offset in self.plan.places.items()}
        infinite = ctypes.c_int64(0)
        held, threads = (self, keep, kept, infinite), self.plan.threads
        *earlier, last = self.units
        for unit in self.units:
            for (tensor, stage), data in zip(self.points.items(), operands, strict=True):
                stage.run(threads, held, data=data, out=where[tensor], first=unit * self.unit_rows)
            if unit != last:
                (self.more if unit else self.sums).at([where["src"], where["dst"]], where["sums"], held)
        for row in self.rows:
            points = [where["src"] + row * F32_BYTES, where["dst"]]
            (self.more if earlier else self.sums).at(points, where["sums"], held)
            made = where.get("weights", out) + row * self.out_row
            self.weights.run(threads, held, sums=where["sums"], out=made, infinite=ctypes.addressof(infinite))
        if infinite.value:
            direct = executable(replace(self.problem, variant=""), self.lies, self.machine, threads)
            direct.at(operands, out, keep)
        elif not at_once(self.problem):
            self._added(where["weights"], out)
        scratch.shared.give_back(kept)

    def _added(self, weights: int, out: int) -> None:
        """Round dense weights to the output, the old ones added before if asked."""
        conv, fmt = self.problem.geometry, self.problem.output_format
        shape = canonical_shape(conv, "weights")
        made = array_at(weights, shape, dense(shape, "XIO", F32_BYTES), np.dtype(np.float32))
        there = array_at(out, shape, self.lies[-1], fmt.dtype)
        with np.errstate(all="ignore"):
            there[...] = made + there.astype(np.float32) if self.problem.accumulate else made


@lru_cache(maxsize=CAPACITY)
def tiled(problem: Problem, lies: Lies, machine: Machine, threads: int) -> Tiled:
    """Return the prepared call of a problem that has a variant, for canonical arrays that lie so; made once."""
    conv, variant = problem.geometry, VARIANTS[problem.variant]
    assert isinstance(conv, Conv)
    chosen = plan(problem, machine, threads)
    sums, more = (
        tabled(chosen.sums, replace(chosen.of_sums, accumulate=added), chosen.view) for added in (False, True)
    )
    unit_rows = variant.grid(conv)[0] // variant.bands(conv)
    points = {
        tensor: _points(conv, variant, machine.isa, chosen, tensor, strides, chosen.units * unit_rows)
        for tensor, strides in zip(problem.operands, lies, strict=False)
    }
    written = lies[-1] if at_once(problem) else dense(conv.weights_shape, "XIO", F32_BYTES)
    weights = _weights(conv, variant, machine.isa, chosen, written)
    units, rows = range(0, variant.units(conv), chosen.units), range(0, conv.src_channels, chosen.rows)
    return Tiled(problem, lies, machine, chosen, points, sums, more, weights, units, rows, unit_rows, written[1])


def _points(
    conv: Conv, variant: Variant, isa: Isa, chosen: TiledPlan, tensor: Tensor, strides: tuple[int, ...], rows: int
) -> _Stage:  # fmt: skip
    """Return what makes the points of an operand, of so many rows of tiles."""
    source = tensor == "src"
    image, channel, *steps = strides
    grid, channels = variant.grid(conv), conv.src_channels if source else conv.dst_channels
    sizes, pads = ([getattr(axis, tensor) for axis in conv.axes], [axis.pad_begin * source for axis in conv.axes])
    lies = ITEMS if channel == F32_BYTES else TERMS if steps[-1] == F32_BYTES else NEITHER
    size = variant.axis_points if source else variant.tile
    columns = max(pads[-1] + -(-sizes[-1] // isa.lanes) * isa.lanes, (grid[1] - 1) * variant.tile + size)
    settled = {
        "count": rows, "columns": columns, "channels": channels, "image": image, "channel": channel,
        "point": chosen.tiles * pitch(channels), "tile": pitch(channels),
        **_by_axis("grid", grid), **_by_axis("size", sizes), **_by_axis("pad", pads), **_by_axis("step", steps),
    }  # fmt: skip
    kernel = _points_kernel(isa, variant.name, source, lies)
    planes = size * columns * isa.lanes * F32_BYTES if lies == TERMS else LINE_BYTES
    names = (*tiles.POINTS_ADDRESSES, *tiles.POINTS_NUMBERS)
    return _Stage(kernel, names, settled, planes, chosen.points_ms[tensor])


def _weights(conv: Conv, variant: Variant, isa: Isa, chosen: TiledPlan, strides: tuple[int, ...]) -> _Stage:
    """Return what makes weights of the sums of points."""
    lane, row, *taps = strides
    together = taps == [TAPS * F32_BYTES, F32_BYTES]
    lies, lanes = ITEMS if lane == F32_BYTES else TERMS if together else NEITHER, pitch(conv.dst_channels)
    settled = {
        "count": -(-conv.dst_channels // isa.lanes) if lies == TERMS else chosen.rows, "down": chosen.rows,
        "across": conv.dst_channels, "point": chosen.rows * lanes, "row": lanes, "out_row": row, "out_lane": lane,
        **_by_axis("tap", taps),
    }  # fmt: skip
    names = (*tiles.WEIGHTS_ADDRESSES, *tiles.WEIGHTS_NUMBERS)
    return _Stage(_weights_kernel(isa, variant.name, lies), names, settled, LINE_BYTES, chosen.weights_ms)


def _by_axis(name: str, numbers: Sequence[int]) -> dict[str, int]:
    return {f"{name}.{axis}": number for axis, number in zip("yx", numbers, strict=True)}


@cache
def _points_kernel(isa: Isa, variant: str, source: bool, lies: str) -> jit.Kernel:
    return _driver(isa, tiles.points_module(isa, variant, source, lies))


@cache
def _weights_kernel(isa: Isa, variant: str, lies: str) -> jit.Kernel:
    return _driver(isa, tiles.weights_module(isa, variant, lies))


def _driver(isa: Isa, ir: str) -> jit.Kernel:
    (driver,) = jit.functions(isa, ir, driver=(None, ctypes.c_void_p, ctypes.c_void_p))
    kernel: jit.Kernel = driver
    return kernel
