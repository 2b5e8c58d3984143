"""The IR of tasks that find the largest element of each row of a matrix, as f32; NaN if a row has one."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.machine import Isa
from convgrad.plan.records import Record, addresses


@dataclass(frozen=True)
class LargestSpec:
    """What the code depends on: ``fmt`` is the format of the matrix."""

    isa: Isa
    fmt: str


def arguments_of(spec: LargestSpec) -> Record:
    """Return the arguments of the tasks."""
    return addresses("matrix", "out") + Record("rows", "columns", "task_rows")


def emit_task(f: Function, spec: LargestSpec, a: Named, task: Value) -> None:
    """Emit the largest elements of the rows of a task. Another number is taken only where it is larger, or NaN."""
    lanes, size = spec.isa.lanes, BYTES[spec.fmt]
    first = task * a.task_rows
    with f.loop(f.min(a.task_rows, a.rows - first)) as loop:
        number = first + loop.index
        row = f.at(a.matrix, number * a.columns * size)
        whole = a.columns >> lanes.bit_length() - 1
        lowest = f.everywhere(f"<{lanes} x float>", float("-inf"))
        with f.loop(whole, largest=lowest, nan=lowest) as vector:
            there = read(f, spec.fmt, f.at(row, vector.index * lanes * size), lanes)
            vector.next(**_larger(f, vector.largest, vector.nan, there, there))
        left = a.columns - whole * lanes
        with f.loop(f.min(left, 1), **vector.carried) as last:
            mask = f.mask(left, lanes)
            there = read(f, spec.fmt, f.at(row, whole * lanes * size), lanes, mask)
            there = f.select(mask, there, lowest)
            last.next(**_larger(f, last.largest, last.nan, there, there))
        halves, half = last.carried, lanes
        while half > 1:
            half //= 2
            low, high = (
                [f.shuffle(value, value, [begin + lane for lane in range(half)]) for value in halves.values()]
                for begin in (0, half)
            )
            halves = _larger(f, *low, *high)
        nan = halves["nan"]
        result = f.select(f.op("<1 x i1>", f"fcmp uno {nan}, {nan.name}"), nan, halves["largest"])
        f.store(f.op("float", f"extractelement {result}, i64 0"), f.at(a.out, number * BYTES["f32"]))


def _larger(f: Function, largest: Value, nan: Value, other: Value, other_nan: Value) -> dict[str, Value]:
    """Return the larger elements of two vectors that are not NaN, and NaN where one was found."""
    mask = f"<{other.type.split()[0][1:]} x i1>"
    return {
        "largest": f.select(f.op(mask, f"fcmp ogt {other}, {largest.name}"), other, largest),
        "nan": f.select(f.op(mask, f"fcmp uno {other_nan}, {other_nan.name}"), other_nan, nan),
    }
