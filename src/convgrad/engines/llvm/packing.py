"""Packing: copies of an operand's matrix in the order in which micro-kernels read it, in f32 or in bf16 pairs.

A copy is ``to[i][j] = source[i * row + j * column]``. The contiguous axis of the source determines its method:

- contiguous along columns: vectors are copied;
- contiguous along rows: squares are transposed in registers, or vectors of a few columns are interleaved;
- strided: elements are copied one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import reduce

from convgrad.engines.llvm.convert import BYTES, load_masked, read, store_masked
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import NO_BIAS, interleaved
from convgrad.plan.constants import PREFETCH_PACK_BYTES, PREFETCH_PACK_POSITIONS
from convgrad.plan.recipe import F32_BYTES

NEIGHBOUR = "neighbour"
Block = tuple[int, list[Value], int | Value]  # the first column, addresses of columns, the number or mask to store


@dataclass(frozen=True)
class Cells:
    """The cells of a packed matrix: f32 elements, or bf16 pairs.

    ``upper`` is None for f32 elements, else the element of a pair (0 or 1) that becomes the high half. ``apart`` is
    the distance of the two elements in the source in bytes, or NEIGHBOUR. It is None if a pair has only one element.
    """

    f: Function
    operand: str
    lanes: int
    upper: int | None = None
    apart: Value | str | None = NEIGHBOUR
    stride: int = 1  # elements of memory from a row to the next, for ``Copy.along_rows`` if cells have one element
    chains: int = 1  # of a block: with 2, a pair has two terms of the same chain, which are not neighbours

    @property
    def elements(self) -> int:
        """The number of contiguous elements of the source that form a cell: 2 for a pair of neighbours, else 1."""
        return 1 if self.upper is None or self.apart != NEIGHBOUR else 2

    def masks(self, elements: Value) -> list[Value]:
        """Return the masks of the first ``elements`` elements of a vector of cells, for each load of the vector."""
        if self.stride == 1:
            return [self.f.mask(elements, self.lanes * self.elements)]
        last = (elements - 1) * self.stride + 1
        return [self.f.mask(last - begin, self.lanes) for begin in self._loads(self.lanes)]

    def _loads(self, lanes: int) -> list[int]:
        """Return the first element of each load of a vector. Loads read no memory before or after its cells."""
        return [min(n * lanes, (lanes - 1) * (self.stride - 1)) for n in range(self.stride)]

    def places(self, place: Value) -> list[Value]:
        """Return the addresses at which a cell is read: two if the elements of a pair are apart, else one."""
        return [place, self.f.at(place, self.apart)] if isinstance(self.apart, Value) else [place]

    def read(self, place: Value, lanes: int = 0, masks: Sequence[Value] = ()) -> Value:
        """Load a cell, or a vector of ``lanes`` cells, as f32 with the bits of the cell.

        Elements outside ``masks`` become zero, and their memory is not accessed.
        """
        f, kind = self.f, f"<{lanes} x i32>" if lanes else "i32"
        if self.elements == 2:
            if not masks:
                word = f.load(kind, place)
            else:
                word = f.op(kind, f"bitcast {load_masked(f, self.operand, 2 * lanes, place, *masks)} to {kind}")
            if self.chains == 2:  # of the elements 0 to 3: 0 (high) and 2, 1 (high) and 3
                word = self._of_chains(word, lanes)
            elif self.upper == 0:
                word = f.intrinsic(kind, f"llvm.fshl.v{lanes}i32", word, word, f.everywhere(kind, 16))
        else:
            values = [self._elements(address, lanes, masks) for address in self.places(place)]
            if self.upper is None:
                return values[0]
            halves = [f.op(kind, f"bitcast {value} to {kind}") for value in values]
            if self.upper or len(halves) > 1:  # bf16 as f32 is already in the high half
                halves[1 - self.upper] >>= f.everywhere(kind, 16) if lanes else 16
            word = reduce(lambda low, other: f.op(kind, f"or {low}, {other.name}"), halves)
        result = kind.replace("i32", "float")
        return f.op(result, f"bitcast {word} to {result}")

    def _of_chains(self, words: Value, lanes: int) -> Value:
        """Return pairs of each chain from pairs of neighbours."""
        f, kind, order = self.f, f"<{2 * lanes} x i16>", (2, 0, 3, 1)
        halves = f.op(kind, f"bitcast {words} to {kind}")
        moved = f.shuffle(halves, halves, [first + n for first in range(0, 2 * lanes, 4) for n in order])
        return f.op(words.type, f"bitcast {moved} to {words.type}")

    def _elements(self, place: Value, lanes: int, masks: Sequence[Value]) -> Value:
        """Load an element as f32, or a vector of ``lanes`` elements that are ``stride`` elements apart."""
        if not lanes:
            return read(self.f, self.operand, place)
        f, stride, size = self.f, self.stride, BYTES[self.operand]
        begins = self._loads(lanes)
        vector, *others = (
            read(f, self.operand, f.at(place, begin * size), lanes, masks[number] if masks else None)
            for number, begin in enumerate(begins)
        )
        there = {lane: lane * stride for lane in range(lanes) if lane * stride < lanes}
        for begin, loaded in zip(begins[1:], others, strict=True):
            new = {lane: lanes + lane * stride - begin for lane in range(lanes) if lane * stride - begin < lanes}
            there = new | there
            vector = f.shuffle(vector, loaded, [there.get(lane, -1) for lane in range(lanes)])
            there = {lane: lane for lane in there}
        return vector


@dataclass(frozen=True)
class Copy:
    """A packing copy that is being emitted. Strides and offsets are in bytes."""

    cells: Cells
    rows: Value  # the number of rows
    row: Value  # the stride of rows in the source
    columns: Value  # the number of columns that exist in the source
    column: Value  # the stride of columns in the source
    pitch: Value | int  # the stride of packed rows
    # Cells per packed row; 0 if a packed row has only ``columns``. The value of a cell without a column is a zero, the
    # last column again, or, if ``fills`` is false, what was there.
    width: int = 0
    row_at: Callable[[Value], Value] | None = None  # maps a row's number to its packed row's number; None: the same
    offset: Callable[[Value], Value] | None = None  # returns the offset of a column in the source; None: by its stride
    prefetch_bytes: Value | None = None  # the distance at which squares prefetch, 0 for no prefetch; None: no copy does
    fills: bool = True  # whether vectors and elements that have no column of the source are stored

    @property
    def f(self) -> Function:
        """The IR function in which the copy is emitted."""
        return self.cells.f

    @property
    def lanes(self) -> int:
        """The number of cells per vector."""
        return self.cells.lanes

    def at(self, source: Value, column: Value) -> Value:
        """Return the address of a column in the source row that begins at ``source``."""
        return self.f.at(source, self.offset(column) if self.offset else column * self.column)

    def packed(self, to: Value, row: Value) -> Value:
        """Return the address of the packed row for a row of the source."""
        return self.f.at(to, (self.row_at(row) if self.row_at else row) * self.pitch)

    # -- contiguous along columns --

    def along_columns(self, source: Value, to: Value) -> None:
        """Copy each row in vectors whose length is a power of two. The last vector may overlap the previous one.

        Rows with fewer columns than ``width`` need masks.
        """
        f, size, width, lanes = self.f, BYTES[self.cells.operand], self.width, self.lanes
        piece = min(lanes, 1 << (width.bit_length() - 1))
        starts = [*range(0, width - piece + 1, piece)]
        if starts[-1] + piece < width:
            starts.append(width - piece)
        here = self.columns >= width
        if width < lanes and self.pitch == width * F32_BYTES and self.cells.upper is None:
            dense = f.compare("eq", self.row, width * size)
            with f.when(dense & f.compare("eq", self.columns, width)):
                self.contiguous(self.rows * width, source, to)
            here = here & f.compare("ne", self.row, width * size)
        with f.when(here):
            self._by_row(source, to, [(start, piece, ()) for start in starts])
        with f.when(self.columns < width):
            some = range(0, width, lanes)
            self._by_row(source, to, [(c, min(lanes, width - c), self.cells.masks(self.columns - c)) for c in some])

    def _by_row(self, source: Value, to: Value, pieces: Sequence[tuple[int, int, Sequence[Value]]]) -> None:
        """Copy pieces of each row. A piece is a first column, a number of columns, and masks of those that exist."""
        f, size = self.f, BYTES[self.cells.operand]
        with f.loop(self.rows, source=source) as row:
            packed = self.packed(to, row.index)
            for start, count, masks in pieces:
                lanes = self.lanes if masks else count
                cells = self.cells.read(f.at(row.source, start * size), lanes, masks)
                f.store_first(cells, count, packed, start * F32_BYTES)
            if self.prefetch_bytes is not None:
                for place in self.cells.places(row.source):
                    f.prefetch(f.at(place, self.row * PREFETCH_PACK_POSITIONS))
            row.next(source=f.at(row.source, self.row))

    def contiguous(self, count: Value, source: Value, to: Value, swapped: bool = False) -> None:
        """Copy elements. If ``swapped``, exchange 2i and 2i + 1, except an odd last one."""
        f, lanes, cells = self.f, self.lanes, self.cells
        unit = lanes * cells.elements
        shift = unit.bit_length() - 1

        def vector(source: Value, masks: Sequence[Value] = (), paired: Value | None = None) -> Value:
            values = cells.read(source, lanes, masks)
            other = f.shuffle(values, values, [lane ^ 1 for lane in range(lanes)]) if swapped else values
            return f.select(paired, other, values) if swapped and paired else other

        with f.loop(count >> shift, source=source, to=to) as many:
            f.store(vector(many.source), many.to)
            if self.prefetch_bytes is not None:
                f.prefetch(f.at(many.source, PREFETCH_PACK_BYTES))
            many.next(source=f.at(many.source, unit * BYTES[cells.operand]), to=f.at(many.to, lanes * F32_BYTES))
        left = count - (count >> shift) * unit
        with f.when(f.compare("sgt", left, 0)):
            values = vector(many.source, cells.masks(left), f.mask(left - (left & 1), lanes))
            f.masked_store(values, many.to, f.mask(left + (cells.elements - 1) >> cells.elements - 1, lanes))

    # -- contiguous along rows --

    def along_rows(self, source: Value, to: Value) -> None:
        """Transpose squares in registers, block by block, because processors prefetch only few rows at a time.

        The last square of an axis may overlap the previous one.
        """
        f, lanes = self.f, self.lanes
        if self.width:
            for columns in self.blocks():
                self.block_along_rows(columns, source, to)
            return
        with f.when(self.columns >= lanes), f.loop((self.columns + (lanes - 1)) >> (lanes.bit_length() - 1)) as block:
            first = f.min(block.index * lanes, self.columns - lanes)
            self._squares(f.at(to, first * F32_BYTES), (0, self._places(source, first, lanes), lanes))
        with f.when((self.columns < lanes) & f.compare("sgt", self.columns, 0)):
            mask = f.mask(self.columns, lanes)
            self._squares(to, (0, self._places(source, f.value(0), lanes), mask))

    def blocks(self) -> Iterator[range]:
        """Yield the columns of each block of a packed row. Code emitted before the next block is for this block."""
        for first in range(0, self.width, self.lanes):
            exists = self.f.compare("sgt", self.columns, first) if first and not self.fills else None
            with self.f.when(exists) if exists else nullcontext():
                yield range(first, min(first + self.lanes, self.width))

    def block_along_rows(self, columns: range, source: Value, to: Value) -> None:
        """Transpose squares of a block of columns."""
        places = self._places(source, self.f.value(columns.start), len(columns))
        self._squares(to, (columns.start, places, len(columns)))

    def _places(self, source: Value, first: Value, count: int) -> list[Value]:
        """Return the addresses of ``count`` columns. Columns that do not exist get the address of the last column."""
        return [self.at(source, self.f.min(first + n, self.columns - 1)) for n in range(count)]

    def _squares(self, to: Value, block: Block) -> None:
        """Transpose all rows of a block of columns, square by square; only an incomplete last square is masked."""
        f, elements = self.f, self.cells.elements
        unit = self.lanes * elements
        shift = unit.bit_length() - 1
        whole = self.rows >> shift
        if elements == 1:
            whole = f.select(self.rows >= unit, (self.rows + (unit - 1)) >> shift, f.value(0))
        ways: list[tuple[Value, Value | None]] = [(whole, self.prefetch_bytes)]
        if self.prefetch_bytes is not None:
            none = f.compare("eq", self.prefetch_bytes, 0)
            ways = [(f.select(none, f.value(0), whole), self.prefetch_bytes), (f.select(none, whole, f.value(0)), None)]
        for count, prefetch_bytes in ways:
            with f.loop(count) as square:
                self._square(to, block, f.min(square.index * unit, self.rows - unit), None, prefetch_bytes)
        done = f.min(whole * unit, self.rows)
        left = self.rows - done
        with f.when(f.compare("sgt", left, 0)):
            self._square(to, block, done, left, None)

    def _square(self, to: Value, block: Block, first: Value, left: Value | None, prefetch_bytes: Value | None) -> None:
        """Transpose a square of a block, from row ``first`` on; the square has only ``left`` rows if given."""
        f, cells, (column, places, stored) = self.f, self.cells, block
        masks = () if left is None else cells.masks(left)
        row, vectors = first >> (cells.elements - 1), []
        for place in places:
            here = f.at(place, first * (cells.stride * BYTES[cells.operand]))
            if prefetch_bytes is not None:
                f.prefetch(f.at(here, prefetch_bytes))
            vectors.append(cells.read(here, self.lanes, masks))
        begin = f.at(f.at(to, column * F32_BYTES), row * self.pitch)
        for n, vector in enumerate(f.transposed(vectors, self.lanes)):
            with nullcontext() if left is None else f.when(f.compare("sgt", left, n * cells.elements)):
                if self.row_at is None:
                    packed = f.at(begin, self.pitch * n)
                else:
                    packed = f.at(to, self.row_at(row + n) * self.pitch)
                    packed = f.at(packed, column * F32_BYTES)
                if isinstance(stored, int):
                    f.store_first(vector, stored, packed)
                else:
                    f.masked_store(vector, packed, stored)

    def few_along_rows(self, order: Sequence[int], source: Value, to: Value) -> None:
        """Copy a few columns that fill packed rows: interleave a vector of each, without transposing squares.

        ``order`` has the columns in packed order. A cell that is a pair has two of them, or only the last one. The last
        vector of rows may overlap the previous one. Fewer rows than lanes are masked.
        """
        f, lanes, step = self.f, self.lanes, 1 if self.cells.upper is None else 2
        cells = [
            (
                replace(self.cells, apart=self.column if step > 1 and n + 1 < len(order) else None),
                self.column * order[n],
            )
            for n in range(0, len(order), step)
        ]

        def vectors(first: Value, left: Value | None) -> None:
            here = f.at(source, first * (self.cells.stride * BYTES[self.cells.operand]))
            cells_of_row = [
                cell.read(f.at(here, offset), lanes, () if left is None else cell.masks(left)) for cell, offset in cells
            ]
            packed = f.at(to, first * self.pitch)
            for n in range(len(cells_of_row)):
                mask = None if left is None else f.mask(left * len(cells_of_row) - n * lanes, lanes)
                vector = interleaved(f, cells_of_row, n * lanes, lanes)
                store_masked(f, vector, f.at(packed, n * lanes * F32_BYTES), mask)

        many = (self.rows + (lanes - 1)) >> (lanes.bit_length() - 1)
        with f.when(self.rows >= lanes), f.loop(many) as vector:
            vectors(f.min(vector.index * lanes, self.rows - lanes), None)
        with f.otherwise():
            vectors(f.value(0), self.rows)

    # -- strided --

    def one_by_one(self, source: Value, to: Value) -> None:
        """Copy cell by cell, and fill packed rows with zeros, so that their unused sums are never NaN or denormal."""
        f = self.f
        with f.loop(self.rows, source=source) as row:
            with f.loop(self.columns, to=self.packed(to, row.index)) as column:
                f.store(self.cells.read(self.at(row.source, column.index)), column.to)
                column.next(to=f.at(column.to, F32_BYTES))
            if self.width and self.fills:
                with f.loop(f.value(self.width) - self.columns, to=column.to) as other:
                    f.store(f.zeros("float"), other.to)
                    other.next(to=f.at(other.to, F32_BYTES))
            row.next(source=f.at(row.source, self.row))


def in_pairs(copy: Copy, axis: str, way: Callable[[Copy, Value, Value], None], source: Value, to: Value) -> None:
    """Copy by the method ``way``, in bf16 pairs along ``axis`` if cells are pairs. An odd last value is half a pair."""
    if copy.cells.upper is None:
        way(copy, source, to)
        return
    f, rows = copy.f, axis == "rows"
    count, step, size = (copy.rows, copy.row, copy.pitch) if rows else (copy.columns, copy.column, F32_BYTES)
    if copy.cells.chains == 2:
        _in_chains(copy, rows, way, source, to)
        return
    doubled = step * 2
    for many, apart in ((count >> 1, step), (count & 1, None)):
        pairs = replace(copy, cells=replace(copy.cells, apart=apart))
        pairs = replace(pairs, rows=many, row=doubled) if rows else replace(pairs, columns=many, column=doubled)
        way(pairs, source, to)
        source, to = f.at(source, many * doubled), f.at(to, many * size)


def _in_chains(copy: Copy, rows: bool, way: Callable[[Copy, Value, Value], None], source: Value, to: Value) -> None:
    """Copy a multiple of four values: pairs of both chains in turn. The terms of a pair are two values apart."""
    f, step = copy.f, copy.row if rows else copy.column
    cells = replace(copy.cells, apart=step * 2)
    if not rows:
        of_pairs = replace(copy, cells=cells, columns=copy.columns >> 1)
        way(replace(of_pairs, offset=lambda pair: (pair + (pair & -2)) * step), source, to)
        return
    pairs = replace(copy, cells=cells, rows=copy.rows >> 2, row=step * 4, pitch=copy.pitch * 2)
    for chain in range(2):
        way(pairs, f.at(source, step * chain), f.at(to, copy.pitch * chain))


def nested(
    f: Function, loops: Sequence[tuple[Value, Value]], source: Value, to: Value, body: Callable[[Value, Value], Value]
) -> Value:
    """Emit nested loops around ``body`` and return the address after the last packed cell.

    ``loops`` are the count and the stride of each axis of the source, the outermost first. ``body`` returns the address
    at which the next one packs.
    """
    if not loops:
        return body(source, to)
    (count, step), *inner = loops
    with f.loop(count, source=source, to=to) as row:
        ended = nested(f, inner, row.source, row.to, body)
        row.next(source=f.at(row.source, step), to=ended)
    return row.to


def bias(module: Module, operand: str) -> None:
    """Emit ``pack_bias``, which writes ``full`` f32 values: ``count`` biases, then -0; only -0 if there is no bias."""
    f = module.function("pack_bias", bias="ptr", to="ptr", source="ptr", step="i64", count="i64", full="i64")
    there = f.op("i1", f"icmp ne {f.bias}, null")
    count = f.select(there, f.count, f.value(0))
    with f.loop(count, to=f.to, source=f.source) as element:
        f.store(read(f, operand, element.source), element.to)
        element.next(to=f.at(element.to, F32_BYTES), source=f.at(element.source, f.step))
    with f.loop(f.full - count, to=element.to) as other:
        f.store(Value(f, "float", NO_BIAS), other.to)
        other.next(to=f.at(other.to, F32_BYTES))
    f.done()
