"""Running a weight gradient by Toom-Cook: points, their sums by the kernel of a 1x1 weight gradient, then weights."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convgrad.engines.llvm.execute import Executable, Lies, tabled
from convgrad.engines.llvm.tiles import weights
from convgrad.engines.llvm.tiles.stage import Stage, Tiled, by_axis, driver, points_of, points_stage, written
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import F32_BYTES, ITEMS, NEITHER, TERMS
from convgrad.plan.tiles.recipe import of_point, pitch
from convgrad.plan.tiles.weights import WeightsPlan, plan
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant, of_group


@dataclass(frozen=True)
class TiledWeights(Tiled):
    """A weight gradient in a variant."""

    points: Mapping[Tensor, Stage]  # of the operands, in their order
    more: Executable  # sums of points that are added to those of the units before
    weights: Stage
    units: range  # the first of those that are computed at a time
    rows: range  # the first of the src channels that become weights at a time
    unit_rows: int  # rows of tiles of a unit
    out_row: int  # bytes from a src channel's weights to the next one's, where they are written to

    def by_tiles(
        self, operands: Sequence[int], out: int, where: Mapping[str, int], infinite: ctypes.c_int64, held: object
    ) -> None:
        """Compute weights."""
        threads = self.plan.threads
        *earlier, last = self.units
        for unit in self.units:
            for (tensor, stage), data in zip(self.points.items(), operands, strict=True):
                stage.run(threads, held, data=data, out=where[tensor], first=unit * self.unit_rows)
            if unit != last:
                (self.more if unit else self.sums).at([where["src"], where["dst"]], where["sums"], held)
        for row in self.rows:
            points = [where["src"] + row * F32_BYTES, where["dst"]]
            (self.more if earlier else self.sums).at(points, where["sums"], held)
            to = out + row * self.out_row
            self.weights.run(threads, held, sums=where["sums"], out=to, infinite=ctypes.addressof(infinite))


def tiled(problem: Problem, lies: Lies, machine: Machine, threads: int) -> TiledWeights:
    """Return the prepared call of a weight gradient that has a variant, for canonical arrays that lie so."""
    assert isinstance(problem.geometry, Conv)
    conv, variant = of_group(problem.geometry), VARIANTS[problem.variant]
    chosen = plan(problem, machine, threads)
    sums, more = (
        tabled(chosen.sums, replace(chosen.of_sums, accumulate=added), chosen.view) for added in (False, True)
    )
    grid = variant.grid(conv)
    unit_rows = grid[0] // variant.bands(conv)
    points = {
        tensor: _points(conv, variant, machine.isa, chosen, tensor, strides, chosen.units * unit_rows)
        for tensor, strides in zip(problem.operands, lies, strict=False)
    }
    to = written(problem, lies)
    back = _weights(conv, variant, machine.isa, chosen, to)
    units, rows = range(0, variant.units(conv), chosen.units), range(0, conv.src_channels, chosen.rows)
    return TiledWeights(problem, lies, machine, chosen, sums, points, more, back, units, rows, unit_rows, to[1])


def _points(
    conv: Conv, variant: Variant, isa: Isa, chosen: WeightsPlan, tensor: Tensor, strides: Sequence[int], rows: int
) -> Stage:  # fmt: skip
    """Return what makes the points of an operand, of so many rows of tiles."""
    met = tensor == "src"
    transform = points_of(
        isa, variant, met, strides, conv.src_channels if met else conv.dst_channels,
        [getattr(axis, tensor) for axis in conv.axes], [axis.pad_begin * met for axis in conv.axes],
        variant.grid(conv), chosen.tiles,
    )  # fmt: skip
    return points_stage(isa, variant, met, transform, chosen.times_ms[tensor], chosen.time_ms, count=rows)


def _weights(conv: Conv, variant: Variant, isa: Isa, chosen: WeightsPlan, strides: Sequence[int]) -> Stage:
    """Return what makes weights of the sums of points."""
    lane, row, *taps = strides
    taps_together = taps == [TAPS * F32_BYTES, F32_BYTES]
    lies = ITEMS if lane == F32_BYTES else TERMS if taps_together else NEITHER
    settled = {
        "count": -(-conv.dst_channels // isa.lanes) if lies == TERMS else chosen.rows, "down": chosen.rows,
        "across": conv.dst_channels, "point": of_point(chosen.rows, conv.dst_channels),
        "row": pitch(conv.dst_channels), "out_row": row, "out_lane": lane, **by_axis("tap", taps),
    }  # fmt: skip
    kernel = driver(isa, weights.module, variant.name, lies)
    names = (*weights.ADDRESSES, *weights.NUMBERS)
    return Stage(kernel, names, settled, LINE_BYTES, chosen.times_ms["sums"], chosen.time_ms)
