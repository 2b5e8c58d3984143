"""Points of tiles in IR: of what tiles meet, and of the tiles themselves where weights are solved for.

The arithmetic is ``spec/toom_cook.py``'s, line by line; lanes hold channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.engines.llvm.winograd.lanes import InLanes, gathered
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.spec.toom_cook import VARIANTS, Variant

ADDRESSES = ("data", "out")
NUMBERS = (
    "first", "count",  # stretches of rows of tiles
    "grid.y", "parts", "grid.x",  # rows of an image, stretches of a row, tiles of a stretch
    "size.y", "size.x", "pad.y", "pad.x", "channels",
    "columns",  # of a plane in scratch: the positions of a stretch, those before and behind, and what fills squares
    "image", "step.y", "step.x", "channel",  # bytes of data to the next
    "point", "tile",  # bytes of what is made to the next
)  # fmt: skip


def module(isa: Isa, variant: str, source: bool, contiguous: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: stretches of rows of tiles, by what lies together in the data.

    out[point][image, tile][channel]; a tile's first position is ``pad`` before its first of the destination. Items are
    channels; of terms, positions of a row, planes of some channels are transposed into scratch first.
    """
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ADDRESSES, NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        row(f, isa, VARIANTS[variant], source, contiguous, a, f.scratch, number)
    return str(made)


def row(
    f: Function, isa: Isa, variant: Variant, source: bool, contiguous: str, a: Named, planes: Value, number: Value
) -> None:  # fmt: skip
    """Emit a stretch of a row of tiles, the ``number``-th behind the first; ``planes`` is scratch."""
    one = _Points(f, isa, variant, source, contiguous, a, planes)
    (one.row_by_planes if contiguous == SPATIAL else one.row)(number)


class _Points:
    """The points of a stretch of a row of tiles being emitted."""

    def __init__(
        self, f: Function, isa: Isa, variant: Variant, source: bool, contiguous: str, a: Named, planes: Value
    ) -> None:  # fmt: skip
        self.f, self.isa, self.a, self.contiguous, self.planes = f, isa, a, contiguous, planes
        self.size = variant.axis_points if source else variant.tile
        way = variant.of_weights
        self.step, self.transform = variant.tile, way.met if source else way.other

    def _begins(self, number: Value) -> tuple[Value, Value, Value, Value]:
        """Return the first position that a stretch meets, down and across, where its image's row is, and its points."""
        f, a, grid = self.f, self.a, self.a.of("grid")
        line, part = f.divided(number + a.first, a.parts)
        image, y = f.divided(line, grid.y)
        top, left = y * self.step - a.of("pad").y, part * (grid.x * self.step) - a.of("pad").x
        data = f.at(f.at(a.data, image * a.image), top * a.of("step").y)
        return top, left, data, f.at(a.out, number * (grid.x * a.tile))

    def row(self, number: Value) -> None:
        """All tiles of a stretch, and all channels of each."""
        f, a, lanes, size, grid = self.f, self.a, self.isa.lanes, self.size, self.a.of("grid")
        top, left, data, out = self._begins(number)
        begin = {"data": f.at(data, left * a.of("step").x), "out": out, "left": left}
        with f.loop(grid.x, **begin) as tile:
            inside = self._inside(top, a.of("size").y) & self._inside(tile.left, a.of("size").x)
            vectors = a.channels + (lanes - 1) >> lanes.bit_length() - 1
            with f.loop(vectors, data=tile.data, out=tile.out, channels=a.channels) as some:
                mask = f.mask(some.channels, lanes)
                with f.when(inside):
                    self._tile(self._loads(some.data, lambda i, j: mask), some.out)
                with f.otherwise():
                    none = Value(f, mask.type, "zeroinitializer")
                    rows, columns = (
                        [self._there(first + n, extent) for n in range(size)]
                        for first, extent in ((top, a.of("size").y), (tile.left, a.of("size").x))
                    )
                    there = self._loads(some.data, lambda i, j: f.select(rows[i] & columns[j], mask, none))
                    self._tile(there, some.out)
                some.next(
                    data=f.at(some.data, a.channel * lanes), out=f.at(some.out, lanes * F32_BYTES),
                    channels=some.channels - lanes,
                )  # fmt: skip
            tile.next(
                data=f.at(tile.data, a.of("step").x * self.step), out=f.at(tile.out, a.tile),
                left=tile.left + self.step,
            )  # fmt: skip

    def _inside(self, first: Value, extent: Value) -> Value:
        return self.f.compare("sge", first, 0) & self.f.compare("sle", first + self.size, extent)

    def _there(self, position: Value, extent: Value) -> Value:
        return self.f.compare("sge", position, 0) & self.f.compare("slt", position, extent)

    def row_by_planes(self, number: Value) -> None:
        """All channels of a stretch, some at a time, and all tiles of each."""
        f, a, lanes, size, grid = self.f, self.a, self.isa.lanes, self.size, self.a.of("grid")
        vector = lanes * F32_BYTES
        top, left, data, out = self._begins(number)
        before, start = f.max(f.value(0) - left, 0), f.max(left, 0)
        there = f.min(f.max(a.of("size").x - start, 0), (grid.x - 1) * self.step + size - before)
        pitch = a.columns * vector  # from a row of a plane to the next
        vectors = a.channels + (lanes - 1) >> lanes.bit_length() - 1
        begin = {"data": f.at(data, start * F32_BYTES), "out": out, "channels": a.channels}
        with f.loop(vectors, **begin) as some:
            with f.loop(size, data=some.data, to=self.planes) as row:
                extent = f.select(self._there(top + row.index, a.of("size").y), there, f.value(0))
                self._plane_row(row.data, row.to, before, extent, some.channels)
                row.next(data=f.at(row.data, a.of("step").y), to=f.at(row.to, pitch))
            with f.loop(grid.x, plane=self.planes, out=some.out) as tile:
                rows = [f.at(tile.plane, pitch * i) if i else tile.plane for i in range(size)]
                kind = f"<{lanes} x float>"
                self._tile([[f.load(kind, row, j * vector) for j in range(size)] for row in rows], tile.out)
                tile.next(plane=f.at(tile.plane, self.step * vector), out=f.at(tile.out, a.tile))
            some.next(
                data=f.at(some.data, a.channel * lanes), out=f.at(some.out, vector), channels=some.channels - lanes
            )  # fmt: skip

    def _plane_row(self, data: Value, to: Value, before: Value, extent: Value, channels: Value) -> None:
        """Transpose so much of a row of some channels, with zeros before and behind."""
        f, a, lanes = self.f, self.a, self.isa.lanes
        kind, vector = f"<{lanes} x float>", lanes * F32_BYTES
        with f.loop(before, to=to) as zeros:
            f.store(f.zeros(kind), zeros.to)
            zeros.next(to=f.at(zeros.to, vector))
        squares = extent + (lanes - 1) >> lanes.bit_length() - 1
        with f.loop(squares, data=data, to=zeros.to) as square:
            mask = f.mask(extent - square.index * lanes, lanes)
            none = Value(f, mask.type, "zeroinitializer")
            rows = [
                f.masked_load(
                    kind, f.at(square.data, a.channel * c),
                    f.select(f.compare("sgt", channels, c), mask, none),
                )
                for c in range(lanes)
            ]  # fmt: skip
            for column, value in enumerate(transposed(f, rows, lanes)):
                f.store(value, square.to, column * vector)
            square.next(data=f.at(square.data, vector), to=f.at(square.to, lanes * vector))
        with f.loop(a.columns - before - squares * lanes, to=square.to) as zeros:
            f.store(f.zeros(kind), zeros.to)
            zeros.next(to=f.at(zeros.to, vector))

    def _loads(self, data: Value, mask: Callable[[int, int], Value]) -> list[list[Value]]:
        """Return a tile's values, [row][column], where they lie."""
        f, step, size = self.f, self.a.of("step"), self.size
        rows = [f.at(data, step.y * i) if i else data for i in range(size)]
        return [[self._load(f.at(row, step.x * j), mask(i, j)) for j in range(size)] for i, row in enumerate(rows)]

    def _tile(self, values: Sequence[Sequence[Value]], out: Value) -> None:
        """Some channels of a tile: along the first axis, then along the last."""
        f, a = self.f, self.a
        arithmetic = InLanes(f, self.isa.lanes)
        columns = [self.transform(arithmetic, column) for column in zip(*values, strict=True)]
        place = out
        for row in zip(*columns, strict=True):
            for value in self.transform(arithmetic, row):
                f.store(value, place)
                place = f.at(place, a.point)

    def _load(self, place: Value, mask: Value) -> Value:
        f, lanes = self.f, self.isa.lanes
        kind = f"<{lanes} x float>"
        if self.contiguous == CHANNELS:
            return f.masked_load(kind, place, mask)
        return gathered(f, lanes, place, self.a.channel, mask)
