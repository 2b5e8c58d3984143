"""Plans for Winograd: the blocks of a task, the bytes of each point, and the time of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

from convgrad.plan.machine import LINE_BYTES, Isa, Machine
from convgrad.plan.recipe import F32_BYTES, Chosen
from convgrad.plan.tables import placed
from convgrad.plan.winograd import constants
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.winograd.algorithms import (
    DATA,
    Algorithm,
    algorithm_of,
    aligned,
    as_forward,
    in_slices,
    of_group,
    slots,
)
from convgrad.spec.winograd.tile_order import Turns
from convgrad.words import counted

REMEMBERED = 256  # the number of cached plans of weight gradients
PANEL = 2  # vectors of B that a step of K reads


@dataclass(frozen=True)
class Slices:
    """A weight gradient or a forward of one group of channels, and its convolution of slices."""

    whole: Conv  # the convolution with all of its axes

    @property
    def conv(self) -> Conv:
        """The convolution of the slices."""
        return in_slices(self.whole)

    @property
    def channels(self) -> int:
        """The src channels of each tap of the axis that is summed directly."""
        return self.whole.src_channels

    @property
    def axes(self) -> tuple[Axis, Axis, Axis]:
        """The axis that is summed directly, rows and columns; an axis of one position if it is missing."""
        return aligned(self.whole)

    def strides(self, strides: Sequence[int]) -> tuple[int, ...]:
        """Return the strides of two axes of channels and of ``axes``, from those of a canonical array."""
        return (*strides[:2], *(0 if at is None else strides[2 + at] for at in slots(self.whole)))


@dataclass(frozen=True, kw_only=True)
class WinogradPlan(Chosen):
    """The fields common to the plans of Winograd."""

    algorithm: str
    transforms: Algorithm
    slices: Slices
    tiles: int  # Winograd tiles whose products are summed together: of a cache block of rows, of all rows, of a chain
    shared: Mapping[str, int]  # byte offsets of points, sums and old values in the memory that threads share
    shared_bytes: int
    thread_bytes: int  # bytes of points and sums of one thread

    @property
    def scratch_bytes(self) -> int:
        """The bytes of memory for points, sums and old values, of all threads together."""
        return self.shared_bytes + self.threads * self.thread_bytes

    @property
    def summary(self) -> str:
        """The algorithm, its points and its tiles, as one line of text."""
        points = counted(self.transforms.points, "point")
        return f"tiles of {self.algorithm}: {points} of {counted(self.tiles, 'tile')}"


def old_values(problem: Problem) -> dict[str, int]:
    """Return {"old": bytes of a copy of the old output}, or an empty dict if the call does not accumulate."""
    bytes_each = problem.output_format.itemsize
    return {"old": prod(canonical_shape(problem.geometry, problem.output)) * bytes_each} if problem.accumulate else {}


def pitch(channels: int, taps: int = 1) -> int:
    """Return the bytes of a tile's channels at one point. An odd number of lines makes tiles use all cache sets.

    The vectors of several taps begin anywhere, and their last one may end a line later.
    """
    return _odd(taps * channels * F32_BYTES + (LINE_BYTES if taps > 1 else 0))


def of_point(count: int, channels: int, taps: int = 1) -> int:
    """Return the bytes of ``count`` tiles at one point. An odd number of lines makes points use all cache sets."""
    return _odd(count * pitch(channels, taps))


def of_panel(k: int, isa: Isa) -> int:
    """Return the bytes of a panel of weights at one point: ``PANEL`` vectors of output channels for each k."""
    return k * PANEL * isa.lanes * F32_BYTES


def of_weights(k: int, results: int, isa: Isa) -> int:
    """Return the bytes of all weights at one point, an odd number of cache lines."""
    return _odd(-(-results // (PANEL * isa.lanes)) * of_panel(k, isa))


def _odd(size: int) -> int:
    return (-(-size // LINE_BYTES) | 1) * LINE_BYTES


# -- forward and backward data --


@dataclass(frozen=True, kw_only=True)
class PositionsPlan(WinogradPlan):
    """A plan of forward or backward data, in two stages.

    First, all threads transform one operand. Then each thread transforms cache blocks of the other operand, multiplies,
    and transforms the sums back. Cache blocks are rows of tiles if tiles are many, or else channels of the result.
    """

    by_rows: bool  # whether cache blocks are rows of tiles
    block_size: int  # rows of tiles, or result channels, in a cache block
    extent: int  # rows of tiles, or result channels, in all cache blocks together
    all_rows: int  # rows of tiles in all slices together
    results: int  # result channels of a cache block
    block_bytes: int  # bytes of the points of a cache block
    sums_bytes: int  # bytes of the sums of a cache block
    points_ms: float  # time of the first stage on all threads
    blocks_ms: float  # time of the second stage on all threads

    @property
    def tasks(self) -> int:
        """The number of cache blocks."""
        return -(-self.extent // self.block_size)

    @property
    def cut(self) -> str:
        """The division of the work among threads, as one line of text."""
        what = f"{counted(self.block_size, 'row')} of tiles" if self.by_rows else counted(self.block_size, "result")
        return f"{what} each, transformed, summed and transformed back by one thread"


def plan_positions(problem: Problem, machine: Machine, threads: int) -> PositionsPlan:
    """Return the plan of a problem: a function of its geometry, whatever the strides of its operands."""
    assert isinstance(problem.geometry, Conv)
    algorithm = algorithm_of(problem.geometry, problem.algorithm)
    slices = Slices(as_forward(of_group(problem.geometry), problem.solves_for))
    conv, taps = slices.conv, slices.axes[0].kernel
    tile_rows, tile_columns = algorithm.covering(conv)
    all_rows = conv.batch * tile_rows
    block_rows = _rows(conv, algorithm, machine, threads)
    results = conv.dst_channels if block_rows else _results(conv, machine, threads)
    rows = block_rows or all_rows
    sizes = {
        "tiles": algorithm.points * of_point(rows * tile_columns, slices.channels, taps),
        "weights": algorithm.points * of_weights(conv.src_channels, results, machine.isa),
        "sums": algorithm.points * of_point(rows * tile_columns, results),
    }
    first, second = ("weights", "tiles") if block_rows else ("tiles", "weights")
    shared, shared_bytes = placed({"points": sizes[first], **old_values(problem)})
    rate, count = machine.bytes_per_ns * 1e6, all_rows / rows * conv.dst_channels / results
    points_ms = sizes[first] / rate / threads
    sums_ms = algorithm.points * rows * tile_columns * conv.src_channels * results / machine.fma_per_ns / 1e6
    blocks_ms = count * (sums_ms + (sizes[second] + sizes["sums"]) / rate) / threads
    block_size, extent = (rows, all_rows) if block_rows else (results, conv.dst_channels)
    return PositionsPlan(
        strategy="Winograd",
        spec=None,
        operands=(DATA[problem.solves_for], "weights"),
        threads=threads,
        rounding_depth=height_of(problem),
        time_ms=problem.geometry.groups * (points_ms + blocks_ms),
        algorithm=problem.algorithm,
        transforms=algorithm,
        slices=slices,
        tiles=rows * tile_columns,
        shared=shared,
        shared_bytes=shared_bytes,
        by_rows=bool(block_rows),
        block_size=block_size,
        extent=extent,
        all_rows=all_rows,
        results=results,
        thread_bytes=sizes[second] + sizes["sums"],
        block_bytes=sizes[second],
        sums_bytes=sizes["sums"],
        points_ms=points_ms,
        blocks_ms=blocks_ms,
    )


def _rows(conv: Conv, algorithm: Algorithm, machine: Machine, threads: int) -> int:
    """Return the number of rows of tiles in a cache block, or 0 if cache blocks should be result channels.

    Larger cache blocks read the points of weights less often. Smaller cache blocks fit their own points in a cache.
    """
    tile_rows, tile_columns = algorithm.covering(conv)
    of_row = algorithm.points * tile_columns * (pitch(conv.src_channels) + pitch(conv.dst_channels))
    count, channels = conv.batch * tile_rows, max(conv.src_channels, conv.dst_channels)
    near = max(1, int(machine.l2_bytes * constants.BLOCK_SHARE) // of_row)
    minimum = -(-channels // (constants.CHANNELS_A_TILE * tile_columns))
    wanted = near if near >= minimum else -(-constants.MIN_TILES // tile_columns)
    if count < wanted * threads:
        return 0
    blocks = -(-count // wanted)
    return -(-count // (-(-blocks // threads) * threads))


def _results(conv: Conv, machine: Machine, threads: int) -> int:
    """Return the number of result channels in a cache block: whole vectors, so few that all threads have work."""
    lanes = machine.isa.lanes
    of_thread = -(-conv.dst_channels // threads)
    return min(constants.RESULTS, -(-of_thread // lanes) * lanes)


# -- backward weights --


@dataclass(frozen=True, kw_only=True)
class WeightsPlan(WinogradPlan):
    """A plan of backward weights. A task has one unit of tiles, one tap of the axis that is summed directly, and ranges
    of src and of dst channels.

    If there is one unit, each task transforms its sums to weights. Otherwise the second stage adds the sums of all
    units and transforms the total.
    """

    turns: Turns
    src_channels: int  # src channels of a task, all of one tap of the axis that is summed directly
    dst_channels: int  # dst channels of a task
    parts: tuple[int, int]  # the number of parts of the src channels of each tap, and of the dst channels
    block: tuple[int, int]  # src and dst channels whose sums a task has at a time
    src_bytes: int  # bytes of the src points of a chain and a task
    dst_bytes: int  # bytes of the dst points of a chain and a task
    sums_bytes: int  # bytes of the sums of a task, or of a unit if there are several units
    units_ms: float  # time of the first stage, which computes sums
    weights_ms: float  # time of the second stage, which transforms sums to weights

    @property
    def tasks(self) -> int:
        """The number of tasks: units times taps times parts of src channels times parts of dst channels."""
        return self.turns.units * self.slices.axes[0].kernel * prod(self.parts)

    @property
    def stored_chains(self) -> int:
        """The chains whose points a task has at a time: all if it has the sums of a block at a time, else one."""
        return 1 if self.block == (self.src_channels, self.dst_channels) else self.turns.blocks

    @property
    def cut(self) -> str:
        """The division of the work among threads, as one line of text."""
        channels = f"{self.src_channels} src and {self.dst_channels} dst channels"
        units = counted(self.turns.units, "unit")
        return f"{units} of {counted(self.turns.blocks, 'block')} of tiles, {channels} each"


@lru_cache(maxsize=REMEMBERED)
def plan_weights(problem: Problem, machine: Machine, threads: int) -> WeightsPlan:
    """Return the plan of a problem: a function of its geometry, whatever the strides of its operands."""
    assert isinstance(problem.geometry, Conv)
    algorithm, slices = algorithm_of(problem.geometry, problem.algorithm), Slices(of_group(problem.geometry))
    conv, turns = slices.conv, algorithm.turns(slices.conv)
    time, src_channels, dst_channels = min(_timed(slices, algorithm, turns, machine, threads))
    parts = (-(-slices.channels // src_channels), -(-conv.dst_channels // dst_channels))
    tiles, several = turns.segments_per_block * turns.length, turns.units > 1
    src, dst = (algorithm.points * of_point(tiles, channels) for channels in (src_channels, dst_channels))
    block, stored_chains = (src_channels, dst_channels), 1
    if _by_blocks(algorithm, turns, machine, src_channels, dst_channels):
        block, stored_chains = (min(src_channels, constants.BLOCK), min(dst_channels, constants.BLOCK)), turns.blocks
    sums = algorithm.points * of_point(*((conv.src_channels, conv.dst_channels) if several else block))
    shared, shared_bytes = placed(({"sums": turns.units * sums} if several else {}) | old_values(problem))
    values = turns.units * algorithm.points * conv.src_channels * conv.dst_channels
    weights = values * constants.TRANSFORM_ADDS / machine.fma_per_ns / threads / 1e6
    return WeightsPlan(
        strategy="Winograd",
        spec=None,
        operands=("src", "dst"),
        threads=threads,
        rounding_depth=height_of(problem),
        time_ms=problem.geometry.groups * (time + weights),
        algorithm=problem.algorithm,
        transforms=algorithm,
        slices=slices,
        tiles=tiles,
        shared=shared,
        shared_bytes=shared_bytes,
        thread_bytes=stored_chains * (src + dst) + (0 if several else sums),
        block=block,
        turns=turns,
        src_channels=src_channels,
        dst_channels=dst_channels,
        parts=parts,
        src_bytes=src,
        dst_bytes=dst,
        sums_bytes=sums,
        units_ms=time,
        weights_ms=weights,
    )


def _timed(
    slices: Slices, algorithm: Algorithm, turns: Turns, machine: Machine, threads: int
) -> Iterator[tuple[float, int, int]]:
    """Yield the time of all tasks in ms, and the numbers of src and dst channels of a task.

    If tasks are small, several tasks transform the same channels. Large tasks exceed the second cache.
    """
    tiles, conv, taps = turns.segments_per_block * turns.length, slices.conv, slices.axes[0].kernel
    for src_channels, dst_channels in product(
        _equal(slices.channels, constants.SRC_CHANNELS), _equal(conv.dst_channels, machine.isa.lanes)
    ):
        points, sums = tiles * (pitch(src_channels) + pitch(dst_channels)), src_channels * pitch(dst_channels)
        if _by_blocks(algorithm, turns, machine, src_channels, dst_channels):
            sums = 0
        multiply_adds = tiles * (src_channels * dst_channels + constants.TRANSFORM_ADDS * (src_channels + dst_channels))
        if algorithm.points * (points + sums) > constants.TASK_SHARE * machine.l2_bytes:
            multiply_adds += 2 * (points + sums) * machine.fma_per_ns / machine.bytes_per_ns
        tasks = turns.units * taps * -(-slices.channels // src_channels) * -(-conv.dst_channels // dst_channels)
        blocks = turns.blocks * algorithm.points * multiply_adds
        yield -(-tasks // threads) * blocks / machine.fma_per_ns / 1e6, src_channels, dst_channels


def _by_blocks(algorithm: Algorithm, turns: Turns, machine: Machine, src_channels: int, dst_channels: int) -> bool:
    """Return whether a task transforms the tiles of all of its chains, and then has the sums of blocks of channels."""
    points = turns.blocks * turns.segments_per_block * turns.length * (pitch(src_channels) + pitch(dst_channels))
    room = constants.UNIT_SHARE * machine.l2_bytes
    return turns.units == 1 and max(src_channels, dst_channels) > constants.BLOCK and algorithm.points * points <= room


def _equal(channels: int, unit: int) -> list[int]:
    """Return the possible numbers of channels of a part: multiples of ``unit``, and all channels.

    >>> _equal(96, 16)
    [16, 32, 48, 96]
    """
    count = -(-channels // unit)
    return sorted({-(-count // parts) * unit if parts > 1 else channels for parts in range(1, count + 1)})
