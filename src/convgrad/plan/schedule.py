"""A plan cut into tasks and chunks: tables of integers that the compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from convgrad.plan.recipe import IN_PLACE, Plan
from convgrad.plan.taps import Table, margins, runs_of, tap_tables
from convgrad.plan.view import (
    Ints,
    Pieces,
    RowOffsets,
    View,
    collapsed,
    merged,
    pieces,
    rows_of,
    source_rows,
)  # fmt: skip
from convgrad.spec.order import BLOCK, FAN_IN

# The columns of the tables that the driver reads by name; of a task, each range as its begin and its length.
TASK = ("group", "groups", "row", "rows", "lane", "lanes", "tap", "taps")  # panels, panels, taps
CHUNK = ("image", "images", "blocks", "join", "index", "row_entry", "row_entries", "lane_entry", "lane_entries", "last")
TABLES = (
    "tasks", "chunks", "row_entries", "lane_entries", "taps", "outs", "segments", "masks", "run_index", "runs", "joins",
)  # fmt: skip
LINE_BYTES = 64
HEAD_BYTES = 64  # of scratch: whether dst of a chunk has a value that is not finite
FLAGS = ("counter", "pending", "active", "stop")  # words behind the fields that fields point to; the pool's last three
FIELDS = (
    *FLAGS, "rows", "lanes", "out", *TABLES,
    "task_count", "chunk_count", "row_group", "lane_group", "out_group",
    "row_n", "row_c", "row_i", "lane_n", "lane_c", "lane_i", "row_channels", "lane_channels",
    "row_g", "lane_g", "out_g", "group_count", "tap_step", "src_left", "src_right",
    "row_panel", "lane_panel", "row_image", "lane_image", "row_step", "lane_step", "row_next",
    "row_at", "lane_at", "sums_at", "sums_step", "panel_sums", "top", "block_images", "block_step", "index_step",
    "out_row", "out_lane", "accumulate",
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """Tables and numbers of the driver's arguments, by name; all but the addresses of one call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    row_offset: int  # bytes from an operand's first element to where the driver begins
    lane_offset: int
    scratch_bytes: int
    table_bytes: int


@dataclass(frozen=True)
class _Slices:
    """What is packed at a time, in tables of all slices one after the other."""

    ranges: tuple[tuple[int, int], ...]  # of blocks
    src_entries: tuple[Ints, ...]
    dst_entries: tuple[Ints, ...]
    runs: Ints
    run_index: Ints
    src_positions: int  # the most of any slice
    dst_positions: int


def levels_of(leaves: int) -> int:
    """Return the levels of the 16-ary tree over some leaves.

    >>> [levels_of(n) for n in (1, 2, 16, 17, 257)]
    [0, 1, 1, 2, 3]
    """
    levels = 0
    while leaves > 1:
        leaves, levels = -(-leaves // FAN_IN), levels + 1
    return levels


def _tree(leaves: int) -> tuple[Ints, Ints, int]:
    """Return, for each leaf, a bit per level where it is a first child, and how many levels it completes."""
    levels, leaf = levels_of(leaves), np.arange(leaves, dtype=np.int64)
    firsts, complete, ended = np.zeros(leaves, np.int64), np.zeros(leaves, np.int64), np.ones(leaves, bool)
    for level in range(levels):
        child = leaf // FAN_IN**level % FAN_IN
        firsts |= (child == 0).astype(np.int64) << level
        ended = ended & ((child == FAN_IN - 1) | (leaf == leaves - 1))
        complete += ended
    return firsts, complete, levels


def joins(blocks: int, units: int) -> tuple[Ints, int]:
    """Return, for each block of each unit, (first-child bits, carries upward), and the number of levels.

    >>> table, levels = joins(2, 2)
    >>> table.tolist(), levels  # the second block of a unit carries the unit's sum upward
    ([[3, 0], [2, 1], [1, 0], [0, 1]], 2)
    """
    block_firsts, block_complete, block_levels = _tree(blocks)
    unit_firsts, unit_complete, unit_levels = _tree(units)
    levels = max(1, block_levels + unit_levels)
    firsts = block_firsts[None, :] | (unit_firsts[:, None] << block_levels)
    if block_levels + unit_levels == 0:
        firsts = firsts | 1
    whole = block_complete == block_levels
    carries = np.where(whole[None, :], block_levels + unit_complete[:, None], block_complete[None, :])
    return np.stack([firsts.ravel(), np.minimum(carries, levels - 1).ravel()], 1), levels


def schedule(view: View, plan: Plan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    conv, spec, rows, out_strides = view.conv, plan.spec, plan.rows, view.weights_strides
    cutting = pieces(view)
    per_group = {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}
    packed = {rows: spec.row_bytes, plan.lanes: spec.lane_bytes}
    steps = {t: inner_step(view, t) if spec.row_layout == IN_PLACE and t == rows else packed[t] for t in ("src", "dst")}
    in_place = rows if spec.row_layout == IN_PLACE else None
    taps = tap_tables(view, spec, steps, rows, out_strides[2:])
    slices = _slices(view, cutting, plan, steps, in_place, taps["masks"][0].nbytes)
    images = plan.chunk_images
    positions = {"src": slices.src_positions, "dst": slices.dst_positions}
    image_bytes = {t: positions[t] * packed[t] for t in positions}
    panel_bytes = {t: image_bytes[t] * images for t in positions}
    if spec.groups_in_lanes:  # panels are written side by side: an odd number of lines apart, they meet in no set
        panel_bytes = {t: (-(-size // LINE_BYTES) | 1) * LINE_BYTES for t, size in panel_bytes.items()}
    if in_place:
        image_bytes[rows] = view.strides(rows)[0]
    entries = {"src": slices.src_entries, "dst": slices.dst_entries}
    chunks = _chunks(conv.batch, cutting, slices, images, entries[rows], entries[plan.lanes])
    join_table, levels = joins(cutting.blocks, -(-conv.batch // cutting.images_a_block))
    groups = -(-conv.groups // spec.groups_a_panel)
    row_panels, lane_panels = -(-per_group[rows] // spec.tile.rows), -(-per_group[plan.lanes] // spec.lane_channels)
    tasks = [
        tuple(word for begin, end in each for word in (begin, end - begin))
        for each in product(*map(parts, (groups, row_panels, lane_panels, len(taps["taps"])), plan.parts))
    ]
    most_groups, most_rows, most_lanes, most_taps = (max(t[i] for t in tasks) for i in (1, 3, 5, 7))
    kept = len(chunks) > 1  # sums of all panels wait for the next chunk
    tiles = (most_groups * most_rows * most_lanes if kept else 1) * most_taps
    panels = (most_groups, most_groups) if spec.groups_in_lanes else (most_rows, most_lanes)
    row_bytes = 0 if in_place else panels[0] * panel_bytes[rows]
    lane_bytes = panels[1] * panel_bytes[plan.lanes]
    channel_step = {"dst": out_strides[0], "src": out_strides[1]}
    group_step = {t: per_group[t] * view.strides(t)[1] for t in ("src", "dst")}
    out_group = per_group["dst"] * out_strides[0]
    together = spec.groups_a_panel
    packs = cutting.blocks == 1
    tables: dict[str, Table] = {
        "tasks": np.array(tasks, np.int64),
        "chunks": chunks,
        "row_entries": np.concatenate(entries[rows]),
        "lane_entries": np.concatenate(entries[plan.lanes]),
        **taps,
        "run_index": slices.run_index,
        "runs": slices.runs,
        "joins": join_table,
    }
    inner, (left, right) = conv.axes[-1], margins(view, spec)
    numbers = {
        "task_count": len(tasks), "chunk_count": len(chunks),
        "row_group": group_step[rows] * together, "lane_group": group_step[plan.lanes] * together,
        "out_group": out_group * together,
        "row_n": view.strides(rows)[0], "row_c": view.strides(rows)[1], "row_i": inner_step(view, rows),
        "lane_n": view.strides(plan.lanes)[0], "lane_c": view.strides(plan.lanes)[1],
        "lane_i": inner_step(view, plan.lanes),
        "row_channels": per_group[rows], "lane_channels": per_group[plan.lanes],
        "row_g": group_step[rows], "lane_g": group_step[plan.lanes], "out_g": out_group, "group_count": conv.groups,
        "tap_step": steps["src"] * inner.dilation,
        "src_left": left * packed["src"], "src_right": right * packed["src"],
        "row_panel": panel_bytes[rows], "lane_panel": panel_bytes[plan.lanes],
        "row_image": image_bytes[rows], "lane_image": image_bytes[plan.lanes],
        "row_step": steps[rows] * (inner.stride if rows == "src" else 1),
        "lane_step": steps[plan.lanes] * (inner.stride if rows == "dst" else 1),
        "row_next": _advance(entries[rows], view.strides(rows)[0] * images),
        "row_at": HEAD_BYTES, "lane_at": HEAD_BYTES + row_bytes, "sums_at": HEAD_BYTES + row_bytes + lane_bytes,
        "sums_step": levels * spec.tile_bytes, "panel_sums": levels * spec.tile_bytes * kept,
        "top": (levels - 1) * spec.tile_bytes,
        "block_images": cutting.images_a_block, "block_step": cutting.images_a_block if packs else 0,
        "index_step": 0 if packs else 16 * (len(slices.run_index) // cutting.blocks),
        "out_row": channel_step[rows], "out_lane": channel_step[plan.lanes], "accumulate": int(accumulate),
    }  # fmt: skip
    offset = {"src": view.src_offset, "dst": 0}
    scratch = row_bytes + lane_bytes + tiles * levels * spec.tile_bytes + HEAD_BYTES
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    table_bytes = sum(table.nbytes for table in frozen.values())
    return Schedule(frozen, numbers, offset[rows], offset[plan.lanes], scratch, table_bytes)


def parts(count: int, into: int) -> list[tuple[int, int]]:
    """Cut a range into parts as equal as can be.

    >>> parts(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, rest = divmod(count, into)
    ends = [size * i + min(i, rest) for i in range(into + 1)]
    return [(a, b) for a, b in pairwise(ends) if b > a]


def _advance(entries: tuple[Ints, ...], images: int) -> int:
    """Return the bytes from a chunk's data to the next one's: a slice's, or, of whole images, theirs."""
    return int(entries[1][0, 0] - entries[0][0, 0]) if len(entries) > 1 and all(map(len, entries[:2])) else images


def inner_step(view: View, tensor: str) -> int:
    """Return the step from a position to the next: of all positions where they are one row and lie so."""
    extents = tuple(a.dst for a in view.conv.axes)
    strides = view.strides(tensor)[2:]
    together = collapsed(extents, strides) if view.pointwise else None
    return strides[-1] if together is None else together


def _chunks(
    batch: int, cutting: Pieces, slices: _Slices, images: int, rows: tuple[Ints, ...], lanes: tuple[Ints, ...]
) -> Ints:
    """Rows of CHUNK: what is packed at a time, in the order of the sums."""
    outer = len(slices.run_index) // cutting.blocks
    row_start = np.cumsum([0, *map(len, rows)])
    lane_start = np.cumsum([0, *map(len, lanes)])
    table = []
    for n in range(0, batch, images):
        for s, (b0, b1) in enumerate(slices.ranges):
            taken = min(images, batch - n)
            blocks = b1 - b0 if cutting.blocks > 1 else -(-taken // cutting.images_a_block)
            join = n * cutting.blocks + b0 if cutting.blocks > 1 else n // cutting.images_a_block
            where = (row_start[s], len(rows[s]), lane_start[s], len(lanes[s]))
            table.append((n, taken, blocks, join, b0 * outer, *where, 0))
    chunks = np.array(table, np.int64)
    chunks[-1, -1] = 1
    return chunks


def _slices(
    view: View, cutting: Pieces, plan: Plan, steps: Mapping[str, int], in_place: str | None, mask_bytes: int
) -> _Slices:
    """Return the tables of what is packed at a time: ranges of an image's blocks, small enough for a cache."""
    outer = view.conv.axes[:-1]
    met = np.zeros((1, 1), np.int64) if view.pointwise else source_rows(outer)
    at = (
        RowOffsets(tuple(a.src for a in outer), view.src_strides[2:-1]),
        RowOffsets(tuple(a.dst for a in outer), view.dst_strides[2:-1]),
    )
    step = plan.slice_blocks or cutting.blocks
    starts = [0]
    if not view.pointwise and view.conv.axes[-1].dst > BLOCK:  # an end and a beginning together span whole rows
        starts = [int(block) for block in cutting.block[cutting.first == 0]]
    stretches = pairwise([*starts, cutting.blocks])
    ranges = [(b, min(b + step, end)) for start, end in stretches for b in range(start, end, step)]
    ends = np.searchsorted(cutting.block, [0, *(end for _, end in ranges)])
    made = [
        _slice(view, cutting, plan, slice(first, end), blocks, met, at, steps, in_place, mask_bytes)
        for (first, end), blocks in zip(pairwise(ends), ranges, strict=True)
    ]
    src, dst, runs, counts = ([one[i] for one in made] for i in range(4))
    count = np.concatenate(counts)
    return _Slices(
        tuple(ranges),
        tuple(src),
        tuple(dst),
        np.concatenate(runs),
        np.stack([np.cumsum(count) - count, count], 1),
        max(int((entries[:, 1] + sum(margins(view, plan.spec))).sum()) for entries in src),
        max(int(entries[:, 1].sum()) for entries in dst),
    )


def _slice(
    view: View, cutting: Pieces, plan: Plan, part: slice, blocks: tuple[int, int], met: Ints,
    at: tuple[RowOffsets, RowOffsets], steps: Mapping[str, int], in_place: str | None, mask_bytes: int,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """Return src entries, dst entries, rows of RUN, and their number by block and tile of outer taps.

    ``met`` is the source row of every outer tap and destination row; ``at`` are the rows' byte offsets in an image.
    """
    inner, src_step, dst_step = view.conv.axes[-1], inner_step(view, "src"), inner_step(view, "dst")
    row, p0, p1 = (a[part] for a in (cutting.row, cutting.first, cutting.end))
    used = met[:, row]
    slots, where = np.unique(used, return_inverse=True)
    missing = int(slots[0] < 0)
    slot = np.maximum(where.reshape(used.shape) - missing, 0)
    i0 = max(0, int(p0.min()) * inner.stride - inner.pad_begin)
    i1 = (int(p1.max()) - 1) * inner.stride + (inner.kernel - 1) * inner.dilation - inner.pad_begin + 1
    width = max(0, min(view.conv.positions if view.pointwise else inner.src, i1) - i0)
    left, right = margins(view, plan.spec)
    if view.pointwise:
        src = rows_of(at[0], i0, width, inner.src, view.src_strides[-1])
        dst = rows_of(at[1], i0, width, inner.dst, view.dst_strides[-1])
    else:
        present = slots[missing:]
        src = np.stack([at[0][present] + i0 * src_step, np.full(len(present), width)], 1)
        dst = np.stack([at[1][row] + p0 * dst_step, p1 - p0], 1)
    x = (slot * (left + width + right) + left - i0 - inner.pad_begin) * steps["src"]
    y = (np.cumsum(p1 - p0) - p1) * steps["dst"]
    if in_place == "src":
        x = at[0][used] - inner.pad_begin * src_step
    if in_place == "dst":
        y = at[1][row]
    exists = (used >= 0) & (width > 0)
    runs, counts = runs_of(
        plan, p0, p1, x, y, exists, cutting.block[part] - blocks[0], blocks[1] - blocks[0], mask_bytes
    )
    return src if left + right else merged(src, src_step), merged(dst, dst_step), runs, counts
