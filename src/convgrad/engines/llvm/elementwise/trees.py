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
    """Return the arguments of the tasks. The tree has ``levels``, at least one."""
    return addresses("sums", "out") + Record("rows", "width", "levels")


def emit_task(f: Function, spec: TreesSpec, a: Named, task: Value) -> None:
    """Emit the sums of the rows of a matrix, which are ``width`` wide.

    Scratch has the nodes of the first level, and then those of the next ones.
    """
    row = a.width * F64_BYTES
    out = f.at(a.out, task * row)
    nodes = _level(f, spec.isa, f.at(a.sums, task * a.rows * row), out, a.rows, a.width)
    with f.loop(a.levels - 1, nodes=nodes) as level:
        level.next(nodes=_level(f, spec.isa, f.scratch, out, level.nodes, a.width))


def _level(f: Function, isa: Isa, source: Value, out: Value, rows: Value, width: Value) -> Value:
    """Emit the nodes above the rows at ``source``, and return their number. A node adds its children in order.

    Nodes are stored in scratch, and the last one in ``out``. A node never replaces a row that another node reads later.
    """
    lanes = isa.lanes // 2
    kind, row = f"<{lanes} x double>", width * F64_BYTES
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
                store_masked(f, child.total, f.at(f.at(target, node.index * row), at), mask)

        in_vectors(f, width, lanes, add)
    return nodes
