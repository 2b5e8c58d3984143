"""Common parts of the Winograd kernels: their specification, vectors of channels, and loops that move addresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from convgrad.engines.llvm.emit import Function, Loop, Value
from convgrad.engines.llvm.microkernel import multiples, opaque_pointer
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.winograd.spec import WinogradSpec
from convgrad.spec.winograd.filtering import Filtering

Steps = tuple[Value, int]  # a stride in bytes, and a number of elements
Step = tuple[Value, Value | int]  # a value in the first iteration of a loop, and its increment per iteration
Kinds = tuple[Filtering, Filtering]  # of the rows and of the columns of tiles
Tile = list[list[Value]]  # the values of a tile, [row][column], where rows and columns are positions or taps


class Vectors:
    """The arithmetic of transforms on f32 vectors whose lanes are channels. Its methods emit instructions."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.lanes, self.kind, self.bytes = f, lanes, f"<{lanes} x float>", lanes * F32_BYTES

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y, rounded once."""
        return self.f.add(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Return x - y, rounded once."""
        return self.f.op(self.kind, f"fsub {x}, {y.name}")

    def fma(self, factor: float, x: Value, y: Value) -> Value:
        """Return factor * x + y, rounded once."""
        return self.f.fma(self.f.everywhere(self.kind, factor), x, y)

    def scale(self, factor: float, x: Value) -> Value:
        """Return factor * x, rounded once."""
        return self.f.op(self.kind, f"fmul {x}, {self.f.everywhere(self.kind, factor).name}")

    def count(self, channels: Value) -> Value:
        """Return the number of vectors that have ``channels`` lanes together, rounded up."""
        return channels + (self.lanes - 1) >> self.lanes.bit_length() - 1

    def only(self, condition: Value, mask: Value) -> Value:
        """Return ``mask`` if the condition is true, else a mask in which no lane is set."""
        return self.f.select(condition, mask, Value(self.f, mask.type, "zeroinitializer"))

    def places(self, place: Value, step: Value) -> Value:
        """Return a vector of addresses, one per lane, that begin at ``place`` and are ``step`` bytes apart."""
        numbers = self.f.numbers("i64", range(self.lanes))
        offsets = self.f.op(numbers.type, f"mul {self.f.splat(step, self.lanes)}, {numbers.name}")
        return self.f.op(f"<{self.lanes} x ptr>", f"getelementptr i8, {place}, {offsets}")


def row_kinds(f: Function, spec: WinogradSpec, y: Value, rows: Value) -> Iterator[Filtering]:
    """Yield the filtering of a row of tiles; twice if the last row of a slice has smaller tiles than the others."""
    whole, *last = spec.kinds(0)
    if not last:
        yield whole
        return
    with f.when(f.compare("ne", y, rows - 1)):
        yield whole
    with f.otherwise():
        yield last[0]


def column_kinds(f: Function, spec: WinogradSpec, columns: Value) -> list[tuple[Filtering, Value]]:
    """Return the filtering of the tiles of a row and their number, and those of a smaller last tile."""
    whole, *last = spec.kinds(1)
    return [(whole, columns - len(last)), *((kind, f.value(1)) for kind in last)]


def of_points(v: Vectors, spec: WinogradSpec, kinds: Kinds, first: Value, point: Value) -> list[list[Value]]:
    """Return the addresses of a tile's points. From ``first`` on, those of whole tiles are ``point`` bytes apart."""
    (high, wide), numbers = spec.transforms.sides, []
    for kind, all_points in zip(kinds, (high, wide), strict=True):
        numbers.append([*range(kind.points - 1), all_points - 1])
    places = [*lattice(v.f, first, (point * wide, high), (point, wide))]
    return [[places[row][column] for column in numbers[1]] for row in numbers[0]]


@contextmanager
def walk(f: Function, count: Value | int, **begin: Step) -> Iterator[Loop]:
    """Repeat the block ``count`` times with carried values.

    Each value is given as a pair: its value in the first iteration, and its increment per iteration.
    """
    with f.loop(count, **{name: first for name, (first, _) in begin.items()}) as loop:
        yield loop
        here = ((name, loop.carried[name], step) for name, (_, step) in begin.items())
        loop.next(**{name: f.at(value, step) if value.type == "ptr" else value + step for name, value, step in here})


def lattice(f: Function, first: Value, outer: Steps, inner: Steps) -> Iterator[list[Value]]:
    """Yield the addresses of each line of a lattice, which is given as (stride, count) of both axes.

    They are computed from few registers. LLVM would keep an address in a register, or spill it, for each element.
    """
    (step, count), distances = outer, multiples(f, *inner)
    for _ in range(count):
        yield [f.at(first, distance) for distance in distances]
        first = opaque_pointer(f, f.at(first, step))


def prefetch(f: Function, first: Value, outer: Steps, inner: Steps, write: bool = False) -> None:
    """Prefetch the cache line of each element of a lattice; for stores if ``write``."""
    for line in lattice(f, first, outer, inner):
        for place in line:
            f.prefetch(place, write=write)


def inside(f: Function, first: Value, extent: Value, size: int) -> Value:
    """Return whether all of the ``size`` positions from ``first`` on exist, on an axis with ``extent`` positions."""
    return f.compare("sge", first, 0) & f.compare("sle", first + size, extent)


def exist(f: Function, first: Value, extent: Value, size: int) -> list[Value]:
    """Return whether each of the ``size`` positions from ``first`` on exists, on an axis with ``extent`` positions."""
    positions = [first + n if n else first for n in range(size)]
    return [f.compare("sge", position, 0) & f.compare("slt", position, extent) for position in positions]
