"""The tiles of Intel's AMX in IR: registers of up to 16 rows of 64 bytes, and the instruction that multiplies them.

``MODELLED`` does the same with vectors and memory, so that kernels of tiles can be tested on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Protocol

from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import high_sum, low_sum
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tiling import SIDE

MODELLED = "modelled"


class Tiles(Protocol):
    """Tiles in a function, by number. Those of C are f32 sums; those of A and B are bf16 pairs, with 32 k."""

    def configure(self, heights: Mapping[int, int]) -> None:
        """Set the rows of each tile. All tiles become 0."""

    def zero(self, tile: int) -> None:
        """Set a tile to 0."""

    def load(self, tile: int, place: Value, step: Value) -> None:
        """Load a tile whose rows are ``step`` bytes apart in memory."""

    def store(self, tile: int, place: Value, step: Value) -> None:
        """Store a tile whose rows are ``step`` bytes apart in memory."""

    def multiply(self, c: int, a: int, b: int) -> None:
        """Add a block of 32 terms to each sum: C + (even chain + odd chain)."""

    def release(self) -> None:
        """Give up the configuration, so that the operating system need not keep the tiles."""


def configuration(heights: Mapping[int, int]) -> bytes:
    """Return the operand of LDTILECFG: palette 1, and the bytes of a row and the rows of each tile."""
    operand = bytearray(64)
    operand[0] = 1
    for tile, rows in heights.items():
        operand[16 + 2 * tile], operand[48 + tile] = LINE_BYTES, rows
    return bytes(operand)


class _Instructions:
    """The instructions of AMX."""

    def __init__(self, f: Function) -> None:
        self.f = f

    def _emit(self, name: str, *operands: Value | int) -> None:
        texts = (f"i8 {operand}" if isinstance(operand, int) else operand for operand in operands)
        self.f.intrinsic("void", f"llvm.x86.{name}", *texts)

    def configure(self, heights: Mapping[int, int]) -> None:
        words, place = configuration(heights), self.f.alloca("i64", 8)
        for at in range(0, len(words), 8):
            self.f.store(self.f.value(int.from_bytes(words[at : at + 8], "little", signed=True)), place, at)
        self._emit("ldtilecfg", place)

    def zero(self, tile: int) -> None:
        self._emit("tilezero", tile)

    def load(self, tile: int, place: Value, step: Value) -> None:
        self._emit("tileloadd64", tile, place, step)

    def store(self, tile: int, place: Value, step: Value) -> None:
        self._emit("tilestored64", tile, place, step)

    def multiply(self, c: int, a: int, b: int) -> None:
        self._emit("tdpbf16ps", c, a, b)

    def release(self) -> None:
        self._emit("tilerelease")


class _Modelled:
    """Tiles in the memory of a function, whose rows are vectors of 16 lanes. Each function has tiles of its own.

    Functions of the module compute, because LLVM would take long for loops at each place where tiles are used.
    """

    def __init__(self, f: Function) -> None:
        self.f, self.heights, self.memory = f, dict[int, int](), f.alloca("i8", 8 * SIDE * LINE_BYTES)

    def _place(self, tile: int) -> Value:
        return self.f.at(self.memory, tile * SIDE * LINE_BYTES)

    def _rows(self, name: str, tile: int, body: Callable[[Function, Value], None], **values: Value) -> None:
        module, name = self.f.module, f"{name}_{self.heights[tile]}_rows"
        if name not in module.functions:
            f = module.function(name, False, **{parameter: value.type for parameter, value in values.items()})
            with f.loop(self.heights[tile]) as row:
                body(f, row.index)
            f.done()
        self.f.call(name, **values)

    def configure(self, heights: Mapping[int, int]) -> None:
        self.heights = dict(heights)
        for tile in heights:
            self.zero(tile)

    def zero(self, tile: int) -> None:
        self._rows("zero", tile, _zero_row, to=self._place(tile))

    def load(self, tile: int, place: Value, step: Value) -> None:
        self._rows("load", tile, _copy_row, to=self._place(tile), source=place, step=self._line, source_step=step)

    def store(self, tile: int, place: Value, step: Value) -> None:
        self._rows("store", tile, _copy_row, to=place, source=self._place(tile), step=step, source_step=self._line)

    @property
    def _line(self) -> Value:
        return self.f.value(LINE_BYTES)

    def multiply(self, c: int, a: int, b: int) -> None:
        self._rows("multiply", a, _multiply_row, c=self._place(c), a=self._place(a), b=self._place(b))

    def release(self) -> None:
        pass


def _zero_row(f: Function, row: Value) -> None:
    f.store(f.zeros(f"<{SIDE} x float>"), f.at(f.to, row * LINE_BYTES))


def _copy_row(f: Function, row: Value) -> None:
    f.store(f.load(f"<{SIDE} x i32>", f.at(f.source, row * f.source_step)), f.at(f.to, row * f.step))


def _multiply_row(f: Function, row: Value) -> None:
    zero = f.zeros(f"<{SIDE} x float>")
    with f.loop(SIDE, even=zero, odd=zero) as pair:
        x = f.splat(f.load("i32", f.at(f.at(f.a, row * LINE_BYTES), pair.index * F32_BYTES)), SIDE)
        y = f.load(f"<{SIDE} x i32>", f.at(f.b, pair.index * LINE_BYTES))
        pair.next(even=low_sum(f, pair.even, x, y), odd=high_sum(f, pair.odd, x, y))
    place = f.at(f.c, row * LINE_BYTES)
    f.store(f.add(f.load(zero.type, place), f.add(pair.even, pair.odd)), place)


TILES: dict[str, Callable[[Function], Tiles]] = {"amx": _Instructions, MODELLED: _Modelled}


class TileProduct:
    """The product of one or two tiles of A, with the rows in ``heights``, and one or two tiles of B, and its sums C.

    The tiles of C have the numbers 0 to 3, those of A 4 and 5, and those of B 6 and 7.
    """

    def __init__(self, f: Function, kind: str, heights: Sequence[int], of_b: int) -> None:
        self.f, self.tiles, self.heights = f, TILES[kind](f), heights
        self.of_a, self.of_b = range(4, 4 + len(heights)), range(6, 6 + of_b)

    def configure(self, configured: Value) -> None:
        """Configure the tiles of this thread for these heights, unless the number at ``configured`` says they are."""
        f, number = self.f, int.from_bytes(bytes(self.heights), "little")
        rows = dict.fromkeys((6, 7), SIDE)
        for n, height in enumerate(self.heights):
            rows |= dict.fromkeys((2 * n, 2 * n + 1, 4 + n), height)
        with f.when(f.compare("ne", f.load("i64", configured), number)):
            self.tiles.configure(rows)
            f.store(f.value(number), configured)

    def _of_c(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each tile of C, with the numbers of its tiles of A and of B."""
        for a, b in product(self.of_a, self.of_b):
            yield 2 * (a - self.of_a.start) + b - self.of_b.start, a, b

    def zero(self) -> None:
        """Set C to 0."""
        for c, _, _ in self._of_c():
            self.tiles.zero(c)

    def load(self, sums: Value, pitch: int) -> None:
        """Load C from memory, where rows are ``pitch`` bytes apart."""
        self._move(self.tiles.load, sums, pitch)

    def store(self, sums: Value, pitch: int) -> None:
        """Store C in memory, where rows are ``pitch`` bytes apart."""
        self._move(self.tiles.store, sums, pitch)

    def _move(self, move: Callable[[int, Value, Value], None], sums: Value, pitch: int) -> None:
        for c, a, b in self._of_c():
            row = sum(self.heights[: a - self.of_a.start])
            move(c, self.f.at(sums, row * pitch + (b - self.of_b.start) * LINE_BYTES), self.f.value(pitch))

    def multiply(self, a: Iterable[Value], a_step: Value, b: Value, b_step: int) -> None:
        """Add the product of A and B in memory, whose rows are ``a_step`` and ``b_step`` bytes apart.

        ``a`` are the addresses of the tiles of A, and ``b`` that of the first tile of B. A tile is loaded as late as
        possible, and set to 0 after its last use: a tile of zeros needs no register of the processor, and these are few
        if another thread of the core uses tiles. Then a portion takes 0.65 times as long (``campaigns/amx_speeds.py``).
        """
        f, used = self.f, [*self._of_c()]
        places = {tile: (f.at(b, n * LINE_BYTES), f.value(b_step)) for n, tile in enumerate(self.of_b)}
        places |= {tile: (place, a_step) for tile, place in zip(self.of_a, a, strict=True)}
        for number, tiles in enumerate(used):
            for tile in tiles[1:]:
                if tile in places:
                    self.tiles.load(tile, *places.pop(tile))
            self.tiles.multiply(*tiles)
            for tile in tiles[1:]:
                if not any(tile in later for later in used[number + 1 :]):
                    self.tiles.zero(tile)
