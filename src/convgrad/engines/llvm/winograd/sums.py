"""The matrix products of Winograd's algorithm in IR, one product per point.

c[point][m][n] is the sum over k of a[point][m, k] * b[point][panel][k][n], where a panel has two vectors. In backward
weights, M is src channels, N is dst channels, and K is the Winograd tiles of one chain. In the other passes, M is
tiles, N is output channels, and K is input channels. Their sums are reduction trees of chains of K.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.microkernel import StridedRows, outer_product, sum_names
from convgrad.engines.llvm.winograd.vectors import Vectors, walk
from convgrad.plan.constants import PREFETCH_B
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import DIGIT_BITS, END
from convgrad.plan.winograd.plans import PANEL
from convgrad.plan.winograd.schedule import level_bytes, micro_tile_rows
from convgrad.spec.winograd.tile_order import BLOCK

Points = tuple[Value, Value, Value]  # addresses of A, of B and of the sums
Rows = Callable[[Value], tuple[Value, Value]]  # from the number of a point to the first row of A and their count


def chains(f: Function, isa: Isa, a: Named, points: Points, count: Value, more: Value) -> None:
    """Emit sums of one chain of ``count`` products each. If ``more``, add them to the stored sums, else store them."""

    def push(tile: _MicroTile) -> None:
        first = f.op("i1", f"xor {more}, true")
        tree.push(f, tile.chain(tile.a, tile.b, count), tile.places(tile.c, a.of("c").m), first)

    _micro_tiles(f, isa, a, points, lambda _: (f.value(0), a.m), push)


def trees(f: Function, isa: Isa, a: Named, points: Points, rows: Rows, tree_of: tuple[Value, Value, Value]) -> None:
    """Emit sums of products, whose chains are added by a reduction tree.

    ``tree_of`` are the number of products, the levels of the tree, and memory for one node per level. The first node of
    each level is summed in the memory of the result instead.
    """
    count, levels, room = tree_of
    room_step = f.value(PANEL * isa.lanes * F32_BYTES)

    def push(tile: _MicroTile, values: list[Value], child: Value, place: Value) -> None:
        """Add a child to its parent. The child with the number 0 is stored instead."""
        others = f.compare("ne", child >> DIGIT_BITS, 0)
        place, step = f.select(others, place, tile.c), f.select(others, room_step, a.of("c").m)
        tree.push(f, values, tile.places(place, step), tree.begins(f, child))

    def combine(tile: _MicroTile, child: Value, number: Value, parent: Value) -> None:
        with f.when(f.compare("ne", number, 0)):
            stored = [f.load(tile.v.kind, place) for place in tile.places(child, room_step)]
            push(tile, stored, number, parent)

    def sum_up(tile: _MicroTile) -> None:
        number, of_a, of_b = parts(f, count, BLOCK), (tile.a, a.of("a").k * BLOCK), (tile.b, a.of("b").k * BLOCK)
        with walk(f, number, a=of_a, b=of_b, left=(count, -BLOCK)) as chain:
            push(tile, tile.chain(chain.a, chain.b, f.min(chain.left, BLOCK)), chain.index, room)
            last = f.compare("eq", chain.index, number - 1)
            following = f.select(last, f.value(END), chain.index + 1)
            tree.complete_nodes(f, levels, (chain.index, following), room, level_bytes(isa), partial(combine, tile))

    _micro_tiles(f, isa, a, points, rows, sum_up)


def parts(f: Function, count: Value, size: Value | int) -> Value:
    """Return the number of parts of at most ``size`` that ``count`` has."""
    return f.divided(count + (size - 1), size)[0]


def _micro_tiles(
    f: Function, isa: Isa, a: Named, points: Points, rows_of: Rows, body: Callable[[_MicroTile], None]
) -> None:
    """Emit ``body`` for the micro-tiles of all points and panels, which have two vectors of B, or one in the last."""
    of_a, of_b, of_c, v = a.of("a"), a.of("b"), a.of("c"), Vectors(f, isa.lanes)
    at_a, at_b, at_c = points
    with walk(f, a.points, a=(at_a, of_a.point), b=(at_b, of_b.point), c=(at_c, of_c.point)) as point:
        vectors, (first, m) = v.count(a.n), rows_of(point.index)
        begin_a, begin_c = f.at(point.a, first * of_a.m), f.at(point.c, first * of_c.m)
        with walk(f, parts(f, vectors, PANEL), b=(point.b, of_b.panel), c=(begin_c, PANEL * v.bytes)) as panel:
            whole = f.compare("sge", vectors - panel.index * PANEL, PANEL)
            for width in (PANEL, 1):
                with f.when(whole) if width == PANEL else f.otherwise():
                    here, to, left = begin_a, panel.c, m
                    for rows in micro_tile_rows(isa):
                        several, left = f.divided(left, rows)
                        with walk(f, several, a=(here, of_a.m * rows), c=(to, of_c.m * rows)) as some:
                            body(_MicroTile(v, isa, a, rows, width, some.a, panel.b, some.c))
                        here, to = some.a, some.c


@dataclass(frozen=True)
class _MicroTile:
    """A micro-tile that is being emitted."""

    v: Vectors
    isa: Isa
    steps: Named  # byte strides of A, B and the sums
    rows: int  # rows of A
    vectors: int  # vectors of B
    a: Value  # the address of the rows of A
    b: Value  # the address of the panel of B
    c: Value  # the address of the sums

    def chain(self, a: Value, b: Value, count: Value) -> list[Value]:
        """Return the sums of one chain of ``count`` products, in registers."""
        v, f, of_a, of_b = self.v, self.v.f, self.steps.of("a"), self.steps.of("b")
        a_rows, names = StridedRows(f, of_a.m, self.rows), sum_names(self.rows, self.vectors)
        distance = f.opaque(of_b.k * PREFETCH_B)
        with f.loop(count, b=b, **a_rows.begin(a), **{name: f.zeros(v.kind) for name in names}) as k:
            vectors = [f.load(v.kind, k.b, n * v.bytes) for n in range(self.vectors)]
            for n in range(self.vectors):
                f.prefetch(f.at(f.at(k.b, distance), n * v.bytes))
            splat = (f.splat(f.load("float", place), v.lanes) for place in a_rows.places(k))
            outer_product(k.following, splat, vectors)
            k.next(b=f.at(k.b, of_b.k), **a_rows.moved(k, of_a.k))
        return [k.carried[name] for name in names]

    def places(self, first: Value, step: Value) -> list[Value]:
        """Return the address of each vector of sums; their rows begin at ``first`` and are ``step`` bytes apart."""
        places, row = [], first
        for _ in range(self.rows):
            places += [self.v.f.at(row, n * self.v.bytes) for n in range(self.vectors)]
            row = self.v.f.at(row, step)
        return places
