"""A weight gradient by Toom-Cook: the sums of its points are a 1x1 weight gradient, whose groups are the points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from convgrad.formats import F32
from convgrad.plan import choose
from convgrad.plan.machine import Machine
from convgrad.plan.rates import SUMS_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tables import placed
from convgrad.plan.tiles.recipe import TiledPlan, at_once, of_point, parts_of, pitch
from convgrad.plan.view import View
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import FAN_IN, height_of
from convgrad.spec.problem import Problem, posed
from convgrad.spec.toom_cook import BLOCK, LEAST_CHANNELS, VARIANTS, Variant, of_group


@dataclass(frozen=True, kw_only=True)
class WeightsPlan(TiledPlan):
    """Points of src and of dst are made, then summed by a plan of their own, then made weights."""

    units: int  # of the sum at a time: all, or one, which is added to those before
    rows: int  # src channels at a time, whose sums become weights while a cache has them
    times_ms: Mapping[str, float]  # of the transforms


def plan(problem: Problem, machine: Machine, threads: int) -> WeightsPlan:
    """Return the plan of a problem that has a variant: a function of its geometry, however its operands lie."""
    assert isinstance(problem.geometry, Conv)
    conv, variant = of_group(problem.geometry), VARIANTS[problem.variant]
    units = _units(conv, variant)
    rows, of_row = conv.src_channels, variant.points * pitch(conv.dst_channels)
    if units == variant.units(conv):
        rows = parts_of(rows, of_row, SUMS_BYTES, LEAST_CHANNELS)
    of_sums, seen = _sums(conv, variant, units, rows)
    sums = choose.plan(of_sums, seen, machine, threads)
    tiles = units * variant.tiles(conv)
    sizes = {
        "src": variant.points * of_point(tiles, conv.src_channels),
        "dst": variant.points * of_point(tiles, conv.dst_channels),
        "sums": variant.points * of_point(rows, conv.dst_channels),
    }
    rate = machine.bytes_per_ns * 1e6 * threads
    times = {name: size / rate for name, size in sizes.items()}
    if not at_once(problem):
        sizes["out"] = prod(problem.geometry.weights_shape) * F32_BYTES
    places, shared_bytes = placed(sizes)
    chunks, parts = variant.units(conv) // units, conv.src_channels // rows
    return WeightsPlan(
        strategy="tiles", spec=sums.spec, operands=sums.operands, threads=threads, error_height=height_of(problem),
        time_ms=chunks * (times["src"] + times["dst"]) + max(chunks, parts) * sums.time_ms + parts * times["sums"],
        rejected=sums.rejected,
        variant=problem.variant,
        sums=sums, of_sums=of_sums, view=seen, tiles=tiles, times_ms=times, places=places,
        shared_bytes=shared_bytes, units=units, rows=rows,
    )  # fmt: skip


def _units(conv: Conv, variant: Variant) -> int:
    """Return how many bands are computed at a time: where one is a unit, and units are added in order, one."""
    units = variant.units(conv)
    return 1 if variant.tiles(conv) > BLOCK and units <= FAN_IN else units


def _sums(conv: Conv, variant: Variant, units: int, of_rows: int) -> tuple[Problem, View]:
    """Return the sums of all points, and how points lie: those of all tiles one behind the other."""
    count = variant.tiles(conv)
    channels = (variant.points * of_rows, variant.points * conv.dst_channels)
    one = Conv(units, variant.points, *channels, (Axis(count, count, 1),))
    layouts: dict[Tensor, str] = {"src": "NXC", "dst": "NXC", "weights": "XIO"}
    rows, lanes = pitch(conv.src_channels), pitch(conv.dst_channels)
    every = units * count
    seen = View(
        one, (count * rows, F32_BYTES, rows), (count * lanes, F32_BYTES, lanes), (F32_BYTES, lanes, 0), block=BLOCK,
        groups_apart=(
            of_point(every, conv.src_channels), of_point(every, conv.dst_channels), of_point(of_rows, conv.dst_channels)
        ),
    )  # fmt: skip
    return posed("weights", False, one, layouts, F32, F32), seen
