"""A plan cut into tasks and chunks: tables of integers that the compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convgrad.plan.joins import joins, joins_apart
from convgrad.plan.recipe import Plan
from convgrad.plan.taps import Table, margins, runs_of, tap_tables
from convgrad.plan.tasks import LINE_BYTES, parts, tasks
from convgrad.plan.view import (
    Ints,
    Pieces,
    RowOffsets,
    View,
    collapsed,
    merged,
    pieces,
    rows_of,
    shortened,
    source_rows,
)  # fmt: skip
from convgrad.spec.order import BLOCK

# The columns of the tables that the driver reads by name.
CHUNK = ("image", "images", "blocks", "join", "index", "row_entry", "row_entries", "lane_entry", "lane_entries", "last")
TABLES = (
    "tasks", "chunks", "row_entries", "lane_entries", "taps", "outs", "segments", "masks", "run_index", "runs", "joins",
    "unit_joins",
)  # fmt: skip
STRIP, AHEAD_BYTES = 64, 4096  # positions read in place at a time; what is asked for ahead
HEAD_BYTES = 64  # of scratch: whether dst of a chunk has a value that is not finite
FLAGS = ("counter", "pending", "active", "stop")  # words behind the fields that fields point to; the pool's last three
FIELDS = (
    *FLAGS, "rows", "lanes", "out", "kept", *TABLES,
    "task_count", "row_group", "lane_group", "out_group",
    "row_n", "row_c", "row_i", "lane_n", "lane_c", "lane_i", "row_channels", "lane_channels",
    "row_g", "lane_g", "out_g", "group_count", "tap_step", "src_left", "src_right",
    "row_panel", "lane_panel", "row_image", "lane_image", "row_step", "lane_step", "row_next",
    "row_at", "lane_at", "sums_at", "sums_step", "panel_sums", "top", "block_images", "block_step", "index_step",
    "out_row", "out_lane", "accumulate", "row_ahead", "lane_ahead",
    "image_parts", "units", "kept_step", "gather_step", "gather_top",
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """Tables and numbers of the driver's arguments, by name; all but the addresses of one call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    row_offset: int  # bytes from an operand's first element to where the driver begins
    lane_offset: int
    scratch_bytes: int
    kept_bytes: int  # of sums of units, which all threads share,
    counters: int  # words before them that begin as 0
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


def schedule(view: View, plan: Plan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    conv, spec, rows, out_strides = view.conv, plan.spec, plan.rows, view.weights_strides
    cutting = shortened(pieces(view), STRIP) if spec.groups_in_place else pieces(view)
    per_group = {"src": conv.src_channels // conv.groups, "dst": conv.dst_channels // conv.groups}
    packed = {rows: spec.row_bytes, plan.lanes: spec.lane_bytes}
    in_place = spec.in_place(rows)
    steps = {t: inner_step(view, t) if t in in_place else packed[t] for t in ("src", "dst")}
    taps = tap_tables(view, spec, steps, rows, out_strides[2:])
    slices = _slices(view, cutting, plan, steps, in_place, 1 if spec.groups_in_place else taps["masks"][0].nbytes)
    images = plan.chunk_images
    positions = {"src": slices.src_positions, "dst": slices.dst_positions}
    image_bytes = {t: positions[t] * packed[t] for t in positions}
    panel_bytes = {t: image_bytes[t] * images for t in positions}
    if spec.groups_in_lanes:  # panels are written side by side: an odd number of lines apart, they meet in no set
        panel_bytes = {t: (-(-size // LINE_BYTES) | 1) * LINE_BYTES for t, size in panel_bytes.items()}
    image_bytes |= {t: view.strides(t)[0] for t in in_place}
    entries = {"src": slices.src_entries, "dst": slices.dst_entries}
    units = -(-conv.batch // cutting.images_a_block)
    image_ends = [min(unit * cutting.images_a_block, conv.batch) for _, unit in parts(units, plan.parts[-1])]
    apart = len(image_ends) > 1
    chunk_tables = [
        _chunks(images_of, cutting, slices, images, entries[rows], entries[plan.lanes], not apart)
        for images_of in pairwise([0, *image_ends])
    ]
    join_table, levels = (joins_apart if apart else joins)(cutting.blocks, units)
    unit_table, unit_levels = joins(units if apart else 1, 1)
    groups = -(-conv.groups // spec.groups_a_panel)
    row_panels, lane_panels = -(-per_group[rows] // spec.tile.rows), -(-per_group[plan.lanes] // spec.lane_channels)
    whole = (groups, row_panels, lane_panels, len(taps["taps"]))
    cut = tasks(whole, plan.parts, [len(table) for table in chunk_tables], units * spec.tile_bytes)
    most_groups, most_rows, most_lanes, most_taps = cut.most
    kept = max(map(len, chunk_tables)) > 1 or spec.groups_in_place  # sums of all panels wait for the next chunk
    levels += spec.groups_in_place  # below the tree: the chain
    tiles = (most_groups * most_rows * most_lanes if kept else 1) * most_taps
    panels = (most_groups, most_groups) if spec.groups_in_lanes else (most_rows, most_lanes)
    row_bytes, lane_bytes = (
        0 if t in in_place else count * panel_bytes[t] for t, count in zip((rows, plan.lanes), panels, strict=True)
    )
    channel_step = {"dst": out_strides[0], "src": out_strides[1]}
    group_step = {t: per_group[t] * view.strides(t)[1] for t in ("src", "dst")}
    out_group = per_group["dst"] * out_strides[0]
    packs = cutting.blocks == 1
    tables: dict[str, Table] = {
        "tasks": cut.table,
        "chunks": np.concatenate(chunk_tables),
        "row_entries": np.concatenate(entries[rows]),
        "lane_entries": np.concatenate(entries[plan.lanes]),
        **taps,
        "run_index": slices.run_index,
        "runs": slices.runs,
        "joins": join_table,
        "unit_joins": unit_table,
    }
    inner, (left, right) = conv.axes[-1], margins(view, spec)
    stride = inner.stride if inner.dst > 1 else 1  # of one position there is no next
    ahead = _ahead(view, steps) if spec.groups_in_place else dict.fromkeys(steps, 0)
    numbers = {
        "task_count": len(cut.table),
        "row_group": group_step[rows] * spec.groups_a_panel, "lane_group": group_step[plan.lanes] * spec.groups_a_panel,
        "out_group": out_group * spec.groups_a_panel,
        "row_n": view.strides(rows)[0], "row_c": view.strides(rows)[1], "row_i": inner_step(view, rows),
        "lane_n": view.strides(plan.lanes)[0], "lane_c": view.strides(plan.lanes)[1],
        "lane_i": inner_step(view, plan.lanes),
        "row_channels": per_group[rows], "lane_channels": per_group[plan.lanes],
        "row_g": group_step[rows], "lane_g": group_step[plan.lanes], "out_g": out_group, "group_count": conv.groups,
        "tap_step": steps["src"] * inner.dilation,
        "src_left": left * packed["src"], "src_right": right * packed["src"],
        "row_panel": panel_bytes[rows], "lane_panel": panel_bytes[plan.lanes],
        "row_image": image_bytes[rows], "lane_image": image_bytes[plan.lanes],
        "row_step": steps[rows] * (stride if rows == "src" else 1),
        "lane_step": steps[plan.lanes] * (stride if rows == "dst" else 1),
        "row_next": _advance(entries[rows], view.strides(rows)[0] * images),
        "row_at": HEAD_BYTES, "lane_at": HEAD_BYTES + row_bytes, "sums_at": HEAD_BYTES + row_bytes + lane_bytes,
        "sums_step": levels * spec.tile_bytes, "panel_sums": levels * spec.tile_bytes * kept,
        "top": (levels - 1) * spec.tile_bytes,
        "block_images": cutting.images_a_block, "block_step": cutting.images_a_block if packs else 0,
        "index_step": 0 if packs else 16 * (len(slices.run_index) // cutting.blocks),
        "out_row": channel_step[rows], "out_lane": channel_step[plan.lanes], "accumulate": int(accumulate),
        "row_ahead": ahead[rows], "lane_ahead": ahead[plan.lanes],
        "image_parts": len(chunk_tables), "units": units, "kept_step": cut.kept_step,
        "gather_step": unit_levels * spec.tile_bytes, "gather_top": (unit_levels - 1) * spec.tile_bytes,
    }  # fmt: skip
    offset = {"src": view.src_offset, "dst": 0}
    gathered = (tiles if spec.groups_in_place else most_taps) * unit_levels * apart
    sums_bytes = max(tiles * levels, gathered) * spec.tile_bytes
    scratch = HEAD_BYTES + row_bytes + lane_bytes + sums_bytes
    if spec.groups_in_place:  # its last groups' sums are read shifted
        scratch += LINE_BYTES
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    table_bytes = sum(table.nbytes for table in frozen.values())
    return Schedule(
        frozen,
        numbers,
        offset[rows],
        offset[plan.lanes],
        scratch,
        cut.kept_bytes,
        cut.counters,
        table_bytes,
    )


def _ahead(view: View, steps: Mapping[str, int]) -> dict[str, int]:
    """Return the bytes from a position to what a strip asks for ahead: some rows on, or a strip in a long row."""
    axes, found = view.conv.axes, {}
    for tensor in ("src", "dst"):
        strides = [a.stride if tensor == "src" and a.dst > 1 else 1 for a in axes]
        step = steps[tensor] * strides[-1]
        if view.pointwise or len(axes) == 1 or axes[-1].dst > STRIP:
            found[tensor] = STRIP * step
        else:
            rows = -(-AHEAD_BYTES // max(1, abs(axes[-1].dst * step)))
            found[tensor] = rows * view.strides(tensor)[-2] * strides[-2]
    return found


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
    stretch: tuple[int, int], cutting: Pieces, slices: _Slices, images: int, rows: tuple[Ints, ...],
    lanes: tuple[Ints, ...], finishes: bool,
) -> Ints:  # fmt: skip
    """Rows of CHUNK: what is packed at a time of some images, in the order of the sums."""
    begin, batch = stretch
    outer = len(slices.run_index) // cutting.blocks
    row_start = np.cumsum([0, *map(len, rows)])
    lane_start = np.cumsum([0, *map(len, lanes)])
    table = []
    for n in range(begin, batch, images):
        for s, (b0, b1) in enumerate(slices.ranges):
            taken = min(images, batch - n)
            blocks = b1 - b0 if cutting.blocks > 1 else -(-taken // cutting.images_a_block)
            join = n * cutting.blocks + b0 if cutting.blocks > 1 else n // cutting.images_a_block
            where = (row_start[s], len(rows[s]), lane_start[s], len(lanes[s]))
            table.append((n, taken, blocks, join, b0 * outer, *where, 0))
    chunks = np.array(table, np.int64)
    chunks[-1, -1] = finishes
    return chunks


def _slices(
    view: View, cutting: Pieces, plan: Plan, steps: Mapping[str, int], in_place: tuple[str, ...], mask_bytes: int
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
    at: tuple[RowOffsets, RowOffsets], steps: Mapping[str, int], in_place: tuple[str, ...], mask_bytes: int,
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
    if "src" in in_place:
        x = at[0][used] - inner.pad_begin * src_step
    if "dst" in in_place:
        y = at[1][row]
    exists = (used >= 0) & (width > 0)
    if plan.spec.groups_in_place:  # an absent tap reads what another meets
        x = np.where(exists, x, np.take_along_axis(x, exists.argmax(0)[None], 0))
        p1 = np.where(exists.any(0), p1, p0)
    runs, counts = runs_of(
        plan, p0, p1, x, y, exists, cutting.block[part] - blocks[0], blocks[1] - blocks[0], mask_bytes
    )
    return src if left + right else merged(src, src_step), merged(dst, dst_step), runs, counts
