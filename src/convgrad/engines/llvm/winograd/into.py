"""Input transforms and filter transforms into the Winograd domain, in IR.

The arithmetic is that of ``spec/toom_cook.py``, operation by operation. The lanes of a vector are channels. If another
axis of the operand is contiguous, its values are first transposed into vectors of channels, in a staging buffer in
scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Loop, Value
from convgrad.engines.llvm.winograd.vectors import FILTER, Spec, Tile, Vectors, by_axis, exist, inside, walk, whole
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, STRIDED
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.winograd import PANEL, of_panel, of_point, of_weights, pitch
from convgrad.spec.geometry import Conv
from convgrad.spec.toom_cook import TAPS, Transform

# -- input transforms --


def input_numbers(
    spec: Spec, met: bool, conv: Conv, strides: Sequence[int], channels: int, grid: tuple[int, int], tiles: int,
    parts: int = 1,
) -> dict[str, int]:  # fmt: skip
    """Return the arguments of the transform of input tiles if ``met``, else of the tiles of dst in backward weights.

    ``grid`` is the number of rows of tiles in an image, and the number of tiles in each of the ``parts`` of a row.
    """
    (image, channel, *steps), lanes, m = strides, spec.isa.lanes, spec.transforms.tile
    extents = [axis.src if met else axis.dst for axis in conv.axes]
    pads = [axis.pad_begin if met else 0 for axis in conv.axes]  # pads may be negative
    size = spec.transforms.axis_points if met else m
    met_by = (grid[1] - 1) * m + size
    columns = max(max(0, pads[-1]) + whole(min(extents[-1], met_by), lanes), met_by)
    staged = (spec.a if met else spec.b) == SPATIAL
    return {
        "channels": channels, "parts": parts, **by_axis("grid", grid), **by_axis("size", extents),
        **by_axis("pad", pads), "columns": columns, "staging": staged * size * columns * lanes * F32_BYTES,
        "image": image, "channel": channel, **by_axis("step", steps),  # strides of data
        "point": of_point(tiles, channels), "tile": pitch(channels),  # strides of the transformed values
    }  # fmt: skip


def input_transform(f: Function, spec: Spec, met: bool, a: Named, number: Value, out: Value, staging: Value) -> None:
    """Emit the transform of one part of a row of Winograd tiles to out[point][tile][channel].

    ``number`` is the number of the part among those of all images. The tiles are input tiles if ``met``, else the tiles
    of dst in backward weights.
    """
    transforms, contiguous = spec.transforms, spec.a if met else spec.b
    size, transform = (
        (transforms.axis_points, transforms.of_weights.met) if met else (transforms.tile, transforms.of_weights.other)
    )
    one = _Input(f, Vectors(f, spec.isa.lanes), a, size, transforms.tile, transform, contiguous == CHANNELS)
    row, part = f.divided(number, a.parts)
    image, y = f.divided(row, a.of("grid").y)
    top = y * one.step - a.of("pad").y
    left = part * (a.of("grid").x * one.step) - a.of("pad").x
    data = f.at(f.at(a.data, image * a.image), top * a.of("step").y)
    if contiguous == SPATIAL:
        one.from_staging(data, top, left, out, staging)
    else:
        one.by_tiles(f.at(data, left * a.of("step").x), top, left, out)


@dataclass(frozen=True)
class _Input:
    """An input transform that is being emitted."""

    f: Function
    v: Vectors
    a: Named
    size: int  # positions that a tile reads, per axis
    step: int  # positions between the beginnings of two tiles, per axis
    transform: Transform
    by_channels: bool  # whether channels are contiguous

    def by_tiles(self, data: Value, top: Value, left: Value, out: Value) -> None:
        """Emit the transform tile by tile, with all channels of a tile in the inner loop."""
        f, a, v, size, step = self.f, self.a, self.v, self.a.of("size"), self.a.of("step").x * self.step
        with walk(f, a.of("grid").x, data=(data, step), out=(out, a.tile), left=(left, self.step)) as tile:
            whole_tile = inside(f, top, size.y, self.size) & inside(f, tile.left, size.x, self.size)
            with self._vectors(tile.data, tile.out) as some:
                mask = f.mask(some.left, v.lanes)
                with f.when(whole_tile):
                    self._tile(some.data, some.out, [[mask] * self.size] * self.size)
                with f.otherwise():
                    rows, columns = exist(f, top, size.y, self.size), exist(f, tile.left, size.x, self.size)
                    masks = [[v.only(row & column, mask) for column in columns] for row in rows]
                    self._tile(some.data, some.out, masks)

    def _vectors(self, data: Value, out: Value) -> AbstractContextManager[Loop]:
        """Visit the vectors of channels, with their addresses and the number of channels that are left."""
        v, a = self.v, self.a
        return walk(
            self.f, v.count(a.channels), data=(data, a.channel * v.lanes), out=(out, v.bytes),
            left=(a.channels, -v.lanes),
        )  # fmt: skip

    def _tile(self, data: Value, out: Value, masks: Tile) -> None:
        """Emit the transform of one vector of channels of a tile, which is read directly from the operand."""
        f, step = self.f, self.a.of("step")
        load = partial(_load, self.v, self.a.channel, self.by_channels)
        rows = [f.at(data, step.y * i) if i else data for i in range(self.size)]
        values = [
            [load(mask, f.at(row, step.x * j)) for j, mask in enumerate(there)]
            for row, there in zip(rows, masks, strict=True)
        ]
        _store_points(self.v, self.transform, values, out, self.a.point)

    def from_staging(self, data: Value, top: Value, left: Value, out: Value, staging: Value) -> None:
        """Emit the transform vector by vector of channels, with all tiles in the inner loop.

        The positions of a vector of channels are first copied to staging[row][column].
        """
        f, a, v, tiles = self.f, self.a, self.v, self.a.of("grid").x
        before, start = f.max(f.value(0) - left, 0), f.max(left, 0)
        there = f.min(f.max(a.of("size").x - start, 0), (tiles - 1) * self.step + self.size - before)
        row_bytes = a.columns * v.bytes
        with self._vectors(f.at(data, start * F32_BYTES), out) as some:
            with walk(f, self.size, data=(some.data, a.of("step").y), to=(staging, row_bytes)) as row:
                (exists,) = exist(f, top + row.index, a.of("size").y, 1)
                count = f.select(exists, there, f.value(0))
                to = _transpose(v, row.data, a.channel, some.left, count, self._zeros(before, row.to))
                self._zeros(a.columns - before - v.count(count) * v.lanes, to)
            with walk(f, tiles, plane=(staging, self.step * v.bytes), out=(some.out, a.tile)) as tile:
                rows = [f.at(tile.plane, row_bytes * i) if i else tile.plane for i in range(self.size)]
                values = [[f.load(v.kind, row, j * v.bytes) for j in range(self.size)] for row in rows]
                _store_points(v, self.transform, values, tile.out, a.point)

    def _zeros(self, count: Value, to: Value) -> Value:
        """Store ``count`` vectors of zeros, and return the address after the last vector."""
        with walk(self.f, count, to=(to, self.v.bytes)) as zeros:
            self.f.store(self.f.zeros(self.v.kind), zeros.to)
        return zeros.to


# -- filter transforms --


def filter_numbers(spec: Spec, strides: Sequence[int], depth: int, results: int) -> dict[str, int]:
    """Return the arguments of a filter transform with ``depth`` channels of K and ``results`` output channels (N)."""
    isa, staged = spec.isa, spec.b in (CHANNELS_IN, BY_TAPS)
    result, k, *taps = strides if spec.solves_for == "dst" else (strides[1], strides[0], *strides[2:])
    return {
        "count": -(-depth // isa.lanes),  # the number of vectors of k
        "results": results, "depth": depth, "staging": staged * whole(FILTER, isa.lanes) * isa.lanes**2 * F32_BYTES,
        "result": result, "k": k, **by_axis("tap", taps),  # strides of data
        "point": of_weights(depth, results, isa), "panel": of_panel(depth, isa),  # strides of the transformed values
    }  # fmt: skip


def filter_transform(f: Function, spec: Spec, a: Named, number: Value, out: Value, staging: Value) -> None:
    """Emit the filter transform of one vector of channels of K to out[point][panel][k][result].

    ``number`` is the number of the vector. A panel has two vectors of output channels (results), and each vector is
    transformed separately. The taps are reversed in backward data.
    """
    v, tap, first = Vectors(f, spec.isa.lanes), a.of("tap"), number * spec.isa.lanes
    data, out = f.at(a.data, first * a.k), f.at(out, first * (PANEL * v.bytes))
    count, results = f.min(a.depth - first, v.lanes), v.count(a.results)

    def transform(data: Value, steps: Sequence[Value | int], out: Value, load: Callable[[Value], Value]) -> None:
        """Emit the transform of one vector of output channels for one k; ``steps`` are the strides of taps in bytes."""
        rows = [f.at(data, steps[0] * y) for y in range(TAPS)]
        taps = [[load(f.at(row, steps[1] * x)) for x in range(TAPS)] for row in rows]
        taps = [row[::-1] for row in taps[::-1]] if spec.solves_for == "src" else taps
        _store_points(v, spec.transforms.of_positions.other, taps, out, a.point)

    def vector(out: Value, index: Value) -> Value:
        """Return the address of the vector of output channels with the number ``index``."""
        panel, place = f.divided(index, PANEL)
        return f.at(f.at(out, panel * a.panel), place * v.bytes)

    if spec.b in (CHANNELS_OUT, STRIDED):  # weights are read in the order in which they are written: nothing is staged
        with (
            walk(f, count, data=(data, a.k), out=(out, PANEL * v.bytes)) as k,
            walk(f, results, data=(k.data, a.result * v.lanes), left=(a.results, -v.lanes)) as some,
        ):
            load = partial(_load, v, a.result, spec.b == CHANNELS_OUT, f.mask(some.left, v.lanes))
            transform(some.data, (tap.y, tap.x), vector(k.out, some.index), load)
        return
    of_k, of_tap = v.bytes, v.lanes * v.bytes
    if spec.b == BY_TAPS:
        of_k, of_tap = whole(FILTER, v.lanes) * v.bytes, v.bytes
    with walk(f, results, data=(data, a.result * v.lanes), left=(a.results, -v.lanes)) as some:
        if spec.b == BY_TAPS:
            with walk(f, count, data=(some.data, a.k), to=(staging, of_k)) as k:
                _transpose(v, k.data, a.result, some.left, FILTER, k.to)
        else:
            with (
                walk(f, TAPS, data=(some.data, tap.y), to=(staging, TAPS * of_tap)) as y,
                walk(f, TAPS, data=(y.data, tap.x), to=(y.to, of_tap)) as x,
            ):
                _transpose(v, x.data, a.result, some.left, count, x.to)
        with walk(f, count, data=(staging, of_k), out=(vector(out, some.index), PANEL * v.bytes)) as k:
            transform(k.data, (TAPS * of_tap, of_tap), k.out, lambda place: f.load(v.kind, place))


# -- both --


def _load(v: Vectors, step: Value, contiguous: bool, mask: Value, place: Value) -> Value:
    """Load a vector of channels, which are contiguous or ``step`` bytes apart; lanes outside ``mask`` are 0."""
    return v.f.masked_load(v.kind, place if contiguous else v.places(place, step), mask)


def _transpose(v: Vectors, data: Value, step: Value, channels: Value, count: Value | int, to: Value) -> Value:
    """Transpose data[lane][i] to vectors to[i], and return the address after them.

    Each lane has ``count`` contiguous values. Lanes are ``step`` bytes apart, and the first ``channels`` lanes exist.
    If ``count`` is an int, exactly ``count`` vectors are stored. Otherwise, vectors of zeros complete the last square.
    """
    f, known, count = v.f, count if isinstance(count, int) else v.lanes, v.f.value(count)
    with walk(f, v.count(count), data=(data, v.bytes), to=(to, v.lanes * v.bytes), left=(count, -v.lanes)) as square:
        mask = f.mask(square.left, v.lanes)
        rows = [
            f.masked_load(v.kind, f.at(square.data, step * lane), v.only(f.compare("sgt", channels, lane), mask))
            for lane in range(v.lanes)
        ]
        for column, value in enumerate(f.transposed(rows, v.lanes)[:known]):
            f.store(value, square.to, column * v.bytes)
    return square.to


def _store_points(v: Vectors, transform: Transform, values: Tile, out: Value, point: Value) -> None:
    """Transform values along the first axis, then along the last axis, and store the results ``point`` bytes apart."""
    columns = [transform(v, column) for column in zip(*values, strict=True)]
    for row in zip(*columns, strict=True):
        for value in transform(v, row):
            v.f.store(value, out)
            out = v.f.at(out, point)
