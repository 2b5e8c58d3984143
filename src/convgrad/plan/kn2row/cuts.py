"""The way to cut kn2row: into output blocks, whose size depends on the cache."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod

from convgrad.plan import constants as shared
from convgrad.plan.cost import Division, claimed
from convgrad.plan.forward_nest import ForwardNest
from convgrad.plan.kn2row import constants
from convgrad.plan.kn2row.spec import Kn2rowSpec, max_reached, output_block_count, rows_of, stored_outputs
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tiling import tiles


def cuts(view: ForwardNest, machine: Machine, spec: Kn2rowSpec, threads: int) -> Iterator[Division]:
    """Yield the cut of kn2row, or nothing if the tap sums and the outputs of a block need too much memory."""
    rows, axes = rows_of(view), view.axes[spec.line :]
    for rooms in range(constants.UNCUT_LINE_SHARES, 0, -1):
        output_block, cache_block = _lines_at_once(view, machine, spec, threads, rooms)
        # of a line: by phases, and in the order of positions
        outputs = 2 * view.n * prod(stored_outputs(view, spec, output_block[-1]))
        if (max_reached(axes, output_block) * rows + outputs) * F32_BYTES > shared.MAX_OUTPUT_BLOCK_BYTES:
            continue
        count = output_block_count(view, spec, output_block)
        height, many, _ = tiles(rows, spec.product.mr, spec.product.nr)
        tile_bytes = height * spec.product.packed_k_bytes(view.k)
        block = max(1, int(machine.l2_bytes * constants.PACKED_SHARE) // tile_bytes)
        loops = {"output_block": output_block, "cache_block": cache_block, "block": min(many, block)}
        yield Division((count,), (claimed(count, threads),), threads, loops)
        return


def _lines_at_once(
    view: ForwardNest, machine: Machine, spec: Kn2rowSpec, threads: int, rooms: int
) -> tuple[tuple[int, ...], int]:
    """Return the size of output blocks along lines and each inner axis, and the input positions packed at a time.

    As many lines as fit in the cache's room for tap sums are computed together. If one line needs more than ``rooms``
    times the room, it is cut: along outer axes first, into blocks that recompute at most half of their positions.
    """
    lines, *inner = view.axes[spec.line :]
    width, phases = spec.product.width, len(lines.phases)
    room = max(constants.MIN_POSITIONS, int(machine.l2_bytes * constants.TAP_SUMS_SHARE) // (rows_of(view) * F32_BYTES))
    pieces, sizes = ceil(prod(axis.inputs for axis in inner) / (rooms * room)), list[int]()
    for at, axis in enumerate(inner, 1 - len(inner)):
        unit, parts = len(axis.phases), axis.parts
        again = 0 if at == 0 else parts.reach * parts.step // parts.by_position
        many = min(pieces, axis.extent // max(1, unit, 2 * again) or 1)
        sizes.append(min(axis.extent, ceil(axis.extent / many / unit) * unit))
        pieces = ceil(pieces / ceil(axis.extent / sizes[-1]))
    in_line = max_reached(inner, sizes)
    together = max(1, min(room // max(1, in_line), ceil(lines.extent / phases / threads)))
    packed = max(width, int(machine.l2_bytes * constants.PACKED_SHARE) // spec.product.packed_k_bytes(view.k))
    cache_block = ceil(min(packed, max(1, together * in_line)) / width) * width
    return (min(lines.extent, phases * together), *sizes), cache_block
