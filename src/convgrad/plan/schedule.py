"""A plan cut into tasks and chunks: tables of integers that the compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convgrad.formats import FORMATS
from convgrad.plan.cuts import panels_of
from convgrad.plan.joins import joins, joins_apart
from convgrad.plan.lines import NOWHERE, Lines, lines
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.rates import STRIP, STRIP_AHEAD_BYTES
from convgrad.plan.recipe import KernelSpec, Plan
from convgrad.plan.sides import inner_step
from convgrad.plan.taps import Table, margins, starts, tap_tables, together
from convgrad.plan.tasks import parts, tasks
from convgrad.plan.view import (
    Ints,
    Pieces,
    RowOffsets,
    View,
    merged,
    per_group,
    pieces,
    rows_of,
    shortened,
    wrapped,
)  # fmt: skip
from convgrad.spec.order import BLOCK

# The columns of the tables that the driver reads by name.
CHUNK = ("image", "images", "blocks", "join", "index", "row_entry", "row_entries", "lane_entry", "lane_entries", "last")
TABLES = (
    "tasks", "chunks", "row_entries", "lane_entries", "taps", "outs", "segments", "masks", "line_index", "lines",
    "places", "shifts", "joins", "unit_joins",
)  # fmt: skip
FLAGS = ("counter", "pending", "active", "stop")  # words behind the fields that fields point to; the pool's last three
ARRAYS = ("rows", "lanes", "out", "kept")
ADDRESSES = (*FLAGS, *ARRAYS, *TABLES)
FIELDS = (
    *ADDRESSES,
    "task_count", "row_group", "lane_group", "out_group",
    "row_n", "row_c", "row_i", "lane_n", "lane_c", "lane_i", "row_channels", "lane_channels",
    "row_g", "lane_g", "out_g", "group_count", "tap_step", "src_left", "src_right",
    "row_panel", "lane_panel", "row_image", "lane_image", "row_step", "lane_step", "row_next",
    "row_at", "lane_at", "sums_at", "sums_step", "panel_sums", "top", "block_images", "block_step", "index_step",
    "out_row", "out_lane", "taps_together", "accumulate", "row_ahead", "lane_ahead",
    "mask_bytes", "swapped", "image_parts", "units", "kept_step", "gather_step", "gather_top",
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
    entries: Mapping[str, tuple[Ints, ...]]  # of each tensor
    lines: Ints  # rows of LINE
    line_index: Ints  # of each block: its first line, and their number
    places: Ints  # bytes of source rows at position 0, in each slice by what lines and outer taps meet
    positions: Mapping[str, int]  # of each tensor: the most of any slice


def schedule(view: View, plan: Plan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    conv, spec, sides = view.conv, plan.spec, {"row": plan.rows, "lane": plan.lanes}
    cutting = shortened(pieces(view), STRIP) if spec.groups_in_place else pieces(view)
    packed = {plan.rows: spec.row_bytes, plan.lanes: spec.lane_bytes}
    in_place = spec.in_place(plan.rows)
    steps = {t: inner_step(view, t) if t in in_place else packed[t] for t in ("src", "dst")}
    taps = tap_tables(view, spec, steps, plan.rows, view.weights_strides[2:])
    met = lines(() if view.pointwise else conv.axes[:-1])
    slices = _slices(view, cutting, plan, steps, in_place, met)
    units = -(-conv.batch // cutting.images_a_block)
    image_ends = [min(unit * cutting.images_a_block, conv.batch) for _, unit in parts(units, plan.parts[-1])]
    apart = len(image_ends) > 1
    chunk_tables = [_chunks(part, cutting, slices, plan, not apart) for part in pairwise([0, *image_ends])]
    join_table, levels = (joins_apart if apart else joins)(cutting.blocks, units)
    unit_table, unit_levels = joins(units if apart else 1, 1)
    cut = tasks(panels_of(view, spec, plan.rows)[:4], plan.parts, list(map(len, chunk_tables)), units * spec.tile_bytes)
    operands = {
        side: _operand(view, plan, t, steps[t], packed[t], slices.positions[t], t in in_place)
        for side, t in sides.items()
    }
    scratch, scratch_bytes = _scratch(
        spec, cut.most, tuple(0 if t in in_place else operands[side]["panel"] for side, t in sides.items()),
        levels + spec.groups_in_place,  # below the tree: the chain
        unit_levels if apart else 0,
        max(map(len, chunk_tables)) > 1 or spec.groups_in_place,
    )  # fmt: skip
    entries = {side: slices.entries[t] for side, t in sides.items()}
    tables: dict[str, Table] = {
        "tasks": cut.table,
        "chunks": np.concatenate(chunk_tables),
        "row_entries": np.concatenate(entries["row"]),
        "lane_entries": np.concatenate(entries["lane"]),
        **taps,
        "line_index": slices.line_index,
        "lines": slices.lines,
        "places": slices.places,
        "shifts": met.taps[_together(len(met.taps), spec.tile.outer_taps)] * 8,
        "joins": join_table,
        "unit_joins": unit_table,
    }
    packs, (left, right) = cutting.blocks == 1, margins(view, spec)
    numbers = {
        **{f"{side}_{word}": number for side, found in operands.items() for word, number in found.items()},
        **scratch, **_output(view, plan),
        "task_count": len(cut.table), "group_count": conv.groups,
        "tap_step": steps["src"] * conv.axes[-1].dilation,
        "src_left": left * packed["src"], "src_right": right * packed["src"],
        "row_next": _advance(entries["row"], view.strides(plan.rows)[0] * plan.chunk_images),
        "block_images": cutting.images_a_block, "block_step": cutting.images_a_block if packs else 0,
        "index_step": 0 if packs else slices.line_index[0].nbytes,
        "mask_bytes": taps["masks"][0].nbytes,
        "swapped": int((plan.rows == "src") != spec.taps_on_rows),
        "taps_together": int(together(taps["outs"], FORMATS[spec.output].dtype.itemsize)),
        "accumulate": int(accumulate),
        "image_parts": len(chunk_tables), "units": units, "kept_step": cut.kept_step,
    }  # fmt: skip
    offset = {"src": view.src_offset, "dst": 0}
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    table_bytes = sum(table.nbytes for table in frozen.values())
    return Schedule(
        frozen, numbers, offset[plan.rows], offset[plan.lanes], scratch_bytes, cut.kept_bytes, cut.counters, table_bytes
    )


def _operand(
    view: View, plan: Plan, tensor: str, step: int, packed: int, positions: int, in_place: bool
) -> dict[str, int]:
    """Return the numbers of one operand: how it lies, and how it is packed, ``packed`` bytes a position."""
    spec, strides, channels = plan.spec, view.strides(tensor), per_group(view)[tensor]
    group, image = channels * strides[1], positions * packed
    panel = image * plan.chunk_images
    if spec.groups_in_lanes:  # panels are written side by side: an odd number of lines apart, they meet in no set
        panel = (-(-panel // LINE_BYTES) | 1) * LINE_BYTES
    return {
        "n": strides[0], "c": strides[1], "i": inner_step(view, tensor), "g": group,
        "group": group * spec.groups_a_panel, "channels": channels,
        "panel": panel, "image": strides[0] if in_place else image,
        "step": step * (view.conv.axes[-1].stride if tensor == "src" else 1),
        "ahead": _ahead(view, tensor, step),
    }  # fmt: skip


def _output(view: View, plan: Plan) -> dict[str, int]:
    """Return how the weights lie."""
    steps = dict(zip(("dst", "src"), view.weights_strides, strict=False))
    group = per_group(view)["dst"] * steps["dst"]
    return {
        "out_row": steps[plan.rows], "out_lane": steps[plan.lanes],
        "out_g": group, "out_group": group * plan.spec.groups_a_panel,
    }  # fmt: skip


def _scratch(
    spec: KernelSpec, most: tuple[int, int, int, int], panel_bytes: tuple[int, ...], levels: int, unit_levels: int,
    kept: bool,
) -> tuple[dict[str, int], int]:  # fmt: skip
    """Return where a task's rows, lanes and sums are in scratch, and its bytes; what is read in place takes none.

    ``most`` are the panels of groups, rows and lanes of a task, and its tiles of taps; the sums of all panels, or only
    of one, are ``kept`` for the next chunk. Rows come first, then lanes, then each tile's sums level by level.
    Sums of several tasks' images are joined where those were, in ``unit_levels``.
    """
    groups, rows, lanes, taps = most
    counts = (groups, groups) if spec.groups_in_lanes else (rows, lanes)
    row_bytes, lane_bytes = (count * size for count, size in zip(counts, panel_bytes, strict=True))
    tiles = (groups * rows * lanes if kept else 1) * taps
    gathered = (tiles if spec.groups_in_place else taps) * unit_levels
    sums_at = row_bytes + lane_bytes
    size = sums_at + max(tiles * levels, gathered) * spec.tile_bytes
    numbers = {
        "row_at": 0, "lane_at": row_bytes, "sums_at": sums_at,
        "sums_step": levels * spec.tile_bytes, "panel_sums": levels * spec.tile_bytes * kept,
        "top": (levels - 1) * spec.tile_bytes,
        "gather_step": unit_levels * spec.tile_bytes, "gather_top": max(unit_levels - 1, 0) * spec.tile_bytes,
    }  # fmt: skip
    return numbers, size + (LINE_BYTES if spec.groups_in_place else 0)  # the last groups' sums are read shifted


def _ahead(view: View, tensor: str, step: int) -> int:
    """Return the bytes from a position to what a strip asks for ahead: some rows on, or a strip in a long row."""
    axes = view.conv.axes
    strides = [axis.stride if tensor == "src" else 1 for axis in axes]
    if view.pointwise or len(axes) == 1 or axes[-1].dst > STRIP:
        return STRIP * step * strides[-1]
    rows = -(-STRIP_AHEAD_BYTES // max(1, abs(axes[-1].dst * step * strides[-1])))
    return rows * view.strides(tensor)[-2] * strides[-2]


def _advance(entries: tuple[Ints, ...], images: int) -> int:
    """Return the bytes from a chunk's data to the next one's: a slice's, or, of whole images, theirs."""
    return int(entries[1][0, 0] - entries[0][0, 0]) if len(entries) > 1 and all(map(len, entries[:2])) else images


def _chunks(stretch: tuple[int, int], cutting: Pieces, slices: _Slices, plan: Plan, finishes: bool) -> Ints:
    """Rows of CHUNK: what is packed at a time of some images, in the order of the sums."""
    (begin, batch), images = stretch, plan.chunk_images
    rows, lanes = slices.entries[plan.rows], slices.entries[plan.lanes]
    row_start = np.cumsum([0, *map(len, rows)])
    lane_start = np.cumsum([0, *map(len, lanes)])
    table = []
    for n in range(begin, batch, images):
        for s, (b0, b1) in enumerate(slices.ranges):
            taken = min(images, batch - n)
            blocks = b1 - b0 if cutting.blocks > 1 else -(-taken // cutting.images_a_block)
            join = n * cutting.blocks + b0 if cutting.blocks > 1 else n // cutting.images_a_block
            where = (row_start[s], len(rows[s]), lane_start[s], len(lanes[s]))
            table.append((n, taken, blocks, join, b0, *where, 0))
    chunks = np.array(table, np.int64)
    chunks[-1, -1] = finishes
    return chunks


def _slices(
    view: View, cutting: Pieces, plan: Plan, steps: Mapping[str, int], in_place: tuple[str, ...], met: Lines
) -> _Slices:
    """Return the tables of what is packed at a time: ranges of an image's blocks, small enough for a cache."""
    outer = view.conv.axes[:-1]
    at = (
        RowOffsets(tuple(a.src for a in outer), view.src_strides[2:-1]),
        RowOffsets(tuple(a.dst for a in outer), view.dst_strides[2:-1]),
    )
    step = plan.slice_blocks or cutting.blocks
    begins = [0]
    row = 1 if view.pointwise else -(-view.conv.axes[-1].dst // BLOCK)
    if row > 1 and (step < row or step % row):  # an end of a row and a beginning together span whole rows
        begins = [int(block) for block in cutting.block[cutting.first == 0]]
    stretches = pairwise([*begins, cutting.blocks])
    ranges = [(b, min(b + step, end)) for start, end in stretches for b in range(start, end, step)]
    ends = np.searchsorted(cutting.block, [0, *(end for _, end in ranges)])
    made, behind = [], 0
    for first, end in pairwise(ends):
        made.append(_slice(view, cutting, plan, slice(first, end), met, at, steps, in_place, behind))
        behind += len(made[-1][3])
    src, dst, found, places = ([one[i] for one in made] for i in range(4))
    count = np.bincount(cutting.block, minlength=cutting.blocks)
    return _Slices(
        tuple(ranges),
        {"src": tuple(src), "dst": tuple(dst)},
        np.concatenate(found),
        np.stack([np.cumsum(count) - count, count], 1),
        np.concatenate(places),
        {
            "src": max(int((entries[:, 1] + sum(margins(view, plan.spec))).sum()) for entries in src),
            "dst": max(int(entries[:, 1].sum()) for entries in dst),
        },
    )


def _slice(
    view: View, cutting: Pieces, plan: Plan, part: slice, met: Lines, at: tuple[RowOffsets, RowOffsets],
    steps: Mapping[str, int], in_place: tuple[str, ...], behind: int,
) -> tuple[Ints, Ints, Ints, Ints]:  # fmt: skip
    """Return src entries, dst entries, rows of LINE, and places, which are put behind those of other slices.

    ``at`` are the byte offsets of rows of src and dst in an image.
    """
    inner, src_step, dst_step = view.conv.axes[-1], inner_step(view, "src"), inner_step(view, "dst")
    row, p0, p1 = (a[part] for a in (cutting.row, cutting.first, cutting.end))
    number, reached = met.reached(row)
    numbers = np.flatnonzero(reached)
    source = met.met(number + numbers)
    present, slot = np.unique(source[source >= 0], return_inverse=True)
    extent = view.conv.positions if view.pointwise else inner.src
    i0 = min(extent, max(0, int(p0.min()) * inner.stride - inner.pad_begin))
    i1 = (int(p1.max()) - 1) * inner.stride + (inner.kernel - 1) * inner.dilation - inner.pad_begin + 1
    width = max(0, min(extent, i1) - i0)
    left, right = margins(view, plan.spec)
    if view.pointwise:
        src = rows_of(at[0], i0, width, inner.src, view.src_strides[-1])
        dst = rows_of(at[1], i0, width, inner.dst, view.dst_strides[-1])
    else:
        src = np.stack([at[0][present] + i0 * src_step, np.full(len(present), width)], 1)
        dst = np.stack([at[1][row] + p0 * dst_step, p1 - p0], 1)
    x = slot * ((left + width + right) * steps["src"]) + wrapped((left - i0 - inner.pad_begin) * steps["src"])
    y = (np.cumsum(p1 - p0) - p1) * steps["dst"]
    if "src" in in_place:
        x = at[0][present][slot] - wrapped(inner.pad_begin * src_step)
    if "dst" in in_place:
        y = at[1][row]
    places = np.full(len(reached), NOWHERE)
    if width:
        places[numbers[source >= 0]] = x
    found = np.stack([p0, p1, y, (met.lines[row] - number + behind) * 8], 1)
    return src if left + right else merged(src, src_step), merged(dst, dst_step), found, places


def _together(count: int, size: int) -> Ints:
    """Return the numbers of the taps of each tile of outer taps."""
    return np.add.outer(starts(count, size), np.arange(size))
