"""TODO."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.backward_weights import pack
from convgrad.engines.llvm.backward_weights.nest import Nest, combine_after, nest, trees, when_all_ended
from convgrad.engines.llvm.backward_weights.tile import tile
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.pairs import quick
from convgrad.plan.backward_weights.lines import LINE
from convgrad.plan.backward_weights.recipe import KernelSpec
from convgrad.plan.backward_weights.slices import INDEX
from convgrad.plan.backward_weights.taps import TAP
from convgrad.plan.tree import CHAIN


def bodies(module: Module, spec: KernelSpec) -> None:
    """Emit what the nest calls beside what all nests do: packs, and a tile of each width."""
    pack.packs(module, spec)
    trees(module, spec)
    for vectors in widths(spec):
        tile(module, spec, vectors)


def widths(spec: KernelSpec) -> list[int]:
    """Return the tiles' vectors, the full ones first: panels of channels at the end may be narrower.

    >>> from convgrad.plan.machine import ISAS
    >>> from convgrad.plan.backward_weights.recipe import TILE, KernelSpec, Read, Tile
    >>> from convgrad.plan.recipe import CHANNELS
    >>> read = Read(CHANNELS, 8)
    >>> [widths(KernelSpec(ISAS["avx2"], "f32", "f32", TILE, Tile(1, v), read, read)) for v in (4, 3)]
    [[4, 2, 1], [3, 2, 1]]
    """
    vectors = spec.tile.vectors
    if spec.groups_in_lanes:
        return [vectors]
    return [vectors, *(1 << i for i in reversed(range((vectors - 1).bit_length())))]


def task(module: Module, spec: KernelSpec) -> None:
    """Emit ``task``: chunk by chunk, group by group. Where lanes hold groups, all of a task are packed first."""
    n = nest(module, spec)
    f, a, t = n.f, n.a, n.t
    with n.cache_blocks() as c, f.when(going(f, a)):
        if spec.groups_in_lanes:
            for side in n.sides:
                pack.groups(n, side, c)
        with f.loop(t.groups, sums=f.at(f.scratch, a.sums_at)) as group:
            x, y = (pack.where(n, side, c, group.index) for side in n.sides)
            with f.loop(t.lanes.count, sums=group.sums) as lane:
                with f.when(going(f, a)):
                    here = _Here(n, c, group.index, lane.index)
                    here.panel_of_lanes(lane.sums, x, y)
                lane.next(sums=f.at(lane.sums, t.rows.count * t.taps * a.panel_sums))
            group.next(sums=lane.sums)
    with when_all_ended(f, a, t):
        _reduced(n)
    f.done()


@dataclass(frozen=True)
class _Here:
    """A panel of lanes of a group in a chunk."""

    n: Nest
    c: Named
    group: Value  # numbers within the task
    lane: Value

    def panel_of_lanes(self, sums: Value, x: Value, y: Value) -> None:
        """All rows and taps of the task under one panel of lanes; in the last chunk their sums are finished."""
        n, f, a, t = self.n, self.n.f, self.n.a, self.n.t
        there = pack.panel(n, n.lanes, y, self.lane)
        group, lane = t.group + self.group, t.lanes.first + self.lane
        left, first_tap = n.lanes_left(group, lane), f.at(a.taps, t.tap * TAP.bytes)
        with f.loop(t.rows.count, sums=sums) as row:
            here = pack.panel(n, n.rows, x, row.index)
            taken: tuple[Value, ...] = ()
            if n.spec.step == 2:
                leasts = pack.least(n, n.rows, x, row.index), pack.least(n, n.lanes, y, self.lane)
                taken = (quick(f, n.spec.isa, a, leasts),)
            with f.when(going(f, a)), f.loop(t.taps, sums=row.sums, tap=first_tap) as tap:
                number = ((self.group * t.lanes.count + self.lane) * t.rows.count + row.index) * t.taps + tap.index
                kept = f.at(f.at(a.partial_sums, t.partial_sums), number * (a.units * n.spec.tile_bytes))
                self.blocks(tap.tap, tap.sums, (here, there), left, kept, taken)
                tap.next(sums=f.at(tap.sums, a.sums_step), tap=f.at(tap.tap, TAP.bytes))
            with f.when(f.compare("ne", self.c.last, 0)):
                top = f.at(row.sums, a.sums_step - n.spec.tile_bytes)
                n.store(group, lane, t.rows.first + row.index, top, a.sums_step)
            row.next(sums=f.at(row.sums, t.taps * a.panel_sums))

    def blocks(
        self, tap: Value, sums: Value, panels: tuple[Value, Value], left: Value, kept: Value, taken: tuple[Value, ...]
    ) -> None:
        """All blocks of the chunk under one tile of taps: the tile, then the nodes of the tree that are complete."""
        f, a, c, k = self.n.f, self.n.a, self.c, columns(self.n.f, tap, TAP)
        x, y = f.at(panels[0], k.rows.shift), f.at(panels[1], k.lanes.shift)
        index, chain = f.at(a.line_index, c.index * INDEX.bytes), f.at(a.chains, c.chain * CHAIN.bytes)
        with f.loop(c.chains, entry=index, chain=chain, x=x, y=y, images=c.images) as block:
            lines, count = f.at(a.lines, f.load("i64", block.entry) * LINE.bytes), f.load("i64", block.entry, 8)
            here = columns(f, block.chain, CHAIN)
            images = f.min(block.images, a.chain_images)
            begins = tree.begins(f, here.number)
            given = (f.arguments, sums, begins, block.x, block.y, images, lines, count, tap, *taken)
            by_width(f, self.n.spec.isa.lanes, widths(self.n.spec), left, "tile", given)
            combine_after(self.n, sums, here, kept)
            block.next(
                entry=f.at(block.entry, a.index_step), chain=f.at(block.chain, CHAIN.bytes),
                x=f.at(block.x, a.chain_step * a.rows.read_image), y=f.at(block.y, a.chain_step * a.lanes.read_image),
                images=block.images - a.chain_step,
            )  # fmt: skip


def _reduced(n: Nest) -> None:
    """Join the units' sums of a part of the weights, which become output."""
    f, a, t = n.f, n.a, n.t
    step = a.units * n.spec.tile_bytes
    with f.loop(t.groups, kept=f.at(a.partial_sums, t.partial_sums)) as group:
        with f.loop(t.lanes.count, kept=group.kept) as lane:
            with f.loop(t.rows.count, kept=lane.kept) as row:
                with f.loop(t.taps, kept=row.kept) as tap:
                    n.reduce(tap.kept)
                    tap.next(kept=f.at(tap.kept, step))
                where = (t.group + group.index, t.lanes.first + lane.index, t.rows.first + row.index)
                n.store(*where, row.kept, step)
                row.next(kept=tap.kept)
            lane.next(kept=row.kept)
        group.next(kept=lane.kept)
