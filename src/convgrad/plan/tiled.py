"""A weight gradient by Toom-Cook: the sums of its points are a 1x1 weight gradient, whose groups are the points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from convgrad.formats import F32
from convgrad.plan import choose
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.rates import SUMS_BYTES
from convgrad.plan.recipe import F32_BYTES, Chosen, Plan
from convgrad.plan.tables import placed
from convgrad.plan.view import View
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import FAN_IN, height_of
from convgrad.spec.problem import Problem, posed
from convgrad.spec.toom_cook import BLOCK, LEAST_CHANNELS, VARIANTS, Variant
from convgrad.words import counted


@dataclass(frozen=True, kw_only=True)
class TiledPlan(Chosen):
    """Points of src and of dst are made, then summed by a plan of their own, then made weights."""

    variant: str
    sums: Plan
    of_sums: Problem
    view: View  # of the points
    units: int  # of the sum at a time: all, or one, which is added to those before
    tiles: int  # of so many
    rows: int  # src channels at a time, whose sums become weights while a cache has them
    points_ms: Mapping[Tensor, float]
    weights_ms: float
    places: Mapping[str, int]  # in what threads share: points, sums and, where they are to be added, weights
    shared_bytes: int

    @property
    def tasks(self) -> int:
        """Parts of the sums."""
        return self.sums.tasks

    @property
    def words(self) -> str:
        """Strategy, variant and kernels in one line."""
        points = counted(VARIANTS[self.variant].points, "point")
        return f"tiles of {self.variant}: {points} of {counted(self.tiles, 'tile')}; sums: {self.sums.words}"

    @property
    def cut(self) -> str:
        """How the sums are cut."""
        return self.sums.cut


def plan(problem: Problem, machine: Machine, threads: int) -> TiledPlan:
    """Return the plan of a problem that has a variant: a function of its geometry, however its operands lie."""
    conv, variant = problem.geometry, VARIANTS[problem.variant]
    assert isinstance(conv, Conv)
    units = _units(conv, variant)
    rows = conv.src_channels if units < variant.units(conv) else _rows(conv, variant)
    of_sums, seen = _sums(conv, variant, units, rows)
    sums = choose.plan(of_sums, seen, machine, threads)
    tiles = units * variant.tiles(conv)
    points: dict[Tensor, int] = {
        "src": variant.points * tiles * pitch(conv.src_channels),
        "dst": variant.points * tiles * pitch(conv.dst_channels),
    }
    sizes = dict[str, int](points.items())
    sizes["sums"] = variant.points * rows * pitch(conv.dst_channels)
    if not at_once(problem):
        sizes["weights"] = prod(conv.weights_shape) * F32_BYTES
    places, shared_bytes = placed(sizes)
    rate, times = machine.bytes_per_ns * 1e6 * threads, variant.units(conv) // units
    points_ms = {tensor: size / rate for tensor, size in points.items()}
    weights_ms, parts = sizes["sums"] / rate, conv.src_channels // rows
    return TiledPlan(
        strategy="tiles", spec=sums.spec, operands=sums.operands, threads=threads, error_height=height_of(problem),
        time_ms=times * sum(points_ms.values()) + max(times, parts) * sums.time_ms + parts * weights_ms,
        rejected=sums.rejected,
        variant=problem.variant,
        sums=sums, of_sums=of_sums, view=seen, units=units, tiles=tiles, rows=rows, points_ms=points_ms,
        weights_ms=weights_ms, places=places, shared_bytes=shared_bytes,
    )  # fmt: skip


def _units(conv: Conv, variant: Variant) -> int:
    """Return how many bands are computed at a time: where one is a unit, and units are added in order, one."""
    units = variant.units(conv)
    return 1 if variant.tiles(conv) > BLOCK and units <= FAN_IN else units


def _rows(conv: Conv, variant: Variant) -> int:
    """Return how many src channels are computed at a time: equal parts of all, the sums of which a cache can have."""
    channels, each = conv.src_channels, variant.points * pitch(conv.dst_channels)
    parts = (n for n in range(1, channels // LEAST_CHANNELS + 1) if channels % n == 0)
    return channels // next((n for n in parts if channels // n * each <= SUMS_BYTES), 1)


def at_once(problem: Problem) -> bool:
    """Tell whether weights are written where they go; else they are rounded, or added to the old ones, last."""
    return not problem.accumulate and problem.output_format is problem.operand_format


def pitch(channels: int) -> int:
    """Return the bytes of all channels of a tile: an odd number of lines, so that tiles meet all sets of a cache."""
    return (-(-channels * F32_BYTES // LINE_BYTES) | 1) * LINE_BYTES


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
        groups_apart=(every * rows, every * lanes, of_rows * lanes),
    )  # fmt: skip
    return posed("weights", False, one, layouts, F32, F32), seen
