"""A weight gradient by Toom-Cook: a thread makes the points of blocks of tiles of some channels, and sums them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convgrad.plan import constants
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tables import placed
from convgrad.plan.winograd.recipe import TiledPlan, of_point, old_values, pitch
from convgrad.spec.geometry import Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.spec.tiles import Turns
from convgrad.spec.toom_cook import VARIANTS, Variant, of_group
from convgrad.words import counted

REMEMBERED = 256  # plans


@dataclass(frozen=True, kw_only=True)
class WeightsPlan(TiledPlan):
    """A task is a unit of tiles and some channels of src and of dst; the sums of one unit become weights at once.

    Those of several are added by rows of src channels, when all are there.
    """

    conv: Conv  # of a group
    turns: Turns
    down: int  # src channels of a task, and
    across: int  # dst channels; of the last ones, fewer
    parts: tuple[int, int]  # of the channels
    src_bytes: int  # of points of a task, at a time,
    dst_bytes: int
    sums_bytes: int  # and of sums: of a task, or of a unit where there are several
    units_ms: float  # of all tasks,
    weights_ms: float  # and of what follows

    @property
    def tasks(self) -> int:
        """Units, each with some of the channels."""
        return self.turns.units * prod(self.parts)

    @property
    def cut(self) -> str:
        """How the work is cut."""
        channels = f"{self.down} src and {self.across} dst channels"
        units = counted(self.turns.units, "unit")
        return f"{units} of {counted(self.turns.blocks, 'block')} of tiles, {channels} each"


@lru_cache(maxsize=REMEMBERED)
def plan(problem: Problem, machine: Machine, threads: int) -> WeightsPlan:
    """Return the plan of a problem that has a variant: a function of its geometry, however its operands lie."""
    assert isinstance(problem.geometry, Conv)
    conv, variant = of_group(problem.geometry), VARIANTS[problem.variant]
    turns = variant.turns(conv)
    time, down, across = min(_timed(conv, variant, turns, machine, threads))
    parts = (-(-conv.src_channels // down), -(-conv.dst_channels // across))
    tiles, several = turns.each * turns.length, turns.units > 1
    src, dst = (variant.points * of_point(tiles, channels) for channels in (down, across))
    sums = variant.points * (of_point(conv.src_channels, conv.dst_channels) if several else of_point(down, across))
    places, shared_bytes = placed(({"sums": turns.units * sums} if several else {}) | old_values(problem))
    weights = turns.units * sums * constants.WINOGRAD_TRANSFORM_ADDS / F32_BYTES / machine.fma_per_ns / threads / 1e6
    return WeightsPlan(
        strategy="tiles", spec=None, operands=("src", "dst"), threads=threads, rounding_depth=height_of(problem),
        time_ms=problem.geometry.groups * (time + weights), variant=problem.variant, tiles=tiles,
        places=places, shared_bytes=shared_bytes, own_bytes=src + dst + (0 if several else sums),
        conv=conv, turns=turns, down=down, across=across, parts=parts, src_bytes=src, dst_bytes=dst, sums_bytes=sums,
        units_ms=time, weights_ms=weights,
    )  # fmt: skip


def _timed(
    conv: Conv, variant: Variant, turns: Turns, machine: Machine, threads: int
) -> Iterator[tuple[float, int, int]]:  # fmt: skip
    """Give how many ms all tasks take, of so many src and dst channels each.

    All channels of a task are transformed for it: fewer transform again, more are beyond the second cache.
    """
    tiles = turns.each * turns.length
    for down, across in product(
        _equal(conv.src_channels, constants.WINOGRAD_SRC_CHANNELS), _equal(conv.dst_channels, machine.isa.lanes)
    ):
        points, sums = tiles * (pitch(down) + pitch(across)), down * pitch(across)
        multiply_adds = tiles * (down * across + constants.WINOGRAD_TRANSFORM_ADDS * (down + across))
        if variant.points * (points + sums) > constants.WINOGRAD_TASK_SHARE * machine.l2_bytes:
            multiply_adds += 2 * (points + sums) * machine.fma_per_ns / machine.bytes_per_ns
        tasks = turns.units * -(-conv.src_channels // down) * -(-conv.dst_channels // across)
        blocks = turns.blocks * variant.points * multiply_adds
        yield -(-tasks // threads) * blocks / machine.fma_per_ns / 1e6, down, across


def _equal(channels: int, each: int) -> list[int]:
    """Return sizes of parts of channels, all but the last of which are whole ``each``.

    >>> _equal(96, 16)
    [16, 32, 48, 96]
    """
    count = -(-channels // each)
    return sorted({-(-count // parts) * each if parts > 1 else channels for parts in range(1, count + 1)})
