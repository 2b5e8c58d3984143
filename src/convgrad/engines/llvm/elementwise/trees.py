"""The IR of tasks that add the rows of matrices of f64 by the 16-ary reduction tree."""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.engines.llvm.added import in_vectors
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import load_vector, store_masked
from convgrad.engines.llvm.elementwise.sums import F64_BYTES
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.machine import Isa
from convgrad.plan.records import Record, addresses
from convgrad.spec.order import FAN_IN


@dataclass(frozen=True)
class TreesSpec:
    """What the code depends on."""

    isa: Isa


def arguments_of(spec: TreesSpec) -> Record:
    """Return the arguments of the tasks. The tree has ``levels``, at least one.

    The columns are cut into ``blocks`` of ``task_width``. A task has one block of ``task_matrices``.
    """
    return addresses("sums", "out") + Record("rows", "width", "levels", "blocks", "task_width", "task_matrices")


def emit_task(f: Function, spec: TreesSpec, a: Named, task: Value) -> None:
    """Emit the sums of the rows of matrices, which are ``width`` wide.

    Scratch has the nodes of the first level, and then those of the next ones.
    """
    row = a.width * F64_BYTES
    first, block = f.divided(task, a.blocks)
    begin = block * a.task_width
    width = f.min(a.task_width, a.width - begin)
    with f.loop(a.task_matrices) as loop:
        matrix = first * a.task_matrices + loop.index
        source, out = f.at(a.sums, matrix * a.rows * row), f.at(a.out, matrix * row)
        source, out = (f.at(place, begin * F64_BYTES) for place in (source, out))
        nodes = _level(f, spec.isa, (source, row), out, a.rows, width)
        with f.loop(a.levels - 1, nodes=nodes) as level:
            level.next(nodes=_level(f, spec.isa, (f.scratch, width * F64_BYTES), out, level.nodes, width))


def _level(f: Function, isa: Isa, matrix: tuple[Value, Value], out: Value, rows: Value, width: Value) -> Value:
    """Emit the nodes above the rows of a matrix, and return their number. A node adds its children in order.

    ``matrix`` is an address and the stride of the rows. Nodes are stored in scratch, and the last one in ``out``. A
    node never replaces a row that another node reads later.
    """
    lanes, (source, row) = isa.lanes // 2, matrix
    kind = f"<{lanes} x double>"
    nodes = rows + (FAN_IN - 1) >> FAN_IN.bit_length() - 1
    target = f.select(rows < FAN_IN + 1, out, f.scratch)
    with f.loop(nodes) as node:
        first = node.index * FAN_IN
        children, others = f.at(source, first * row), f.min(rows - first, FAN_IN) - 1

        def add(begin: Value, vectors: int, mask: Value | None) -> None:
            for at in ((begin + number * lanes) * F64_BYTES for number in range(vectors)):
                here = f.at(children, at)
                with f.loop(others, total=load_vector(f, kind, here, mask)) as child:
                    term = load_vector(f, kind, f.at(here, (child.index + 1) * row), mask)
                    child.next(total=f.add(child.total, term))
                store_masked(f, child.total, f.at(f.at(target, node.index * width * F64_BYTES), at), mask)

        in_vectors(f, width, lanes, add)
    return nodes
