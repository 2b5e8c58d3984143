"""Kernels in which a thread computes one number: an output, a node of the reduction tree, or an element of packed B."""

from __future__ import annotations

from convgrad.engines.cuda.grid import Grid
from convgrad.engines.cuda.operands import Numbers, Operands, Result, RowOfA, row_of
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Value
from convgrad.plan.cuda.recipe import LevelSpec, PackSpec, SingleSpec
from convgrad.plan.cuda.tables import DEPTH, LEVEL, NUMBERS, PACK
from convgrad.spec.order import FAN_IN


def sum_of(of: Operands, row: RowOfA, column: Value) -> Value:
    """Emit the sum of a leaf for one output. Terms that do not exist are skipped.

    If chains are split, the sums of even and of odd terms change places after each term.
    """
    f, chains = of.f, ("chain", "odd") if of.spec.split else ("chain",)
    levels = ("portions", "node") if of.spec.levels > 1 else ("node",)
    zero = f.zeros("float")
    with f.loop(f.int64(of.end - of.begin), **dict.fromkeys((*chains, *levels), zero)) as step:
        number = of.begin + f.int32(step.index)
        with f.loop(DEPTH, **{name: step.carried[name] for name in chains}) as products:
            term = of.term(number, f.int32(products.index))
            (x,), exists = of.elements_of_a(row, term)
            (y,) = of.elements_of_b(term, column)
            added = f.fma(x, y, products.chain)
            added = added if exists is None else f.select(exists, added, products.chain)
            others = [products.carried[name] for name in chains[1:]]
            products.next(**dict(zip(chains, [*others, added], strict=True)))
        ended, following = of.ends_of(number, len(levels)), {name: products.carried[name] for name in chains}
        below = f.add(products.chain, products.odd) if of.spec.split else products.chain
        for name, ends in zip(levels, ended, strict=True):
            before, below = step.carried[name], f.add(step.carried[name], below)
            following = {lower: f.select(ends, zero, value) for lower, value in following.items()}
            following[name] = f.select(ends, below, before)
        step.next(**following)
    return step.node


def store(of: Operands, value: Value, row: RowOfA, number: Value, column: Value) -> None:
    """Store the sum of a leaf, or a vector of sums: as partial sums, or as results."""
    result = of.result
    if of.spec.store.partial:
        result.partial(value, of.leaf, result.number(of.group, number, column))
    else:
        result.store(value, of.group, row, column)


def single(spec: SingleSpec, on_cpu: bool) -> Grid:
    """Emit the kernel in which a thread computes one output. The grid is outputs in blocks, 1, leaves."""
    grid = Grid(spec.name, spec.threads, spec.shared_bytes, on_cpu)
    f = grid.f
    with grid.blocks() as (x, _, leaf), grid.phase() as thread:
        n = Numbers(f, NUMBERS, f.table)
        output = f.int64(x) * spec.threads + f.int64(thread)
        outputs = n.wide["rows"] * n.wide["columns"] * n.wide["groups"]
        with f.when(f.compare("slt", output, outputs)):
            group, row, column = Result(f, spec.store, n).place(output)
            of = Operands(f, spec, group, leaf)
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
            result = Result(f, spec.store, n)
            if spec.store.partial:
                to = (f.int64(unit) * n.wide["nodes"] + f.int64(node)) * elements + output
                f.store(child.sums, f.element(f.work, "float", to))
            else:
                group, row, column = result.place(output)
                result.store(child.sums, group, row_of(n, row), column)
    return grid


def pack(spec: PackSpec, on_cpu: bool) -> Grid:
    """Emit the kernel that packs B by group, term and column. The grid is elements in blocks, groups, 1."""
    grid = Grid(spec.name, spec.threads, spec.shared_bytes, on_cpu)
    f, kind = grid.f, f"i{8 * BYTES[spec.operands]}"
    with grid.blocks() as (x, group, _), grid.phase() as thread:
        n = Numbers(f, NUMBERS + PACK, f.table).wide
        element, all_elements = f.int64(x) * spec.threads + f.int64(thread), n["count"] * n["columns"]
        with f.when(f.compare("slt", element, all_elements)):
            term, column = f.divided(element, n["columns"])
            offset = f.int64(f.load("i32", f.at(f.at(f.table, n["offsets_at"]), term * 4)))
            place = offset + column * n["column_b"] + f.int64(group) * n["group_b"]
            value = f.load(kind, f.element(f.b, kind, place))
            f.store(value, f.element(f.work, kind, f.int64(group) * all_elements + element))
    return grid
