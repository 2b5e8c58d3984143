"""The ways to cut weight and bias gradients: parts of the weights and of the batch, cache blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil, gcd, prod
from operator import le
from typing import NamedTuple

from convgrad.plan.backward_weights.lines import tap_share
from convgrad.plan.backward_weights.nest import View, blocks_a_row, per_group
from convgrad.plan.backward_weights.recipe import STRIP, KernelSpec, Parts
from convgrad.plan.constants import CACHE_WAYS, MAX_INDIRECTION_FACTOR, MAX_PACK_ALL_BYTES
from convgrad.plan.cost import Cut
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.recipe import F32_BYTES, Operands
from convgrad.plan.tree import levels_of


def cuts(view: View, machine: Machine, spec: KernelSpec, operands: Operands, threads: int, size: int) -> Iterator[Cut]:
    """Yield the ways to cut a problem of ``size`` bytes a value for one thread and for all."""
    panels = panels_of(view, spec, operands)
    for used in sorted({1, threads}):
        for parts in _parts(panels, used):
            kept = prod(panels) * spec.tile_bytes if parts[-1] > 1 else 0
            largest = [-(-count // each) for count, each in zip(panels, parts, strict=True)]
            yield Cut(panels, parts, used, *_slices(view, machine, spec, operands, largest, size), kept, largest)


def panels_of(view: View, spec: KernelSpec, operands: Operands) -> Parts:
    """Return how many panels of groups, rows and lanes there are, tiles of taps, and units of the batch."""
    conv, channels, (rows, lanes) = view.conv, per_group(view), operands
    *outer, inner = conv.axes
    return (
        ceil(conv.groups / spec.groups_a_panel),
        ceil(channels[rows] / spec.tile.rows),
        ceil(channels[lanes] / spec.lane_items),
        ceil(prod(axis.kernel for axis in outer) / spec.tile.outer_taps) * ceil(inner.kernel / spec.tile.inner_taps),
        ceil(conv.batch / view.blocks[1]),
    )


@lru_cache(maxsize=1024)
def _parts(panels: Parts, threads: int) -> list[Parts]:
    """Return the ways to cut the weights: groups first, the rest where that is not enough for the threads; or images.

    Groups that lie next to each other stay together where they can: what is read then lies together too.
    """
    groups = panels[0]
    enough = 4 * threads if threads > 1 else 1
    found = [(min(groups, n * threads), 1, 1, 1) for n in (1, 2, 4, 8, 16, 64)] + [(groups, 1, 1, 1)]
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if n * groups <= enough]
    found += [(groups, r, c, k) for r in counts for c in counts for k in counts if groups * r * c * k <= enough]
    found += [(groups, 16, 16, 1), (groups, 64, 64, 1)]
    weights = [(*c, 1) for c in dict.fromkeys(found) if c[1:] == (1, 1, 1) or all(map(le, c, panels))]
    images = (threads, 2 * threads, 4 * threads) if threads > 1 else ()
    return weights + [(1, 1, 1, 1, n) for n in images if n <= panels[-1]]


def lines_held(cache_bytes: int, pitch: int) -> int:
    """Return how many lines a pitch apart a cache holds: those a power of two apart share few of its sets.

    >>> lines_held(32 << 10, 4), lines_held(32 << 10, 4096)
    (512, 8)
    """
    sets = cache_bytes // (CACHE_WAYS * LINE_BYTES)
    return CACHE_WAYS * sets // gcd(sets, max(1, abs(pitch) // LINE_BYTES))


class _Position(NamedTuple):
    """Bytes that a position of a part takes: packed, of all panels or of two; read to be packed; held in a cache."""

    packed: float
    two_panels: float
    read: float
    held: float


def _position(view: View, spec: KernelSpec, operands: Operands, part: Sequence[int], size: int) -> _Position:
    """Several groups are packed one after the other out of what lies together; groups in lanes all at once."""
    (groups, row_panels, lane_panels, *_), (rows, lanes), channels = part, operands, per_group(view)
    sources = prod(axis.src for axis in view.conv.axes)
    stretch = {"src": sources / view.conv.positions, "dst": 1.0}  # source positions a destination position
    row_bytes, lane_bytes = spec.term_bytes(spec.rows) * stretch[rows], spec.term_bytes(spec.lanes) * stretch[lanes]
    read = 0.0
    if spec.groups_in_lanes:
        row_panels = lane_panels = groups
    elif groups > 1:
        read = sum(channels[t] * stretch[t] for t in channels) * size * groups
    held = row_packed = 0.0 if spec.rows.in_place else row_bytes * row_panels
    if spec.rows.in_place:  # other channels lie between, and crowd the sets of a cache
        held = channels[rows] * stretch[rows] * F32_BYTES
    lane_read = lane_bytes * lane_panels
    packed = row_packed + (0.0 if spec.lanes.in_place else lane_read)
    return _Position(packed, packed if spec.groups_in_lanes else row_bytes + lane_bytes, read, held + lane_read)


def _slices(
    view: View, machine: Machine, spec: KernelSpec, operands: Operands, part: Sequence[int], size: int
) -> tuple[Mapping[str, int], int]:
    """Return what a task packs at a time, and about what it takes in scratch.

    It packs all, if two panels fit L2, else what fits beside its sums. What is read to be packed, ``size`` bytes a
    value, is to fit L2 too.
    """
    conv, (groups, row_panels, lane_panels, taps, units) = view.conv, part
    blocks, images_a_block = view.blocks
    batch = min(conv.batch, units * images_a_block)
    levels = max(1, levels_of(blocks) + levels_of(-(-conv.batch // images_a_block)))
    tile_bytes, half = levels * spec.tile_bytes, machine.l2_bytes // 2
    if spec.body == STRIP:  # nothing is packed; chains wait beside the sums
        return _loops(0, batch if blocks == 1 else 1), (levels + 1) * spec.tile_bytes * groups * taps
    one, everything = _position(view, spec, operands, part, size), batch * conv.positions
    fits = max(one.two_panels, one.read) * everything <= half and one.packed * everything <= MAX_PACK_ALL_BYTES
    if spec.rows.in_place:
        fits = fits and everything <= 2 * lines_held(machine.l2_bytes, view.strides(operands[0])[-1])
    if blocks == 1 and fits:
        return _loops(0, batch), int(one.packed * everything) + tile_bytes * taps
    sums = tile_bytes * groups * row_panels * lane_panels * taps
    room = max(machine.l2_bytes // 4, half - sums // levels) / max(1.0, one.held + one.read)  # positions
    if blocks == 1:
        images = max(1, int(room / conv.positions) // images_a_block) * images_a_block
        images = min(images, units * images_a_block)
        return _loops(0, images), int(one.packed * images * conv.positions) + sums
    block = conv.positions / blocks
    taken = max(1, min(int(room / block), blocks))
    least = ceil(blocks * tap_share(conv.axes[:-1]) / MAX_INDIRECTION_FACTOR)
    if least > taken:  # whole rows, where those are longer than a block
        taken = ceil(least / blocks_a_row(conv)) * blocks_a_row(conv)
    return _loops(taken, 1), int(one.packed * taken * block) + sums


def _loops(slice_blocks: int, chunk_images: int) -> Mapping[str, int]:
    return {"slice_blocks": slice_blocks, "chunk_images": chunk_images}
