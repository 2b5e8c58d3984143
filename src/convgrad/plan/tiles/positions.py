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
from convgrad.plan.tiles.recipe import TiledPlan, at_once, of_line, of_point, of_weights, pitch
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import height_of, order_of
from convgrad.spec.problem import Problem, canonical_shape, posed
from convgrad.spec.toom_cook import VARIANTS, Variant, as_forward, of_group
from convgrad.words import counted


@dataclass(frozen=True, kw_only=True)
class PositionsPlan(TiledPlan):
    """Points of one operand are made by all threads; each has chunks then, which it transforms, sums, transforms back.

    Of many tiles, chunks are rows of tiles, and the points of weights are there; of few, they are blocks of results,
    and the points of tiles are.
    """

    sums: Chosen
    of_sums: Problem
    view: Gather  # of the points
    forward: Conv  # what is computed of a group: a data gradient is the forward of dst
    by_rows: bool
    each: int  # rows of tiles, or results, of a chunk,
    every: int  # and of all
    all_rows: int  # of tiles, of all images
    results: int  # of a chunk
    last: Chosen | None  # the plan of the sums of the last rows, where they are fewer,
    last_view: Gather | None  # and their points
    chunk_bytes: int  # of points that a chunk makes,
    sums_bytes: int  # and of its sums
    points_ms: float  # of the first points, on all threads,
    chunks_ms: float  # and of all chunks

    @property
    def tasks(self) -> int:
        """Chunks."""
        return -(-self.every // self.each)

    @property
    def words(self) -> str:
        """Strategy, variant and kernels in one line."""
        return f"{super().words}; sums: {self.sums.words}"

    @property
    def cut(self) -> str:
        """How the work is cut."""
        what = "row of tiles" if self.by_rows else "result"
        return f"{counted(self.each, what)} each, transformed, summed and transformed back by one thread"


def plan(problem: Problem, machine: Machine, threads: int) -> PositionsPlan:
    """Return the plan of a problem that has a variant: a function of its geometry, however its operands lie."""
    variant = VARIANTS[problem.variant]
    assert isinstance(problem.geometry, Conv)
    conv = as_forward(of_group(problem.geometry), problem.solves_for)
    down, across = variant.covering(conv)
    all_rows = conv.batch * down
    own = _rows(conv, variant, machine, threads)
    results = conv.dst_channels if own else _results(conv, machine, threads)
    rows = own or all_rows
    rest = all_rows % rows * across
    of_sums, seen = _sums(problem, conv, variant, rows * across, results)
    sums = choose.plan(of_sums, seen, machine, 1)
    last_view = replace(seen, axes=_axes(rest, conv.src_channels, results)) if rest else None
    sizes = {
        "met": variant.points * of_point(rows * across, conv.src_channels),
        "weights": variant.points * of_weights(conv.src_channels, results),
        "sums": variant.points * of_point(rows * across, results),
    }
    first, second = ("weights", "met") if own else ("met", "weights")
    shared = {"points": sizes[first]}
    if not at_once(problem):
        shared["out"] = prod(canonical_shape(problem.geometry, problem.output)) * F32_BYTES
    places, shared_bytes = placed(shared)
    rate, count = machine.bytes_per_ns * 1e6, all_rows / rows * conv.dst_channels / results
    points_ms = sizes[first] / rate / threads
    chunks_ms = count * (sums.time_ms + (sizes[second] + sizes["sums"]) / rate) / threads
    each, every = (rows, all_rows) if own else (results, conv.dst_channels)
    return PositionsPlan(
        strategy="tiles", spec=sums.spec, operands=sums.operands, threads=threads, error_height=height_of(problem),
        time_ms=points_ms + chunks_ms, rejected=sums.rejected,
        variant=problem.variant,
        sums=sums, of_sums=of_sums, view=seen, tiles=rows * across, places=places, shared_bytes=shared_bytes,
        forward=conv, by_rows=bool(own), each=each, every=every, all_rows=all_rows, results=results,
        last=None if last_view is None else choose.plan(of_sums, last_view, machine, 1), last_view=last_view,
        own_bytes=sizes[second] + sizes["sums"],
        chunk_bytes=sizes[second], sums_bytes=sizes["sums"], points_ms=points_ms, chunks_ms=chunks_ms,
    )  # fmt: skip


def _rows(conv: Conv, variant: Variant, machine: Machine, threads: int) -> int:
    """Return how many rows of tiles a chunk has; 0 where there are too few to have the points of weights for them all.

    Points of tiles move through a cache less, the fewer of them there are; points of weights, the more.
    """
    down, across = variant.covering(conv)
    of_row = variant.points * across * (pitch(conv.src_channels) + pitch(conv.dst_channels))
    count, channels = conv.batch * down, max(conv.src_channels, conv.dst_channels)
    near = max(1, int(machine.l2_bytes * rates.TILES_SHARE) // of_row)
    least = -(-channels // (rates.TILES_A_WEIGHT * across))
    wanted = near if near >= least else -(-rates.LEAST_TILES_AT_ONCE // across)
    if count < wanted * threads:
        return 0
    chunks = -(-count // wanted)
    return -(-count // (-(-chunks // threads) * threads))


def _results(conv: Conv, machine: Machine, threads: int) -> int:
    """Return how many results a chunk has: some vectors, fewer where threads would have none."""
    lanes = machine.isa.lanes
    of_thread = -(-conv.dst_channels // threads)
    return min(rates.RESULTS_AT_ONCE, -(-of_thread // lanes) * lanes)


def _axes(tiles: int, terms: int, results: int) -> tuple[Along, ...]:
    return (*(even(1, 0, 0),) * (FEWEST_AXES - 1), even(tiles, pitch(terms), pitch(results)))


def _sums(problem: Problem, conv: Conv, variant: Variant, tiles: int, results: int) -> tuple[Problem, Gather]:
    """Return the sums of all points, and how points lie: those of all tiles, or terms, one behind the other."""
    terms = conv.src_channels
    one = Conv(1, variant.points, variant.points * terms, variant.points * results, (Axis(tiles, tiles, 1),))
    layouts: dict[Tensor, str] = {"src": "NXC", "dst": "NXC", "weights": "XIO"}
    seen = Gather(
        "dst", variant.points, results, terms, _axes(tiles, terms, results),
        (of_point(tiles, terms), F32_BYTES), (of_point(tiles, results), F32_BYTES),
        (of_weights(terms, results), F32_BYTES, of_line(results)), 0, order_of(problem),
    )  # fmt: skip
    return posed("dst", False, one, layouts, F32, F32), seen
