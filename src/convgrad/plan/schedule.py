"""A plan cut into tasks and chunks: tables of integers that the compiled driver walks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convgrad.formats import FORMATS
from convgrad.plan import rates
from convgrad.plan.cuts import panels_of
from convgrad.plan.fields import SIDES
from convgrad.plan.joins import joins, joins_apart
from convgrad.plan.lines import lines
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import STRIP, KernelSpec, Plan
from convgrad.plan.sides import Side, sides_of
from convgrad.plan.slices import Slices, slices
from convgrad.plan.taps import Table, margins, starts, tap_tables, together
from convgrad.plan.tasks import parts, tasks
from convgrad.plan.view import Ints, Pieces, View, per_group, pieces, shortened


@dataclass(frozen=True)
class Schedule:
    """Tables and numbers of the driver's arguments, by name; all but the addresses of one call."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, int]
    offsets: tuple[int, int]  # bytes from the first element of rows and lanes to where the driver begins
    scratch_bytes: int
    kept_bytes: int  # of sums of units, which all threads share,
    counters: int  # words before them that begin as 0
    table_bytes: int


def schedule(view: View, plan: Plan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    conv, spec = view.conv, plan.spec
    rows, lanes = sides = sides_of(view, spec, plan.rows)
    src = next(side for side in sides if side.tensor == "src")
    strips = spec.body == STRIP
    cutting = shortened(pieces(view), rates.STRIP) if strips else pieces(view)
    taps = tap_tables(view, spec, src, plan.rows, view.weights_strides[2:])
    met = lines(() if view.pointwise else conv.axes[:-1])
    cut_image = slices(view, cutting, plan.slice_blocks, spec, sides, met)
    units = -(-conv.batch // cutting.images_a_block)
    image_ends = [min(unit * cutting.images_a_block, conv.batch) for _, unit in parts(units, plan.parts[-1])]
    apart = len(image_ends) > 1
    chunk_tables = [_chunks(part, cutting, cut_image, plan, not apart) for part in pairwise([0, *image_ends])]
    join_table, levels = (joins_apart if apart else joins)(cutting.blocks, units)
    unit_table, unit_levels = joins(units if apart else 1, 1)
    cut = tasks(panels_of(view, spec, plan.rows)[:4], plan.parts, list(map(len, chunk_tables)), units * spec.tile_bytes)
    images = [cut_image.positions[side.tensor] * spec.term_bytes(side.read) for side in sides]
    panels = [_panel(spec, image * plan.chunk_images) for image in images]
    scratch = _scratch(
        spec, cut.most, [0 if side.read.in_place else panel for side, panel in zip(sides, panels, strict=True)],
        levels + strips,  # below the tree: the chain
        unit_levels if apart else 0,
        max(map(len, chunk_tables)) > 1 or strips,
    )  # fmt: skip
    entries = [cut_image.entries[side.tensor] for side in sides]
    tables: dict[str, Table] = {
        "tasks": cut.table,
        "chunks": np.concatenate(chunk_tables),
        "rows.entries": np.concatenate(entries[0]),
        "lanes.entries": np.concatenate(entries[1]),
        **taps,
        "line_index": cut_image.line_index,
        "lines": cut_image.lines,
        "places": cut_image.places,
        "shifts": met.taps[_together(len(met.taps), spec.tile.outer_taps)] * 8,
        "joins": join_table,
        "unit_joins": unit_table,
    }
    packs, (left, right) = cutting.blocks == 1, margins(view, spec)
    numbers = {
        **{
            f"{name}.{word}": number
            for name, side, image, panel in zip(SIDES, sides, images, panels, strict=True)
            for word, number in _lying(view, side, image, panel).items()
        },
        **scratch.numbers,
        "task_count": len(cut.table),
        "groups": conv.groups, "out_group": per_group(view)["dst"] * view.weights_strides[0],
        "tap_step": src.step * conv.axes[-1].dilation,
        "left": left * spec.term_bytes(src.read), "right": right * spec.term_bytes(src.read),
        "swapped": int((rows.tensor == "src") != spec.rows.moves),
        "rows_next": _advance(entries[0], rows.image * plan.chunk_images),
        "block_images": cutting.images_a_block, "block_step": cutting.images_a_block if packs else 0,
        "index_step": 0 if packs else cut_image.line_index[0].nbytes,
        "mask_bytes": taps["masks"][0].nbytes,
        "image_parts": len(chunk_tables), "units": units,
        "taps_together": int(together(taps["outs"], FORMATS[spec.output].dtype.itemsize)),
        "accumulate": int(accumulate),
    }  # fmt: skip
    offset = {"src": view.src_offset, "dst": 0}
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    table_bytes = sum(table.nbytes for table in frozen.values())
    return Schedule(
        frozen, numbers, (offset[rows.tensor], offset[lanes.tensor]), scratch.size, cut.kept_bytes, cut.counters,
        table_bytes,
    )  # fmt: skip


def _panel(spec: KernelSpec, size: int) -> int:
    """Return what a panel of ``size`` bytes takes: those of groups, side by side, are to meet in no set of a cache."""
    return (-(-size // LINE_BYTES) | 1) * LINE_BYTES if spec.groups_in_lanes else size


def _lying(view: View, side: Side, image: int, panel: int) -> dict[str, int]:
    """Return how an operand lies and how it is packed, an image of a panel in ``image`` bytes."""
    return {
        "image": side.image, "group": side.group, "item": side.item, "term": side.term, "items": side.items,
        "panel": panel, "read_image": side.image if side.read.in_place else image,
        "read_term": side.step * side.stride, "ahead": _ahead(view, side), "out": side.out,
    }  # fmt: skip


@dataclass(frozen=True)
class _Scratch:
    """Where a task's rows, lanes and sums are in scratch, and its bytes."""

    numbers: Mapping[str, int]
    size: int


def _scratch(
    spec: KernelSpec, most: tuple[int, int, int, int], panel_bytes: Sequence[int], levels: int, unit_levels: int,
    kept: bool,
) -> _Scratch:  # fmt: skip
    """Lay out scratch: rows first, then lanes, then each tile's sums level by level; what is read in place takes none.

    ``most`` are the panels of groups, rows and lanes of a task, and its tiles of taps; the sums of all panels, or only
    of one, are ``kept`` for the next chunk. Sums of several tasks' images are joined where those were, in
    ``unit_levels``.
    """
    groups, rows, lanes, taps = most
    counts = (groups, groups) if spec.groups_in_lanes else (rows, lanes)
    row_bytes, lane_bytes = (count * size for count, size in zip(counts, panel_bytes, strict=True))
    tiles = (groups * rows * lanes if kept else 1) * taps
    strips = spec.body == STRIP
    gathered = (tiles if strips else taps) * unit_levels
    sums_at, sums_step = row_bytes + lane_bytes, levels * spec.tile_bytes
    size = sums_at + max(tiles * levels, gathered) * spec.tile_bytes
    numbers = {
        "rows.at": 0, "lanes.at": row_bytes, "sums_at": sums_at, "sums_step": sums_step,
        "panel_sums": sums_step * kept, "gather_step": unit_levels * spec.tile_bytes,
    }  # fmt: skip
    return _Scratch(numbers, size + (LINE_BYTES if strips else 0))  # the last groups' sums are read shifted


def _ahead(view: View, side: Side) -> int:
    """Return the bytes from a position to what a strip asks for ahead: some rows on, or a strip in a long row."""
    axes = view.conv.axes
    strides = [axis.stride if side.tensor == "src" else 1 for axis in axes]
    if view.pointwise or len(axes) == 1 or axes[-1].dst > rates.STRIP:
        return rates.STRIP * side.step * strides[-1]
    rows = -(-rates.STRIP_AHEAD_BYTES // max(1, abs(axes[-1].dst * side.step * strides[-1])))
    return rows * view.strides(side.tensor)[-2] * strides[-2]


def _advance(entries: tuple[Ints, ...], images: int) -> int:
    """Return the bytes from a chunk's data to the next one's: a slice's, or, of whole images, theirs."""
    return int(entries[1][0, 0] - entries[0][0, 0]) if len(entries) > 1 and all(map(len, entries[:2])) else images


def _chunks(stretch: tuple[int, int], cutting: Pieces, slices: Slices, plan: Plan, finishes: bool) -> Ints:
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


def _together(count: int, size: int) -> Ints:
    """Return the numbers of the taps of each tile of outer taps."""
    return np.add.outer(starts(count, size), np.arange(size))
