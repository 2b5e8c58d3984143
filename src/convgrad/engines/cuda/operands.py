"""What all kernels of products share: numbers of a product, elements of operands, and the store of a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convgrad.cached import cached_property
from convgrad.engines.cuda.grid import GridFunction
from convgrad.engines.llvm.convert import BYTES, STORED, read, widen
from convgrad.engines.llvm.emit import Value
from convgrad.engines.llvm.store import Epilogue, total
from convgrad.plan.cuda.nest import AXES
from convgrad.plan.cuda.recipe import ROWS, ProductSpec, StoreSpec
from convgrad.plan.cuda.tables import DEPTH, LEAF_WORDS, LOOPS, NUMBERS, TERM_WORDS
from convgrad.plan.records import Record


class Numbers:
    """The numbers of a record at an address. All numbers are loaded at once."""

    def __init__(self, f: GridFunction, record: Record, table: Value) -> None:
        self.f = f
        self.wide = {name: f.load("i64", table, record.at(name)) for name in record.columns}

    def __getitem__(self, name: str) -> Value:
        """Return a number as an i32."""
        return self.f.int32(self.wide[name])


@dataclass(frozen=True)
class RowOfA:
    """A row of A: its offset in A and in C, and its positions."""

    a: Value
    c: Value
    positions: Sequence[Value]


@dataclass(frozen=True)
class DeviceTerm:
    """A term of a sum: offsets in A and B, and positions. Absent terms have positions that do not exist."""

    a: Value
    b: Value
    positions: Sequence[Value]


def row_of(n: Numbers, number: Value) -> RowOfA:
    """Return a row by its number."""
    f = n.f
    a, c, positions = f.int32(0), f.int32(0), [f.int32(0)] * AXES
    for at, name in reversed(list(enumerate(LOOPS))):
        number, index = f.divided(number, n[f"{name}.extent"])
        a, c = a + index * n[f"{name}.a"], c + index * n[f"{name}.c"]
        if name not in ("outer", "inner"):
            positions[at - 1] = index * n[f"{name}.step"]
    return RowOfA(a, c, positions)


class Operands:
    """The operands of a group and leaf of a product, while its kernel is being emitted."""

    def __init__(self, f: GridFunction, spec: ProductSpec, group: Value, leaf: Value) -> None:
        self.f, self.spec, self.group, self.leaf = f, spec, group, leaf
        self.numbers = n = Numbers(f, NUMBERS, f.table)
        tables = {name: f.at(f.table, n.wide[f"{name}_at"]) for name in ("leaves", "ends", "terms")}
        words = f.load(f"<{LEAF_WORDS} x i32>", f.at(tables["leaves"], f.int64(leaf) * (4 * LEAF_WORDS)))
        self.begin, self.end, first_a, first_b = f.lanes(words)
        self.ends, self.terms = tables["ends"], tables["terms"]
        kind = STORED[spec.operands]
        by_group = f.int64(group)
        self.a = f.element(f.a, kind, f.int64(first_a) + by_group * n.wide["group_a"])
        self.b = f.element(f.b, kind, f.int64(first_b) + by_group * n.wide["group_b"])
        self.extents = [n[f"extent{axis}"] for axis in range(AXES)]

    def term(self, step: Value, index: Value) -> DeviceTerm:
        """Return a term of a step."""
        f = self.f
        place = f.at(self.terms, f.int64(step * DEPTH + index) * (4 * TERM_WORDS))
        a, b, *positions = f.lanes(f.load("<4 x i32>", place))
        if self.spec.checked == AXES:
            positions.append(f.load("i32", place, 16))
        return DeviceTerm(a, b, positions)

    def ends_of(self, step: Value, levels: int) -> list[Value]:
        """Return, for each level, whether the sums below it end with a step and are added to those of the level."""
        if not levels:
            return []
        ended = self.f.load("i32", self.f.at(self.ends, self.f.int64(step) * 4))
        return [self.f.compare("sgt" if level else "ne", ended, level) for level in range(levels)]

    def elements_of_a(
        self, row: RowOfA, term: DeviceTerm, width: int = 1, terms: int = 1
    ) -> tuple[list[Value], Value | None]:
        """Return neighbouring elements of A in f32, or zeros if they do not exist, and whether they exist.

        They are ``width`` elements that are neighbours in memory, or those of ``terms`` terms at equal distances. The
        second result is None if the elements always exist. If they do not exist, others are loaded and discarded.
        """
        f = self.f
        exists, index = None, row.a + term.a
        for axis in range(self.spec.checked):
            inside = f.compare("ult", row.positions[axis] + term.positions[axis], self.extents[axis])
            exists = inside if exists is None else exists & inside
        if self.spec.ones:
            assert width == terms == 1, "the sum of a row of ones is computed output by output"
            return [Value(f, "float", "1.0")] * width, exists
        if exists is not None:
            index = f.select(exists, index, f.int32(0))
        elements = self._elements(self.a, index, width)
        for _ in range(terms - 1):
            index = index + self.numbers["term_step"]
            elements += self._elements(self.a, index, 1)
        if exists is None:
            return elements, None
        return [f.select(exists, element, f.zeros("float")) for element in elements], exists

    def elements_of_b(self, term: DeviceTerm, column: Value, width: int = 1) -> list[Value]:
        """Return neighbouring elements of B in f32. For an absent term, they are those of another term."""
        return self._elements(self.b, term.b + column * self.numbers["column_b"], width)

    def _elements(self, base: Value, index: Value, width: int) -> list[Value]:
        f, fmt = self.f, self.spec.operands
        kind, place = STORED[fmt], f.element(base, STORED[fmt], index)
        raw = [f.load(kind, place)] if width == 1 else f.lanes(f.load(f"<{width} x {kind}>", place))
        return [widen(f, fmt, bits) for bits in raw]

    @cached_property
    def result(self) -> Result:
        """The store of this group's results."""
        return Result(self.f, self.spec.store, self.numbers)


class Result:
    """The place of results in C or in scratch memory, and their last steps."""

    def __init__(self, f: GridFunction, store: StoreSpec, numbers: Numbers) -> None:
        self.f, self.spec, self.numbers = f, store, numbers
        flag = Value(f, "i1", "true") if store.accumulate else None
        self.epilogue = Epilogue(f, store.output, store.width, flag, activation=store.activation)

    def place(self, number: Value) -> tuple[Value, Value, Value]:
        """Return the group, row and column of a result, which are i32."""
        f, n = self.f, self.numbers
        if self.spec.along == ROWS:
            other, row = f.divided(number, n.wide["rows"])
            group, column = f.divided(other, n.wide["columns"])
        else:
            other, column = f.divided(number, n.wide["columns"])
            row, group = f.divided(other, n.wide["groups"])
        return f.int32(group), f.int32(row), f.int32(column)

    def number(self, group: Value, row: Value, column: Value) -> Value:
        """Return the number of a result, an i64."""
        f, n = self.f, self.numbers.wide
        group, row, column = f.int64(group), f.int64(row), f.int64(column)
        if self.spec.along == ROWS:
            return (group * n["columns"] + column) * n["rows"] + row
        return (row * n["groups"] + group) * n["columns"] + column

    def store(self, value: Value, group: Value, row: RowOfA, column: Value) -> None:
        """Complete a sum, or a vector of sums that begins at this row and column, and store the result in C."""
        f, n = self.f, self.numbers
        index = n.wide["first"] + f.int64(row.c) + f.int64(column) * n.wide["column_c"]
        index = index + f.int64(group) * n.wide["group_c"]
        bias = self._bias(group * n["columns"] + column, value) if self.spec.bias else None
        self.epilogue.store(total(f, value, bias), f.element(f.c, f"i{8 * BYTES[self.spec.output]}", index))

    def _bias(self, channel: Value, value: Value) -> Value:
        """Return the bias of a sum, or a vector of the biases of sums."""
        f, count = self.f, 1 if value.type == "float" or self.spec.along == ROWS else self.spec.width
        biases = [self._one_bias(channel + i) for i in range(count)]
        if count > 1:
            return f.vector(biases)
        return biases[0] if value.type == "float" else f.splat(biases[0], self.spec.width)

    def _one_bias(self, channel: Value) -> Value:
        f, fmt = self.f, self.spec.bias
        return read(f, fmt, f.element(f.bias, STORED[fmt], channel * self.numbers["bias_step"]))

    def partial(self, value: Value, leaf: Value, number: Value) -> None:
        """Store the sum of a leaf, or a vector of sums, in scratch memory, which has all results of each leaf."""
        f, n = self.f, self.numbers.wide
        outputs = n["rows"] * n["columns"] * n["groups"]
        f.store(value, f.element(f.work, "float", f.int64(leaf) * outputs + number))
