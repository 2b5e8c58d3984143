"""The kernel in which a block computes a tile of rows and columns: a matrix product in steps of DEPTH terms.

In each phase, a thread loads its elements of the next step, multiplies the present step, which is in shared memory, and
then writes the loaded elements to the other half of shared memory. A thread has 8 x 8 sums: two times 4 neighbouring
rows, and two times 4 neighbouring columns.

Level 0 of the sums is in registers: those of chains or, if chains are split, those of portions. The higher levels are
in shared memory: the sums of the portions of a chain, and those of the chains of a node. A sum is added to the next
level when it ends. Both levels of a tile of 128 x 128 need 128 KiB, more than a block may have on many GPUs, so then
only smaller tiles compute nodes.

If chains are split, a thread has 8 x 8 sums of even terms and as many of odd terms. Both are in registers, and the two
sums of an output are added when a portion ends. So the terms stay in their order, in which those of an operand are
often neighbours in memory. If the even terms came first, their sums would need another level in shared memory.

An element of A that does not exist is loaded as 0. The sum is the same as without the term, unless the element of B is
infinite or NaN. If a block has loaded such an element, its threads compute their results again, one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.cuda.grid import Grid
from convgrad.engines.cuda.operands import Operands, RowOfA, row_of
from convgrad.engines.cuda.single import store, sum_of
from convgrad.engines.llvm.emit import Value
from convgrad.plan.cuda.nest import AXES
from convgrad.plan.cuda.recipe import PAD, PER_THREAD, ROWS, TERMS, WARP, WARP_COLUMNS, WARP_ROWS, TileSpec
from convgrad.plan.cuda.tables import DEPTH

FOUR = "<4 x float>"
HALF = PER_THREAD // 2  # neighbouring rows or columns of a thread
ROW_WORDS = 4  # of a row in shared memory: its offset in A, and positions


@dataclass(frozen=True)
class Loaded:
    """Neighbouring elements that a thread has loaded, and their places in a half of shared memory, in floats."""

    values: list[Value]
    place: Value  # of the first
    step: int  # from an element to the next


class Tile:
    """The kernel of a tile, while it is being emitted."""

    def __init__(self, spec: TileSpec, on_cpu: bool) -> None:
        self.spec = spec
        self.grid = Grid(spec.name, spec.threads, spec.shared_bytes, on_cpu, spec.resident)
        self.f = self.grid.f
        self.pitch_a, self.pitch_b = spec.rows + PAD, spec.columns + PAD
        at = 4 * 2 * spec.stage_floats
        shared = [at, at + 4 * ROW_WORDS * spec.rows, at + 4 * (ROW_WORDS + 1) * spec.rows]
        self.row_words, self.row_c, self.flag = (self.f.at(self.grid.shared, offset) for offset in shared)
        self.totals = self.f.at(self.flag, 16)
        self.chains = 2 if spec.split else 1
        self.grid.declare(sums=self.chains * PER_THREAD**2, finite=1)

    def emit(self) -> Grid:
        """Emit the kernel. The grid is tiles, groups, leaves."""
        f, spec, grid = self.f, self.spec, self.grid
        with grid.blocks() as (x, group, leaf):
            self.of = of = Operands(f, spec, group, leaf)
            down, across = f.divided(x, of.numbers["column_tiles"])
            self.first_row, self.first_column = down * spec.rows, across * spec.columns
            with grid.phase() as thread:
                self._begin(thread)
            with grid.phase() as thread:
                self._put(self._load(of.begin, thread), f.int32(0), thread)
            with f.loop(f.int64(of.end - of.begin)) as step:
                number, half = of.begin + f.int32(step.index), f.int32(step.index & 1)
                with grid.phase() as thread:
                    loaded = self._load(number + 1, thread)
                    self._multiply(half, thread)
                    self._put(loaded, f.int32(1) - half, thread)
                    for level, ends in enumerate(of.ends_of(number, spec.levels), 1):
                        with f.when(ends):
                            self._add_to(level, thread)
            if spec.checked:
                self._mark()
            with grid.phase() as thread:
                self._store_tile(thread)
        return grid

    def _begin(self, thread: Value) -> None:
        """Write the tile's rows to shared memory, and set the sums to 0. The last row stands for rows beyond it."""
        f, n, zero = self.f, self.of.numbers, self.f.zeros("float")
        with f.when(f.compare("slt", thread, self.spec.rows)):
            number = self._clamped(self.first_row + thread, n["rows"], self.spec.width_a)
            row, place = row_of(n, number), f.int64(thread)
            for word, value in enumerate((row.a, *row.positions)):
                f.store(value, f.at(self.row_words, place * (4 * ROW_WORDS)), 4 * word)
            f.store(row.c, f.at(self.row_c, place * 4))
        f.store(f.int32(0), self.flag)
        for i in range(PER_THREAD**2):
            for level in range(self.spec.levels + 1):
                self._clear(level, i, thread)
        self.grid.write("finite", 0, thread, zero)

    def _clamped(self, number: Value, count: Value, width: int) -> Value:
        """Return ``number``, or the first number of the last vector if ``number`` is not less than ``count``."""
        f = self.f
        return f.select(f.compare("slt", number, count), number, count - width)

    def _clear(self, level: int, index: int, thread: Value) -> None:
        """Set a thread's sum to 0, that of even and that of odd terms if it is in registers and chains are split."""
        zero = self.f.zeros("float")
        if level:
            self.f.store(zero, self._total(level, index, thread))
            return
        for chain in range(self.chains):
            self.grid.write("sums", chain * PER_THREAD**2 + index, thread, zero)

    def _total(self, level: int, index: int, thread: Value) -> Value:
        """Return the address of a thread's sum of a level, which begins at 1."""
        place = 4 * self.spec.threads * ((level - 1) * PER_THREAD**2 + index)
        return self.f.at(self.f.at(self.totals, self.f.int64(thread) * 4), place)

    # -- operands --

    def _load(self, step: Value, thread: Value) -> tuple[list[Loaded], list[Loaded]]:
        """Load the thread's elements of A and of B in a step."""
        of, spec = self.of, self.spec
        a, b = [], []
        for index, number in self._elements(spec.along_a == TERMS, spec.rows, spec.width_a, spec.terms_a, thread):
            term = of.term(step, index)
            values, _ = of.elements_of_a(self._row(number), term, spec.width_a, spec.terms_a)
            by_terms = spec.along_a == TERMS or spec.terms_a > 1
            a.append(Loaded(values, index * self.pitch_a + number, self.pitch_a if by_terms else 1))
        for index, number in self._elements(spec.along_b == TERMS, spec.columns, spec.width_b, 1, thread):
            term = of.term(step, index)
            column = self._clamped(self.first_column + number, of.numbers["columns"], spec.width_b)
            values = of.elements_of_b(term, column, spec.width_b)
            place = index * self.pitch_b + number + DEPTH * self.pitch_a
            b.append(Loaded(values, place, self.pitch_b if spec.along_b == TERMS else 1))
        return a, b

    def _elements(
        self, along_terms: bool, extent: int, width: int, terms: int, thread: Value
    ) -> list[tuple[Value, Value]]:
        """Return the first elements that a thread loads at once, as pairs of a term and a row or column.

        Each pair stands for ``width`` neighbouring elements, or for one element of each of ``terms`` terms.
        """
        f, threads = self.f, self.spec.threads
        fast = (DEPTH if along_terms else extent) // width
        slow, number = f.divided(thread, fast)
        slows = [slow + i * (threads // fast) for i in range(DEPTH * extent // (width * terms * threads))]
        return [(number * width, slow) if along_terms else (slow * terms, number * width) for slow in slows]

    def _row(self, number: Value) -> RowOfA:
        """Return a row of the tile from shared memory."""
        f = self.f
        words = f.lanes(f.load(f"<{ROW_WORDS} x i32>", f.at(self.row_words, f.int64(number) * (4 * ROW_WORDS))))
        return RowOfA(words[0], f.int32(0), words[1 : 1 + AXES])

    def _put(self, loaded: tuple[list[Loaded], list[Loaded]], half: Value, thread: Value) -> None:
        """Write the loaded elements to a half of shared memory; ``finite`` becomes NaN if one of B is not finite."""
        f, base = self.f, self._half(half)
        for load in (*loaded[0], *loaded[1]):
            place = f.at(base, f.int64(load.place) * 4)
            if load.step == 1 and len(load.values) > 1:
                f.store(f.vector(load.values), place)
                continue
            for i, value in enumerate(load.values):
                f.store(value, place, 4 * i * load.step)
        if self.spec.checked:
            finite = self.grid.read("finite", 0, thread)
            for value in (value for load in loaded[1] for value in load.values):
                finite = f.fma(value, f.zeros("float"), finite)
            self.grid.write("finite", 0, thread, finite)

    def _half(self, half: Value) -> Value:
        return self.f.at(self.grid.shared, self.f.int64(half) * (4 * self.spec.stage_floats))

    # -- sums --

    def _corner(self, thread: Value) -> tuple[Value, Value]:
        """Return the first row and column of a thread in its tile.

        Neighbouring threads have the same row, or the same column if their numbers differ by 2. So half a warp
        loads from shared memory without bank conflicts.
        """
        f = self.f
        warp, lane = f.divided(thread, WARP)
        down, across = f.divided(warp, self.spec.columns // WARP_COLUMNS)
        low = f.op("i32", f"or {(lane >> 1) & 1}, {((lane >> 3) & 2).name}")
        left = f.op("i32", f"or {lane & 1}, {((lane >> 1) & 6).name}")
        return down * WARP_ROWS + low * HALF, across * WARP_COLUMNS + left * HALF

    def _multiply(self, half: Value, thread: Value) -> None:
        """Add the products of a step to the sums, term by term. The first term of a step is even in its chain."""
        f, grid = self.f, self.grid
        row, column = self._corner(thread)
        base = self._half(half)
        a_at, b_at = f.at(base, f.int64(row) * 4), f.at(base, f.int64(column) * 4)
        sums = [grid.read("sums", i, thread) for i in range(self.chains * PER_THREAD**2)]
        for k in range(DEPTH):
            first = k % self.chains * PER_THREAD**2
            a_place, b_place = 4 * k * self.pitch_a, 4 * (DEPTH * self.pitch_a + k * self.pitch_b)
            a = [*self._four(a_at, a_place), *self._four(a_at, a_place + 4 * WARP_ROWS // 2)]
            b = [*self._four(b_at, b_place), *self._four(b_at, b_place + 4 * WARP_COLUMNS // 2)]
            for i, x in enumerate(a):
                for j, y in enumerate(b):
                    at = first + i * PER_THREAD + j
                    sums[at] = f.fma(x, y, sums[at])
        for i, value in enumerate(sums):
            grid.write("sums", i, thread, value)

    def _four(self, pointer: Value, offset: int) -> list[Value]:
        return self.f.lanes(self.f.load(FOUR, pointer, offset))

    def _add_to(self, level: int, thread: Value) -> None:
        """Add the sums below a level to those of the level, and set them to 0."""
        f = self.f
        for i in range(PER_THREAD**2):
            place = self._total(level, i, thread)
            f.store(f.add(f.load("float", place), self._sum(level - 1, i, thread)), place)
            self._clear(level - 1, i, thread)

    def _sum(self, level: int, index: int, thread: Value) -> Value:
        """Return a thread's sum of a level; level 0 has the sums in registers."""
        if level:
            return self.f.load("float", self._total(level, index, thread))
        even = self.grid.read("sums", index, thread)
        if self.chains == 1:
            return even
        return self.f.add(even, self.grid.read("sums", PER_THREAD**2 + index, thread))

    def _mark(self) -> None:
        """Set the block's flag if a thread has loaded an element of B that is infinite or NaN."""
        f = self.f
        with self.grid.phase() as thread:
            finite = self.grid.read("finite", 0, thread)
            with f.when(f.op("i1", f"fcmp uno {finite}, 0.0")):
                f.store(f.int32(1), self.flag)

    # -- results --

    def _store_tile(self, thread: Value) -> None:
        """Store the thread's results, or compute them again if the flag is set."""
        f, spec = self.f, self.spec
        if not spec.checked:
            self._store(thread)
            return
        again = f.compare("ne", f.load("i32", self.flag), 0)
        with f.when(again), f.loop(PER_THREAD**2) as iteration:
            down, across = f.divided(f.int32(iteration.index), PER_THREAD)
            row, column = self._corner(thread)
            row = self.first_row + row + self._apart(down, WARP_ROWS)
            column = self.first_column + column + self._apart(across, WARP_COLUMNS)
            n = self.of.numbers
            inside = f.compare("slt", row, n["rows"]) & f.compare("slt", column, n["columns"])
            with f.when(inside):
                place = row_of(n, row)
                store(self.of, sum_of(self.of, place, column), place, row, column)
        with f.when(f.op("i1", f"xor {again}, true")):
            self._store(thread)

    def _apart(self, index: Value, warp: int) -> Value:
        """Return the distance of a thread's row or column with this index from its first."""
        upper, lower = self.f.divided(index, HALF)
        return upper * (warp // 2) + lower

    def _store(self, thread: Value) -> None:
        """Store the thread's sums, in vectors along rows or columns."""
        f, spec, n, width = self.f, self.spec, self.of.numbers, self.spec.store.width
        by_rows = spec.store.along == ROWS
        row, column = self._corner(thread)
        down, across = _distances(WARP_ROWS), _distances(WARP_COLUMNS)
        columns = [column + offset for offset in across]
        for i in range(0, PER_THREAD, width if by_rows else 1):
            inside = row + down[i]
            number = self.first_row + inside
            with f.when(f.compare("slt", number, n["rows"])):
                place = RowOfA(f.int32(0), f.load("i32", f.at(self.row_c, f.int64(inside) * 4)), ())
                for j in range(0, PER_THREAD, 1 if by_rows else width):
                    there, first = self.first_column + columns[j], i * PER_THREAD + j
                    with f.when(f.compare("slt", there, n["columns"])):
                        step = PER_THREAD if by_rows else 1
                        sums = [self._sum(spec.levels, first + column * step, thread) for column in range(width)]
                        store(self.of, sums[0] if width == 1 else f.vector(sums), place, number, there)


def _distances(warp: int) -> list[int]:
    """Return the distances of a thread's rows or columns from its first; ``warp`` is the extent of a warp."""
    return [i // HALF * (warp // 2) + i % HALF for i in range(PER_THREAD)]


def tile(spec: TileSpec, on_cpu: bool) -> Grid:
    """Emit the kernel in which a block computes a tile."""
    return Tile(spec, on_cpu).emit()
