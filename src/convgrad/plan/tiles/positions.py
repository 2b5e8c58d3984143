"""A forward or a data gradient by Toom-Cook: the sums of its points are a 1x1 forward, whose groups are the points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from convgrad.formats import F32
from convgrad.plan import rates
from convgrad.plan.data import choose
from convgrad.plan.data.view import FEWEST_AXES, Along, Gather, even
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import F32_BYTES, Chosen
from convgrad.plan.tables import placed
from convgrad.plan.tiles.recipe import TiledPlan, at_once, parts_of, pitch
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import height_of, order_of
from convgrad.spec.problem import Problem, canonical_shape, posed
from convgrad.spec.toom_cook import LEAST_CHANNELS, VARIANTS, Variant, as_forward


@dataclass(frozen=True, kw_only=True)
class PositionsPlan(TiledPlan):
    """Points of weights are made, then those of some rows of tiles at a time, summed, and made positions."""

    forward: Conv  # what is computed: a data gradient is the forward of dst
    all_rows: int  # of tiles, of all images,
    rows: int  # and at a time
    last: Chosen | None  # the plan of the sums of the last rows, where they are fewer,
    last_view: Gather | None  # and their points
    results: int  # channels at a time: equal parts of all; where not all, all rows are computed at a time


def plan(problem: Problem, machine: Machine, threads: int) -> PositionsPlan:
    """Return the plan of a problem that has a variant: a function of its geometry, however its operands lie."""
    variant = VARIANTS[problem.variant]
    assert isinstance(problem.geometry, Conv)
    conv = as_forward(problem.geometry, problem.solves_for)
    grid = variant.covering(conv)
    all_rows = conv.batch * grid[0]
    rows = _rows(conv, variant)
    results = conv.dst_channels
    if rows == all_rows:
        of_weights = variant.points * conv.src_channels * F32_BYTES
        results = parts_of(results, of_weights, rates.SUMS_BYTES, LEAST_CHANNELS)
    tiles, rest = rows * grid[1], all_rows % rows * grid[1]
    of_sums, seen = _sums(problem, conv, variant, tiles, results)
    sums = choose.plan(of_sums, seen, machine, threads)
    last_view = replace(seen, axes=_axes(rest, conv.src_channels, results)) if rest else None
    sizes = {
        "met": variant.points * tiles * pitch(conv.src_channels),
        "weights": variant.points * conv.src_channels * pitch(results),
        "sums": variant.points * tiles * pitch(results),
    }
    rate = machine.bytes_per_ns * 1e6 * threads
    times = {name: size / rate for name, size in sizes.items()}
    if not at_once(problem):
        sizes["out"] = prod(canonical_shape(problem.geometry, problem.output)) * F32_BYTES
    places, shared_bytes = placed(sizes)
    chunks, parts = -(-all_rows // rows), conv.dst_channels // results
    return PositionsPlan(
        strategy="tiles", spec=sums.spec, operands=sums.operands, threads=threads, error_height=height_of(problem),
        time_ms=chunks * (times["met"] + parts * (sums.time_ms + times["sums"])) + parts * times["weights"],
        rejected=sums.rejected,
        variant=problem.variant,
        sums=sums, of_sums=of_sums, view=seen, tiles=tiles, times_ms=times, places=places, shared_bytes=shared_bytes,
        forward=conv, all_rows=all_rows, rows=rows, results=results,
        last=None if last_view is None else choose.plan(of_sums, last_view, machine, threads), last_view=last_view,
    )  # fmt: skip


def _rows(conv: Conv, variant: Variant) -> int:
    """Return how many rows of tiles are computed at a time: about as many, the points of which a cache can have."""
    down, across = variant.covering(conv)
    each = variant.points * across * (pitch(conv.src_channels) + pitch(conv.dst_channels))
    count = conv.batch * down
    chunks = max(1, min(-(-count * each // rates.POINTS_BYTES), count * across // rates.LEAST_TILES_AT_ONCE))
    return -(-count // chunks)


def _axes(tiles: int, terms: int, results: int) -> tuple[Along, ...]:
    return (*(even(1, 0, 0),) * (FEWEST_AXES - 1), even(tiles, pitch(terms), pitch(results)))


def _sums(problem: Problem, conv: Conv, variant: Variant, tiles: int, results: int) -> tuple[Problem, Gather]:
    """Return the sums of all points, and how points lie: those of all tiles, or terms, one behind the other."""
    terms = conv.src_channels
    one = Conv(1, variant.points, variant.points * terms, variant.points * results, (Axis(tiles, tiles, 1),))
    layouts: dict[Tensor, str] = {"src": "NXC", "dst": "NXC", "weights": "XIO"}
    seen = Gather(
        "dst", variant.points, results, terms, _axes(tiles, terms, results),
        (tiles * pitch(terms), F32_BYTES), (tiles * pitch(results), F32_BYTES),
        (terms * pitch(results), F32_BYTES, pitch(results)), 0, order_of(problem),
    )  # fmt: skip
    return posed("dst", False, one, layouts, F32, F32), seen
