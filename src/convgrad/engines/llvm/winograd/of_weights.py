"""Running a weight gradient by Toom-Cook: units of tiles, each with some channels, then weights of all units' sums."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convgrad.engines.engine import Strides
from convgrad.engines.llvm.winograd import units, weights
from convgrad.engines.llvm.winograd.stage import Stage, Tiled, Transform, by_axis, driver, points_of, written
from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import CHANNELS, F32_BYTES, STRIDED
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.tables import placed
from convgrad.plan.tree import levels_of
from convgrad.plan.winograd.recipe import PANEL, of_point, pitch
from convgrad.plan.winograd.weights import WeightsPlan, plan
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant, of_group


@dataclass(frozen=True)
class TiledWeights(Tiled):
    """A weight gradient in a variant."""

    units: Stage
    weights: Stage | None  # of the sums of several units

    def by_tiles(
        self, operands: Sequence[int], out: int, where: Mapping[str, int], infinite: ctypes.c_int64, held: object
    ) -> None:
        """Compute weights."""
        given = dict(zip(self.problem.operands, operands, strict=True))
        back = {"out": out, "infinite": ctypes.addressof(infinite)}
        sums = where.get("sums", out)  # of one unit none are shared
        arguments = {f"{tensor}.data": address for tensor, address in given.items()}
        arguments |= {f"back.{name}": address for name, address in back.items()}
        self.units.run(self.plan.threads, held, sums=sums, **arguments)
        if self.weights is not None:
            self.weights.run(self.plan.threads, held, sums=sums, **back)

    @property
    def memory_bytes(self) -> int:
        """What running it takes: sums that threads share, and scratch of each."""
        return self.plan.shared_bytes + self.plan.threads * self.units.scratch_bytes


def tiled(problem: Problem, strides: Strides, machine: Machine, threads: int) -> TiledWeights:
    """Return the prepared call of a weight gradient that has a variant, for canonical arrays that lie so."""
    assert isinstance(problem.geometry, Conv)
    conv, variant, isa = of_group(problem.geometry), VARIANTS[problem.variant], machine.isa
    chosen = plan(problem, machine, threads)
    points = {
        tensor: _points(conv, variant, isa, chosen, tensor, each)
        for tensor, each in zip(problem.operands, strides, strict=False)
    }
    together, back = _weights(conv, variant, chosen, written(problem, strides))
    several = chosen.turns.units > 1
    of_points = {f"{tensor}.{name}": number for tensor, one in points.items() for name, number in one.settled.items()}
    places, scratch_bytes = placed({
        "src_at": chosen.src_bytes, "dst_at": chosen.dst_bytes, "sums_at": 0 if several else chosen.sums_bytes,
        "planes_at": max(one.planes_bytes for one in points.values()),
    })  # fmt: skip
    settled = _tasks(conv, chosen) | _sums(isa, variant, chosen, back, points) | of_points | places
    settled |= {f"back.{name}": number for name, number in back.items()}
    lying = [points[tensor].contiguous for tensor in problem.operands]
    first = Stage(
        driver(isa, units.module, variant.name, *lying, None if several else together),
        (*units.ADDRESSES, *units.NUMBERS), settled, scratch_bytes, chosen.units_ms, chosen.time_ms,
    )  # fmt: skip
    last = None
    if several:
        count = -(-conv.dst_channels // isa.lanes) if together == BY_TAPS else conv.src_channels
        levels = levels_of(chosen.turns.units)
        of_units = {"units": chosen.turns.units, "levels": levels, "unit": chosen.sums_bytes}
        all_of = {"count": count, "down": conv.src_channels, "across": conv.dst_channels, **of_units, **back}
        made = driver(isa, weights.module, variant.name, together)
        names = (*weights.ADDRESSES, *weights.NUMBERS)
        last = Stage(made, names, all_of, LINE_BYTES, chosen.weights_ms, chosen.time_ms)
    return TiledWeights(problem, strides, machine, chosen, first, last)


def _tasks(conv: Conv, chosen: WeightsPlan) -> dict[str, int]:
    """Return what tasks are, and what of tiles and channels each has."""
    turns, (downs, acrosses) = chosen.turns, chosen.parts
    return {
        "count": chosen.tasks, "parts": downs * acrosses, "across_parts": acrosses,
        "down.each": chosen.down, "down.all": conv.src_channels,
        "across.each": chosen.across, "across.all": conv.dst_channels,
        "blocks.each": turns.blocks, "blocks.all": -(-turns.stretches // turns.each),
        "stretches.each": turns.each, "stretches.all": turns.stretches, "length": turns.length,
    }  # fmt: skip


def _sums(
    isa: Isa, variant: Variant, chosen: WeightsPlan, back: Mapping[str, int], points: Mapping[Tensor, Transform]
) -> dict[str, int]:  # fmt: skip
    """Return how points and their sums lie."""
    src, dst = (points[tensor].settled for tensor in ("src", "dst"))
    lie = {
        "points": variant.points, "point": back["point"], "row": back["row"],
        "rows.point": src["point"], "rows.step": F32_BYTES, "rows.term": src["tile"],
        "lanes.point": dst["point"], "lanes.panel": PANEL * isa.lanes * F32_BYTES, "lanes.term": dst["tile"],
    }  # fmt: skip
    return {"unit": chosen.sums_bytes, **{f"sums.{name}": number for name, number in lie.items()}}


def _points(
    conv: Conv, variant: Variant, isa: Isa, chosen: WeightsPlan, tensor: Tensor, strides: Sequence[int]
) -> Transform:  # fmt: skip
    """Return what makes the points of an operand, of a block of tiles."""
    met, turns = tensor == "src", chosen.turns
    return points_of(
        isa, variant, met, strides, chosen.down if met else chosen.across,
        [getattr(axis, tensor) for axis in conv.axes], [axis.pad_begin * met for axis in conv.axes],
        (turns.rows, turns.length), turns.each * turns.length, turns.parts,
    )  # fmt: skip


def _weights(
    conv: Conv, variant: Variant, chosen: WeightsPlan, strides: Sequence[int]
) -> tuple[str, dict[str, int]]:  # fmt: skip
    """Return what lies together in weights, and how sums and weights lie."""
    lane, row, *taps = strides
    taps_together = taps == [TAPS * F32_BYTES, F32_BYTES]
    contiguous = CHANNELS if lane == F32_BYTES else BY_TAPS if taps_together else STRIDED
    several = chosen.turns.units > 1
    down, across = (conv.src_channels, conv.dst_channels) if several else (chosen.down, chosen.across)
    return contiguous, {
        "point": of_point(down, across), "row": pitch(across), "out_row": row, "out_lane": lane, **by_axis("tap", taps)
    }  # fmt: skip
