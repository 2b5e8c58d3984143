"""A forward or a data gradient by Winograd: points of one operand first, then cache blocks of the other, to the end."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.plan import constants
from convgrad.plan.machine import Machine
from convgrad.plan.tables import placed
from convgrad.plan.winograd.recipe import TiledPlan, of_point, of_weights, old_values, pitch
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import MET, VARIANTS, Variant, as_forward, of_group
from convgrad.words import counted


@dataclass(frozen=True, kw_only=True)
class PositionsPlan(TiledPlan):
    """All threads transform one operand. Then each thread transforms cache blocks, sums them, and transforms them back.

    If there are many tiles, cache blocks are rows of tiles, and the points of weights are there. If there are few,
    cache blocks are results, and the points of tiles are there.
    """

    forward: Conv  # what is computed of a group: a data gradient is the forward of dst
    by_rows: bool
    each: int  # rows of tiles, or results, of a cache block,
    every: int  # and of all
    all_rows: int  # of tiles, of all images
    results: int  # of a cache block
    block_bytes: int  # of points that a cache block makes,
    sums_bytes: int  # and of its sums
    points_ms: float  # of the first points, on all threads,
    blocks_ms: float  # and of all cache blocks

    @property
    def tasks(self) -> int:
        """Cache blocks."""
        return -(-self.every // self.each)

    @property
    def cut(self) -> str:
        """How the work is cut."""
        what = f"{counted(self.each, 'row')} of tiles" if self.by_rows else counted(self.each, "result")
        return f"{what} each, transformed, summed and transformed back by one thread"


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
    sizes = {
        "met": variant.points * of_point(rows * across, conv.src_channels),
        "weights": variant.points * of_weights(conv.src_channels, results, machine.isa),
        "sums": variant.points * of_point(rows * across, results),
    }
    first, second = ("weights", "met") if own else ("met", "weights")
    places, shared_bytes = placed({"points": sizes[first], **old_values(problem)})
    rate, count = machine.bytes_per_ns * 1e6, all_rows / rows * conv.dst_channels / results
    points_ms = sizes[first] / rate / threads
    sums_ms = variant.points * rows * across * conv.src_channels * results / machine.fma_per_ns / 1e6
    blocks_ms = count * (sums_ms + (sizes[second] + sizes["sums"]) / rate) / threads
    each, every = (rows, all_rows) if own else (results, conv.dst_channels)
    return PositionsPlan(
        strategy="tiles", spec=None, operands=(MET[problem.solves_for], "weights"), threads=threads,
        rounding_depth=height_of(problem), time_ms=points_ms + blocks_ms, variant=problem.variant,
        tiles=rows * across, places=places, shared_bytes=shared_bytes,
        forward=conv, by_rows=bool(own), each=each, every=every, all_rows=all_rows, results=results,
        own_bytes=sizes[second] + sizes["sums"],
        block_bytes=sizes[second], sums_bytes=sizes["sums"], points_ms=points_ms, blocks_ms=blocks_ms,
    )  # fmt: skip


def _rows(conv: Conv, variant: Variant, machine: Machine, threads: int) -> int:
    """Return how many rows of tiles a cache block has; 0 if they are too few to transform all weights for them.

    Points of tiles move through a cache less, the fewer of them there are; points of weights, the more.
    """
    down, across = variant.covering(conv)
    of_row = variant.points * across * (pitch(conv.src_channels) + pitch(conv.dst_channels))
    count, channels = conv.batch * down, max(conv.src_channels, conv.dst_channels)
    near = max(1, int(machine.l2_bytes * constants.WINOGRAD_BLOCK_SHARE) // of_row)
    least = -(-channels // (constants.WINOGRAD_CHANNELS_A_TILE * across))
    wanted = near if near >= least else -(-constants.WINOGRAD_MIN_TILES // across)
    if count < wanted * threads:
        return 0
    blocks = -(-count // wanted)
    return -(-count // (-(-blocks // threads) * threads))


def _results(conv: Conv, machine: Machine, threads: int) -> int:
    """Return how many results a cache block has: some vectors, fewer if threads would have none."""
    lanes = machine.isa.lanes
    of_thread = -(-conv.dst_channels // threads)
    return min(constants.WINOGRAD_RESULTS, -(-of_thread // lanes) * lanes)
