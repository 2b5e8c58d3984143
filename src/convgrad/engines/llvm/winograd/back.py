"""Output transforms in IR: sums in the Winograd domain become tiles of positions or weights, which are stored.

The lanes of a vector are channels. If positions or taps of the output are contiguous, vectors are first collected in a
staging buffer in scratch, and then transposed into a line per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain

import numpy as np

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Loop, Value
from convgrad.engines.llvm.store import Epilogue
from convgrad.engines.llvm.winograd.vectors import (
    Kinds,
    Step,
    Tile,
    Vectors,
    column_kinds,
    lattice,
    of_points,
    prefetch,
    row_kinds,
    walk,
)
from convgrad.plan.recipe import CHANNELS, SPATIAL
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.winograd.constants import PREFETCH_ROWS
from convgrad.plan.winograd.spec import WinogradSpec
from convgrad.spec.winograd.algorithms import Algorithm


def positions(f: Function, spec: WinogradSpec, a: Named, number: Value, sums: Sequence[Value], staging: Value) -> None:
    """Emit the output transform of sums[point][tile][channel] to positions, and their store, with biases.

    ``number`` is the number of a row of Winograd tiles among the rows of all slices. ``sums`` are the addresses of the
    row's first tile and, if the last tile is smaller, of the last tile.
    """
    v, step, size, high = Vectors(f, spec.isa.lanes), a.of("step"), a.of("size"), spec.transforms.tile[0]
    image, y = f.divided(number, a.of("grid").y)
    image, position = f.divided(image, size.z)
    out = f.at(f.at(f.at(a.data, image * a.image), position * step.z), y * high * step.y)
    for rows in row_kinds(f, spec, y, a.of("grid").y):
        columns = [(_Back(f, spec, v, a, (rows, column)), n) for column, n in column_kinds(f, spec, a.of("grid").x)]
        if spec.out == SPATIAL:
            _from_staging(columns, sums, out, staging)
        else:
            _by_tiles(columns, sums, out)


def _vectors(emitter: _Back, out: Value, **sums: Value) -> AbstractContextManager[Loop]:
    """Visit the vectors of channels, with the addresses of sums, output and biases."""
    v, a = emitter.v, emitter.a
    moving: dict[str, Step] = {name: (place, v.bytes) for name, place in sums.items()}
    moving |= {"out": (out, a.channel * v.lanes), "bias": (a.bias, v.bytes), "left": (a.channels, -v.lanes)}
    return walk(emitter.f, v.count(a.channels), **moving)


def _by_tiles(columns: Sequence[tuple[_Back, Value]], sums: Sequence[Value], out: Value) -> None:
    """Emit the output transform of a row tile by tile, with all channels of a tile in the inner loop."""
    for (emitter, count), first in zip(columns, sums, strict=True):
        f, step, (high, wide) = emitter.f, emitter.a.of("step"), (kind.tile for kind in emitter.kinds)
        with (
            walk(f, count, sums=(first, emitter.a.tile), out=(out, step.x * wide)) as tile,
            _vectors(emitter, tile.out, sums=tile.sums) as some,
        ):
            mask = f.mask(some.left, emitter.v.lanes)
            prefetch(f, f.at(some.out, step.x * wide), (step.y, high), (step.x, wide), write=True)  # the next tile's
            values = emitter.tile(some.sums, some.bias, mask)
            emitter.store(values, some.out, [[mask] * wide] * high, step, emitter.a.channel)
        out = tile.out


def _from_staging(columns: Sequence[tuple[_Back, Value]], sums: Sequence[Value], out: Value, staging: Value) -> None:
    """Emit the output transform of a row vector by vector of channels, with all tiles in the inner loop."""
    emitter, names = columns[0][0], {f"sums{number}": first for number, first in enumerate(sums)}
    f, v, a = emitter.f, emitter.v, emitter.a
    row_bytes = a.columns * v.bytes
    with _vectors(emitter, out, **names) as some:
        mask, to = f.mask(some.left, v.lanes), staging
        for (kind, count), name in zip(columns, names, strict=True):
            wide = kind.kinds[1].tile
            with walk(f, count, sums=(some.carried[name], a.tile), to=(to, wide * v.bytes)) as tile:
                for i, row in enumerate(kind.tile(tile.sums, some.bias, mask)):
                    for j, value in enumerate(row):
                        f.store(value, f.at(tile.to, row_bytes * i) if i else tile.to, j * v.bytes)
            to = tile.to
        with walk(f, emitter.kinds[0].tile, vectors=(staging, row_bytes), out=(some.out, a.of("step").y)) as line:
            emitter.store_lines(line.vectors, a.of("size").x, line.out, a.channel, some.left)


def weights(f: Function, spec: WinogradSpec, a: Named, number: Value, sums: Value, staging: Value) -> None:
    """Emit the output transform of sums[point][src channel][dst channel] to weights, and their store.

    ``number`` is the number of a src channel among those of all taps of the axis that is summed directly. If taps are
    contiguous, it is the number of a vector of dst channels.
    """
    emitter, step = _Back(f, spec, Vectors(f, spec.isa.lanes), a, spec.transforms.axes), a.of("tap")
    v = emitter.v
    if spec.out != BY_TAPS:
        directly, row = f.divided(number, a.named("rows"))
        out = f.at(f.at(a.data, row * a.row), directly * step.z)
        moving: dict[str, Step] = {
            "sums": (f.at(sums, number * a.sums_row), v.bytes),
            "out": (out, a.channel * v.lanes),
            "left": (a.channels, -v.lanes),
        }
        high, wide = spec.transforms.taps
        with walk(f, v.count(a.channels), **moving) as some:
            mask = f.mask(some.left, v.lanes)
            emitter.store(emitter.weights(some.sums, mask), some.out, [[mask] * wide] * high, step, a.channel)
        return
    first, count = number * v.lanes, a.named("rows")
    left, begin, to = a.channels - first, f.at(sums, number * v.bytes), f.at(a.data, first * a.channel)
    with (
        walk(f, a.taps, sums=(begin, count * a.sums_row), out=(to, step.z)) as tap,
        walk(f, count, sums=(tap.sums, a.sums_row), out=(tap.out, a.row)) as some,
    ):
        emitter.prefetch_rows(some.sums, some.out)
        for place, value in enumerate(chain(*emitter.weights(some.sums, f.mask(left, v.lanes)))):
            f.store(value, staging, place * v.bytes)
        emitter.store_lines(staging, spec.filter, some.out, a.channel, left)


@dataclass(frozen=True)
class _Back:
    """An output transform that is being emitted."""

    f: Function
    spec: WinogradSpec
    v: Vectors
    a: Named
    kinds: Kinds

    def back(self, sums: Value) -> Tile:
        """Return the output transform of a vector of sums: along columns, then along rows, then divided."""
        of_rows, of_columns = (kind.way(self.spec.solves_for).back for kind in self.kinds)
        places = of_points(self.v, self.spec, self.kinds, sums, self.a.point)
        rows = [of_columns(self.v, [self.f.load(self.v.kind, place) for place in line]) for line in places]
        columns = [of_rows(self.v, column) for column in zip(*rows, strict=True)]
        return [[self._divided(value) for value in row] for row in zip(*columns, strict=True)]

    def _divided(self, value: Value) -> Value:
        """Return ``value`` divided by the transform's divisor, rounded once, + 0, as in ``execution.py``."""
        f, v, algorithm = self.f, self.v, Algorithm(self.kinds)
        by = float(algorithm.divisor)
        reciprocal = float(np.float32(1) / np.float32(by))
        quotient = v.scale(reciprocal, value)
        if not algorithm.divides_exactly:
            negated = f.op(v.kind, f"fneg {quotient}")
            quotient = v.fma(reciprocal, v.fma(by, negated, value), quotient)
        return f.add(quotient, f.zeros(v.kind))

    def flag(self, values: Sequence[Value], mask: Value) -> None:
        """Set the call's flag ``infinite`` if a value in the lanes of ``mask`` is not finite.

        The product of a value and 0 is NaN if the value is not finite.
        """
        f = self.f
        zeros = flags = f.zeros(self.v.kind)
        for value in values:
            flags = f.fma(value, zeros, flags)
        beyond = f.op(mask.type, f"fcmp uno {flags}, {flags.name}")
        with f.when(f.any_of([f.op(mask.type, f"and {beyond}, {mask.name}")])):
            f.say(f"store atomic i64 1, {self.a.infinite} monotonic, align 8")

    def weights(self, sums: Value, mask: Value) -> Tile:
        """Return weights. A value that is not finite sets the call's flag ``infinite``."""
        values = self.back(sums)
        self.flag(list(chain(*values)), mask)
        return values

    def prefetch_rows(self, sums: Value, out: Value) -> None:
        """Prefetch the sums of the next src channel, and the weights of a later one, which are far apart."""
        f, a = self.f, self.a
        high, wide = self.spec.transforms.sides
        prefetch(f, f.at(sums, a.sums_row), (a.point * wide, high), (a.point, wide))
        for lane in range(self.v.lanes):
            f.prefetch(f.at(f.at(out, a.row * PREFETCH_ROWS), a.channel * lane), write=True)

    # -- positions --

    def tile(self, sums: Value, bias: Value, mask: Value) -> Tile:
        """Return the values of a tile plus biases. A value that is not finite sets the call's flag ``infinite``."""
        f, values = self.f, self.back(sums)
        self.flag(list(chain(*values)), mask)
        biases = f.masked_load(self.v.kind, bias, mask)
        return [[f.add(value, biases) for value in row] for row in values]

    # -- stores --

    @property
    def epilogue(self) -> Epilogue:
        """The epilogue without bias: biases are added before."""
        f, spec = self.f, self.spec
        old = Value(f, "i1", "true") if spec.accumulate else None
        return Epilogue(f, spec.output, self.v.lanes, old, activation=spec.activation)

    def store(self, values: Tile, out: Value, masks: Tile, step: Named, channel: Value) -> None:
        """Store the vectors of a tile, under masks; channels are ``channel`` bytes apart in the output."""
        f = self.f
        lines = lattice(f, out, (step.y, len(values)), (step.x, len(values[0])))
        for row, there, line in zip(values, masks, lines, strict=True):
            for value, mask, place in zip(row, there, line, strict=True):
                places = place if self.spec.out == CHANNELS else self.v.places(place, channel)
                self.epilogue.store(value, places, mask)

    def store_lines(self, vectors: Value, count: Value | int, out: Value, channel: Value, left: Value) -> None:
        """Transpose ``count`` vectors in scratch, and store them as a line per channel, ``channel`` bytes apart.

        If ``count`` is a Value, the lines of the next channels are prefetched.
        """
        f, v, following = self.f, self.v, isinstance(count, Value)
        known, count = min(count, v.lanes) if isinstance(count, int) else v.lanes, f.value(count)
        moving = {"vectors": (vectors, v.lanes * v.bytes), "out": (out, v.lanes * BYTES[self.spec.output])}
        with walk(f, v.count(count), left=(count, -v.lanes), **moving) as square:
            mask = f.mask(square.left, v.lanes)
            if following:
                prefetch(f, f.at(square.out, channel * v.lanes), (channel, v.lanes), (channel, 1), write=True)
            columns = [f.load(v.kind, square.vectors, column * v.bytes) for column in range(known)]
            for lane, value in enumerate(f.transposed(columns, v.lanes)):
                exists = v.only(f.compare("sgt", left, lane), mask)
                self.epilogue.store(value, f.at(square.out, channel * lane), exists)
