"""The ways to cut weight and bias gradients: into parts of the weights or of the batch, and into cache blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil, gcd, prod
from operator import le
from typing import NamedTuple

from convgrad.plan.cost import Division
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.recipe import F32_BYTES, Operands
from convgrad.plan.split_k.constants import (
    CACHE_WAYS,
    MAX_INDIRECTION_FACTOR,
    MAX_PACK_ALL_BYTES,
    MAX_PANELS,
    PORTIONS_SHARE,
    PORTIONS_SUMS,
)
from convgrad.plan.split_k.nest import WeightsNest, per_group
from convgrad.plan.split_k.recipe import DEPTHWISE, PORTIONS, Parts, SplitKSpec
from convgrad.plan.split_k.segments import tap_share
from convgrad.plan.tree import levels_of


def cuts(
    nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands, threads: int, size: int
) -> Iterator[Division]:
    """Yield the ways to cut the work for one thread and for all threads. A value has ``size`` bytes."""
    panels = panels_of(nest, spec, operands)
    for used in sorted({1, threads}):
        for parts in _parts(panels, used):
            partial = prod(panels) * spec.tile_bytes if parts[-1] > 1 else 0
            largest = [-(-count // parts_of_axis) for count, parts_of_axis in zip(panels, parts, strict=True)]
            yield Division(
                panels, parts, used, *_cache_block(nest, machine, spec, operands, largest, size), partial, largest
            )


def panels_of(nest: WeightsNest, spec: SplitKSpec, operands: Operands) -> Parts:
    """Return the numbers of panels of groups, of A and of B, of micro-tiles of taps, and of leaves of the batch."""
    conv, channels, (a, b), micro_tile = nest.conv, per_group(nest), operands, spec.micro_tile
    *outer, inner = conv.axes
    return (
        ceil(conv.groups / spec.groups_a_panel),
        ceil(channels[a] / micro_tile.mr),
        ceil(channels[b] / spec.b_channels),
        ceil(prod(axis.kernel for axis in outer) / micro_tile.outer_taps) * ceil(inner.kernel / micro_tile.inner_taps),
        ceil(conv.batch / nest.images_a_chain),
    )


@lru_cache(maxsize=1024)
def _parts(panels: Parts, threads: int) -> list[Parts]:
    """Return the ways to cut either the weights or the batch into parts, as numbers of parts per dimension.

    Groups are cut first, and other dimensions if threads need more parts. A part has several
    neighbouring groups if possible, because their channels are contiguous.
    """
    groups = panels[0]
    enough = 4 * threads if threads > 1 else 1
    divisions = [(min(groups, n * threads), 1, 1, 1) for n in (1, 2, 4, 8, 16, 64)] + [(groups, 1, 1, 1)]
    counts = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64) if n * groups <= enough]
    divisions += [(groups, a, b, k) for a in counts for b in counts for k in counts if groups * a * b * k <= enough]
    divisions += [(groups, 16, 16, 1), (groups, 64, 64, 1)]
    a, b = (-(-count // MAX_PANELS) for count in panels[1:3])
    divisions += [(groups, a, 1, 1), (groups, 1, b, 1)] if max(a, b) > 1 else []
    weights = [(*c, 1) for c in dict.fromkeys(divisions) if c[1:] == (1, 1, 1) or all(map(le, c, panels))]
    images = (threads, 2 * threads, 4 * threads) if threads > 1 else ()
    return weights + [(1, 1, 1, 1, n) for n in images if n <= panels[-1]]


def lines_held(cache_bytes: int, pitch: int) -> int:
    """Return how many lines, ``pitch`` bytes apart, fit in a cache. A power of two as ``pitch`` uses few cache sets.

    >>> lines_held(32 << 10, 4), lines_held(32 << 10, 4096)
    (512, 8)
    """
    sets = cache_bytes // (CACHE_WAYS * LINE_BYTES)
    return CACHE_WAYS * sets // gcd(sets, max(1, abs(pitch) // LINE_BYTES))


class _Position(NamedTuple):
    """Bytes per dst position: packed for all panels, packed for two panels, read for packing, and held in a cache."""

    packed: float
    two_panels: float
    read: float
    held: float


def _position(nest: WeightsNest, spec: SplitKSpec, operands: Operands, part: Sequence[int], size: int) -> _Position:
    """Return the bytes per position of dst. Groups are packed one by one, unless lanes are groups."""
    (groups, a_panels, b_panels, *_), (a, b), channels = part, operands, per_group(nest)
    sources = prod(axis.src for axis in nest.conv.axes)
    ratio = {"src": sources / nest.conv.positions, "dst": 1.0}  # positions of each tensor per position of dst
    a_bytes, b_bytes = spec.k_bytes(spec.a) * ratio[a], spec.k_bytes(spec.b) * ratio[b]
    read = 0.0
    if spec.groups_in_lanes:
        a_panels = b_panels = groups
    elif groups > 1:
        read = sum(channels[t] * ratio[t] for t in channels) * size * groups
    held = a_packed = 0.0 if spec.a.in_place else a_bytes * a_panels
    if spec.a.in_place:  # a cache line has channels of all panels of A, so all of A stays in the cache
        held = channels[a] * ratio[a] * F32_BYTES
    b_read = b_bytes * b_panels
    packed = a_packed + (0.0 if spec.b.in_place else b_read)
    return _Position(packed, packed if spec.groups_in_lanes else a_bytes + b_bytes, read, held + b_read)


def _cache_block(
    nest: WeightsNest, machine: Machine, spec: SplitKSpec, operands: Operands, part: Sequence[int], size: int
) -> tuple[Mapping[str, int], int]:
    """Return the size of a task's cache blocks, and an estimate of the task's scratch in bytes.

    A task packs all of its images at once if two panels fit in L2. Otherwise it packs as much as fits in L2 together
    with its sums. The values that packing reads, ``size`` bytes each, must fit in L2 too.
    """
    conv, (groups, a_panels, b_panels, taps, leaves) = nest.conv, part
    chains, images_a_chain = nest.chains, nest.images_a_chain
    batch = min(conv.batch, leaves * images_a_chain)
    levels = max(1, levels_of(chains) + levels_of(-(-conv.batch // images_a_chain)))
    tile_bytes, half = levels * spec.tile_bytes, machine.l2_bytes // 2
    if spec.body == DEPTHWISE:  # operands are read in place, and scratch has the sums of chains
        return _block_of(0, batch if chains == 1 else 1), (levels + 1) * spec.tile_bytes * groups * taps
    if spec.body == PORTIONS:
        return _block_of_portions(nest, machine, spec, part), 0
    position, everything = _position(nest, spec, operands, part, size), batch * conv.positions
    fits = (
        max(position.two_panels, position.read) * everything <= half
        and position.packed * everything <= MAX_PACK_ALL_BYTES
    )
    if spec.a.in_place:
        fits = fits and everything <= 2 * lines_held(machine.l2_bytes, nest.strides(operands[0])[-1])
    if chains == 1 and fits:
        return _block_of(0, batch), int(position.packed * everything) + tile_bytes * taps
    sums = tile_bytes * groups * a_panels * b_panels * taps
    room = max(machine.l2_bytes // 4, half - sums // levels) / max(1.0, position.held + position.read)  # positions
    if chains == 1:
        images = max(1, int(room / conv.positions) // images_a_chain) * images_a_chain
        images = min(images, batch)
        return _block_of(0, images), int(position.packed * images * conv.positions) + sums
    positions = conv.positions / chains
    taken = max(1, min(int(room / positions), chains))
    fewest = ceil(chains * tap_share(conv.axes[:-1]) / MAX_INDIRECTION_FACTOR)
    if fewest > taken:  # rounded up to whole rows of dst
        taken = ceil(fewest / nest.chains_a_row) * nest.chains_a_row
    return _block_of(taken, 1), int(position.packed * taken * positions) + sums


def _block_of_portions(nest: WeightsNest, machine: Machine, spec: SplitKSpec, part: Sequence[int]) -> Mapping[str, int]:
    """Return the size of cache blocks: one chain or, if the sums of the task exceed L2, as many as fit in L2.

    Chains of a cache block are added while the sums of a micro-tile are in L1. But several chains do not fit in L1.
    """
    a_bytes, b_bytes = (
        spec.k_bytes(operand) * panels for operand, panels in zip((spec.a, spec.b), part[1:], strict=False)
    )
    large = prod(part[:4]) * spec.tile_bytes > PORTIONS_SUMS * machine.l2_bytes
    room = int(PORTIONS_SHARE * machine.l2_bytes / (a_bytes + b_bytes)) if large else 1  # positions
    if nest.chains == 1:
        leaves = min(max(1, room // (nest.images_a_chain * nest.conv.positions)), part[-1])
        return _block_of(0, leaves * nest.images_a_chain)
    return _block_of(max(1, min(room * nest.chains // nest.conv.positions, nest.chains)), 1)


def _block_of(chains: int, images: int) -> Mapping[str, int]:
    return {"chains_a_cache_block": chains, "images_a_cache_block": images}
