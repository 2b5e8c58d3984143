"""Toom-Cook's transforms in IR: drivers that make the points of tiles, and weights of the sums of points.

The arithmetic is ``spec/toom_cook.py``'s, line by line; lanes hold channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import arguments, claimed
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES, ITEMS, TERMS
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant

POINTS_ADDRESSES = ("data", "out")
POINTS_NUMBERS = (
    "first", "count", "grid.y", "grid.x",  # row of tiles; of rows, of rows of an image, of tiles of a row
    "size.y", "size.x", "pad.y", "pad.x", "channels",
    "columns",  # of a plane in scratch: the positions of a row, those before and behind, and what fills squares
    "image", "step.y", "step.x", "channel",  # bytes of data to the next
    "point", "tile",  # bytes of what is made to the next
)  # fmt: skip
WEIGHTS_ADDRESSES = ("sums", "out", "infinite")  # where 1 goes if a weight is not finite
WEIGHTS_NUMBERS = (
    "count",  # of src channels, or of vectors of dst channels
    "down", "across", "point", "row",  # src channels, dst channels; bytes of the sums to the next
    "tap.y", "tap.x", "out_row", "out_lane",  # bytes of the output to the next
)  # fmt: skip
_EXPONENT = 0x7F800000


class _InLanes:
    """Vectors of f32."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.kind = f, f"<{lanes} x float>"

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""
        return self.f.add(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Return x - y."""
        return self.f.op(self.kind, f"fsub {x}, {y.name}")

    def fma(self, factor: float, x: Value, y: Value) -> Value:
        """Return factor * x + y."""
        return self.f.fma(self.f.everywhere(self.kind, factor), x, y)

    def scale(self, factor: float, x: Value) -> Value:
        """Return factor * x."""
        return self.f.op(self.kind, f"fmul {x}, {self.f.everywhere(self.kind, factor).name}")


def points_module(isa: Isa, variant: str, source: bool, lies: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: rows of tiles of src or dst, by what lies together in it.

    out[point][image, tile][channel]; a tile's first position is ``pad`` before its first of the destination. Items are
    channels; of terms, positions of a row, planes of some channels are transposed into scratch first.
    """
    module = Module()
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = arguments(f, POINTS_ADDRESSES, POINTS_NUMBERS)
    one = _Points(f, isa, VARIANTS[variant], source, lies, a)
    with claimed(f, isa, a, a.count) as number:
        (one.row_by_planes if lies == TERMS else one.row)(number)
    return str(module)


class _Points:
    """The points of a row of tiles being emitted."""

    def __init__(self, f: Function, isa: Isa, variant: Variant, source: bool, lies: str, a: Named) -> None:
        self.f, self.isa, self.a, self.lies = f, isa, a, lies
        self.size = variant.axis_points if source else variant.tile
        self.step, self.transform = variant.tile, variant.source if source else variant.destination

    def row(self, number: Value) -> None:
        """All tiles of a row, and all channels of each."""
        f, a, lanes, size = self.f, self.a, self.isa.lanes, self.size
        grid = a.of("grid")
        image, y = (f.op("i64", f"{op} {number + a.first}, {grid.y.name}") for op in ("udiv", "urem"))
        top = y * self.step - a.of("pad").y
        data = f.at(f.at(a.data, image * a.image), top * a.of("step").y)
        out = f.at(a.out, number * (grid.x * a.tile))
        left = f.value(0) - a.of("pad").x
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
        """All channels of a row of tiles, some at a time, and all tiles of each."""
        f, a, lanes, size = self.f, self.a, self.isa.lanes, self.size
        grid, vector = a.of("grid"), self.isa.lanes * F32_BYTES
        image, y = (f.op("i64", f"{op} {number + a.first}, {grid.y.name}") for op in ("udiv", "urem"))
        top = y * self.step - a.of("pad").y
        pitch = a.columns * vector  # from a row of a plane to the next
        data = f.at(f.at(a.data, image * a.image), top * a.of("step").y)
        vectors = a.channels + (lanes - 1) >> lanes.bit_length() - 1
        begin = {"data": data, "out": f.at(a.out, number * (grid.x * a.tile)), "channels": a.channels}
        with f.loop(vectors, **begin) as some:
            with f.loop(size, data=some.data, to=f.scratch) as row:
                self._plane_row(row.data, row.to, self._there(top + row.index, a.of("size").y), some.channels)
                row.next(data=f.at(row.data, a.of("step").y), to=f.at(row.to, pitch))
            with f.loop(grid.x, plane=f.scratch, out=some.out) as tile:
                rows = [f.at(tile.plane, pitch * i) if i else tile.plane for i in range(size)]
                kind = f"<{lanes} x float>"
                self._tile([[f.load(kind, row, j * vector) for j in range(size)] for row in rows], tile.out)
                tile.next(plane=f.at(tile.plane, self.step * vector), out=f.at(tile.out, a.tile))
            some.next(
                data=f.at(some.data, a.channel * lanes), out=f.at(some.out, vector), channels=some.channels - lanes
            )  # fmt: skip

    def _plane_row(self, data: Value, to: Value, there: Value, channels: Value) -> None:
        """Transpose a row of some channels, with zeros before and behind, or zeros where there is no row."""
        f, a, lanes = self.f, self.a, self.isa.lanes
        kind, vector = f"<{lanes} x float>", lanes * F32_BYTES
        before, extent = a.of("pad").x, f.select(there, a.of("size").x, f.value(0))
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
        arithmetic = _InLanes(f, self.isa.lanes)
        columns = [self.transform(arithmetic, column) for column in zip(*values, strict=True)]
        place = out
        for row in zip(*columns, strict=True):
            for value in self.transform(arithmetic, row):
                f.store(value, place)
                place = f.at(place, a.point)

    def _load(self, place: Value, mask: Value) -> Value:
        f, lanes = self.f, self.isa.lanes
        kind = f"<{lanes} x float>"
        if self.lies == ITEMS:
            return f.masked_load(kind, place, mask)
        return gathered(f, lanes, place, self.a.channel, mask)


def gathered(f: Function, lanes: int, place: Value, step: Value, mask: Value) -> Value:
    """Return what lies ``step`` bytes apart under a mask, 0 elsewhere."""
    name = f"llvm.masked.gather.v{lanes}f32.v{lanes}p0"
    kind = f"<{lanes} x float>"
    return f.intrinsic(kind, name, _places(f, lanes, place, step), "i32 4", mask, f"{kind} zeroinitializer")


def _places(f: Function, lanes: int, place: Value, step: Value) -> Value:
    numbers = Value(f, f"<{lanes} x i64>", f"<{', '.join(f'i64 {n}' for n in range(lanes))}>")
    apart = f.op(numbers.type, f"mul {f.splat(step, lanes)}, {numbers.name}")
    return f.op(f"<{lanes} x ptr>", f"getelementptr i8, {place}, {apart}")


def weights_module(isa: Isa, variant: str, lies: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: weights of src channels, by what lies together in the output.

    Items are dst channels, terms are taps.

    out[tap][src channel, dst channel] of sums[point][src channel][dst channel].
    """
    module = Module()
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = arguments(f, WEIGHTS_ADDRESSES, WEIGHTS_NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        _weights(f, isa, VARIANTS[variant], lies, a, number)
    return str(module)


def _weights(f: Function, isa: Isa, variant: Variant, lies: str, a: Named, number: Value) -> None:
    """The weights of a src channel, vector by vector; or, where taps lie together, of a vector, row by row."""
    vector = isa.lanes * F32_BYTES
    if lies == TERMS:
        first = number * isa.lanes
        begin = {"sums": f.at(a.sums, number * vector), "out": f.at(a.out, first * a.out_lane)}
        with f.loop(a.down, **begin) as row:
            _vector(f, isa, variant, lies, a, row.sums, row.out, a.across - first)
            row.next(sums=f.at(row.sums, a.row), out=f.at(row.out, a.out_row))
        return
    begin = {"sums": f.at(a.sums, number * a.row), "out": f.at(a.out, number * a.out_row), "left": a.across}
    with f.loop(a.across + (isa.lanes - 1) >> isa.lanes.bit_length() - 1, **begin) as some:
        _vector(f, isa, variant, lies, a, some.sums, some.out, some.left)
        some.next(sums=f.at(some.sums, vector), out=f.at(some.out, a.out_lane * isa.lanes), left=some.left - isa.lanes)


def _vector(
    f: Function, isa: Isa, variant: Variant, lies: str, a: Named, sums: Value, out: Value, left: Value
) -> None:  # fmt: skip
    """A vector of weights, all taps: back along the last axis, then along the first."""
    lanes, side = isa.lanes, variant.axis_points
    kind, arithmetic, mask = f"<{lanes} x float>", _InLanes(f, lanes), f.mask(left, lanes)
    place, rows = sums, []
    for _ in range(side):
        values = []
        for _ in range(side):
            values.append(f.load(kind, place))
            place = f.at(place, a.point)
        rows.append(variant.weights(arithmetic, values))
    columns = [variant.weights(arithmetic, column) for column in zip(*rows, strict=True)]
    done = [_divided(f, arithmetic, variant, columns[x][y]) for y in range(TAPS) for x in range(TAPS)]
    _told(f, lanes, done, mask, a.infinite)
    if lies == TERMS:
        _by_taps(f, lanes, done, out, a.out_lane, left)
        return
    for tap, value in enumerate(done):
        there = f.at(f.at(out, a.of("tap").y * (tap // TAPS)), a.of("tap").x * (tap % TAPS))
        if lies == ITEMS:
            f.masked_store(value, there, mask)
        else:
            name = f"llvm.masked.scatter.v{lanes}f32.v{lanes}p0"
            f.intrinsic("void", name, value, _places(f, lanes, there, a.out_lane), "i32 4", mask)


def _by_taps(f: Function, lanes: int, values: Sequence[Value], out: Value, step: Value, left: Value) -> None:
    """Write all taps of each lane together: squares of lanes and taps are transposed."""
    pieces = [values[first : first + lanes] for first in range(0, len(values), lanes)]
    squares = [transposed(f, list(piece), lanes) for piece in pieces]
    for lane in range(lanes):
        with f.when(f.compare("sgt", left, lane)):
            for number, (piece, square) in enumerate(zip(pieces, squares, strict=True)):
                f.store_first(square[lane], len(piece), f.at(out, step * lane), number * lanes * F32_BYTES)


def _divided(f: Function, arithmetic: _InLanes, variant: Variant, value: Value) -> Value:
    """Return a quotient rounded once, and +0: as ``spec/toom_cook_ordered.py`` has it."""
    by = float(variant.divided)
    reciprocal = float(np.float32(1) / np.float32(by))
    quotient = arithmetic.scale(reciprocal, value)
    if not variant.exactly:
        negated = f.op(quotient.type, f"fneg {quotient}")
        quotient = arithmetic.fma(reciprocal, arithmetic.fma(by, negated, value), quotient)
    return f.add(quotient, f.zeros(quotient.type))


def _told(f: Function, lanes: int, values: Sequence[Value], mask: Value, infinite: Value) -> None:
    """Leave word if any value of a mask is not finite."""
    words = f"<{lanes} x i32>"
    exponent = f.everywhere(words, _EXPONENT)
    found = []
    for value in values:
        bits = f.op(words, f"and {f.op(words, f'bitcast {value} to {words}')}, {exponent.name}")
        beyond = f.op(mask.type, f"icmp eq {bits}, {exponent.name}")
        found.append(f.op(mask.type, f"and {beyond}, {mask.name}"))
    with f.when(f.any_of(found)):
        f.say(f"store atomic i64 1, {infinite} monotonic, align 8")
