"""The IR of tasks that add the rows of f32 matrices to sums, at the places of an index and in its order."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import read, write
from convgrad.engines.llvm.emit import Function, Value
from convgrad.formats import F32
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record, addresses

_PLACE_BYTES = 8


@dataclass(frozen=True)
class IndexedSpec:
    """What the code depends on: ``lanes`` are those of vectors that are no wider than a row."""

    isa: Isa
    lanes: int


def arguments_of(spec: IndexedSpec) -> Record:
    """Return the arguments of the tasks. Task n of ``parts``, a power of two, adds to each place n + k * parts.

    The columns are cut into ``blocks`` of ``task_width``.
    """
    numbers = Record("places", "count", "width", "parts", "blocks", "task_width")
    return addresses("sums", "index", "rows") + numbers


def emit_task(f: Function, spec: IndexedSpec, a: Named, task: Value) -> None:
    """Emit the additions to some places and columns of one matrix of sums. A row outside of the sums is not added."""
    outer, block = f.divided(task, a.blocks)
    matrix, part = f.divided(outer, a.parts)
    begin = block * a.task_width
    width, row = f.min(a.task_width, a.width - begin), a.width * F32_BYTES
    sums, rows = (
        f.at(f.at(place, matrix * count * row), begin * F32_BYTES)
        for place, count in ((a.sums, a.places), (a.rows, a.count))
    )
    with f.loop(a.count) as loop:
        place = f.load("i64", f.at(a.index, loop.index * _PLACE_BYTES))
        own = f.op("i64", f"and {place}, {(a.parts - 1).name}")
        with f.when(f.compare("eq", own, part)), f.when(f.compare("ult", place, a.places)):
            total, term = f.at(sums, place * row), f.at(rows, loop.index * row)

            def add(first: Value, vectors: int, mask: Value | None) -> None:
                for at in ((first + number * spec.lanes) * F32_BYTES for number in range(vectors)):
                    both = [read(f, F32.name, f.at(pointer, at), spec.lanes, mask) for pointer in (total, term)]
                    write(f, F32.name, [f.add(*both)], f.at(total, at), mask)

            in_vectors(f, width, spec.lanes, add)
