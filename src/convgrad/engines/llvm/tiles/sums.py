"""Sums of points in IR, as many at a time as registers hold: one chain each, or the tree of all chains of their terms.

sums[point][row][lane] of rows[point][row, term] and lanes[point][panel][term][lane], panels of two vectors. Of a weight
gradient rows are src channels, lanes are dst channels, and terms the tiles of a block; of positions rows are tiles,
lanes are results, and terms are channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tiles.recipe import PANEL
from convgrad.spec.order import FAN_IN
from convgrad.spec.tiles import BLOCK

HEIGHTS = {32: (14, 4, 1), 16: (6, 2, 1)}  # rows whose sums so many registers hold, and of what is left
BASE_ROWS = 8  # rows that one pointer serves: their distances are 1, 3, 5, 7 steps, times what an address multiplies by
NUMBERS = (
    "points", "down", "vectors",  # rows, vectors of lanes
    "rows.point", "rows.step", "rows.term", "lanes.point", "lanes.panel", "lanes.term",  # bytes to the next
    "point", "row",  # and of the sums
)  # fmt: skip


def chains(f: Function, isa: Isa, a: Named, rows: Value, lanes: Value, sums: Value, terms: Value, more: Value) -> None:
    """Emit the sums of one chain each; ``more`` tells whether they are added to what is there."""
    _panels(f, isa, a, (rows, lanes, sums), lambda panel: panel.chains(panel.sums, a.row, terms, more))


def trees(f: Function, isa: Isa, a: Named, rows: Value, lanes: Value, sums: Value, terms: Value, room: Value) -> None:
    """Emit the sums of all terms: chains are added in nodes of 16, and these to one another.

    ``room`` has a panel's sums of a node but the first.
    """

    def held(panel: _Panel) -> None:
        of_room = f.value(PANEL * isa.lanes * F32_BYTES)
        begin = {"rows": panel.rows, "lanes": panel.lanes, "left": terms}
        with f.loop(_parts(f, terms, BLOCK * FAN_IN), **begin) as node:
            others = f.compare("ne", node.index, 0)
            place, step = f.select(others, room, panel.sums), f.select(others, of_room, a.row)
            here = f.least(node.left, BLOCK * FAN_IN)
            with f.loop(_parts(f, here, BLOCK), rows=node.rows, lanes=node.lanes, left=here) as block:
                one = replace(panel, rows=block.rows, lanes=block.lanes)
                one.chains(place, step, f.least(block.left, BLOCK), f.compare("ne", block.index, 0))
                block.next(
                    rows=f.at(block.rows, a.of("rows").term * BLOCK),
                    lanes=f.at(block.lanes, a.of("lanes").term * BLOCK), left=block.left - BLOCK,
                )  # fmt: skip
            with f.when(others):
                panel.add(room, of_room)
            node.next(rows=block.rows, lanes=block.lanes, left=node.left - BLOCK * FAN_IN)

    _panels(f, isa, a, (rows, lanes, sums), held)


def _parts(f: Function, count: Value, each: int) -> Value:
    return f.divided(count + (each - 1), each)[0]


def _panels(
    f: Function, isa: Isa, a: Named, where: tuple[Value, Value, Value], held: Callable[[_Panel], None]
) -> None:  # fmt: skip
    """Do all points, and all panels of each."""
    rows, lanes, sums = where
    with f.loop(a.points, rows=rows, lanes=lanes, sums=sums) as point:
        with f.loop(_parts(f, a.vectors, PANEL), lanes=point.lanes, sums=point.sums) as some:
            whole = f.compare("sge", a.vectors - some.index * PANEL, PANEL)
            held(_Panel(f, isa, a, whole, point.rows, some.lanes, some.sums))
            some.next(lanes=f.at(some.lanes, a.of("lanes").panel), sums=f.at(some.sums, PANEL * isa.lanes * F32_BYTES))
        point.next(
            rows=f.at(point.rows, a.of("rows").point), lanes=f.at(point.lanes, a.of("lanes").point),
            sums=f.at(point.sums, a.point),
        )  # fmt: skip


@dataclass(frozen=True)
class _Panel:
    """A panel of a point being emitted: two vectors, if it is whole, or one."""

    f: Function
    isa: Isa
    a: Named
    whole: Value
    rows: Value
    lanes: Value
    sums: Value

    def chains(self, place: Value, step: Value, terms: Value, more: Value) -> None:
        """Emit one chain for each row, put where its sums are ``step`` bytes apart."""
        f = self.f
        for width in (PANEL, 1):
            with f.when(self.whole) if width == PANEL else f.otherwise():
                here, to, rest = self.rows, place, self.a.down
                for height in HEIGHTS[self.isa.registers]:
                    several, rest = f.divided(rest, height)
                    with f.loop(several, rows=here, to=to) as some:
                        tile = _Tile(f, self.isa, self.a, height, width)
                        tile.put(tile.chain(some.rows, self.lanes, terms), some.to, step, more)
                        some.next(
                            rows=f.at(some.rows, self.a.of("rows").step * height), to=f.at(some.to, step * height)
                        )
                    here, to = some.rows, some.to

    def add(self, room: Value, of_room: Value) -> None:
        """Add what is in the room to the sums."""
        f, vector = self.f, self.isa.lanes * F32_BYTES
        with f.loop(self.a.down, room=room, sums=self.sums) as row:
            self._add(row.sums, row.room)
            with f.when(self.whole):
                self._add(f.at(row.sums, vector), f.at(row.room, vector))
            row.next(room=f.at(row.room, of_room), sums=f.at(row.sums, self.a.row))

    def _add(self, sums: Value, more: Value) -> None:
        f, kind = self.f, f"<{self.isa.lanes} x float>"
        f.store(f.add(f.load(kind, sums), f.load(kind, more)), sums)


@dataclass(frozen=True)
class _Tile:
    """Sums that registers hold, of some rows and vectors."""

    f: Function
    isa: Isa
    a: Named
    height: int
    width: int

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
        with f.loop(terms, lanes=lanes, **bases, **{name: f.zeros(self._kind) for name in names}) as term:
            there = [f.load(self._kind, term.lanes, v * self._vector) for v in range(self.width)]
            made = []
            for r in range(self.height):
                base = term.carried[f"rows{r - r % BASE_ROWS}"]
                here = f.splat(f.load("float", f.at(base, steps[r % BASE_ROWS])), self.isa.lanes)
                made += [f.fma(here, each, term.carried[f"sum{r}_{v}"]) for v, each in enumerate(there)]
            moved = {name: f.at(term.carried[name], of_rows.term) for name in bases}
            term.next(lanes=f.at(term.lanes, self.a.of("lanes").term), **moved, **dict(zip(names, made, strict=True)))
        return [term.carried[name] for name in names]

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
