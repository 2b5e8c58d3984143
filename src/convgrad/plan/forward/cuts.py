"""How a forward or a data gradient is cut: slabs of positions for caches and threads, parts of the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import ceil, prod
from typing import NamedTuple

from convgrad.plan import constants
from convgrad.plan.forward.heights import tiles
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.view import Along, ForwardNest
from convgrad.plan.machine import LINE_BYTES, Machine
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.stretches import Parts
from convgrad.plan.tree import levels_of
from convgrad.spec.order import BLOCK


class Cut(NamedTuple):
    """Output positions of a slab along each axis, panels packed at a time, parts of groups, panels and slabs."""

    slab: tuple[int, ...]
    panels: int
    parts: tuple[int, int, int]
    slabs: int  # how many there are
    pass_blocks: int = 0  # blocks of terms under which all tiles of a box go before the next; 0: all

    @property
    def tasks(self) -> int:
        """How many there are."""
        return prod(self.parts)


def panels_of(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return how many panels the results of a group are."""
    return ceil(view.results / spec.width)


def panel_bytes(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return what the weights of a panel take, packed."""
    return view.taps * view.terms * spec.pitch * F32_BYTES + (LINE_BYTES if spec.step == 2 else 0)  # behind, the least


def read_bytes(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return what tiles read of a panel: of words, half of what they were made of."""
    return view.taps * spec.pitch * spec.position_bytes(view.terms)


def parts_of(axis: Along, size: int) -> Parts:
    """Return the parts of all slabs of an axis, of so many positions."""
    return axis.parts.in_slabs(size).parts


def cuts(view: ForwardNest, machine: Machine, spec: ForwardSpec, threads: int, runs_along: int) -> Iterator[Cut]:
    """Yield ways to cut: by positions, by results, by groups; ``runs_along`` is the axis that most tiles run along."""
    panels, one = panels_of(view, spec), read_bytes(view, spec)
    fit = max(1, int(machine.l2_bytes * constants.PANELS_SHARE) // max(1, one))
    at_once = min(panels, fit if spec.in_place else max(fit, constants.PANELS_BYTES // max(1, one)))
    wishes = sorted({1, *(threads << n for n in range(4))})
    for wanted, last in product(wishes, sorted({runs_along, len(view.axes) - 1})):
        slab = _slab(view, machine, spec, wanted if wanted <= threads else 2 * wanted, last)
        there = prod(ceil(axis.extent / size) for axis, size in zip(view.axes, slab, strict=True))
        taken = min(there, wanted)
        for others in sorted({1, threads, 4 * threads, ceil(panels / at_once)}):
            groups = min(view.groups, others)
            parts = min(panels, ceil(others / groups))
            yield Cut(slab, min(at_once, ceil(panels / parts)), (groups, parts, taken), there)
    if not spec.lanes_in_place and one > machine.l2_bytes * constants.PANELS_SHARE:
        yield from _in_passes(view, machine, spec, threads)


def _in_passes(view: ForwardNest, machine: Machine, spec: ForwardSpec, threads: int) -> Iterator[Cut]:
    """Yield ways in which all tiles of a box meet some blocks of a panel before others: these stay in the cache."""
    blocks = max(1, int(machine.l2_bytes * constants.PASS_SHARE) // (BLOCK // spec.step * spec.width * F32_BYTES))
    panels = panels_of(view, spec)
    for wanted in (1, threads, 2 * threads):
        slab = _whole_slab(view, wanted)
        if most_tiles(view, slab, spec) * tile_sums(view, spec) > constants.WAITING_BYTES:
            continue
        there = prod(ceil(axis.extent / size) for axis, size in zip(view.axes, slab, strict=True))
        for parts in sorted({min(panels, threads), min(panels, 2 * threads), panels}):
            yield Cut(slab, 1, (1, parts, min(there, wanted)), there, blocks)


def _whole_slab(view: ForwardNest, wanted: int) -> tuple[int, ...]:
    """Return slabs as large as can be where there are to be so many, cut along the first axes."""
    size = []
    for axis in view.axes:
        parts = min(axis.extent, wanted)
        size.append(ceil(axis.extent / parts))
        wanted = ceil(wanted / parts)
    return tuple(size)


def tile_sums(view: ForwardNest, spec: ForwardSpec) -> int:
    """Return what the sums of a tile take that wait: those of each level."""
    return levels(view) * spec.tile_bytes


def levels(view: ForwardNest) -> int:
    """Return the levels of the tree of blocks; one at least, for the sums of a tile."""
    return max(1, levels_of(view.order.blocks) + levels_of(view.order.units))


def most_tiles(view: ForwardNest, slab: Sequence[int], spec: ForwardSpec) -> int:
    """Return the most tiles that a box of slabs of such a size may have, whichever axis they run along."""
    longest = [parts_of(axis, size).most for axis, size in zip(view.axes, slab, strict=True)]
    along = [tiles(count, spec.rows, spec.vectors)[1] for count in longest]
    return max(prod(longest) // count * many for count, many in zip(longest, along, strict=True))


def _slab(view: ForwardNest, machine: Machine, spec: ForwardSpec, wanted: int, last: int) -> tuple[int, ...]:
    """Return the positions of a slab along each axis: so many slabs at least, if there can be, which fit in the cache.

    One axis, which most tiles run along, is cut last, and in whole tiles.
    """
    most = max(1, int(machine.l2_bytes * constants.SLAB_SHARE))
    size, have = [axis.extent for axis in view.axes], 1
    several = [axis for axis, extent in enumerate(size) if extent > 1]
    for axis in sorted(several, key=last.__eq__):
        extent, reached = size[axis], reached_bytes(view, size)
        unit, room = (spec.rows, most if have == 1 else 2 * most) if axis == last else (1, most)
        least = max(1.0, reached / room, wanted / have)
        if axis == last and reached <= constants.SLAB_BYTES:
            least = min(least, extent / (constants.LEAST_TILES * spec.rows))
        whole = max(1, int(extent / max(1.0, least)))
        if whole < extent:
            size[axis] = ceil(ceil(extent / ceil(extent / whole)) / unit) * unit
            have *= ceil(extent / size[axis])
    return tuple(size)


def reached_bytes(view: ForwardNest, size: Sequence[int]) -> int:
    """Return about what a slab reads, in f32."""
    return prod(_reach(axis, s) for axis, s in zip(view.axes, size, strict=True)) * view.channels * F32_BYTES


def _reach(axis: Along, size: int) -> int:
    """Return about how many positions of the operand some of the output reach, from the first to the last."""
    between = (size - 1) * axis.parts.by_position // axis.parts.step
    return min(axis.met, between + axis.parts.reach + 1)
