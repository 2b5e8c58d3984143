"""A plan of Winograd as numbers, and the records by which the compiled drivers of its stages read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS_IN, F32_BYTES, SPATIAL, TAPS
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.tables import Schedule, placed
from convgrad.plan.tree import levels_of
from convgrad.plan.winograd.plans import (
    PANEL,
    PositionsPlan,
    WeightsPlan,
    WinogradPlan,
    of_panel,
    of_point,
    of_weights,
    pitch,
)
from convgrad.plan.winograd.spec import WinogradSpec
from convgrad.spec.winograd.tile_order import BLOCK

Ints = Sequence[int]
Numbers = dict[str, int]
StageTables = tuple[
    Numbers, Numbers, list[tuple[str, int, float]]
]  # numbers, sizes in scratch, (body, tasks, ms) of stages
Staged = tuple[WinogradSpec, Schedule, float]  # a stage: the specification of its kernel, its arguments, its time in ms

# The arguments that differ between calls. If there is no bias, its address is 0.
CALL = FLAGS + addresses(
    "a.data", "b.data", "bias.data", "out.data",
    "out.infinite",  # address of a flag: a sum is not finite
    "shared",  # memory of all threads: points of the first stage, or sums of units
)  # fmt: skip
GRID, AXES = Record("y", "x"), Record("z", "y", "x")  # z is the axis that is summed directly
TILES = Record(  # tiles of an operand, or of the output, which has one tap of z, one part and no pads
    "channels", "taps",  # channels of each tap of z, number of these taps
    "parts", "positions", "columns",  # parts of a row of tiles, positions of dst on z, columns of the staging buffer
    "image", "channel",  # byte strides of the operand or output, as "step"
    "of_tap", "point", "tile",  # byte strides of the transformed values, or of the sums
) + GRID.within("grid") + AXES.within("size") + AXES.within("pad") + AXES.within("step")  # fmt: skip
FILTER = Record(  # the transform of filters
    "count", "vectors", "taps",  # vectors of input channels: of all taps of z, of each tap; number of these taps
    "channels", "results",  # input channels of each tap of z, output channels
    "result", "k",  # byte strides of the weights, as "tap"
    "point", "panel",  # byte strides of the transformed values
) + AXES.within("tap")  # fmt: skip
GEMM = Record("points", "a.point", "a.m", "a.k", "b.point", "b.panel", "b.k", "c.point", "c.m")  # all but one in bytes
WEIGHTS = Record(  # the output transform to weights
    "rows", "channels", "taps",  # src channels of each tap of z, dst channels, number of these taps
    "row", "channel",  # byte strides of the output, as "tap"
    "point", "sums_row",  # byte strides of the sums
) + AXES.within("tap")  # fmt: skip
POSITIONS_ARGUMENTS = CALL + Record(
    "task_count", "all_rows", "k", "levels",  # rows of tiles, input channels, levels of the reduction tree
    "part", "all",  # rows of tiles, or output channels: of a cache block, of all cache blocks
    "bias.step", "points_at", "sums_at", "room_at", "bias_at", "staging_at",  # byte stride, offsets in scratch
) + TILES.within("a") + FILTER.within("b") + GEMM.within("gemm") + TILES.within("out")  # fmt: skip
WEIGHTS_ARGUMENTS = CALL + Record(
    "task_count", "parts", "m.parts", "n.parts",  # parts of a unit, of the src channels, of the dst channels
    "length", "block.m", "block.n",  # tiles of a segment; src and dst channels whose sums a task has at a time
    "unit", "units", "levels",  # bytes of the sums of a unit, number of units, levels of their reduction tree
    "a_bytes", "b_bytes", "a_at", "b_at", "sums_at", "staging_at",  # bytes of a chain's points, offsets in scratch
    "m.part", "m.all", "n.part", "n.all",  # src and dst channels: of a task, of all tasks
    "chains.part", "chains.all", "segments.part", "segments.all",  # chains: of a unit, all; segments: of a chain, all
) + TILES.within("a") + TILES.within("b") + GEMM.within("gemm") + WEIGHTS.within("out")  # fmt: skip


def arguments(spec: WinogradSpec) -> Record:
    """Return the arguments of the drivers of all stages of a pass."""
    return WEIGHTS_ARGUMENTS if spec.solves_for == "weights" else POSITIONS_ARGUMENTS


def schedules(spec: WinogradSpec, strides: Mapping[str, Ints], plan: PositionsPlan | WeightsPlan) -> tuple[Staged, ...]:
    """Return the stages of a plan for arrays of these strides. Only the number of tasks differs in their arguments."""
    numbers, scratch, stages = (
        _weights(spec, strides, plan) if isinstance(plan, WeightsPlan) else _positions(spec, strides, plan)
    )
    places, scratch_bytes = placed(scratch)
    return tuple(
        (replace(spec, body=body), Schedule({}, {**numbers, **places, "task_count": count}, scratch_bytes), time_ms)
        for body, count, time_ms in stages
    )


def _positions(spec: WinogradSpec, strides: Mapping[str, Ints], plan: PositionsPlan) -> StageTables:
    """Return the numbers, the sizes in scratch and the two stages of forward or backward data.

    The first stage transforms one operand. The second transforms the other operand by cache blocks, multiplies, and
    applies the output transform.
    """
    slices, isa, (data, _) = plan.slices, spec.isa, plan.operands
    depth, levels = slices.conv.src_channels, levels_of(-(-slices.conv.src_channels // BLOCK))
    a = _tiles(spec, plan, strides[data], slices.channels, spec.a, True)
    b = _filter(spec, plan, strides["weights"])
    out = _tiles(spec, plan, strides["out"], plan.results, spec.out, False)
    of_b = (b["point"], b["panel"], of_panel(1, isa))
    scratch = {
        "points_at": plan.block_bytes,
        "sums_at": plan.sums_bytes,
        "room_at": levels * level_bytes(isa),
        "bias_at": plan.results * F32_BYTES,
        "staging_at": max(numbers.pop("staging") for numbers in (a, b, out)),
    }
    numbers = {
        "part": plan.block_size,
        "all": plan.extent,
        "all_rows": plan.all_rows,
        "k": depth,
        "levels": levels,
        "bias.step": strides["bias"][0] if "bias" in strides else 0,
        **TILES.values("a", **a),
        **FILTER.values("b", **b),
        **_gemm(spec, (a["point"], a["tile"], F32_BYTES), of_b, (out["point"], out["tile"])),
        **TILES.values("out", **out),
    }
    first = ("filter_points", b["count"]) if plan.by_rows else ("input_points", plan.all_rows)
    second = "rows_block" if plan.by_rows else "results_block"
    return numbers, scratch, [(*first, plan.points_ms), (second, plan.tasks, plan.blocks_ms)]


def _weights(spec: WinogradSpec, strides: Mapping[str, Ints], plan: WeightsPlan) -> StageTables:
    """Return the same of backward weights: the sums of each unit of tiles and, if there are several, their total."""
    slices, turns, several, (channel, row, *steps) = plan.slices, plan.turns, plan.turns.units > 1, strides["out"]
    a = _tiles(spec, plan, strides["src"], plan.src_channels, spec.a, True)
    b = _tiles(spec, plan, strides["dst"], plan.dst_channels, spec.b, False)
    (rows, channels), taps = plan.block, 1
    if several:
        rows, channels, taps = slices.channels, slices.conv.dst_channels, slices.axes[0].kernel
    staging = (spec.out == TAPS) * whole(spec.filter, spec.isa.lanes) * spec.isa.lanes * F32_BYTES
    out = {
        "rows": rows,
        "channels": channels,
        "taps": taps,
        "row": row,
        "channel": channel,
        "point": of_point(taps * rows, channels),
        "sums_row": pitch(channels),
        **_by_axis("tap", steps),
    }
    of_a, of_b = (a["point"], F32_BYTES, a["tile"]), (b["point"], of_panel(1, spec.isa), b["tile"])
    scratch = {
        "a_at": plan.stored_chains * plan.src_bytes,
        "b_at": plan.stored_chains * plan.dst_bytes,
        "sums_at": 0 if several else plan.sums_bytes,
        "staging_at": max(a.pop("staging"), b.pop("staging"), staging),
    }
    numbers = {
        "parts": plan.tasks // turns.units,
        "m.parts": plan.parts[0],
        "n.parts": plan.parts[1],
        "m.part": plan.src_channels,
        "m.all": slices.channels,
        "n.part": plan.dst_channels,
        "n.all": slices.conv.dst_channels,
        "chains.part": turns.blocks,
        "chains.all": -(-turns.stretches // turns.segments_per_block),
        "segments.part": turns.segments_per_block,
        "segments.all": turns.stretches,
        "length": turns.length,
        "block.m": plan.block[0],
        "block.n": plan.block[1],
        "unit": plan.sums_bytes,
        "units": turns.units,
        "levels": levels_of(turns.units),
        "a_bytes": plan.src_bytes,
        "b_bytes": plan.dst_bytes,
        **TILES.values("a", **a),
        **TILES.values("b", **b),
        **_gemm(spec, of_a, of_b, (out["point"], out["sums_row"])),
        **WEIGHTS.values("out", **out),
    }
    if not several:
        body = "only_unit" if plan.block == (plan.src_channels, plan.dst_channels) else "blocks_of_unit"
        return numbers, scratch, [(body, plan.tasks, plan.units_ms)]
    sums = -(-channels // spec.isa.lanes) if spec.out == TAPS else slices.conv.src_channels
    return numbers, scratch, [("unit", plan.tasks, plan.units_ms), ("units_sum", sums, plan.weights_ms)]


def _tiles(
    spec: WinogradSpec, plan: WinogradPlan, strides: Ints, channels: int, contiguous: str, of_input: bool
) -> Numbers:
    """Return the values of TILES and the bytes of the staging buffer, of input tiles if ``of_input``."""
    (image, channel, *steps), lanes, axes = strides, spec.isa.lanes, plan.slices.axes
    (_, tile_columns), (high, wide) = spec.transforms.tile, spec.transforms.sides if of_input else spec.transforms.tile
    if isinstance(plan, WeightsPlan):
        grid, parts, taps = (plan.turns.rows, plan.turns.length), plan.turns.parts, 1
    else:
        grid, parts, taps = spec.transforms.covering(plan.slices.conv), 1, axes[0].kernel if of_input else 1
    extents = [axis.src if of_input else axis.dst for axis in axes]
    pads = [axis.pad_begin if of_input else 0 for axis in axes]  # pads may be negative
    span = (grid[1] - 1) * tile_columns + wide
    columns = max(max(0, pads[-1]) + whole(min(extents[-1], span), lanes), span)
    return {
        "channels": channels,
        "taps": taps,
        "parts": parts,
        "positions": axes[0].dst,
        "columns": columns,
        "image": image,
        "channel": channel,
        "of_tap": channels * F32_BYTES,
        "point": of_point(plan.tiles, channels, taps),
        "tile": pitch(channels, taps),
        **_by_axis("grid", grid),
        **_by_axis("size", extents),
        **_by_axis("pad", pads),
        **_by_axis("step", steps),
        "staging": (contiguous == SPATIAL) * high * columns * lanes * F32_BYTES,
    }


def _filter(spec: WinogradSpec, plan: PositionsPlan, strides: Ints) -> Numbers:
    """Return the values of FILTER, and the bytes of the staging buffer."""
    isa, taps, channels = spec.isa, plan.slices.axes[0].kernel, plan.slices.channels
    result, k, *steps = strides if spec.solves_for == "dst" else (strides[1], strides[0], *strides[2:])
    vectors, depth = -(-channels // isa.lanes), plan.slices.conv.src_channels
    return {
        "count": taps * vectors,
        "vectors": vectors,
        "taps": taps,
        "channels": channels,
        "results": plan.results,
        "result": result,
        "k": k,
        "point": of_weights(depth, plan.results, isa),
        "panel": of_panel(depth, isa),
        **_by_axis("tap", steps),
        "staging": (spec.b in (CHANNELS_IN, TAPS)) * whole(spec.filter, isa.lanes) * isa.lanes**2 * F32_BYTES,
    }


def _gemm(spec: WinogradSpec, a: tuple[int, int, int], b: tuple[int, int, int], c: tuple[int, int]) -> Numbers:
    """Return the values of GEMM: strides of point, M, K in A; of point, panel, K in B; of point, M in the sums."""
    return GEMM.values("gemm", **dict(zip(GEMM.columns, (spec.transforms.points, *a, *b, *c), strict=True)))


def _by_axis(name: str, numbers: Ints) -> Numbers:
    """Return the numbers of two or three axes, the outermost first, as "<name>.y" and "<name>.x"."""
    return {f"{name}.{axis}": number for axis, number in zip("zyx"[-len(numbers) :], numbers, strict=True)}


def micro_tile_rows(isa: Isa) -> tuple[int, int, int]:
    """Return the numbers of rows that micro-tiles may have: the maximum, then two smaller numbers for remainders.

    >>> from convgrad.plan.machine import ISAS
    >>> micro_tile_rows(ISAS["avx512"]), micro_tile_rows(ISAS["avx2"])
    ((14, 4, 1), (6, 2, 1))
    """
    (largest,) = (rows for rows, vectors in isa.micro_tiles if vectors == PANEL)
    return largest, largest // 3, 1


def level_bytes(isa: Isa) -> int:
    """Return the bytes of the sums of the largest micro-tile, which a level of the reduction tree needs."""
    return micro_tile_rows(isa)[0] * PANEL * isa.lanes * F32_BYTES


def whole(count: int, lanes: int) -> int:
    """Return ``count`` rounded up to a multiple of ``lanes``."""
    return -(-count // lanes) * lanes
