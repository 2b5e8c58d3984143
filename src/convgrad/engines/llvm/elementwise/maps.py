"""The IR of drivers that compute a map on tensors.

The tensors of ``module_of`` have three axes: outer, rows and columns. An operand or a result is contiguous along the
columns, or an operand has one number per row. All other strides are arguments, so an operand of stride 0 is repeated.
Tasks are blocks of rows and columns.

``module_of_lists`` computes the same map on many dense tensors. Its tasks are rows of a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.convert import BYTES, load_vector, read, write
from convgrad.engines.llvm.driver import claimed
from convgrad.engines.llvm.elementwise.arithmetic import Vector, VectorOperations, narrowed, widened
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.tensors import PER_ROW
from convgrad.formats import F64
from convgrad.plan.machine import Isa
from convgrad.plan.records import FLAGS, Record, addresses
from convgrad.spec.elementwise.table import MAPS

STRIDES = Record("outer", "row")  # the strides of outer axis and rows, in bytes


@dataclass(frozen=True)
class MapSpec:
    """What the code of a map depends on: ``formats`` are those of the operands, then of the results to store."""

    isa: Isa
    name: str
    formats: tuple[str, ...]


def arguments_of(spec: MapSpec) -> Record:
    """Return the driver's arguments."""
    numbers = Record("rows", "all_rows", "columns", "task_rows", "task_columns", "column_blocks", "task_count")
    return record_of(len(spec.formats), Record(), numbers)


def record_of(tensors: int, places: Record, numbers: Record) -> Record:
    """Return a driver's arguments: the addresses of tensors and other places, numbers, and the tensors' strides."""
    names = [f"t{number}" for number in range(tensors)]
    record = FLAGS + addresses(*(f"{name}.data" for name in names)) + places + numbers
    for name in names:
        record += STRIDES.within(name)
    return record


def module_of(spec: MapSpec) -> str:
    """Return the IR of ``driver(arguments, scratch)``."""
    module = Module()
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = columns(f, f.arguments, arguments_of(spec))
    with claimed(f, spec.isa, a, a.task_count) as task:
        row_block, column_block = f.divided(task, a.column_blocks)
        first, column = row_block * a.task_rows, column_block * a.task_columns
        length = f.min(a.task_columns, a.columns - column)
        with f.loop(f.min(a.task_rows, a.all_rows - first)) as loop:
            _row(f, spec, a, first + loop.index, column, length)
    return str(module)


def arguments_of_lists(spec: MapSpec) -> Record:
    """Return the arguments of the driver for lists: a table with a row per task, and the numbers among the operands."""
    numbers = [f"t{at}.data" for at, fmt in enumerate(spec.formats) if fmt == PER_ROW]
    return FLAGS + addresses(*numbers, "table") + Record("task_count")


def task_of_lists(spec: MapSpec) -> Record:
    """Return a row of the table: the addresses of a task's elements, and their number."""
    return addresses(*[f"t{at}.data" for at, fmt in enumerate(spec.formats) if fmt != PER_ROW]) + Record("length")


def module_of_lists(spec: MapSpec) -> str:
    """Return the IR of ``driver(arguments, scratch)`` for lists of tensors."""
    module, record = Module(), task_of_lists(spec)
    f = module.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = columns(f, f.arguments, arguments_of_lists(spec))
    with claimed(f, spec.isa, a, a.task_count) as task:
        row = columns(f, f.at(a.table, task * record.bytes), record)
        sides = [(a if fmt == PER_ROW else row).of(f"t{at}") for at, fmt in enumerate(spec.formats)]
        emit_elements(f, spec, [side.data for side in sides], row.length)
    return str(module)


def _row(f: Function, spec: MapSpec, a: Named, number: Value, column: Value, length: Value) -> None:
    """Emit the map of ``length`` elements of a row."""
    outer, row = f.divided(number, a.rows)
    pointers = []
    for at, fmt in enumerate(spec.formats):
        tensor = a.of(f"t{at}")
        pointer = f.at(f.at(tensor.data, outer * tensor.outer), row * tensor.row)
        pointers.append(f.at(pointer, column * BYTES[fmt]) if fmt != PER_ROW else pointer)
    emit_elements(f, spec, pointers, length)


def emit_elements(f: Function, spec: MapSpec, pointers: list[Value], length: Value) -> None:
    """Emit the map of ``length`` elements of the operands and results at ``pointers``."""
    definition = MAPS[spec.name]
    wide, count = definition.wide, len(definition.operands)
    lanes = spec.isa.lanes // 2 if wide else spec.isa.lanes
    number = "double" if wide else "float"
    of_row = {at: f.splat(f.load(number, pointers[at]), lanes) for at in range(count) if spec.formats[at] == PER_ROW}
    arithmetic = VectorOperations(f, lanes, wide)

    def loaded(fmt: str, pointer: Value, mask: Value | None) -> Value:
        if fmt == F64.name:
            return load_vector(f, f"<{lanes} x double>", pointer, mask)
        value = read(f, fmt, pointer, lanes, mask)
        return widened(f, value) if wide else value

    def mapped(begin: Value, vectors: int, mask: Value | None) -> None:
        for first in (begin + number * lanes for number in range(vectors)):
            there = [f.at(p, first * BYTES[fmt]) if fmt else p for p, fmt in zip(pointers, spec.formats, strict=True)]
            values = [of_row[at] if at in of_row else loaded(spec.formats[at], there[at], mask) for at in range(count)]
            results = definition.definition(arithmetic, *[Vector(f, value) for value in values])
            stored = results if isinstance(results, tuple) else (results,)
            for result, fmt, to in zip(stored, spec.formats[count:], there[count:], strict=False):
                write(f, fmt, [narrowed(f, result.value) if wide else result.value], to, mask)

    in_vectors(f, length, lanes, mapped)
