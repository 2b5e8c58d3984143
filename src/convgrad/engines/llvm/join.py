"""Joining partial sums of weights: level by level within an image, and of images that several tasks have summed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from convgrad.engines.llvm.arguments import JOIN_BYTES, Named, arguments, bit, columns, going
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.joins import JOIN
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES, KernelSpec


def carry(module: Module, spec: KernelSpec) -> None:
    """Emit ``carry``: join one level's partial sums, of a whole tile, into the level above."""
    kind, step = f"<{spec.isa.lanes} x float>", spec.isa.lanes * F32_BYTES
    f = module.function("carry", child="ptr", parent="ptr", first="i1")
    with f.loop(spec.tile_bytes // step, child=f.child, parent=f.parent) as loop:
        child = f.load(kind, loop.child)
        with f.when(f.first):
            f.store(child, loop.parent)
        with f.otherwise():
            f.store(f.add(f.load(kind, loop.parent), child), loop.parent)
        loop.next(child=f.at(loop.child, step), parent=f.at(loop.parent, step))
    f.done()


def climb(f: Function, spec: KernelSpec, child: Value, firsts: Value, levels: Value) -> Value:
    """Carry a sum upward, level by level, each behind the one below; return where the last is."""
    with f.loop(levels, child=child, firsts=firsts) as join:
        parent = f.at(join.child, spec.tile_bytes)
        f.call("carry", join.child, parent, bit(f, join.firsts))
        join.next(child=parent, firsts=join.firsts >> 1)
    return join.child


def keep(f: Function, spec: KernelSpec, unit: Value, sums: Value, kept: Value) -> None:
    """Where the sum of a unit is done that another task's are joined with, put it among the others."""
    with f.when(unit >= 0):
        f.call("carry", sums, f.at(kept, unit * spec.tile_bytes), Value(f, "i1", "true"))


@contextmanager
def when_all_ended(f: Function, a: Named, t: Named) -> Iterator[None]:
    """Do a block in the last to end of the tasks that share a part of the weights: then all units' sums are there."""
    with f.when(f.compare("sgt", a.image_parts, 1)):
        before = f.op("i64", f"atomicrmw add {f.at(a.kept, t.part * 8)}, i64 1 seq_cst")
        with f.when(f.compare("eq", before, a.image_parts - 1) & going(f, a)):
            yield


def gather(module: Module, spec: KernelSpec) -> None:
    """Emit ``gather``: join the kept sums of all units, of one tile, in the order of their tree."""
    f = module.function("gather", arguments="ptr", sums="ptr", kept="ptr")
    a = arguments(f)
    with f.loop(a.units, kept=f.kept, joins=a.unit_joins) as unit:
        j = columns(f, unit.joins, JOIN)
        for at in range(0, spec.tile_bytes, LINE_BYTES):  # the next unit's: sums of another core take long to come
            f.prefetch(f.at(unit.kept, spec.tile_bytes + at))
        with f.loop(j.carries + 1, child=unit.kept, parent=f.sums, firsts=j.firsts) as join:
            f.call("carry", join.child, join.parent, bit(f, join.firsts))
            join.next(child=join.parent, parent=f.at(join.parent, spec.tile_bytes), firsts=join.firsts >> 1)
        unit.next(kept=f.at(unit.kept, spec.tile_bytes), joins=f.at(unit.joins, JOIN_BYTES))
    f.done()
