"""A plan of a weight or bias gradient as tables of integers, which the compiled driver walks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from convgrad.formats import FORMATS
from convgrad.plan import constants
from convgrad.plan.backward_weights.cuts import panels_of
from convgrad.plan.backward_weights.lines import lines
from convgrad.plan.backward_weights.nest import Pieces, View, per_group, pieces, shortened
from convgrad.plan.backward_weights.operands import Side, sides_of
from convgrad.plan.backward_weights.recipe import STRIP, KernelSpec, Parts, Plan
from convgrad.plan.backward_weights.slices import Slices, slices
from convgrad.plan.backward_weights.taps import margins, of_tiles, tap_tables, together
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import MIN_EXPONENT_SUM, PATHS
from convgrad.plan.recipe import SPATIAL
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.tables import Ints, Schedule, Table, evenly
from convgrad.plan.tree import chains, chains_of_units, levels_of

SIDES = ("rows", "lanes")
CALL = FLAGS + addresses("rows.data", "lanes.data", "out", "partial_sums")  # what each call has of its own
SIDE = Record(
    "entries",  # address of the table of what is packed at a time
    "image", "group", "item", "term",  # bytes from one to the next in the operand
    "items",  # of a group
    "at",  # where its panels are in scratch, in bytes,
    "panel",  # and from a panel to the next
    "read_image", "read_term",  # bytes from one to the next of the sum, as the tile reads it: packed, or in place
    "ahead",  # bytes from a term to what a strip or a pack that transposes prefetches
    "out",  # bytes from what an item becomes in the output to the next
    addresses=("entries",),
)  # fmt: skip
TABLES = addresses(
    "tasks", "cache_blocks", "taps", "outs", "segments", "masks", "line_index", "lines", "places", "shifts", "chains",
)  # fmt: skip
NUMBERS = Record(
    "task_count",
    "groups", "out_group",  # all of them; bytes from one to the next in the output
    "tap_step",  # bytes of src from what a tap meets to the next, as the tile reads it
    "left", "right",  # bytes of zeros beside a packed row of src
    "swapped",  # whether the lanes of a tile of one tap are of src
    "rows_next",  # bytes from what rows in place are read in a cache block to what the next one reads
    "chain_images", "chain_step", "index_step",  # of a chain; from a chain to the next: images, bytes of line_index
    "mask_bytes",  # of the masks under one set of outer taps
    "sums_at", "sums_step", "panel_sums",  # where sums are in scratch; bytes of a tile's, and of a panel's if kept
    "levels", "unit_levels",  # of the tree of a task's sums; of the tree of the units that several tasks share
    "image_parts", "units",  # tasks that share a part of the weights; units of the batch that they sum
    "taps_together", "accumulate",
    "least_sum", "paths",  # of least exponents, for pairs; where panels are counted by how their terms were taken
    addresses=("paths",),
)  # fmt: skip
ARGUMENTS = CALL + TABLES + SIDE.within("rows") + SIDE.within("lanes") + NUMBERS
CACHE_BLOCK = Record(
    "image", "images", "chains", "chain", "index",  # images and chains, the first rows of CHAIN and INDEX
    "rows.entry", "rows.entries", "lanes.entry", "lanes.entries",  # what is packed
    "last",  # whether it is the last
)  # fmt: skip


def schedule(view: View, plan: Plan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for arrays of these strides."""
    conv, spec = view.conv, plan.spec
    rows, _ = sides = sides_of(view, spec, plan.operands)
    src = next(side for side in sides if side.tensor == "src")
    strips = spec.body == STRIP
    cutting = shortened(pieces(view), constants.DEPTHWISE_POSITIONS) if strips else pieces(view)
    taps = tap_tables(view, spec, sides)
    met = lines(() if view.pointwise else conv.axes[:-1])
    cut = slices(view, cutting, plan.slice_blocks, spec, sides, met)
    units = -(-conv.batch // cutting.images_a_block)
    ends = [min(unit * cutting.images_a_block, conv.batch) for _, unit in evenly(units, plan.parts[-1])]
    apart = len(ends) > 1
    cache_blocks = [_cache_blocks(part, cutting, cut, plan, not apart) for part in pairwise([0, *ends])]
    numbered, levels = (chains_of_units if apart else chains)(cutting.blocks, units)
    panels = panels_of(view, spec, plan.operands)[:4]
    made = tasks(panels, plan.parts, list(map(len, cache_blocks)), units * spec.tile_bytes)
    lying = [_lying(view, plan, side, cut) for side in sides]
    scratch, scratch_bytes = _scratch(
        spec, made.most, [each["panel"] for each in lying],
        levels + strips,  # below the tree: the chain
        max(map(len, cache_blocks)) > 1 or strips,
    )  # fmt: skip
    left, right = margins(view, spec)
    tables: dict[str, Table] = {
        "tasks": made.table,
        "cache_blocks": np.concatenate(cache_blocks),
        **{
            f"{name}.entries": np.concatenate(cut.entries[each.tensor]) for name, each in zip(SIDES, sides, strict=True)
        },
        **taps,
        "line_index": cut.line_index,
        "lines": cut.lines,
        "places": cut.places,
        "shifts": met.taps[of_tiles(len(met.taps), spec.tile.outer_taps)] * 8,
        "chains": numbered,
    }
    numbers = {
        **{f"{name}.{word}": each[word] for name, each in zip(SIDES, lying, strict=True) for word in each},
        **scratch,
        # from a chain to the next: images where an image is one, else lines
        "chain_images": cutting.images_a_block, "chain_step": cutting.images_a_block if cutting.blocks == 1 else 0,
        "index_step": cut.line_index[0].nbytes if cutting.blocks > 1 else 0,
        "task_count": len(made.table),
        "groups": conv.groups, "out_group": per_group(view)["dst"] * view.weights_strides[0],
        "tap_step": src.step * conv.axes[-1].dilation,
        "left": left * spec.term_bytes(src.read), "right": right * spec.term_bytes(src.read),
        "swapped": int((rows.tensor == "src") != spec.rows.moves),
        "rows_next": _advance(cut.entries[rows.tensor], rows.image * plan.chunk_images),
        "mask_bytes": taps["masks"][0].nbytes,
        "image_parts": len(cache_blocks), "units": units, "levels": levels, "unit_levels": levels_of(units),
        "taps_together": int(together(taps["outs"], FORMATS[spec.output].dtype.itemsize)),
        "accumulate": int(accumulate),
    }  # fmt: skip
    if spec.step == 2:
        tables["paths"], numbers["least_sum"] = np.zeros(len(PATHS), np.int64), MIN_EXPONENT_SUM
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    offsets = (view.src_offset, 0) if rows is src else (0, view.src_offset)
    shifted = LINE_BYTES if strips and made.partial_bytes else 0  # the sums of the last groups are read shifted
    return Schedule(frozen, numbers, scratch_bytes, offsets, made.partial_bytes + shifted, made.counters)


def _lying(view: View, plan: Plan, side: Side, cut: Slices) -> dict[str, int]:
    """Return how an operand lies, and how it is packed: panels of groups, side by side, meet in no set of a cache."""
    packed, place = plan.spec.packed_bytes(side.read, cut.terms[side.tensor]), side.read.in_place
    panel = packed * plan.chunk_images + (LINE_BYTES if plan.spec.step == 2 else 0)  # behind it, the least
    if plan.spec.groups_in_lanes:
        panel = (-(-panel // LINE_BYTES) | 1) * LINE_BYTES
    return {
        "image": side.image, "group": side.group, "item": side.item, "term": side.term, "items": side.items,
        "panel": 0 if place else panel, "read_image": side.image if place else packed,
        "read_term": side.step * side.stride, "ahead": _ahead(view, plan.spec, side), "out": side.out,
    }  # fmt: skip


def _scratch(
    spec: KernelSpec, most: tuple[int, int, int, int], panel_bytes: Sequence[int], levels: int, kept: bool
) -> tuple[dict[str, int], int]:  # fmt: skip
    """Return where rows, lanes and sums are in scratch, and its bytes: each tile's sums level by level, behind packs.

    ``most`` are the panels of groups, rows and lanes of a task, and its tiles of taps; the sums of all panels, or only
    of one, are ``kept`` for the next cache block.
    """
    groups, rows, lanes, taps = most
    counts = (groups, groups) if spec.groups_in_lanes else (rows, lanes)
    row_bytes, lane_bytes = (count * size for count, size in zip(counts, panel_bytes, strict=True))
    tiles = (groups * rows * lanes if kept else 1) * taps
    sums_at, sums_step = row_bytes + lane_bytes, levels * spec.tile_bytes
    size = sums_at + tiles * levels * spec.tile_bytes
    numbers = {
        "rows.at": 0, "lanes.at": row_bytes, "sums_at": sums_at, "sums_step": sums_step,
        "panel_sums": sums_step * kept,
    }  # fmt: skip
    return numbers, size + (LINE_BYTES if spec.body == STRIP else 0)  # the last groups' sums are read shifted


def _ahead(view: View, spec: KernelSpec, side: Side) -> int:
    """Return the bytes from a position to what is asked for ahead by a strip, or by a pack that transposes."""
    if spec.body == STRIP:
        return _strip_ahead(view, side)
    item = abs(side.group if spec.groups_in_lanes else side.item)
    near, crowded = item <= constants.PREFETCH_MIN_STRIDE_BYTES, item % constants.PREFETCH_CONFLICT_BYTES == 0
    items = spec.isa.lanes if spec.groups_in_lanes else side.read.items
    if side.read.contiguous != SPATIAL or near or crowded or items > constants.PREFETCH_MAX_CHANNELS:
        return 0
    return max(1, constants.PREFETCH_TRANSPOSE_BYTES // (items * LINE_BYTES)) * LINE_BYTES


def _strip_ahead(view: View, side: Side) -> int:
    """Return the bytes to some rows on, or to the next strip in a long row."""
    axes = view.conv.axes
    strides = [axis.stride if side.tensor == "src" else 1 for axis in axes]
    if view.pointwise or len(axes) == 1 or axes[-1].dst > constants.DEPTHWISE_POSITIONS:
        return constants.DEPTHWISE_POSITIONS * side.step * strides[-1]
    rows = -(-constants.PREFETCH_DEPTHWISE_BYTES // max(1, abs(axes[-1].dst * side.step * strides[-1])))
    return rows * view.strides(side.tensor)[-2] * strides[-2]


def _advance(entries: tuple[Ints, ...], images: int) -> int:
    """Return the bytes from the data of a cache block to the next one's: a slice's, or, of whole images, theirs."""
    return int(entries[1][0, 0] - entries[0][0, 0]) if len(entries) > 1 and all(map(len, entries[:2])) else images


def _cache_blocks(stretch: tuple[int, int], cutting: Pieces, cut: Slices, plan: Plan, finishes: bool) -> Ints:
    """Return rows of CACHE_BLOCK for some images, in the order of the sums."""
    (begin, batch), images = stretch, plan.chunk_images
    rows, lanes = cut.entries[plan.rows], cut.entries[plan.lanes]
    begins, ends = np.array(cut.ranges, np.int64).T
    first = np.arange(begin, batch, images)[:, None]
    taken = np.minimum(images, batch - first)
    of_lines = cutting.blocks > 1  # or else blocks are of images
    chains_of_each = ends - begins if of_lines else -(-taken // cutting.images_a_block)
    chain = first * cutting.blocks + begins if of_lines else first // cutting.images_a_block
    (row, row_count), (lane, lane_count) = _spans(rows, begins.size), _spans(lanes, begins.size)
    columns: dict[str, Ints] = {
        "image": first, "images": taken, "chains": chains_of_each, "chain": chain, "index": begins,
        "rows.entry": row, "rows.entries": row_count, "lanes.entry": lane, "lanes.entries": lane_count,
    }  # fmt: skip
    shape = (first.size, begins.size)
    last = np.zeros(first.size * begins.size, np.int64)
    last[-1] = finishes
    each = {name: np.broadcast_to(column, shape).ravel() for name, column in columns.items()}
    return CACHE_BLOCK.table(last.size, last=last, **each)


def _spans(entries: Sequence[Ints], number: int) -> tuple[Ints, Ints]:
    """Return where the entries of each slice begin, and how many they are."""
    counts = np.array([len(one) for one in entries[:number]], np.int64)
    return np.cumsum(counts) - counts, counts


# Each range as its begin and its length; which part of the weights it is, and where that part's partial sums are.
TASK = Record(
    "group", "groups", "rows.first", "rows.count", "lanes.first", "lanes.count", "tap", "taps",
    "cache_block", "cache_blocks", "part", "partial_sums",
)  # fmt: skip


@dataclass(frozen=True)
class Tasks:
    """Rows of TASK, and what they need."""

    table: Ints
    most: tuple[int, int, int, int]  # panels of groups, of rows, of lanes, tiles of taps
    partial_bytes: int  # of the partial sums of all tiles, after a counter for each part of the weights
    counters: int


def tasks(whole: Sequence[int], into: Parts, cache_blocks: Sequence[int], unit_bytes: int) -> Tasks:
    """Cut panels of groups, rows and lanes and tiles of taps; ``cache_blocks`` are those of each part of the batch.

    ``unit_bytes`` is what a tile's sums of all units take.
    """
    weights = list(product(*map(evenly, whole, into[: len(whole)])))  # ranges of groups, rows, lanes, taps
    sizes = [[end - begin for begin, end in each] for each in weights]
    shared = len(cache_blocks) > 1
    sums_step = unit_bytes * shared
    counters = len(weights) * shared
    first = -(-8 * counters // LINE_BYTES) * LINE_BYTES
    sums_at = np.cumsum([first, *(prod(each) * sums_step for each in sizes)]).tolist()
    table = TASK.rows(
        {
            "group": group, "groups": groups, "rows.first": row, "rows.count": rows, "lanes.first": lane,
            "lanes.count": lanes, "tap": tap, "taps": taps, "cache_block": begin, "cache_blocks": end - begin,
            "part": part, "partial_sums": sums_at[part],
        }
        for begin, end in pairwise(np.cumsum([0, *cache_blocks]).tolist())
        for part, (((group, _), (row, _), (lane, _), (tap, _)), (groups, rows, lanes, taps)) in enumerate(
            zip(weights, sizes, strict=True)
        )
    )  # fmt: skip
    groups, rows, lanes, taps = map(max, zip(*sizes, strict=True))
    return Tasks(table, (groups, rows, lanes, taps), sums_at[-1], counters)
