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
from convgrad.plan.tiled import TiledPlan, at_once, dense, pitch, plan
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant

CAPACITY = 64  # prepared calls kept
Array = NDArray[Any]


@dataclass(frozen=True)
class Tiled:
    """A weight gradient in a variant, on arrays of certain strides, ready to run."""

    problem: Problem
    conv: Conv
    variant: Variant
    lies: Lies
    machine: Machine
    plan: TiledPlan
    sums: Executable  # of all points,
    more: Executable  # and added to those of the images before

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
        held = (self, keep, kept)
        where = {name: begin + offset for name, offset in self.plan.places.items()}
        given = dict(zip(self.problem.operands, operands, strict=True))
        *earlier, last = range(0, self.variant.units(self.conv), self.plan.units)
        for unit in earlier:
            self._points(unit, given, where, held)
            (self.more if unit else self.sums).at([where["src"], where["dst"]], where["sums"], held)
        self._points(last, given, where, held)
        finite = True
        for row in range(0, self.conv.src_channels, self.plan.rows):
            points = [where["src"] + row * F32_BYTES, where["dst"]]
            (self.more if earlier else self.sums).at(points, where["sums"], held)
            finite &= self._weights(row, where["sums"], where.get("weights", out), held)
        if not finite:
            direct = executable(replace(self.problem, variant=""), self.lies, self.machine, self.plan.threads)
            direct.at(operands, out, keep)
        elif not at_once(self.problem):
            self._added(where["weights"], out)
        scratch.shared.give_back(kept)

    def _points(self, unit: int, given: Mapping[Tensor, int], where: Mapping[str, int], held: object) -> None:
        """Make the points of both operands, from a unit on."""
        for tensor, data in given.items():
            self._points_of(tensor, unit, data, where[tensor], held)

    def _points_of(self, tensor: Tensor, unit: int, data: int, out: int, held: object) -> None:
        conv, source = self.conv, tensor == "src"
        image, channel, *steps = self.lies[self.problem.operands.index(tensor)]
        grid = self.variant.grid(conv)
        sizes, pads = ([getattr(axis, tensor) for axis in conv.axes], [axis.pad_begin * source for axis in conv.axes])
        channels = conv.src_channels if source else conv.dst_channels
        rows = grid[0] // self.variant.bands(conv)
        values = {
            "data": data, "out": out, "first": unit * rows, "count": self.plan.units * rows,
            "channels": channels, "image": image,
            "channel": channel, "point": self.plan.tiles * pitch(channels), "tile": pitch(channels),
            **_by_axis("grid", grid), **_by_axis("size", sizes), **_by_axis("pad", pads), **_by_axis("step", steps),
        }  # fmt: skip
        lies = ITEMS if channel == F32_BYTES else TERMS if steps[-1] == F32_BYTES else NEITHER
        kernel = _points_kernel(self.machine.isa, self.variant.name, source, lies)
        lanes = self.machine.isa.lanes
        size = self.variant.axis_points if source else self.variant.tile
        columns = max(pads[-1] + -(-sizes[-1] // lanes) * lanes, (grid[1] - 1) * self.variant.tile + size)
        values["columns"] = columns
        names = (*tiles.POINTS_ADDRESSES, *tiles.POINTS_NUMBERS)
        planes = size * columns * lanes * F32_BYTES if lies == TERMS else LINE_BYTES
        self._run(kernel, names, values, planes, self.plan.points_ms[tensor], held)

    def _weights(self, first: int, sums: int, out: int, held: object) -> bool:
        """Make weights of the sums of points, from a src channel on, and tell whether all of them are finite."""
        conv, infinite = self.conv, ctypes.c_int64(0)
        lane, row, *taps = self.lies[-1] if at_once(self.problem) else dense(conv)
        lanes = pitch(conv.dst_channels)
        values = {
            "sums": sums, "out": out + first * row, "infinite": ctypes.addressof(infinite), "down": self.plan.rows,
            "across": conv.dst_channels, "point": self.plan.rows * lanes, "row": lanes, "out_row": row,
            "out_lane": lane, **_by_axis("tap", taps),
        }  # fmt: skip
        together = taps == [TAPS * F32_BYTES, F32_BYTES]
        lies = ITEMS if lane == F32_BYTES else TERMS if together else NEITHER
        vectors = -(-conv.dst_channels // self.machine.isa.lanes)
        values["count"] = vectors if lies == TERMS else self.plan.rows
        kernel = _weights_kernel(self.machine.isa, self.variant.name, lies)
        names = (*tiles.WEIGHTS_ADDRESSES, *tiles.WEIGHTS_NUMBERS)
        self._run(kernel, names, values, LINE_BYTES, self.plan.weights_ms, (held, infinite))
        return infinite.value == 0

    def _run(
        self, kernel: jit.Kernel, names: tuple[str, ...], values: dict[str, int], scratch_bytes: int, time_ms: float,
        held: object,
    ) -> None:  # fmt: skip
        arguments, threads = driver_arguments(names, values), self.plan.threads
        used = threads if threads > 1 and pool.helped(threads, time_ms) else 1
        pool.run(kernel, arguments, scratch_bytes, used, time_ms * threads / used, held)

    def _added(self, weights: int, out: int) -> None:
        """Round dense weights to the output, the old ones added before if asked."""
        shape, fmt = canonical_shape(self.conv, "weights"), self.problem.output_format
        made = array_at(weights, shape, dense(self.conv), np.dtype(np.float32))
        there = array_at(out, shape, self.lies[-1], fmt.dtype)
        with np.errstate(all="ignore"):
            there[...] = made + there.astype(np.float32) if self.problem.accumulate else made


@lru_cache(maxsize=CAPACITY)
def tiled(problem: Problem, lies: Lies, machine: Machine, threads: int) -> Tiled:
    """Return the prepared call of a problem that has a variant, for canonical arrays that lie so; made once."""
    conv = problem.geometry
    assert isinstance(conv, Conv)
    chosen = plan(problem, machine, threads)
    sums, more = (
        tabled(chosen.sums, replace(chosen.of_sums, accumulate=added), chosen.view) for added in (False, True)
    )
    return Tiled(problem, conv, VARIANTS[problem.variant], lies, machine, chosen, sums, more)


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
