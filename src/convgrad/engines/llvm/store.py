"""The epilogue of all kernels, and the loops that store a panel of sums.

The epilogue adds +0 to a sum, which turns -0 into +0. Then it adds the bias, if any, and the old value of the output if
the call accumulates. At last it applies the activation and rounds once.

A panel is stored along the contiguous axis of the output:

- If the columns of B are contiguous, vectors are stored.
- If rows of A or taps are contiguous, squares are transposed in registers and stored.
- If no axis is contiguous, single elements are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from convgrad.engines.llvm.convert import BYTES, can_round, read_interleaved, rounded, rounded_pair, store_masked, write
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.llvm.intrinsics import nan_or_denormal
from convgrad.formats import BF16
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tables import ELSEWHERE
from convgrad.spec.activation import RELU

NO_BIAS = "-0.0"  # x + -0.0 has the bits of x for every x, also for -0
PER_COLUMN, PER_ROW = "per column of B", "per row of A"  # the axis of a panel along which its biases vary


def total(f: Function, sums: Value, bias: Value | None = None) -> Value:
    """Return sums + 0, plus the bias if there is one."""
    value = f.add(sums, f.zeros(sums.type))
    return value if bias is None else f.add(value, bias)


def interleaved(f: Function, vectors: Sequence[Value], first: int, lanes: int) -> Value:
    """Return lanes ``first`` to ``first + lanes`` of the interleaved ``vectors``."""
    many, value = len(vectors), vectors[first % len(vectors)]
    for step in range(min(many, lanes)):
        picks = list(range(lanes)) if step else [-1] * lanes
        for lane in range(step, lanes, many):
            picks[lane] = (first + lane) // many + (lanes if step else 0)
        value = f.shuffle(value, vectors[(first + step) % many], picks)
    return value


class Storing(Protocol):
    """What the epilogue needs of a kernel's specification."""

    @property
    def isa(self) -> Isa:
        """The instruction set."""

    @property
    def output(self) -> str:
        """The number format of the output."""

    @property
    def activation(self) -> str:
        """The activation, or "" for none."""


@dataclass(frozen=True)
class Epilogue:
    """The epilogue of a kernel. It adds 0, biases and old values to sums, applies the activation, rounds and stores."""

    f: Function
    output: str  # the format of the output
    lanes: int  # f32 lanes per vector
    accumulate: Value | None  # an i1: whether old values are added; None: never
    bias: str = PER_COLUMN
    activation: str = ""
    rounds: bool = False  # whether an instruction rounds vectors to the output's format

    @classmethod
    def of(cls, f: Function, spec: Storing, accumulate: Value | None = None, bias: str = PER_COLUMN) -> Epilogue:
        """Return the epilogue for a kernel's specification; ``accumulate`` is the call's flag, 0 or 1."""
        old = None if accumulate is None else f.compare("ne", accumulate, 0)
        rounds = spec.output == BF16.name and can_round(spec.isa)
        return cls(f, spec.output, spec.isa.lanes, old, bias, spec.activation, rounds)

    def store(self, value: Value, out: Value, mask: Value | None = None) -> None:
        """Add the old value if the call accumulates, then activate, round and store the result."""
        self._store_each([value], out, mask)

    def _store_each(self, values: Sequence[Value], out: Value, mask: Value | None = None) -> None:
        """Store values as ``store`` does: one, or several vectors, which are interleaved."""
        f, lanes = self.f, self.lanes if values[0].type[0] == "<" else 0
        if self.accumulate is None:
            self._write(values, out, mask)
            return
        with f.when(self.accumulate):
            old = read_interleaved(f, self.output, out, lanes, len(values), mask)
            self._write([f.add(*pair) for pair in zip(values, old, strict=True)], out, mask)
        with f.otherwise():
            self._write(values, out, mask)

    def store_first(self, values: Sequence[Value], out: Value, left: Value, mask: Value | None = None) -> None:
        """Store the first ``left`` lanes of interleaved vectors; ``left`` may be negative or larger than their number.

        ``mask`` is the mask of these lanes, if it is known.
        """
        f, lanes = self.f, self.lanes * len(values)
        with f.when(left >= lanes):
            self._store_each(values, out)
        with f.otherwise(), f.when(f.compare("sgt", left, 0)):
            self._store_each(values, out, f.mask(left, lanes) if mask is None else mask)

    def _write(self, values: Sequence[Value], out: Value, mask: Value | None = None) -> None:
        """Activate, round and store values; two vectors by one instruction, unless a value is NaN or denormal."""
        f, values = self.f, [self.activated(value) for value in values]
        with ExitStack() as otherwise:
            if self.rounds and len(values) == 2:
                with f.when(self.ordinary(values)):
                    store_masked(f, rounded_pair(f, *values), out, mask)
                otherwise.enter_context(f.otherwise())
            write(f, self.output, values, out, mask)

    def ordinary(self, values: Sequence[Value]) -> Value:
        """Return an i1: whether no value is NaN or denormal."""
        return self.f.op("i1", f"xor {self.f.any_of([nan_or_denormal(self.f, value) for value in values])}, true")

    def activated(self, value: Value) -> Value:
        """Return the activated ``value``. ReLU maps values below 0 to +0 and keeps NaN; ``value`` is never -0."""
        if not self.activation:
            return value
        assert self.activation == RELU, "there is one activation"
        zeros = self.f.zeros(value.type)
        kind = value.type.replace("float", "i1")
        return self.f.select(self.f.op(kind, f"fcmp olt {value}, {zeros.name}"), zeros, value)

    def biases(self, bias: Value | None, vectors: int) -> list[Value | None]:
        """Load the bias of each vector of a row; all vectors have the same bias if biases are per row."""
        f = self.f
        if bias is None:
            return [None] * vectors
        if self.bias == PER_ROW:
            return [f.splat(f.load("float", bias), self.lanes)] * vectors
        return [f.load(f"<{self.lanes} x float>", bias, v * self.lanes * F32_BYTES) for v in range(vectors)]

    def rows(self, sums: Sequence[Sequence[Value]], out: Value, step: Value, bias: Value, bias_step: Value) -> None:
        """Store rows of sums that are whole vectors in registers, with their biases."""
        f, totals = self.f, list[list[Value]]()
        biases = self.biases(bias, len(sums[0])) if self.bias != PER_ROW else []
        for values in sums:
            if self.bias == PER_ROW:
                biases = self.biases(bias, len(values))
                bias = f.at(bias, bias_step)
            totals.append([total(f, *pair) for pair in zip(values, biases, strict=True)])
        with ExitStack() as otherwise:
            if self.rounds and self.accumulate is None:
                with f.when(self.ordinary([self.activated(value) for row in totals for value in row])):
                    self.rounded_rows(totals, out, step)
                otherwise.enter_context(f.otherwise())
            for r, values in enumerate(totals):
                out = f.at(out, step) if r else out
                for v, value in enumerate(values):
                    self.store(value, f.at(out, v * self.lanes * BYTES[self.output]))

    def rounded_rows(self, rows: Sequence[Sequence[Value]], out: Value, step: Value) -> None:
        """Round rows to bf16 by an instruction, and store them without old values. No value may be NaN or denormal."""
        f = self.f
        for r, values in enumerate(rows):
            out = f.at(out, step) if r else out
            for v in range(0, len(values), 2):
                pair = map(self.activated, values[v : v + 2])
                f.store(rounded(f, *pair), out, v * self.lanes * BYTES[self.output])


@dataclass(frozen=True)
class PanelTaps:
    """The taps of a panel, which consists of micro-tiles with several taps each."""

    tiles: Value  # the number of micro-tiles
    tile_step: Value  # bytes between the sums of two micro-tiles
    count: int  # taps per micro-tile
    tap_step: int  # bytes between the sums of two taps
    outs: Value  # address of the offsets of all taps in the output; ELSEWHERE if another micro-tile stores the tap


@dataclass(frozen=True)
class Panel:
    """A panel of sums in memory, and its strides in the output. A row of A has ``vectors`` vectors of columns of B."""

    epilogue: Epilogue
    rows: Value  # the number of rows
    vectors: int  # vectors per row
    left: Callable[[Value], Value]  # returns the number of columns from a vector on that exist; may be less than 1
    sums: Value  # the address of the sums
    pitch: Value | int  # bytes between the sums of two rows
    out: Value  # the address of the output
    row_step: Value  # the stride of rows in the output, in bytes
    column_step: Value  # the stride of columns in the output, in bytes
    vector_step: Value | int  # the stride of vectors in the output, in bytes
    bias: Value | None = None  # the address of the first bias
    bias_step: Value | int = F32_BYTES  # bytes between the biases of two rows
    taps: PanelTaps | None = None  # None: the panel has no axis of taps

    def store(self, ways: Sequence[tuple[Value, Callable[[], None]]]) -> None:
        """Store the panel by the first function of ``ways`` whose condition is true, or else by ``one_by_one``."""
        with ExitStack() as nested:
            for fits, way in ways:
                with self.epilogue.f.when(fits):
                    way()
                nested.enter_context(self.epilogue.f.otherwise())
            self.one_by_one()

    def along_columns(self) -> None:
        """Store whole vectors, because columns are contiguous in the output."""
        e = self.epilogue
        f, lanes = e.f, e.lanes
        per_row = e.bias == PER_ROW
        biases = [] if per_row else e.biases(self.bias, self.vectors)
        with self._each_tap(self.sums, self.out) as (sums, out):
            carried = {"bias": self.bias} if per_row and self.bias else {}
            with f.loop(self.rows, sums=sums, out=out, **carried) as row:
                if per_row:
                    biases = e.biases(row.bias, self.vectors)
                sums_of_row = [
                    f.load(f"<{lanes} x float>", row.sums, v * lanes * F32_BYTES) for v in range(self.vectors)
                ]
                self._row([total(f, *pair) for pair in zip(sums_of_row, biases, strict=True)], row.out)
                moved = {"bias": f.at(row.bias, self.bias_step)} if per_row else {}
                row.next(sums=f.at(row.sums, self.pitch), out=f.at(row.out, self.row_step), **moved)

    def _row(self, totals: Sequence[Value], out: Value) -> None:
        """Store the vectors of a row, which are contiguous: two at once if all columns exist."""
        e = self.epilogue
        f, lanes = e.f, e.lanes
        with ExitStack() as otherwise:
            if e.rounds and len(totals) == 2:
                whole = self.left(f.value(1)) >= lanes
                if e.accumulate is not None:
                    whole = whole & f.op("i1", f"xor {e.accumulate}, true")
                with f.when(whole & e.ordinary([e.activated(value) for value in totals])):
                    e.rounded_rows([totals], out, self.row_step)
                otherwise.enter_context(f.otherwise())
            for v, value in enumerate(totals):
                e.store_first([value], f.at(out, self.vector_step * v), self.left(f.value(v)))

    def along_rows(self) -> None:
        """Store transposed squares of rows and columns, because rows are contiguous in the output."""
        square = self._square()
        with self._each_vector() as (first, out, left, bias), self._each_tap(first, out) as (sums, there):
            self._transposed(square, (sums, self.pitch, self.rows), there, left, bias)

    def along_taps(self) -> None:
        """Store transposed squares of taps and columns, because taps are contiguous in the output.

        No tap may be ELSEWHERE.
        """
        assert self.taps, "the panel has taps"
        f, t, square = self.epilogue.f, self.taps, self._square()
        tiles, count, step = t.tiles, f.value(t.count), f.value(t.tap_step)
        if t.count == 1:  # each micro-tile has one tap, so a square takes taps of several micro-tiles
            tiles, count, step = f.value(1), t.tiles, t.tile_step
        with self._each_vector() as (first, out, left, bias), f.loop(tiles, sums=first, outs=t.outs) as tile:
            with f.loop(self.rows, sums=tile.sums, out=f.at(out, f.load("i64", tile.outs))) as row:
                self._transposed(square, (row.sums, step, count), row.out, left, bias)
                row.next(sums=f.at(row.sums, self.pitch), out=f.at(row.out, self.row_step))
            tile.next(sums=f.at(tile.sums, t.tile_step), outs=f.at(tile.outs, 8 * t.count))

    def one_by_one(self) -> None:
        """Store single elements, because no axis is contiguous. The axis with the larger stride is the outer loop."""
        f, e = self.epilogue.f, self.epilogue
        size, columns_outside = f.value(F32_BYTES), self.row_step < self.column_step
        with self._each_vector() as (first, out, left, bias):
            by_column = [left, size, self.column_step]
            by_row = [self.rows, f.value(self.pitch), self.row_step]
            if bias:
                by_column.append(size)
                by_row.append(f.value(0))
            outside = [f.select(columns_outside, a, b) for a, b in zip(by_column, by_row, strict=True)]
            inside = [f.select(columns_outside, a, b) for a, b in zip(by_row, by_column, strict=True)]
            begin = {"sums": first, "out": out} | ({"bias": bias} if bias else {})
            with f.loop(outside[0], **begin) as outer:
                with f.loop(inside[0], **outer.carried) as inner:
                    with self._each_tap(inner.sums, inner.out) as (sums, there):
                        own = f.load("float", inner.bias) if bias else None
                        e.store(total(f, f.load("float", sums), own), there)
                    inner.next(
                        **{name: f.at(inner.carried[name], by) for name, by in zip(begin, inside[1:], strict=True)}
                    )
                outer.next(**{name: f.at(outer.carried[name], by) for name, by in zip(begin, outside[1:], strict=True)})

    def _square(self) -> Value:
        """Return stack memory for a square. Call it outside loops: each iteration would use more of the stack."""
        return self.epilogue.f.alloca(f"<{self.epilogue.lanes} x float>", self.epilogue.lanes)

    @contextmanager
    def _each_vector(self) -> Iterator[tuple[Value, Value, Value, Value | None]]:
        """Visit the vectors of a row: addresses in the first row, the number of columns that exist, and the bias.

        The addresses are those of the sums and of the output.
        """
        e, f, size = self.epilogue, self.epilogue.f, self.epilogue.lanes * F32_BYTES
        assert e.bias != PER_ROW, "biases of rows go with vectors along the columns"
        begin = {"sums": self.sums, "out": self.out} | ({"bias": self.bias} if self.bias else {})
        with f.loop(self.vectors, **begin) as vector:
            left = f.max(f.min(self.left(vector.index), e.lanes), 0)
            yield vector.sums, vector.out, left, vector.carried.get("bias")
            steps = (size, self.vector_step, size)
            vector.next(**{name: f.at(vector.carried[name], by) for name, by in zip(begin, steps, strict=False)})

    @contextmanager
    def _each_tap(self, sums: Value, out: Value) -> Iterator[tuple[Value, Value]]:
        """Visit the address of each tap's sums and of their output, except for taps that another micro-tile stores."""
        f, t = self.epilogue.f, self.taps
        if t is None:
            yield sums, out
            return
        with f.loop(t.tiles, sums=sums, outs=t.outs) as tile:
            with f.loop(t.count, sums=tile.sums, outs=tile.outs) as tap:
                offset = f.load("i64", tap.outs)
                with f.when(f.compare("ne", offset, ELSEWHERE)):
                    yield tap.sums, f.at(out, offset)
                tap.next(sums=f.at(tap.sums, t.tap_step), outs=f.at(tap.outs, 8))
            tile.next(sums=f.at(tile.sums, t.tile_step), outs=tap.outs)

    def _transposed(
        self, square: Value, vectors: tuple[Value, Value | int, Value], out: Value, left: Value, bias: Value | None
    ) -> None:
        """Transpose vectors of sums, and store their first ``left`` columns.

        ``vectors`` are the address of the first, the bytes from one to the next, and their number. A square has as many
        vectors as a vector has lanes. ``square`` is memory for one.
        """
        e, f, width, (sums, step, count) = self.epilogue, self.epilogue.f, self.epilogue.lanes, vectors
        kind = f"<{width} x float>"
        of_columns = f.load(kind, bias) if bias else None
        there = f.select(f.compare("sgt", left, 0), count, f.value(0))
        if e.rounds:
            done = self._transposed_pairs(sums, step, count, out, left, of_columns)
            sums, out = f.at(sums, done * step), f.at(out, done * BYTES[e.output])
            there, count = there - done, count - done
        with f.loop((there + (width - 1)) >> (width.bit_length() - 1), sums=sums, out=out) as piece:
            remaining = f.min(count - piece.index * width, width)
            rows = [f.at(piece.sums, f.min(f.value(i), remaining - 1) * step) for i in range(width)]
            stored = f.transposed([total(f, f.load(kind, row), of_columns) for row in rows], width)
            with f.when(f.compare("eq", remaining, width) & f.compare("eq", left, width)):
                line = piece.out
                for i, column in enumerate(stored):
                    line = f.at(line, self.column_step) if i else line
                    e.store(column, line)
            with f.otherwise():
                for i, column in enumerate(stored):
                    f.store(column, square, i * width * F32_BYTES)
                mask = f.mask(remaining, width)
                with f.loop(left, line=square, out=piece.out) as position:
                    e.store(f.load(kind, position.line), position.out, mask)
                    position.next(line=f.at(position.line, width * F32_BYTES), out=f.at(position.out, self.column_step))
            following = f.at(piece.sums, f.value(step) * width)
            piece.next(sums=following, out=f.at(piece.out, width * BYTES[e.output]))

    def _transposed_pairs(
        self, sums: Value, step: Value | int, count: Value, out: Value, left: Value, of_columns: Value | None
    ) -> Value:
        """Store vectors of sums like ``_transposed``, but round them to bf16, two by one instruction, before they move.

        Return how many vectors are stored. It is 0 if all must be stored by ``_transposed``: if a value is NaN or
        denormal, if a column is missing, or if old values are added.
        """
        e, f, width = self.epilogue, self.epilogue.f, self.epilogue.lanes
        kind, none = f"<{width} x float>", Value(f, f"<{width} x i1>", "zeroinitializer")
        here = f.compare("eq", left, width)
        if e.accumulate:
            here = here & f.op("i1", f"xor {e.accumulate}, true")
        with f.loop(f.select(here, count >> width.bit_length(), f.value(0)), sums=sums, out=out, special=none) as piece:
            place, special, pairs = piece.sums, piece.special, list[Value]()
            for _ in range(width):
                two = list[Value]()
                for _ in range(2):
                    two.append(e.activated(total(f, f.load(kind, place), of_columns)))
                    special = f.op(none.type, f"or {special}, {nan_or_denormal(f, two[-1]).name}")
                    place = f.at(place, step)
                pairs.append(f.op(kind, f"bitcast {rounded_pair(f, *two)} to {kind}"))
            line = piece.out
            for column in f.transposed(pairs, width):
                f.store(column, line)
                line = f.at(line, self.column_step)
            piece.next(sums=place, out=f.at(piece.out, 2 * width * BYTES[e.output]), special=special)
        return f.select(f.any_of([piece.special]), f.value(0), piece.index * (2 * width))
