"""Sums of the points of a block of tiles in IR: one chain each, added to the sums of the blocks before.

sums[point][src channel][dst channel] of src[point][tile][channel] and dst[point][tile][channel].
"""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES

ROWS = {32: (8, 2), 16: (4, 2)}  # src channels, and vectors of dst channels, whose sums so many registers hold
NUMBERS = (
    "points", "down", "vectors",  # src channels, vectors of dst channels
    "src_point", "src_tile", "dst_point", "dst_tile", "point", "row",  # bytes of points, and of sums, to the next
)  # fmt: skip


def block(f: Function, isa: Isa, a: Named, src: Value, dst: Value, sums: Value, tiles: Value, more: Value) -> None:
    """Emit the sums of all points of so many tiles; ``more`` tells whether they are added to what is there."""
    most, wide = ROWS[isa.registers]
    vector = isa.lanes * F32_BYTES
    wides, ones = f.divided(a.vectors, wide)
    with f.loop(a.points, src=src, dst=dst, sums=sums) as point:
        with f.loop(wides, dst=point.dst, sums=point.sums) as some:
            _column(f, isa, a, (most, wide), point.src, some.dst, some.sums, tiles, more)
            some.next(dst=f.at(some.dst, wide * vector), sums=f.at(some.sums, wide * vector))
        with f.loop(ones, dst=some.dst, sums=some.sums) as one:
            _column(f, isa, a, (most, 1), point.src, one.dst, one.sums, tiles, more)
            one.next(dst=f.at(one.dst, vector), sums=f.at(one.sums, vector))
        point.next(src=f.at(point.src, a.src_point), dst=f.at(point.dst, a.dst_point), sums=f.at(point.sums, a.point))


def _column(
    f: Function, isa: Isa, a: Named, size: tuple[int, int], src: Value, dst: Value, sums: Value, tiles: Value,
    more: Value,
) -> None:  # fmt: skip
    """All src channels, under some vectors of dst channels."""
    most, wide = size
    several, ones = f.divided(a.down, most)
    with f.loop(several, src=src, sums=sums) as some:
        _held(f, isa, a, (most, wide), some.src, dst, some.sums, tiles, more)
        some.next(src=f.at(some.src, most * F32_BYTES), sums=f.at(some.sums, a.row * most))
    with f.loop(ones, src=some.src, sums=some.sums) as one:
        _held(f, isa, a, (1, wide), one.src, dst, one.sums, tiles, more)
        one.next(src=f.at(one.src, F32_BYTES), sums=f.at(one.sums, a.row))


def _held(
    f: Function, isa: Isa, a: Named, size: tuple[int, int], src: Value, dst: Value, sums: Value, tiles: Value,
    more: Value,
) -> None:  # fmt: skip
    """Sums that registers hold."""
    rows, wide = size
    kind, vector = f"<{isa.lanes} x float>", isa.lanes * F32_BYTES
    names = [(r, v) for r in range(rows) for v in range(wide)]
    begin = {f"sum{r}_{v}": f.zeros(kind) for r, v in names}
    with f.loop(tiles, src=src, dst=dst, **begin) as tile:
        there = [f.load(kind, tile.dst, v * vector) for v in range(wide)]
        here = [f.splat(f.load("float", tile.src, r * F32_BYTES), isa.lanes) for r in range(rows)]
        made = {f"sum{r}_{v}": f.fma(here[r], there[v], getattr(tile, f"sum{r}_{v}")) for r, v in names}
        tile.next(src=f.at(tile.src, a.src_tile), dst=f.at(tile.dst, a.dst_tile), **made)
    done: Sequence[Value] = [getattr(tile, f"sum{r}_{v}") for r, v in names]
    for added in (False, True):
        with f.when(more) if added else f.when(f.op("i1", f"xor {more}, true")):
            place = sums
            for r in range(rows):
                for v in range(wide):
                    value = done[r * wide + v]
                    f.store(f.add(f.load(kind, place, v * vector), value) if added else value, place, v * vector)
                place = f.at(place, a.row)
