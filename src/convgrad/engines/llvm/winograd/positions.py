"""Positions of the sums of points in IR: what a forward or a data gradient becomes of them."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.engines.llvm.winograd.lanes import InLanes, divided, flag_infinite, scattered
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.spec.toom_cook import VARIANTS, Variant

ADDRESSES = ("sums", "out", "bias", "infinite")  # where 1 goes if a position is not finite
NUMBERS = (
    "first", "count", "grid.y", "grid.x",  # row of tiles; of rows, of rows of an image, of tiles of a row
    "size.y", "size.x", "channels",
    "columns",  # of a plane in scratch: the positions of a row of tiles, and what fills squares
    "image", "step.y", "step.x", "channel",  # bytes of the output to the next
    "point", "tile",  # bytes of the sums to the next
)  # fmt: skip


def module(isa: Isa, variant: str, contiguous: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: rows of tiles, by what lies together in the output.

    Of sums[point][tile][channel], dense biases added. Items are channels; of terms, positions of a row, planes of some
    channels are made in scratch, and transposed.
    """
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ADDRESSES, NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        row(f, isa, VARIANTS[variant], contiguous, a, f.scratch, number)
    return str(made)


def row(f: Function, isa: Isa, variant: Variant, contiguous: str, a: Named, planes: Value, number: Value) -> None:
    """Emit a row of tiles, the ``number``-th behind the first; ``planes`` is scratch."""
    _Positions(f, isa, variant, contiguous, a, planes).row(number)


class _Positions:
    """The positions of a row of tiles being emitted."""

    def __init__(self, f: Function, isa: Isa, variant: Variant, contiguous: str, a: Named, planes: Value) -> None:
        self.f, self.lanes, self.variant, self.contiguous, self.a, self.planes = (
            f,
            isa.lanes,
            variant,
            contiguous,
            a,
            planes,
        )
        self.kind, self.vector = f"<{isa.lanes} x float>", isa.lanes * F32_BYTES

    def row(self, number: Value) -> None:
        """All tiles of a row, and all channels of each."""
        f, a, m = self.f, self.a, self.variant.tile
        grid, step = a.of("grid"), a.of("step")
        image, y = f.divided(number + a.first, grid.y)
        down = a.of("size").y - y * m
        sums = f.at(a.sums, number * (grid.x * a.tile))
        out = f.at(f.at(a.out, image * a.image), y * m * step.y)
        (self._by_planes if self.contiguous == SPATIAL else self._by_tiles)(sums, out, down)

    def _by_tiles(self, sums: Value, out: Value, down: Value) -> None:
        f, a, lanes, m = self.f, self.a, self.lanes, self.variant.tile
        step = a.of("step")
        with f.loop(a.of("grid").x, sums=sums, out=out, across=a.of("size").x) as tile:
            inside = self._inside(down, tile.across)
            begin = {"sums": tile.sums, "out": tile.out, "bias": a.bias, "left": a.channels}
            with f.loop(a.channels + (lanes - 1) >> lanes.bit_length() - 1, **begin) as some:
                mask = f.mask(some.left, lanes)
                none = Value(f, mask.type, "zeroinitializer")
                values = self._values(some.sums, some.bias, mask, down, tile.across)
                with f.when(inside):
                    self._written(values, some.out, [[mask] * m] * m)
                with f.otherwise():
                    there = self._there(down, tile.across)
                    self._written(values, some.out, [[f.select(one, mask, none) for one in row] for row in there])
                some.next(
                    sums=f.at(some.sums, self.vector), out=f.at(some.out, a.channel * lanes),
                    bias=f.at(some.bias, self.vector), left=some.left - lanes,
                )  # fmt: skip
            tile.next(sums=f.at(tile.sums, a.tile), out=f.at(tile.out, step.x * m), across=tile.across - m)

    def _inside(self, down: Value, across: Value) -> Value:
        """Tell whether all positions of a tile exist, before so many to the edges."""
        m = self.variant.tile
        return self.f.compare("sge", down, m) & self.f.compare("sge", across, m)

    def _there(self, down: Value, across: Value) -> list[list[Value]]:
        """Tell which positions of a tile exist, [row][column]."""
        rows, columns = (
            [self.f.compare("sgt", size, n) for n in range(self.variant.tile)] for size in (down, across)
        )  # fmt: skip
        return [[row & column for column in columns] for row in rows]

    def _values(self, sums: Value, bias: Value, mask: Value, down: Value, across: Value) -> list[list[Value]]:
        """Return a vector of channels of a tile, [row][column]: back along the last axis, then along the first.

        What is not finite before biases are added is told, of positions that exist.
        """
        f, back, arithmetic = self.f, self.variant.of_positions.back, InLanes(self.f, self.lanes)
        side, place, rows = self.variant.axis_points, sums, []
        for _ in range(side):
            values = []
            for _ in range(side):
                values.append(f.load(self.kind, place))
                place = f.at(place, self.a.point)
            rows.append(back(arithmetic, values))
        columns = [back(arithmetic, column) for column in zip(*rows, strict=True)]
        done = [[divided(f, arithmetic, self.variant, value) for value in row] for row in zip(*columns, strict=True)]
        with f.when(self._inside(down, across)):
            flag_infinite(f, [value for row in done for value in row], mask, self.a.infinite)
        with f.otherwise():
            zeros, there = f.zeros(self.kind), self._there(down, across)
            pairs = [pair for each in zip(there, done, strict=True) for pair in zip(*each, strict=True)]
            flag_infinite(f, [f.select(exists, value, zeros) for exists, value in pairs], mask, self.a.infinite)
        biases = f.masked_load(self.kind, bias, mask)
        return [[f.add(value, biases) for value in row] for row in done]

    def _written(self, values: list[list[Value]], out: Value, masks: list[list[Value]]) -> None:
        f, a, step = self.f, self.a, self.a.of("step")
        for i, (row, there) in enumerate(zip(values, masks, strict=True)):
            for j, (value, mask) in enumerate(zip(row, there, strict=True)):
                place = f.at(f.at(out, step.y * i), step.x * j)
                if self.contiguous == CHANNELS:
                    f.masked_store(value, place, mask)
                else:
                    scattered(f, self.lanes, value, place, a.channel, mask)

    def _by_planes(self, sums: Value, out: Value, down: Value) -> None:
        """Some channels at a time: scratch[row][column], each a vector of channels, then transposed."""
        f, a, lanes, m = self.f, self.a, self.lanes, self.variant.tile
        pitch = a.columns * self.vector
        begin = {"sums": sums, "out": out, "bias": a.bias, "left": a.channels}
        with f.loop(a.channels + (lanes - 1) >> lanes.bit_length() - 1, **begin) as some:
            mask = f.mask(some.left, lanes)
            with f.loop(a.of("grid").x, sums=some.sums, to=self.planes, across=a.of("size").x) as tile:
                for i, row in enumerate(self._values(tile.sums, some.bias, mask, down, tile.across)):
                    for j, value in enumerate(row):
                        f.store(value, f.at(tile.to, pitch * i) if i else tile.to, j * self.vector)
                tile.next(sums=f.at(tile.sums, a.tile), to=f.at(tile.to, m * self.vector), across=tile.across - m)
            with f.loop(f.min(down, m), plane=self.planes, out=some.out) as line:
                self._row_written(line.plane, line.out, some.left)
                line.next(plane=f.at(line.plane, pitch), out=f.at(line.out, a.of("step").y))
            some.next(
                sums=f.at(some.sums, self.vector), out=f.at(some.out, a.channel * lanes),
                bias=f.at(some.bias, self.vector), left=some.left - lanes,
            )  # fmt: skip

    def _row_written(self, plane: Value, out: Value, left: Value) -> None:
        """Write a row of some channels: squares of positions and channels are transposed."""
        f, a, lanes = self.f, self.a, self.lanes
        across = a.of("size").x
        none = Value(f, f"<{lanes} x i1>", "zeroinitializer")
        with f.loop(across + (lanes - 1) >> lanes.bit_length() - 1, plane=plane, out=out, across=across) as square:
            mask = f.mask(square.across, lanes)
            columns = [f.load(self.kind, square.plane, column * self.vector) for column in range(lanes)]
            for lane, value in enumerate(transposed(f, columns, lanes)):
                there = f.select(f.compare("sgt", left, lane), mask, none)
                f.masked_store(value, f.at(square.out, a.channel * lane), there)
            square.next(
                plane=f.at(square.plane, lanes * self.vector), out=f.at(square.out, self.vector),
                across=square.across - lanes,
            )  # fmt: skip
