"""The IR of tasks that compute a map on tensors.

The tensors of a map have three axes: outer, rows and columns. An operand or a result is contiguous along the columns,
or an operand has one number per row. All other strides are arguments, so an operand of stride 0 is repeated. Tasks are
blocks of rows and columns.

The same map on many dense tensors, which are lists, has a table of their addresses, and one with a row per task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.convert import BYTES, load_vector, read, store_masked, write
from convgrad.engines.llvm.elementwise.arithmetic import Vector, VectorOperations, narrowed, widened
from convgrad.engines.llvm.emit import Function, Value
from convgrad.engines.tensors import PER_ROW
from convgrad.formats import F64
from convgrad.plan.machine import Isa
from convgrad.plan.records import COLUMN_BYTES, Record, addresses
from convgrad.spec.elementwise.table import MAPS

STRIDES = Record("outer", "row")  # the strides of outer axis and rows, in bytes


@dataclass(frozen=True)
class MapSpec:
    """What the code of a map depends on: ``formats`` are those of the operands, then of the results to store.

    ``by_rows`` is whether a task has some rows at all places of the outer axis.
    """

    isa: Isa
    name: str
    formats: tuple[str, ...]
    by_rows: bool = False


@dataclass(frozen=True)
class ListsSpec:
    """What the code of a map on lists depends on."""

    of: MapSpec

    @property
    def isa(self) -> Isa:
        """The instruction set."""
        return self.of.isa


def arguments_of(spec: MapSpec) -> Record:
    """Return the arguments of the tasks."""
    numbers = Record("outers", "rows", "columns", "task_rows", "task_columns", "column_blocks")
    return record_of(len(spec.formats), Record(), numbers)


def record_of(tensors: int, places: Record, numbers: Record) -> Record:
    """Return arguments of tasks: the addresses of tensors and other places, numbers, and the tensors' strides."""
    names = [f"t{number}" for number in range(tensors)]
    record = addresses(*(f"{name}.data" for name in names)) + places + numbers
    for name in names:
        record += STRIDES.within(name)
    return record


def emit_task(f: Function, spec: MapSpec, a: Named, task: Value) -> None:
    """Emit the map of a block of rows and columns."""
    if spec.by_rows:
        first = task * a.task_rows
        rows = f.min(a.task_rows, a.rows - first)
        with digits_from(f, f.value(0), a.outers * rows, rows) as (outer, row):
            _row(f, spec, a, outer, first + row, f.value(0), a.columns)
        return
    row_block, column_block = f.divided(task, a.column_blocks)
    first, column = row_block * a.task_rows, column_block * a.task_columns
    length = f.min(a.task_columns, a.columns - column)
    with digits_from(f, first, f.min(a.task_rows, a.outers * a.rows - first), a.rows) as (outer, row):
        _row(f, spec, a, outer, row, column, length)


@contextmanager
def digits_from(f: Function, first: Value, count: Value, *bases: Value) -> Iterator[list[Value]]:
    """Repeat a block for ``count`` numbers from ``first``, written with one digit more than there are ``bases``.

    Only the first number is divided, because a division takes as long as many vectors.
    """
    digits: list[Value] = []
    for base in reversed(bases):
        first, digit = f.divided(first, base)
        digits.insert(0, digit)
    with f.loop(count, **{f"d{n}": digit for n, digit in enumerate([first, *digits])}) as loop:
        yield [*loop.carried.values()]
        increment, names = f.value(1), [*loop.carried]
        following: dict[str, Value] = {}
        for name, base in zip(reversed(names[1:]), reversed(bases), strict=True):
            digit = loop.carried[name] + increment
            increment = f.op("i64", f"zext {digit >= base} to i64")
            following[name] = f.select(digit >= base, f.value(0), digit)
        loop.next(**following, **{names[0]: loop.carried[names[0]] + increment})


def arguments_of_lists(spec: ListsSpec) -> Record:
    """Return the arguments of the tasks on lists: the numbers among the operands, and two tables.

    ``tensors`` has the address of each tensor, list after list, and ``table`` a row of ``TASK_OF_LISTS`` per task.
    """
    numbers = [f"t{at}.data" for at, fmt in enumerate(spec.of.formats) if fmt == PER_ROW]
    return addresses(*numbers, "tensors", "table") + Record("places")


TASK_OF_LISTS = Record("place", "first", "length")  # a place in the lists, and elements of the tensors there


def emit_task_of_lists(f: Function, spec: ListsSpec, a: Named, task: Value) -> None:
    """Emit the map of the elements of a row of the table. The results replace the first operands."""
    row, of_map = columns(f, f.at(a.table, task * TASK_OF_LISTS.bytes), TASK_OF_LISTS), spec.of
    operands = of_map.formats[: len(MAPS[of_map.name].operands)]
    lists = [fmt for fmt in operands if fmt != PER_ROW]
    pointers = []
    for number, fmt in enumerate(lists):
        tensor = f.load("ptr", f.at(a.tensors, (a.places * number + row.place) * COLUMN_BYTES))
        pointers.append(f.at(tensor, row.first * BYTES[fmt]))
    numbers = [a.of(f"t{at}").data for at, fmt in enumerate(operands) if fmt == PER_ROW]
    results = pointers[: len(of_map.formats) - len(operands)]
    emit_elements(f, of_map, [*pointers, *numbers, *results], row.length)


def _row(f: Function, spec: MapSpec, a: Named, outer: Value, row: Value, column: Value, length: Value) -> None:
    """Emit the map of ``length`` elements of a row."""
    pointers = []
    for at, fmt in enumerate(spec.formats):
        tensor = a.of(f"t{at}")
        pointer = f.at(f.at(tensor.data, outer * tensor.outer), row * tensor.row)
        pointers.append(f.at(pointer, column * BYTES[fmt]) if fmt != PER_ROW else pointer)
    emit_elements(f, spec, pointers, length)


def emit_elements(f: Function, spec: MapSpec, pointers: list[Value], length: Value) -> None:
    """Emit the map of ``length`` elements of the operands and results at ``pointers``."""
    definition = MAPS[spec.name]
    wide, count = definition.is_wide(spec.formats), len(definition.operands)
    lanes = spec.isa.lanes // 2 if wide else spec.isa.lanes
    number = "double" if wide else "float"
    of_row = {at: f.splat(f.load(number, pointers[at]), lanes) for at in range(count) if spec.formats[at] == PER_ROW}

    def loaded(fmt: str, pointer: Value, mask: Value | None) -> Value:
        if fmt == F64.name:
            return load_vector(f, f"<{lanes} x double>", pointer, mask)
        value = read(f, fmt, pointer, lanes, mask)
        return widened(f, value) if wide else value

    def mapped(begin: Value, vectors: int, mask: Value | None) -> None:
        arithmetic = VectorOperations(f, lanes, wide, count=vectors)
        places = [begin + number * lanes for number in range(vectors)]
        there = [
            [f.at(pointer, first * BYTES[fmt]) if fmt else pointer for first in places]
            for pointer, fmt in zip(pointers, spec.formats, strict=True)
        ]
        values = [
            (of_row[at],) * vectors if at in of_row else tuple([loaded(spec.formats[at], p, mask) for p in there[at]])
            for at in range(count)
        ]
        results = definition.definition(arithmetic, *[Vector(f, operand) for operand in values])
        stored = results if isinstance(results, tuple) else (results,)
        for result, fmt, to in zip(stored, spec.formats[count:], there[count:], strict=False):
            for value, pointer in zip(result.values, to, strict=True):
                if fmt == F64.name:
                    store_masked(f, value, pointer, mask)
                else:
                    write(f, fmt, [narrowed(f, value) if wide else value], pointer, mask)

    in_vectors(f, length, lanes, mapped)
