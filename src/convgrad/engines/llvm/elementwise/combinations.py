"""The IR of tasks that compute linear combinations of positions along an axis, by a table.

The columns after the axis are contiguous, and one vector has neighbouring columns of a result. If there is only one
column, a vector has neighbouring results, whose terms are gathered.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, STORED, load_vector, read, write
from convgrad.engines.llvm.elementwise.maps import digits_from
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.machine import Isa
from convgrad.plan.records import Record, addresses
from convgrad.spec.elementwise.combinations import start_of

_I32, _F32 = "i32", "float"
_TABLE_BYTES = 4  # of a number in the table


@dataclass(frozen=True)
class CombinationsSpec:
    """What the code depends on: the formats of the tensor and of the results, whether sums start with +0.

    ``gathers`` is whether there is only one column.
    """

    isa: Isa
    fmt: str
    out: str
    from_zero: bool
    gathers: bool


def arguments_of(spec: CombinationsSpec) -> Record:
    """Return the arguments of the tasks. A unit is a result, or all results of an outer place if ``gathers``."""
    return addresses("data", "table", "out") + Record("units", "task_units", "extent", "results", "columns", "terms")


def emit_task(f: Function, spec: CombinationsSpec, a: Named, task: Value) -> None:
    """Emit the results of a task's units."""
    first = task * a.task_units
    count = f.min(a.task_units, a.units - first)
    if spec.gathers:
        with f.loop(count) as loop:
            outer = first + loop.index
            data = f.at(a.data, outer * a.extent * BYTES[spec.fmt])
            _results(f, spec, a, data, f.at(a.out, outer * a.results * BYTES[spec.out]))
    else:
        with digits_from(f, first, count, a.results) as (outer, result):
            data = f.at(a.data, outer * a.extent * a.columns * BYTES[spec.fmt])
            row = (outer * a.results + result) * a.columns
            _columns(f, spec, a, data, f.at(a.out, row * BYTES[spec.out]), result)


def _added(f: Function, total: Value, value: Value, weight: Value) -> Value:
    return f.add(total, f.op(value.type, f"fmul {value}, {weight.name}"))


def _columns(f: Function, spec: CombinationsSpec, a: Named, data: Value, out: Value, result: Value) -> None:
    """Emit all columns of a result."""
    lanes, row = spec.isa.lanes, a.results * _TABLE_BYTES
    column = f.at(a.table, result * _TABLE_BYTES)
    terms = f.op("i64", f"zext {f.load(_I32, column)} to i64")
    places = f.at(column, row)
    weights = f.at(places, a.terms * row)

    def emit(first: Value, vectors: int, mask: Value | None) -> None:
        start = f.everywhere(f"<{lanes} x {_F32}>", start_of(spec.from_zero))
        with f.loop(terms, **{f"v{n}": start for n in range(vectors)}) as term:
            place = f.op("i64", f"zext {f.load(_I32, places, term.index * row)} to i64")
            weight = f.splat(f.load(_F32, weights, term.index * row), lanes)
            here = f.at(data, (place * a.columns + first) * BYTES[spec.fmt])
            values = [read(f, spec.fmt, f.at(here, n * lanes * BYTES[spec.fmt]), lanes, mask) for n in range(vectors)]
            totals = zip(term.carried.items(), values, strict=True)
            term.next(**{name: _added(f, total, value, weight) for (name, total), value in totals})
        for n, total in enumerate(term.carried.values()):
            write(f, spec.out, [total], f.at(out, (first + n * lanes) * BYTES[spec.out]), mask)

    in_vectors(f, a.columns, lanes, emit)


def _results(f: Function, spec: CombinationsSpec, a: Named, data: Value, out: Value) -> None:
    """Emit all results of the only column."""
    lanes, row = spec.isa.lanes, a.results * _TABLE_BYTES
    integers = f"<{lanes} x {_I32}>"

    def emit(first: Value, vectors: int, mask: Value | None) -> None:
        for begin in [first + n * lanes for n in range(vectors)]:
            column = f.at(a.table, begin * _TABLE_BYTES)
            counts = load_vector(f, integers, column, mask)
            places = f.at(column, row)
            weights = f.at(places, a.terms * row)
            max_terms = f.intrinsic(_I32, f"llvm.vector.reduce.umax.v{lanes}i32", counts)
            with f.loop(
                f.op("i64", f"zext {max_terms} to i64"),
                total=f.everywhere(f"<{lanes} x {_F32}>", start_of(spec.from_zero)),
            ) as term:
                number = f.splat(f.op(_I32, f"trunc {term.index} to {_I32}"), lanes)
                there = f.compare("sgt", counts, number)
                place = load_vector(f, integers, f.at(places, term.index * row), mask)
                weight = load_vector(f, f"<{lanes} x {_F32}>", f.at(weights, term.index * row), mask)
                pointers = f.op(f"<{lanes} x ptr>", f"getelementptr {STORED[spec.fmt]}, {data}, {place}")
                value = read(f, spec.fmt, pointers, lanes, there)
                term.next(total=f.select(there, _added(f, term.total, value, weight), term.total))
            write(f, spec.out, [term.total], f.at(out, begin * BYTES[spec.out]), mask)

    in_vectors(f, a.results, lanes, emit)
