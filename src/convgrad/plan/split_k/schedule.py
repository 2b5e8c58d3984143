"""A plan of a weight or bias gradient as tables of integers, which the compiled driver reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

import numpy as np

from convgrad.formats import FORMATS
from convgrad.plan import tree
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import add_condition
from convgrad.plan.recipe import SPATIAL
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.plan.split_k import constants
from convgrad.plan.split_k.cuts import panels_of
from convgrad.plan.split_k.nest import Segments, WeightsNest, per_group, segments_of, shortened
from convgrad.plan.split_k.operands import OperandStrides, operands_of
from convgrad.plan.split_k.recipe import DEPTHWISE, Parts, SplitKPlan, SplitKSpec
from convgrad.plan.split_k.segments import PACKED, ImageTables, PackedRows, image_tables, indirection_of
from convgrad.plan.split_k.taps import contiguous, margins, tap_tables
from convgrad.plan.tables import Ints, Schedule, Table, evenly, placed

OPERANDS = ("a", "b")
CALL = FLAGS + addresses("a.data", "b.data", "out", "partial_sums")  # the arguments that differ between calls
OPERAND = Record(
    "packed",  # address of a table of rows of PACKED or, for portions, of offsets or rows of SEGMENT_BITS
    "image", "group", "channel", "k",  # byte strides in the operand's memory
    "channels",  # channels per group
    "at",  # bytes from the begin of scratch to the packed panels
    "panel",  # bytes from a panel to the next
    "read_image", "read_k",  # byte strides in what the kernel reads: packed panels, or memory
    "segments",  # for portions: the number of rows of SEGMENT_BITS per portion, if positions are contiguous
    "prefetch",  # bytes by which the depthwise kernel, or packing that transposes, prefetches
    "out",  # bytes from a channel to the next in the weights
    addresses=("packed",),
)  # fmt: skip
TABLES = addresses(
    "tasks", "cache_blocks", "taps", "outs", "ranges", "masks", "chains", "segments", "indirection", "existing"
)
NUMBERS = Record(
    "task_count",
    "groups", "out_group",  # number of groups; bytes from a group to the next in the weights
    "tap_step",  # bytes from an inner tap to the next in the src that the kernel reads
    "left", "right",  # bytes of zeros before and after a packed row of src
    "swapped",  # whether B is src, in a kernel of one tap
    "a_next",  # bytes from a cache block's A in place to the next one's
    "sums_at", "sums_step", "panel_sums",  # the sums in scratch: offset, bytes per micro-tile, bytes per panel or 0
    "levels", "leaf_levels",  # levels of a task's tree, and of the tree over all leaves of the batch
    "image_parts", "leaves",  # number of tasks per part of the weights; number of leaves of the batch
    "taps_contiguous", "accumulate",
    "portions", "padded", "own_at",  # see ``portions.py``
    "min_sum", "paths",  # smallest exponent sum that allows pairs; address of the counters ``PATHS``
    addresses=("paths",),
)  # fmt: skip
ARGUMENTS = CALL + TABLES + OPERAND.within("a") + OPERAND.within("b") + NUMBERS
CACHE_BLOCK = Record(
    "image", "images", "chains", "chain",  # first image; numbers of images and chains; first row of CHAIN
    "a.first", "a.count", "b.first", "b.count",  # rows of PACKED that the block packs
    "stores",  # whether the task stores its sums after this block
)  # fmt: skip
# A block's (`spec/order.py`) first image, its rows of SEGMENT, and its portions, which only sums of two chains have.
# Kernels of portions read it as PORTIONS_CHAIN.
CHAIN = tree.CHAIN + Record("image", "segment", "segments", "portions")


def schedule(nest: WeightsNest, plan: SplitKPlan, accumulate: bool) -> Schedule:
    """Return the tables and numbers of a plan for the arrays of a nest."""
    conv, spec = nest.conv, plan.spec
    a, _ = operands = operands_of(nest, spec, plan.operands)
    src = next(operand for operand in operands if operand.tensor == "src")
    depthwise = spec.body == DEPTHWISE
    segments = segments_of(nest, portions=spec.chains > 1)
    if depthwise:
        segments = shortened(segments, constants.DEPTHWISE_POSITIONS)
    indirection = indirection_of(() if nest.pointwise else conv.axes[:-1])
    taps = tap_tables(nest, spec, src, indirection.taps)
    image = image_tables(nest, segments, plan.chains_a_cache_block, spec, operands, indirection)
    leaves = -(-conv.batch // nest.images_a_chain)
    ends = [min(leaf * nest.images_a_chain, conv.batch) for _, leaf in evenly(leaves, plan.parts[-1])]
    shared = len(ends) > 1
    spans = [_spans(image.packed[tensor].counts) for tensor in plan.operands]
    cache_blocks = [cache_blocks_of(part, nest, image.chains, spans, plan, not shared) for part in pairwise([0, *ends])]
    chains, levels = chains_table(nest, *_segments_of_chains(nest, segments), leaves, shared)
    panels = panels_of(nest, spec, plan.operands)[:4]
    all_tasks = tasks(panels, plan.parts, list(map(len, cache_blocks)), leaves * spec.tile_bytes)
    by_operand = {
        name: operand_numbers(nest, plan, operand, image.packed[operand.tensor].max_k)
        for name, operand in zip(OPERANDS, operands, strict=True)
    }
    scratch, scratch_bytes = scratch_of(
        spec,
        all_tasks.panels,
        [numbers["panel"] for numbers in by_operand.values()],
        levels + depthwise,  # the depthwise kernel has the sums of a chain in scratch too
        max(map(len, cache_blocks)) > 1 or depthwise,
    )
    tables: dict[str, Table] = {
        "tasks": all_tasks.table,
        "cache_blocks": np.concatenate(cache_blocks),
        **taps,
        "chains": chains,
        **_image_tables(image, plan),
    }
    numbers = {
        **{f"{name}.{column}": number for name, columns in by_operand.items() for column, number in columns.items()},
        **scratch,
        **_strides(nest, spec, src),
        "task_count": len(all_tasks.table),
        "swapped": int((a.tensor == "src") != spec.a.moves),
        "a_next": _next_cache_block(image.packed[a.tensor], a.image * plan.images_a_cache_block),
        "image_parts": len(cache_blocks),
        "leaves": leaves,
        "levels": levels,
        "leaf_levels": tree.levels_of(leaves),
        "taps_contiguous": int(contiguous(taps["outs"], FORMATS[spec.output].itemsize)),
        "accumulate": int(accumulate),
    }
    if spec.k_per_add == 2:
        add_condition(tables, numbers)
    frozen = {name: table if table.flags.c_contiguous else table.copy() for name, table in tables.items()}
    offsets = (nest.src_offset, 0) if a is src else (0, nest.src_offset)
    shifted = LINE_BYTES if depthwise and all_tasks.partial_bytes else 0  # stores read past the last sums
    return Schedule(frozen, numbers, scratch_bytes, offsets, all_tasks.partial_bytes + shifted, all_tasks.counters)


def _image_tables(image: ImageTables, plan: SplitKPlan) -> dict[str, Ints]:
    """Return the tables that all images share: what is packed of A and B, the segments and the indirection table."""
    packed = zip(OPERANDS, plan.operands, strict=True)
    return {
        **{f"{name}.packed": image.packed[tensor].rows for name, tensor in packed},
        "segments": image.segments,
        "indirection": image.indirection,
    }


def _strides(nest: WeightsNest, spec: SplitKSpec, src: OperandStrides) -> dict[str, int]:
    """Return the number and stride of groups, the bytes from a tap to the next in src, and zeros around its rows."""
    left, right = margins(nest, spec)
    return {
        "groups": nest.conv.groups,
        "out_group": per_group(nest)["dst"] * nest.weights_strides[0],
        "tap_step": src.step * nest.conv.axes[-1].dilation,
        "left": left * spec.k_bytes(src.operand),
        "right": right * spec.k_bytes(src.operand),
    }


def chains_table(nest: WeightsNest, of_chains: Ints, last: Ints, leaves: int, shared: bool) -> tuple[Ints, int]:
    """Return rows of CHAIN, and the levels of the tree. If tasks share the batch, each leaf has a separate tree.

    ``of_chains`` are the last columns for the chains of a leaf, and ``last`` those of the batch's last chain.
    """
    numbers, levels = (tree.chains_of_leaves if shared else tree.chains)(nest.chains, leaves)
    first = np.repeat(np.arange(leaves) * nest.images_a_chain, nest.chains)
    table = np.concatenate([numbers, first[:, None], np.tile(of_chains, (leaves, 1))], 1)
    table[-1, -len(last) :] = last
    return table, levels


def _segments_of_chains(nest: WeightsNest, segments: Segments) -> tuple[Ints, Ints]:
    """Return the segments and portions of the chains of a leaf, and of the batch's last chain."""
    ends = np.searchsorted(segments.chain, np.arange(nest.chains), side="right")
    begins = np.append(0, ends[:-1])
    of_chains = np.stack([begins, ends - begins, _portions_of_segments(segments, begins, ends)], 1)
    images = nest.conv.batch % nest.images_a_chain
    if not images:
        return of_chains, of_chains[-1]
    end = np.searchsorted(segments.image, [images])  # the last leaf, which has one chain, has fewer images
    return of_chains, np.concatenate([[0], end, _portions_of_segments(segments, begins, end)])


def _portions_of_segments(segments: Segments, begins: Ints, ends: Ints) -> Ints:
    """Return the number of portions in ranges of segments."""
    counts: Ints = segments.portion[ends - 1] - segments.portion[begins] + 1
    return counts


def operand_numbers(nest: WeightsNest, plan: SplitKPlan, operand_strides: OperandStrides, max_k: int) -> dict[str, int]:
    """Return the values of OPERAND, if at most ``max_k`` positions are packed at once.

    If lanes are groups, panels are an odd number of lines, to use all cache sets.
    """
    packed = plan.spec.packed_bytes(operand_strides.operand, max_k)
    in_place = operand_strides.operand.in_place
    panel = packed * plan.images_a_cache_block + (
        LINE_BYTES if plan.spec.k_per_add == 2 else 0
    )  # space for the panel's minimum exponent
    if plan.spec.groups_in_lanes:
        panel = (-(-panel // LINE_BYTES) | 1) * LINE_BYTES
    return {
        "image": operand_strides.image,
        "group": operand_strides.group,
        "channel": operand_strides.channel,
        "k": operand_strides.k,
        "channels": operand_strides.channels,
        "panel": 0 if in_place else panel,
        "read_image": operand_strides.image if in_place else packed,
        "read_k": operand_strides.step * operand_strides.stride,
        "segments": 0,
        "prefetch": _prefetch(nest, plan.spec, operand_strides),
        "out": operand_strides.out,
    }


def scratch_of(
    spec: SplitKSpec,
    panels: Sequence[int],
    panel_bytes: Sequence[int],
    levels: int,
    all_panels: bool,
    own_bytes: int = 0,
) -> tuple[dict[str, int], int]:
    """Return the offsets of A, B, the sums and a kernel's own memory in scratch, and the bytes of scratch.

    ``panels`` is the size of the largest task in panels of groups, of A and of B, and in micro-tiles of taps. Scratch
    has the sums of all panels if several cache blocks add to them, or else of one panel.
    """
    groups, a, b, taps = panels
    counts = (groups, groups) if spec.groups_in_lanes else (a, b)
    a_bytes, b_bytes = (count * size for count, size in zip(counts, panel_bytes, strict=True))
    tiles, sums_step = (groups * a * b if all_panels else 1) * taps, levels * spec.tile_bytes
    past = LINE_BYTES if spec.body == DEPTHWISE else 0  # stores read past the last sums
    sizes = {"a.at": a_bytes, "b.at": b_bytes, "sums_at": tiles * sums_step + past, "own_at": own_bytes}
    places, size = placed(sizes)
    return {**places, "sums_step": sums_step, "panel_sums": sums_step * all_panels}, size


def _prefetch(nest: WeightsNest, spec: SplitKSpec, operand_strides: OperandStrides) -> int:
    """Return the prefetch distance in bytes, or 0: of the depthwise kernel, or of packing that transposes."""
    if spec.body == DEPTHWISE:
        return _depthwise_prefetch(nest, operand_strides)
    channel = abs(operand_strides.group if spec.groups_in_lanes else operand_strides.channel)
    near, crowded = channel <= constants.PREFETCH_MIN_STRIDE_BYTES, channel % constants.PREFETCH_CONFLICT_BYTES == 0
    channels = spec.isa.lanes if spec.groups_in_lanes else operand_strides.operand.width
    if operand_strides.operand.contiguous != SPATIAL or near or crowded or channels > constants.PREFETCH_MAX_CHANNELS:
        return 0
    return max(1, constants.PREFETCH_TRANSPOSE_BYTES // (channels * LINE_BYTES)) * LINE_BYTES


def _depthwise_prefetch(nest: WeightsNest, operand_strides: OperandStrides) -> int:
    """Return the prefetch distance of the depthwise kernel in bytes: some rows, or one segment of a long row."""
    axes = nest.conv.axes
    strides = [axis.stride if operand_strides.tensor == "src" else 1 for axis in axes]
    if nest.pointwise or len(axes) == 1 or axes[-1].dst > constants.DEPTHWISE_POSITIONS:
        return constants.DEPTHWISE_POSITIONS * operand_strides.step * strides[-1]
    rows = -(-constants.PREFETCH_DEPTHWISE_BYTES // max(1, abs(axes[-1].dst * operand_strides.step * strides[-1])))
    return rows * nest.strides(operand_strides.tensor)[-2] * strides[-2]


def _next_cache_block(packed: PackedRows, images: int) -> int:
    """Return the bytes from a cache block's operand to the next one's; ``images`` if blocks are whole images."""
    (count, *others), at = packed.counts.tolist(), packed.rows[:, PACKED.index("offset")]
    return int(at[count] - at[0]) if others and count and others[0] else images


def cache_blocks_of(
    part: tuple[int, int],
    nest: WeightsNest,
    chains: tuple[Ints, Ints],
    spans: Sequence[tuple[Ints, Ints]],
    plan: SplitKPlan,
    stores: bool,
) -> Ints:
    """Return rows of CACHE_BLOCK for a range of images, in summation order. Its last row has ``stores``.

    ``chains`` are the first and the end of the chains of each cache block of an image. ``spans`` are the rows of PACKED
    of A and of B.
    """
    (begin, batch), images = part, plan.images_a_cache_block
    begins, ends = chains
    first = np.arange(begin, batch, images)[:, None]
    taken = np.minimum(images, batch - first)
    many = nest.chains > 1  # otherwise a chain sums whole images
    (a, a_count), (b, b_count) = spans
    columns: dict[str, Ints] = {
        "image": first,
        "images": taken,
        "chains": ends - begins if many else -(-taken // nest.images_a_chain),
        "chain": first * nest.chains + begins if many else first // nest.images_a_chain,
        "a.first": a,
        "a.count": a_count,
        "b.first": b,
        "b.count": b_count,
    }
    shape = (first.size, begins.size)
    stores_after = np.zeros(first.size * begins.size, np.int64)
    stores_after[-1] = stores
    arrays = {name: np.broadcast_to(column, shape).ravel() for name, column in columns.items()}
    return CACHE_BLOCK.table(stores_after.size, stores=stores_after, **arrays)


def _spans(counts: Ints) -> tuple[Ints, Ints]:
    """Return for each cache block its first row of PACKED, and how many it has."""
    return np.cumsum(counts) - counts, counts


# The ranges of a task, as begin and length; the number of its part of the weights; the offset of its partial sums.
TASK = Record(
    "group", "groups", "a.first", "a.count", "b.first", "b.count", "tap", "taps",
    "cache_block", "cache_blocks", "part", "partial_sums",
)  # fmt: skip


@dataclass(frozen=True)
class Tasks:
    """Rows of TASK, and the sizes of the memory that the tasks use."""

    table: Ints
    panels: Sequence[int]  # panels of groups, of A, of B, and micro-tiles of taps, in the largest task
    partial_bytes: int  # bytes of the counters and of the partial sums after them
    counters: int  # counters: one per part of the weights, if tasks share the batch


def tasks(panels: Sequence[int], into: Parts, cache_blocks: Sequence[int], leaf_bytes: int) -> Tasks:
    """Return the tasks. A task is one part each of groups, A, B, micro-tiles of taps, and the batch.

    ``cache_blocks`` are counted per part of the batch. ``leaf_bytes`` are those of a micro-tile's sums of all leaves.
    """
    weights = list(product(*map(evenly, panels, into[: len(panels)])))  # ranges of panels of groups, A, B, and taps
    sizes = [[end - begin for begin, end in ranges] for ranges in weights]
    shared = len(cache_blocks) > 1
    sums_step = leaf_bytes * shared
    counters = len(weights) * shared
    first = -(-8 * counters // LINE_BYTES) * LINE_BYTES
    sums_at = np.cumsum([first, *(prod(extents) * sums_step for extents in sizes)]).tolist()
    table = TASK.rows(
        {
            "group": group,
            "groups": groups,
            "a.first": a,
            "a.count": a_count,
            "b.first": b,
            "b.count": b_count,
            "tap": tap,
            "taps": taps,
            "cache_block": begin,
            "cache_blocks": end - begin,
            "part": part,
            "partial_sums": sums_at[part],
        }
        for begin, end in pairwise(np.cumsum([0, *cache_blocks]).tolist())
        for part, (((group, _), (a, _), (b, _), (tap, _)), (groups, a_count, b_count, taps)) in enumerate(
            zip(weights, sizes, strict=True)
        )
    )
    return Tasks(table, list(map(max, zip(*sizes, strict=True))), sums_at[-1], counters)
