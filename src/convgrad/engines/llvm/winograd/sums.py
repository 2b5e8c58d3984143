"""Sums of points in IR, as many at a time as registers hold: one chain each, or the tree of all chains of their terms.

sums[point][row][lane] of rows[point][row, term] and lanes[point][panel][term][lane], panels of two vectors. Of a weight
gradient rows are src channels, lanes are dst channels, and terms the tiles of a block; of positions rows are tiles,
lanes are results, and terms are channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.microkernel import StridedRows, outer_product, sum_names
from convgrad.plan.constants import LANES_AHEAD
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import DIGIT_BITS, END
from convgrad.plan.winograd.recipe import PANEL
from convgrad.spec.tiles import BLOCK

NUMBERS = (
    "points", "down", "vectors",  # rows, vectors of lanes
    "rows.point", "rows.step", "rows.term", "lanes.point", "lanes.panel", "lanes.term",  # bytes to the next
    "point", "row",  # and of the sums
)  # fmt: skip


def heights(isa: Isa) -> tuple[int, int, int]:
    """Return the rows of micro-tiles of two vectors: the most that registers hold, and fewer for what is left.

    >>> from convgrad.plan.machine import ISAS
    >>> heights(ISAS["avx512"]), heights(ISAS["avx2"])
    ((14, 4, 1), (6, 2, 1))
    """
    (most,) = (rows for rows, vectors in isa.tiles if vectors == PANEL)
    return most, most // 3, 1


def level_bytes(isa: Isa) -> int:
    """Return the bytes of the most sums that registers hold: what a level of the tree takes of ``room``."""
    return heights(isa)[0] * PANEL * isa.lanes * F32_BYTES


def chains(f: Function, isa: Isa, a: Named, rows: Value, lanes: Value, sums: Value, terms: Value, more: Value) -> None:
    """Emit the sums of one chain each; ``more`` tells whether they are added to what is there."""

    def held(tile: _Tile) -> None:
        first = f.op("i1", f"xor {more}, true")
        tree.push(f, tile.chain(tile.rows, tile.lanes, terms), tile.places(tile.sums, a.row), first)

    _panels(f, isa, a, (rows, lanes, sums), held)


def trees(
    f: Function, isa: Isa, a: Named, where: tuple[Value, Value, Value], terms: Value, levels: Value, room: Value
) -> None:  # fmt: skip
    """Emit the sums of all terms: chains are added in the 16-ary tree, which has so many levels.

    The first node of each level is summed in ``sums``. ``room`` holds the sums of one other node per level.
    """
    of_rows, of_lanes, of_room = a.of("rows"), a.of("lanes"), f.value(PANEL * isa.lanes * F32_BYTES)

    def put(tile: _Tile, values: list[Value], child: Value, place: Value) -> None:
        """Add a child to its parent, which its first child begins."""
        others = f.compare("ne", child >> DIGIT_BITS, 0)
        place, step = f.select(others, place, tile.sums), f.select(others, of_room, a.row)
        tree.push(f, values, tile.places(place, step), tree.begins(f, child))

    def combined(tile: _Tile, child: Value, number: Value, parent: Value) -> None:
        with f.when(f.compare("ne", number, 0)):
            stored = [f.load(tile.kind, place) for place in tile.places(child, of_room)]
            put(tile, stored, number, parent)

    def held(tile: _Tile) -> None:
        count = _parts(f, terms, BLOCK)
        with f.loop(count, rows=tile.rows, lanes=tile.lanes, left=terms) as block:
            put(tile, tile.chain(block.rows, block.lanes, f.min(block.left, BLOCK)), block.index, room)
            last = f.compare("eq", block.index, count - 1)
            following = f.select(last, f.value(END), block.index + 1)
            tree.complete_nodes(f, levels, (block.index, following), room, level_bytes(isa), partial(combined, tile))
            block.next(
                rows=f.at(block.rows, of_rows.term * BLOCK), lanes=f.at(block.lanes, of_lanes.term * BLOCK),
                left=block.left - BLOCK,
            )  # fmt: skip

    _panels(f, isa, a, where, held)


def _parts(f: Function, count: Value, each: int) -> Value:
    return f.divided(count + (each - 1), each)[0]


def _panels(
    f: Function, isa: Isa, a: Named, where: tuple[Value, Value, Value], held: Callable[[_Tile], None]
) -> None:  # fmt: skip
    """Do all points, and all panels of each: two vectors, or one where no more is left."""
    rows, lanes, sums = where
    with f.loop(a.points, rows=rows, lanes=lanes, sums=sums) as point:
        with f.loop(_parts(f, a.vectors, PANEL), lanes=point.lanes, sums=point.sums) as some:
            whole = f.compare("sge", a.vectors - some.index * PANEL, PANEL)
            for width in (PANEL, 1):
                with f.when(whole) if width == PANEL else f.otherwise():
                    _rows(f, isa, a, (point.rows, some.lanes, some.sums), width, held)
            some.next(lanes=f.at(some.lanes, a.of("lanes").panel), sums=f.at(some.sums, PANEL * isa.lanes * F32_BYTES))
        point.next(
            rows=f.at(point.rows, a.of("rows").point), lanes=f.at(point.lanes, a.of("lanes").point),
            sums=f.at(point.sums, a.point),
        )  # fmt: skip


def _rows(
    f: Function, isa: Isa, a: Named, where: tuple[Value, Value, Value], width: int, held: Callable[[_Tile], None]
) -> None:  # fmt: skip
    """Do all rows of a panel, the most that registers hold, then fewer."""
    (here, lanes, to), rest = where, a.down
    for height in heights(isa):
        several, rest = f.divided(rest, height)
        with f.loop(several, rows=here, sums=to) as some:
            held(_Tile(f, isa, a, height, width, some.rows, lanes, some.sums))
            some.next(rows=f.at(some.rows, a.of("rows").step * height), sums=f.at(some.sums, a.row * height))
        here, to = some.rows, some.sums


@dataclass(frozen=True)
class _Tile:
    """Sums that registers hold, of some rows and vectors."""

    f: Function
    isa: Isa
    a: Named
    height: int
    width: int
    rows: Value
    lanes: Value
    sums: Value

    @property
    def _vector(self) -> int:
        return self.isa.lanes * F32_BYTES

    @property
    def kind(self) -> str:
        return f"<{self.isa.lanes} x float>"

    def chain(self, rows: Value, lanes: Value, terms: Value) -> list[Value]:
        """Return one chain each."""
        f, of_rows = self.f, self.a.of("rows")
        strided, names = StridedRows(f, of_rows.step, self.height), sum_names(self.height, self.width)
        ahead = f.opaque(self.a.of("lanes").term * LANES_AHEAD)
        with f.loop(terms, lanes=lanes, **strided.begin(rows), **{name: f.zeros(self.kind) for name in names}) as term:
            there = [f.load(self.kind, term.lanes, v * self._vector) for v in range(self.width)]
            for v in range(self.width):
                f.prefetch(f.at(f.at(term.lanes, ahead), v * self._vector))
            splat = (f.splat(f.load("float", place), self.isa.lanes) for place in strided.places(term))
            outer_product(f, term.following, splat, there)
            term.next(lanes=f.at(term.lanes, self.a.of("lanes").term), **strided.moved(term, of_rows.term))
        return [term.carried[name] for name in names]

    def places(self, first: Value, step: Value) -> list[Value]:
        """Return where sums are whose rows are so many bytes apart."""
        found, row = [], first
        for _ in range(self.height):
            found += [self.f.at(row, v * self._vector) for v in range(self.width)]
            row = self.f.at(row, step)
        return found
