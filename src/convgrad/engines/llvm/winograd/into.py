"""Input transforms and filter transforms into the Winograd domain, in IR.

The arithmetic is that of ``spec/winograd/filtering.py``, operation by operation. The lanes of a vector are channels. If
another axis of the operand is contiguous, its values are first transposed into vectors of channels, in a staging buffer
in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import load_masked, widen
from convgrad.engines.llvm.emit import Function, Loop, Value
from convgrad.engines.llvm.winograd.vectors import (
    Tile,
    Vectors,
    column_kinds,
    exist,
    inside,
    lattice,
    of_points,
    prefetch,
    row_kinds,
    walk,
)
from convgrad.plan.recipe import CHANNELS, CHANNELS_OUT, SPATIAL, STRIDED
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.winograd.plans import PANEL
from convgrad.plan.winograd.schedule import whole
from convgrad.plan.winograd.spec import WinogradSpec
from convgrad.spec.winograd.filtering import Filtering, Transform

# -- input transforms --


def input_transform(
    spec: WinogradSpec, of_input: bool, a: Named, number: Value, outs: Sequence[Value], staging: Value
) -> None:
    """Emit the transform of one part of a row of Winograd tiles to out[point][tile][channel].

    ``number`` is the number of the part among those of all slices. Channels are those at each tap of the axis that is
    summed directly. The tiles are input tiles if ``of_input``, else those of dst in backward weights. ``outs`` are the
    addresses of the part's first tile and, if the last tile is smaller, of the last tile.
    """
    f = number.function
    row, part = f.divided(number, a.parts)
    image, y = f.divided(row, a.of("grid").y)
    image, position = f.divided(image, a.positions)
    (high, wide), step, columns = spec.transforms.tile, a.of("step"), column_kinds(f, spec, a.of("grid").x)
    left = part * (a.of("grid").x * wide) - a.of("pad").x
    for rows in row_kinds(f, spec, y, a.of("grid").y):
        emitter = _Input(
            f, spec, Vectors(f, spec.isa.lanes), a, of_input, rows, columns, spec.a if of_input else spec.b
        )
        tapped = {f"out{kind}": (out, a.of_tap) for kind, out in enumerate(outs)}
        with walk(f, a.taps, position=(position - a.of("pad").z, 1), **tapped) as tap:
            (exists,) = exist(f, tap.position, a.of("size").z, 1)
            top = f.select(exists, y * high - a.of("pad").y, a.of("size").y)  # no row from size.y on exists
            data = f.at(f.at(f.at(a.data, image * a.image), tap.position * step.z), top * step.y)
            to = [tap.carried[name] for name in tapped]
            if emitter.contiguous == SPATIAL:
                emitter.from_staging(data, top, left, to, staging)
            else:
                emitter.by_tiles(f.at(data, left * step.x), top, left, to)


@dataclass(frozen=True)
class _Input:
    """An input transform of a row of tiles that is being emitted."""

    f: Function
    spec: WinogradSpec
    v: Vectors
    a: Named
    of_input: bool  # whether tiles are those of the data that tiles of dst meet
    rows: Filtering
    columns: Sequence[tuple[Filtering, Value]]  # with numbers of tiles
    contiguous: str  # the contiguous axis

    def _size(self, filtering: Filtering) -> int:
        """Return the number of positions that a tile reads along an axis."""
        return filtering.points if self.of_input else filtering.tile

    def by_tiles(self, data: Value, top: Value, left: Value, outs: Sequence[Value]) -> None:
        """Emit the transform tile by tile, with all channels of a tile in the inner loop."""
        f, a, v, size, high = self.f, self.a, self.v, self.a.of("size"), self._size(self.rows)
        for (columns, count), out in zip(self.columns, outs, strict=True):
            wide, moved = self._size(columns), a.of("step").x * columns.tile
            with walk(f, count, data=(data, moved), out=(out, a.tile), left=(left, columns.tile)) as tile:
                whole_tile = inside(f, top, size.y, high) & inside(f, tile.left, size.x, wide)
                with self._vectors(tile.data, out=tile.out) as some:
                    mask = f.mask(some.left, v.lanes)
                    with f.when(whole_tile):
                        self._tile(columns, some.data, some.out, [[mask] * wide] * high)
                    with f.otherwise():
                        rows_exist, columns_exist = exist(f, top, size.y, high), exist(f, tile.left, size.x, wide)
                        masks = [[v.only(row & column, mask) for column in columns_exist] for row in rows_exist]
                        self._tile(columns, some.data, some.out, masks)
            data, left = tile.data, tile.left

    def _vectors(self, data: Value, **outs: Value) -> AbstractContextManager[Loop]:
        """Visit the vectors of channels, with their addresses and the number of channels that are left."""
        v, a = self.v, self.a
        moving = {name: (out, v.bytes) for name, out in outs.items()}
        return walk(
            self.f, v.count(a.channels), data=(data, a.channel * v.lanes), left=(a.channels, -v.lanes), **moving
        )

    def _tile(self, columns: Filtering, data: Value, out: Value, masks: Tile) -> None:
        """Emit the transform of one vector of channels of a tile, which is read directly from the operand."""
        f, step, (high, wide) = self.f, self.a.of("step"), (len(masks), len(masks[0]))
        load = partial(_load, self.v, self.spec, self.a.channel, self.contiguous == CHANNELS)
        prefetch(f, f.at(data, step.x * wide), (step.x, columns.tile), (step.y, high))  # the next tile's other columns
        values = [
            [load(mask, place) for mask, place in zip(there, column, strict=True)]
            for there, column in zip(
                zip(*masks, strict=True), lattice(f, data, (step.x, wide), (step.y, high)), strict=True
            )
        ]
        self._store(columns, values, out)

    def _store(self, columns: Filtering, values: Tile, out: Value) -> None:
        """Transform the values of a tile, and store its points."""
        rows, columns_way = (filtering.way(self.spec.solves_for) for filtering in (self.rows, columns))
        by = (rows.data, columns_way.data) if self.of_input else (rows.other, columns_way.other)
        _store_points(self.v, by, values, of_points(self.v, self.spec, (self.rows, columns), out, self.a.point))

    def from_staging(self, data: Value, top: Value, left: Value, outs: Sequence[Value], staging: Value) -> None:
        """Emit the transform vector by vector of channels, with all tiles in the inner loop.

        The positions of a vector of channels are first copied to staging[row][column].
        """
        f, a, v, high = self.f, self.a, self.v, self._size(self.rows)
        whole = self.columns[0][0]
        before, start = f.max(f.value(0) - left, 0), f.max(left, 0)
        span = (a.of("grid").x - 1) * whole.tile + self._size(whole)
        there = f.max(f.min(a.of("size").x - start, span - before), 0)  # a part of the tiles may see padding alone
        row_bytes = a.columns * v.bytes
        names = {f"out{kind}": out for kind, out in enumerate(outs)}
        with self._vectors(f.at(data, start * self.spec.element_bytes), **names) as some:
            with walk(f, high, data=(some.data, a.of("step").y), to=(staging, row_bytes)) as row:
                (exists,) = exist(f, top + row.index, a.of("size").y, 1)
                count = f.select(exists, there, f.value(0))
                to = self._zeros(before, row.to)
                to = _transpose(v, self.spec, (row.data, a.channel, some.left), count, to, following=True)
                self._zeros(a.columns - before - v.count(count) * v.lanes, to)
            place = staging
            for (columns, count), name in zip(self.columns, names, strict=True):
                out = some.carried[name]
                with walk(f, count, place=(place, columns.tile * v.bytes), out=(out, a.tile)) as tile:
                    rows, wide = [f.at(tile.place, row_bytes * i) for i in range(high)], self._size(columns)
                    values = [[f.load(v.kind, row, j * v.bytes) for row in rows] for j in range(wide)]
                    self._store(columns, values, tile.out)
                place = tile.place

    def _zeros(self, count: Value, to: Value) -> Value:
        """Store ``count`` vectors of zeros, and return the address after the last vector."""
        with walk(self.f, count, to=(to, self.v.bytes)) as zeros:
            self.f.store(self.f.zeros(self.v.kind), zeros.to)
        return zeros.to


# -- filter transforms --


def filter_transform(f: Function, spec: WinogradSpec, a: Named, number: Value, out: Value, staging: Value) -> None:
    """Emit the filter transform of one vector of channels of K to out[point][panel][k][result].

    ``number`` is the number of the vector; each tap of the axis that is summed directly has ``a.vectors``. A panel has
    two vectors of output channels (results), and each vector is transformed separately. The taps are reversed in
    backward data.
    """
    v, tap, reversed_taps = Vectors(f, spec.isa.lanes), a.of("tap"), spec.solves_for == "src"
    directly, vector_of_k = f.divided(number, a.vectors)
    first = vector_of_k * spec.isa.lanes
    count, results = f.min(a.channels - first, v.lanes), v.count(a.results)
    out = f.at(out, (directly * a.channels + first) * (PANEL * v.bytes))
    data = f.at(f.at(a.data, first * a.k), (a.taps - 1 - directly if reversed_taps else directly) * tap.z)
    high, wide = spec.transforms.taps
    of_rows, of_columns = (axis.of_positions.other for axis in spec.transforms.axes)

    def transform(data: Value, steps: Sequence[Value | int], out: Value, load: Callable[[Value], Value]) -> None:
        """Emit the transform of one vector of output channels for one k; ``steps`` are the strides of taps in bytes."""
        taps = [[load(f.at(f.at(data, steps[1] * x), steps[0] * y)) for y in range(high)] for x in range(wide)]
        taps = [column[::-1] for column in taps[::-1]] if reversed_taps else taps
        _store_points(v, (of_rows, of_columns), taps, of_points(v, spec, spec.transforms.axes, out, a.point))

    def vector(out: Value, index: Value) -> Value:
        """Return the address of the vector of output channels with the number ``index``."""
        panel, place = f.divided(index, PANEL)
        return f.at(f.at(out, panel * a.panel), place * v.bytes)

    if spec.b in (CHANNELS_OUT, STRIDED):  # weights are read in the order in which they are written: nothing is staged
        with (
            walk(f, count, data=(data, a.k), out=(out, PANEL * v.bytes)) as k,
            walk(f, results, data=(k.data, a.result * v.lanes), left=(a.results, -v.lanes)) as some,
        ):
            prefetch(f, f.at(some.data, a.k), (tap.x, wide), (tap.y, high))  # the next k's
            load = partial(_load, v, spec, a.result, spec.b == CHANNELS_OUT, f.mask(some.left, v.lanes))
            transform(some.data, (tap.y, tap.x), vector(k.out, some.index), load)
        return
    of_k, of_tap = v.bytes, v.lanes * v.bytes
    if spec.b == BY_TAPS:
        of_k, of_tap = whole(spec.filter, v.lanes) * v.bytes, v.bytes
    with walk(f, results, data=(data, a.result * v.lanes), left=(a.results, -v.lanes)) as some:
        if spec.b == BY_TAPS:
            with walk(f, count, data=(some.data, a.k), to=(staging, of_k)) as k:
                _transpose(v, spec, (k.data, a.result, some.left), spec.filter, k.to, following=True)
        else:
            with (
                walk(f, high, data=(some.data, tap.y), to=(staging, wide * of_tap)) as y,
                walk(f, wide, data=(y.data, tap.x), to=(y.to, of_tap)) as x,
            ):
                _transpose(v, spec, (x.data, a.result, some.left), count, x.to)
        with walk(f, count, data=(staging, of_k), out=(vector(out, some.index), PANEL * v.bytes)) as k:
            transform(k.data, (wide * of_tap, of_tap), k.out, lambda place: f.load(v.kind, place))


# -- both --


def _load(v: Vectors, spec: WinogradSpec, step: Value, contiguous: bool, mask: Value, place: Value) -> Value:
    """Load a vector of channels, which are contiguous or ``step`` bytes apart; lanes outside ``mask`` are 0."""
    places = place if contiguous else v.places(place, step)
    return widen(v.f, spec.operands, load_masked(v.f, spec.operands, v.lanes, places, mask))


def _transpose(
    v: Vectors,
    spec: WinogradSpec,
    lanes: tuple[Value, Value, Value],
    count: Value | int,
    to: Value,
    following: bool = False,
) -> Value:
    """Transpose data[lane][i] to vectors to[i], and return the address after them.

    ``lanes`` are the address of lane 0, the bytes from a lane to the next, and the number of lanes that exist. Each
    lane has ``count`` contiguous values.
    If ``count`` is an int, exactly ``count`` vectors are stored. Otherwise, vectors of zeros complete the last square.
    With ``following``, the lines of the next lanes are prefetched.
    """
    data, step, channels = lanes
    f, known, count = v.f, count if isinstance(count, int) else v.lanes, v.f.value(count)
    moving = {"data": (data, v.lanes * spec.element_bytes), "to": (to, v.lanes * v.bytes), "left": (count, -v.lanes)}
    with walk(f, v.count(count), **moving) as square:
        mask = f.mask(square.left, v.lanes)
        if following:
            prefetch(f, f.at(square.data, step * v.lanes), (step, v.lanes), (step, 1))
        rows = [
            _load(v, spec, step, True, v.only(f.compare("sgt", channels, lane), mask), f.at(square.data, step * lane))
            for lane in range(v.lanes)
        ]
        for column, value in enumerate(f.transposed(rows, v.lanes)[:known]):
            f.store(value, square.to, column * v.bytes)
    return square.to


def _store_points(v: Vectors, transforms: tuple[Transform, Transform], columns: Tile, places: Tile) -> None:
    """Transform the values of ``columns`` along each, then along rows, and store the points at their addresses."""
    of_rows, of_columns = transforms
    rows = [*zip(*(of_rows(v, column) for column in columns), strict=True)]
    for row, line in zip(rows, places, strict=True):
        for value, place in zip(of_columns(v, row), line, strict=True):
            v.f.store(value, place)
