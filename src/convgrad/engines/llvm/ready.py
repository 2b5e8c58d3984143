"""Having an operand of a weight gradient ready for a tile: where it lies, or packed into scratch, panel by panel."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named, side_fields
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.nest import Nest, TaskSide
from convgrad.engines.llvm.pack import pack, pack_groups
from convgrad.engines.llvm.pairs import minimum, nothing_yet, pair
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.slices import ENTRY


def packs(module: Module, spec: KernelSpec) -> None:
    """Emit what packs the operands that are not read in place: ``pack_rows``, ``pack_lanes``, ``clear``, ``pair``."""
    for side, read in (("rows", spec.rows), ("lanes", spec.lanes)):
        if spec.groups_in_lanes:
            pack_groups(module, spec, f"pack_{side}", read)
        elif not read.in_place:
            pack(module, spec, f"pack_{side}", read)
    if spec.tile.inner_taps > 1:
        _clear(module, spec)
    if spec.step == 2:
        minimum(module, spec.isa)
    if spec.step == 2 and not spec.compact:
        pair(module, spec.isa)


def groups(n: Nest, side: TaskSide, c: Named) -> None:
    """Pack a chunk of all groups of a task: what lies together is read together."""
    f, t, lanes = n.f, n.t, n.spec.isa.lanes
    many = f.min(n.a.groups - t.group * lanes, t.groups * lanes)
    source = f.at(f.at(side.a.data, t.group * (side.a.group * lanes)), c.image * side.a.image)
    _chunk(n, side, c, f.at(f.scratch, side.a.at), source, many, t.groups)


def where(n: Nest, side: TaskSide, c: Named, group: Value) -> Value:
    """Return where a chunk of a task's group is, the ``group``-th of the task: packed now, or in place."""
    f = n.f
    if n.spec.groups_in_lanes:
        return f.at(f.scratch, side.a.at + group * side.a.panel)
    source = f.at(f.at(side.a.data, (n.t.group + group) * side.a.group), c.image * side.a.image)
    if side.read.in_place:
        return source
    begin = f.at(f.scratch, side.a.at)
    with f.loop(side.t.count, to=begin) as panel:
        first = n.first(side, side.t.first + panel.index)
        items = f.value(side.items) if side.overlaps else f.min(side.a.items - first, side.items)
        _chunk(n, side, c, panel.to, f.at(source, first * side.a.item), items)
        panel.next(to=f.at(panel.to, side.a.panel))
    return begin


def panel(n: Nest, side: TaskSide, begin: Value, number: Value) -> Value:
    """Return where a panel is, the ``number``-th of the task, of what is ready from ``begin`` on."""
    if n.spec.groups_in_lanes or side.read.in_place:
        return n.f.at(begin, n.first(side, side.t.first + number) * (F32_BYTES * n.spec.groups_a_panel))
    return n.f.at(begin, number * side.a.panel)


def least(n: Nest, side: TaskSide, begin: Value, number: Value) -> Value:
    """Return where the least of a panel is that ``panel`` would return: behind it."""
    first = begin if n.spec.groups_in_lanes else panel(n, side, begin, number)
    return n.f.at(first, side.a.panel - LINE_BYTES)


def _chunk(
    n: Nest, side: TaskSide, c: Named, to: Value, source: Value, items: Value, panels: Value | int = 1
) -> None:  # fmt: skip
    """Pack the images of a chunk, row by row: one panel of ``items``, or, of groups, ``panels`` of so many in all."""
    f, rows = n.f, c.of(side.name)
    entries = f.at(side.a.entries, rows.entry * ENTRY.bytes)
    if n.spec.step == 2:
        with f.loop(panels, behind=f.at(to, side.a.panel - LINE_BYTES)) as each:
            nothing_yet(f, n.spec.isa, each.behind)
            each.next(behind=f.at(each.behind, side.a.panel))
    with f.loop(c.images, to=to, source=source) as image:
        with f.loop(rows.entries, to=image.to, entry=entries) as entry:
            here, count = f.at(image.source, f.load("i64", entry.entry)), f.load("i64", entry.entry, 8)
            leasts = (f.at(to, side.a.panel - LINE_BYTES),) if n.spec.compact else ()
            behind = _row(n, side, entry.to, here, count, items, *leasts)
            entry.next(to=behind, entry=f.at(entry.entry, ENTRY.bytes))
        if n.spec.step == 2 and not n.spec.compact:
            size = f.distance(entry.to, image.to)
            with f.loop(panels, panel=image.to, behind=f.at(to, side.a.panel - LINE_BYTES)) as each:
                f.call("pair", each.panel, size, side.a.read_term, each.behind)
                each.next(panel=f.at(each.panel, side.a.panel), behind=f.at(each.behind, side.a.panel))
        image.next(to=f.at(image.to, side.a.read_image), source=f.at(image.source, side.a.image))


def _row(n: Nest, side: TaskSide, to: Value, source: Value, count: Value, items: Value, *leasts: Value) -> Value:
    """Pack terms that lie together, and return where the next go.

    For tiles of several taps a row of src has zeros on both sides: their product with what is finite is what an absent
    tap contributes.
    """
    f, size, name = n.f, count * n.spec.term_bytes(side.read), f"pack_{side.name}"
    fields = side_fields(f, side.name)
    if n.spec.tile.inner_taps == 1 or not side.read.moves:
        f.call(name, to, source, count, fields, items, *leasts)
        return f.at(to, size)
    panels = (n.t.groups, side.a.panel) if n.spec.groups_in_lanes else (1, 0)
    f.call("clear", to, n.a.left, *panels)
    inside = f.at(to, n.a.left)
    f.call(name, inside, source, count, fields, items)
    behind = f.at(inside, size)
    f.call("clear", behind, n.a.right, *panels)
    return f.at(behind, n.a.right)


def _clear(module: Module, spec: KernelSpec) -> None:
    """Emit ``clear``: zeros in ``size`` bytes, a multiple of what a packed term of src takes, of each panel."""
    lanes = spec.isa.lanes
    wide = spec.term_bytes(spec.moving) % (lanes * F32_BYTES) == 0
    kind, step = (f"<{lanes} x float>", lanes * F32_BYTES) if wide else ("float", F32_BYTES)
    f = module.function("clear", to="ptr", size="i64", panels="i64", panel_step="i64")
    with f.loop(f.panels, panel=f.to) as each:
        with f.loop(f.size >> (step.bit_length() - 1), to=each.panel) as loop:
            f.store(f.zeros(kind), loop.to)
            loop.next(to=f.at(loop.to, step))
        each.next(panel=f.at(each.panel, f.panel_step))
    f.done()
