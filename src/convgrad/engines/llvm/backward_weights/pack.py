"""Packing of weight gradients: A and B where they are, or packed into scratch, panel by panel, k by k."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.backward_weights.nest import Nest, TaskSide
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.packing import Cells, Copy, in_pairs
from convgrad.engines.llvm.pairs import minimum, nothing_yet, pair
from convgrad.plan.backward_weights.recipe import KernelSpec, Read
from convgrad.plan.backward_weights.slices import ENTRY
from convgrad.plan.constants import PREFETCH_PACK_BYTES
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL


def packs(module: Module, spec: KernelSpec) -> None:
    """Emit what packs the operands that are not read in place: ``pack_rows``, ``pack_lanes``, ``clear``, ``pair``."""
    for side, how in (("rows", spec.rows), ("lanes", spec.lanes)):
        if spec.groups_in_lanes:
            pack_groups(module, spec, f"pack_{side}", how)
        elif not how.in_place:
            pack(module, spec, f"pack_{side}", how.contiguous, how.items, how.items * F32_BYTES)
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
    """Pack k that are contiguous in a chunk, and return where the next go.

    For tiles of several taps a row of src has zeros on both sides: their product with what is finite is what an absent
    tap contributes.
    """
    f, a, size = n.f, side.a, count * n.spec.term_bytes(side.read)
    steps = (a.term, a.group, a.ahead, a.item, a.panel) if n.spec.groups_in_lanes else (a.term, a.item, a.ahead)
    clears = n.spec.tile.inner_taps > 1 and side.read.moves
    panels = (n.t.groups, a.panel) if n.spec.groups_in_lanes else (1, 0)
    if clears:
        f.call("clear", to, n.a.left, *panels)
        to = f.at(to, n.a.left)
    f.call(f"pack_{side.name}", to, source, count, items, *steps, *leasts)
    to = f.at(to, size)
    if clears:
        f.call("clear", to, n.a.right, *panels)
        to = f.at(to, n.a.right)
    return to


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


def pack(module: Module, spec: KernelSpec, name: str, contiguous: str, width: int, pitch: int) -> None:
    """Emit a pack of a panel: to[k][index] = source[k * row + index * column], in f32, or in pairs of two k.

    It reads ``items`` columns of ``count`` k and no byte else, and writes the width of the panel: beyond the columns
    zeros, or columns again, because a tile of several taps looks whether all its sums are finite. Pairs have their
    first k above; the least of all is kept in ``leasts``, if that is not less.
    """
    parameters = {"to": "ptr", "source": "ptr", "count": "i64", "items": "i64", "row": "i64", "column": "i64"}
    leasts = {"leasts": "ptr"} if spec.compact else {}
    f = module.function(name, False, **parameters, ahead="i64", **leasts)
    cells = Cells(f, spec.operand, spec.isa.lanes, 0 if spec.compact else None)
    copy = Copy(cells, f.count, f.row, f.items, f.column, pitch, width, ahead=f.ahead)
    if contiguous == SPATIAL:
        copy.along_rows(f.source, f.to)
    else:
        in_pairs(copy, "rows", Copy.along_columns if contiguous == CHANNELS else Copy.one_by_one, f.source, f.to)
    if spec.compact:
        f.call("minimum", f.to, 1, 0, ((f.count + 1) >> 1) * (2 * width), f.leasts)
    f.done()


def pack_groups(module: Module, spec: KernelSpec, name: str, how: Read) -> None:
    """Emit a pack of groups, some panels of as many as there are lanes: to[panel][k][index][group], in f32.

    Its source is source[panel * lanes * column + k * row + index * item + group * column], of ``items`` groups of
    ``how.items`` each; it reads no byte else.
    """
    lanes, size = spec.isa.lanes, spec.isa.lanes * F32_BYTES
    parameters = {"to": "ptr", "source": "ptr", "count": "i64", "items": "i64", "row": "i64", "column": "i64"}
    f = module.function(name, False, **parameters, ahead="i64", item="i64", panel="i64")
    panel_from = f.column * lanes
    if how.contiguous == CHANNELS:
        with f.loop(f.count, source=f.source, to=f.to) as term:
            _groups_apart(f, spec, how.items, term.source, term.to, panel_from)
            term.next(source=f.at(term.source, f.row), to=f.at(term.to, how.items * size))
        f.done()
        return
    with f.loop((f.items + (lanes - 1)) >> (lanes.bit_length() - 1), to=f.to, source=f.source) as panel:
        left = f.min(f.items - panel.index * lanes, lanes)
        with f.loop(how.items, to=panel.to, source=panel.source) as each:
            f.call(f"{name}_item", each.to, each.source, f.count, left, f.row, f.column, f.ahead)
            each.next(to=f.at(each.to, size), source=f.at(each.source, f.item))
        panel.next(to=f.at(panel.to, f.panel), source=f.at(panel.source, panel_from))
    f.done()
    pack(module, spec, f"{name}_item", how.contiguous, lanes, spec.term_bytes(how))


def _groups_apart(f: Function, spec: KernelSpec, items: int, source: Value, to: Value, panel_from: Value) -> None:
    """Pack a k whose channels are contiguous: each vector gets a channel of each group; the last panel has masks."""
    lanes, size = spec.isa.lanes, spec.isa.lanes * BYTES[spec.operand]

    def panel(source: Value, to: Value, left: Value | None) -> None:
        masks = [None if left is None else f.mask(left * items - v * lanes, lanes) for v in range(items)]
        vectors = [read(f, spec.operand, f.at(source, v * size), lanes, mask) for v, mask in enumerate(masks)]
        for item in range(items):
            f.store(_picked(f, vectors, item, lanes), to, item * lanes * F32_BYTES)

    full = f.items >> (lanes.bit_length() - 1)
    left = f.items - full * lanes
    with f.loop(full, source=source, to=to) as whole:
        panel(whole.source, whole.to, None)
        for line in range(0, items * size, LINE_BYTES):
            f.prefetch(f.at(whole.source, PREFETCH_PACK_BYTES + line))
        whole.next(source=f.at(whole.source, panel_from), to=f.at(whole.to, f.panel))
    with f.when(f.compare("ne", left, 0)):
        panel(whole.source, whole.to, left)


def _picked(f: Function, vectors: list[Value], item: int, lanes: int) -> Value:
    """Return what an item is in each group: what two vectors at a time have of it, blended."""
    picked = vectors[0]
    for first in range(0, len(vectors), 2):
        two = vectors[first], vectors[min(first + 1, len(vectors) - 1)]
        places = [group * len(vectors) + item - first * lanes for group in range(lanes)]
        some = f.shuffle(*two, [place if 0 <= place < 2 * lanes else -1 for place in places])
        picks = [lane if place < 0 else lanes + lane for lane, place in enumerate(places)]
        picked = f.shuffle(picked, some, picks) if first else some
    return picked
