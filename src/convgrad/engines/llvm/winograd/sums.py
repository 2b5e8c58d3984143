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
from convgrad.plan.machine import Isa
from convgrad.plan.rates import LANES_AHEAD
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import DIGIT_BITS, END
from convgrad.plan.winograd.recipe import PANEL
from convgrad.spec.order import FAN_IN
from convgrad.spec.tiles import BLOCK

HEIGHTS = {32: (14, 4, 1), 16: (6, 2, 1)}  # rows whose sums so many registers hold, and of what is left
BASE_ROWS = 8  # rows that one pointer serves: their distances are 1, 3, 5, 7 steps, times what an address multiplies by
NUMBERS = (
    "points", "down", "vectors",  # rows, vectors of lanes
    "rows.point", "rows.step", "rows.term", "lanes.point", "lanes.panel", "lanes.term",  # bytes to the next
    "point", "row",  # and of the sums
)  # fmt: skip


def level_bytes(isa: Isa) -> int:
    """Return the bytes of the most sums that registers hold: what a level of the tree takes of ``room``."""
    return HEIGHTS[isa.registers][0] * PANEL * isa.lanes * F32_BYTES


def chains(f: Function, isa: Isa, a: Named, rows: Value, lanes: Value, sums: Value, terms: Value, more: Value) -> None:
    """Emit the sums of one chain each; ``more`` tells whether they are added to what is there."""

    def held(tile: _Tile) -> None:
        tile.put(tile.chain(tile.rows, tile.lanes, terms), tile.sums, a.row, more)

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
        tile.put(values, place, step, f.compare("ne", child & (FAN_IN - 1), 0))

    def combined(tile: _Tile, child: Value, number: Value, parent: Value) -> None:
        with f.when(f.compare("ne", number, 0)):
            put(tile, tile.there(child, of_room), number, parent)

    def held(tile: _Tile) -> None:
        count = _parts(f, terms, BLOCK)
        with f.loop(count, rows=tile.rows, lanes=tile.lanes, left=terms) as block:
            put(tile, tile.chain(block.rows, block.lanes, f.least(block.left, BLOCK)), block.index, room)
            last = f.compare("eq", block.index, count - 1)
            following = f.select(last, f.value(END), block.index + 1)
            tree.climbed(f, levels, (block.index, following), room, level_bytes(isa), partial(combined, tile))
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
    for height in HEIGHTS[isa.registers]:
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
    def _kind(self) -> str:
        return f"<{self.isa.lanes} x float>"

    def chain(self, rows: Value, lanes: Value, terms: Value) -> list[Value]:
        """Return one chain each."""
        f, of_rows = self.f, self.a.of("rows")
        steps = _steps(f, of_rows.step, self.height)
        names = [f"sum{r}_{v}" for r in range(self.height) for v in range(self.width)]
        bases = {f"rows{r}": f.at(rows, of_rows.step * r) for r in range(0, self.height, BASE_ROWS)}
        ahead = f.hidden(self.a.of("lanes").term * LANES_AHEAD)
        with f.loop(terms, lanes=lanes, **bases, **{name: f.zeros(self._kind) for name in names}) as term:
            there = [f.load(self._kind, term.lanes, v * self._vector) for v in range(self.width)]
            for v in range(self.width):
                f.prefetch(f.at(f.at(term.lanes, ahead), v * self._vector))
            made = []
            for r in range(self.height):
                base = term.carried[f"rows{r - r % BASE_ROWS}"]
                here = f.splat(f.load("float", f.at(base, steps[r % BASE_ROWS])), self.isa.lanes)
                made += [f.fma(here, each, term.carried[f"sum{r}_{v}"]) for v, each in enumerate(there)]
            moved = {name: f.at(term.carried[name], of_rows.term) for name in bases}
            term.next(lanes=f.at(term.lanes, self.a.of("lanes").term), **moved, **dict(zip(names, made, strict=True)))
        return [term.carried[name] for name in names]

    def there(self, place: Value, step: Value) -> list[Value]:
        """Return sums that were put there."""
        rows = [self.f.at(place, step * r) for r in range(self.height)]
        return [self.f.load(self._kind, row, v * self._vector) for row in rows for v in range(self.width)]

    def put(self, values: list[Value], place: Value, step: Value, added: Value) -> None:
        """Write sums, or add them to what is there."""
        f = self.f
        for adds in (True, False):
            with f.when(added) if adds else f.otherwise():
                row = place
                for r in range(self.height):
                    for v in range(self.width):
                        value, at = values[r * self.width + v], v * self._vector
                        f.store(f.add(f.load(self._kind, row, at), value) if adds else value, row, at)
                    row = f.at(row, step)


def _steps(f: Function, step: Value, rows: int) -> list[Value | int]:
    """Return how far rows are from their pointer: few numbers, as an address multiplies one by 2 and 4."""
    odd, found = dict[int, Value](), list[Value | int]([0])
    for r in range(1, min(rows, BASE_ROWS)):
        low = r & -r
        if r // low not in odd:
            odd[r // low] = f.hidden(step * (r // low))
        found.append(odd[r // low] * low)
    return found
