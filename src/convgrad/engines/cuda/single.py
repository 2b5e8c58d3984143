"""Sums of single outputs: the kernel in which a thread computes one output, and the levels of the reduction tree."""

from __future__ import annotations

from convgrad.engines.cuda.grid import Grid
from convgrad.engines.cuda.operands import Numbers, Operands, Result, Row, row_of
from convgrad.engines.llvm.emit import Value
from convgrad.plan.cuda.recipe import ROWS, LevelSpec, SingleSpec
from convgrad.plan.cuda.tables import DEPTH, LEVEL, NUMBERS
from convgrad.spec.order import FAN_IN


def sum_of(of: Operands, row: Row, column: Value) -> Value:
    """Emit the sum of a leaf for one output. Terms that do not exist are skipped."""
    f = of.f
    zero = f.zeros("float")
    with f.loop(f.int64(of.end - of.begin), chain=zero, node=zero) as step:
        number = of.begin + f.int32(step.index)
        with f.loop(DEPTH, chain=step.chain) as one:
            term = of.term(number, f.int32(one.index))
            (x,), exists = of.elements_of_a(row, term)
            (y,) = of.elements_of_b(term, column)
            added = f.fma(x, y, one.chain)
            one.next(chain=f.select(exists, added, one.chain))
        ends = f.compare("ne", f.load("i32", f.at(of.ends, f.int64(number) * 4)), 0)
        node = f.add(step.node, one.chain)
        step.next(chain=f.select(ends, zero, one.chain), node=f.select(ends, node, step.node))
    return step.node


def store(of: Operands, value: Value, row: Row, number: Value, column: Value) -> None:
    """Store the sum of a leaf: a partial sum, or a result."""
    result = of.result
    if of.spec.store.partial:
        result.partial(value, of.leaf, of.group, number, column)
    else:
        result.store(value, of.group, column, result.index(of.group, row, column))


def single(spec: SingleSpec, on_cpu: bool) -> Grid:
    """Emit the kernel in which a thread computes one output. The grid is outputs in blocks, 1, leaves."""
    grid = Grid(spec.name, spec.threads, spec.shared_bytes, on_cpu)
    f = grid.f
    with grid.blocks() as (x, _, leaf), grid.phase() as thread:
        n = Numbers(f, NUMBERS, f.table)
        output = f.int64(x) * spec.threads + f.int64(thread)
        outputs = n.wide["rows"] * n.wide["columns"] * n.wide["groups"]
        with f.when(f.compare("slt", output, outputs)):
            if spec.along == ROWS:
                other, row = f.divided(output, n.wide["rows"])
                group, column = f.divided(other, n.wide["columns"])
            else:
                other, column = f.divided(output, n.wide["columns"])
                row, group = f.divided(other, n.wide["groups"])
            row, group, column = f.int32(row), f.int32(group), f.int32(column)
            of = Operands(grid, spec, group, leaf)
            place = row_of(of.numbers, row)
            store(of, sum_of(of, place, column), place, row, column)
    return grid


def level(spec: LevelSpec, on_cpu: bool) -> Grid:
    """Emit a level of the reduction tree. The grid is outputs in blocks, nodes of a unit, units.

    ``a`` has the sums of all children of all units, and the kernel writes the sums of nodes to ``work`` or to C.
    """
    grid = Grid(spec.name, spec.threads, spec.shared_bytes, on_cpu)
    f = grid.f
    with grid.blocks() as (x, node, unit), grid.phase() as thread:
        n = Numbers(f, NUMBERS + LEVEL, f.table)
        output, elements = f.int64(x) * spec.threads + f.int64(thread), n.wide["elements"]
        with f.when(f.compare("slt", output, elements)):
            children, first = n.wide["children"], f.int64(node) * FAN_IN
            place = (f.int64(unit) * children + first) * elements + output
            with f.loop(f.min(children - first, FAN_IN), place=place, sums=f.zeros("float")) as child:
                value = f.load("float", f.element(f.a, "float", child.place))
                child.next(place=child.place + elements, sums=f.add(child.sums, value))
            if spec.store.partial:
                to = (f.int64(unit) * n.wide["nodes"] + f.int64(node)) * elements + output
                f.store(child.sums, f.element(f.work, "float", to))
            else:
                _store(grid, spec, n, output, child.sums)
    return grid


def _store(grid: Grid, spec: LevelSpec, n: Numbers, output: Value, value: Value) -> None:
    """Store the complete sum of an output; outputs are numbered by group, row and column."""
    f = grid.f
    other, column = f.divided(output, n.wide["columns"])
    group, row = f.divided(other, n.wide["rows"])
    column, group = f.int32(column), f.int32(group)
    result = Result(f, spec.store, n)
    result.store(value, group, column, result.index(group, row_of(n, f.int32(row)), column))
