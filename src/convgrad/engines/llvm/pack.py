"""Packs of weight gradients: panels of A and of B, converted to f32, k by k in the order in which tiles read them."""

from __future__ import annotations

from dataclasses import replace

from convgrad.engines.llvm.arguments import of_side
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.packing import Cells, Copy, Pairs, in_pairs
from convgrad.plan.constants import PACK_AHEAD_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED, KernelSpec, Read

_WAYS = {CHANNELS: Copy.along_columns, SPATIAL: Copy.along_rows, STRIDED: Copy.one_by_one}


def pack(module: Module, spec: KernelSpec, name: str, read: Read) -> None:
    """Emit a pack of a panel: to[k][index] = source[k * term + index * item], in f32, or as pairs of two k.

    It reads ``items`` columns of ``count`` k and no byte else, and writes the width of the panel: beyond the columns
    zeros, or columns again, because a tile of several taps looks whether all its sums are finite. Pairs have their
    first k above; the least of all is kept in ``leasts``, if that is not less.
    """
    parameters = {"to": "ptr", "source": "ptr", "count": "i64", "side": "ptr", "items": "i64"}
    f = module.function(name, False, **parameters, **({"leasts": "ptr"} if spec.compact else {}))
    side, row_bytes = of_side(f, f.side), read.items * F32_BYTES
    copy = Copy(
        Cells(f, spec.operand, spec.isa.lanes), f.count, side.term, f.items, side.item, row_bytes, read.items,
        ahead=side.ahead,
    )  # fmt: skip
    if not spec.compact:
        _WAYS[read.contiguous](copy, f.source, f.to)
    else:
        if read.contiguous == CHANNELS:
            in_pairs(copy, "rows", True, Copy.along_columns, f.source, f.to)
        else:
            replace(copy, cells=Pairs(f, spec.operand, spec.isa.lanes, BYTES[spec.operand], True)).along_rows(
                f.source, f.to
            )
        f.call("minimum", f.to, 1, 0, ((f.count + 1) >> 1) * (2 * read.items), f.leasts)
    f.done()


def pack_groups(module: Module, spec: KernelSpec, name: str, read: Read) -> None:
    """Emit a pack of groups, some panels of as many as there are lanes: to[panel][k][index][group], in f32.

    Its source is source[panel * lanes * group_step + k * term + index * item + group * group_step], of ``items``
    groups of ``read.items`` each; it reads no byte else.
    """
    lanes = spec.isa.lanes
    f = module.function(name, to="ptr", source="ptr", count="i64", side="ptr", items="i64")
    side = of_side(f, f.side)
    term, group, item, panel_to = side.term, side.group, side.item, side.panel
    panel_from = group * lanes
    if read.contiguous == CHANNELS:
        _from_groups(f, spec, read.items, term, (panel_from, panel_to))
        f.done()
        return
    one = f"{name}_item"
    with f.loop((f.items + (lanes - 1)) >> (lanes.bit_length() - 1), to=f.to, source=f.source) as panel:
        left = f.min(f.items - panel.index * lanes, lanes)
        with f.loop(read.items, to=panel.to, source=panel.source) as each:
            f.call(one, each.to, each.source, f.count, term, group, side.ahead, left)
            each.next(to=f.at(each.to, lanes * F32_BYTES), source=f.at(each.source, item))
        panel.next(to=f.at(panel.to, panel_to), source=f.at(panel.source, panel_from))
    f.done()
    f = module.function(one, to="ptr", source="ptr", count="i64", term="i64", item="i64", ahead="i64", items="i64")
    copy = Copy(
        Cells(f, spec.operand, lanes), f.count, f.term, f.items, f.item, spec.term_bytes(read), lanes, ahead=f.ahead
    )  # fmt: skip
    _WAYS[read.contiguous](copy, f.source, f.to)
    f.done()


def _from_groups(f: Function, spec: KernelSpec, items: int, step: Value, panels: tuple[Value, Value]) -> None:
    """All items are neighbours: term by term, as they lie in memory; a last panel of few groups by masks."""
    lanes, size = spec.isa.lanes, BYTES[spec.operand]
    full = f.items >> (lanes.bit_length() - 1)
    rest = f.items - full * lanes
    with f.loop(f.count, source=f.source, to=f.to) as term:
        with f.loop(full, source=term.source, to=term.to) as panel:
            together = [read(f, spec.operand, f.at(panel.source, v * lanes * size), lanes) for v in range(items)]
            _apart(f, lanes, together, panel.to)
            for line in range(0, items * lanes * size, 64):
                f.prefetch(f.at(panel.source, PACK_AHEAD_BYTES + line))
            panel.next(source=f.at(panel.source, panels[0]), to=f.at(panel.to, panels[1]))
        with f.when(f.compare("ne", rest, 0)):
            masks = [f.mask(rest * items - v * lanes, lanes) for v in range(items)]
            together = [
                read(f, spec.operand, f.at(panel.source, v * lanes * size), lanes, mask) for v, mask in enumerate(masks)
            ]
            _apart(f, lanes, together, panel.to)
        term.next(source=f.at(term.source, step), to=f.at(term.to, items * lanes * F32_BYTES))


def _apart(f: Function, lanes: int, vectors: list[Value], to: Value) -> None:
    """Store vectors in which the items of a group are neighbours so that those of an item are."""
    items = len(vectors)
    for item in range(items):
        wanted = [group * items + item for group in range(lanes)]
        f.store(_picked(f, vectors, wanted, lanes), to, item * lanes * F32_BYTES)


def _picked(f: Function, vectors: list[Value], wanted: list[int], lanes: int) -> Value:
    """Return a vector of values by their places in several vectors, put together two vectors at a time."""
    held = {v: [w if w // lanes == v else -1 for w in wanted] for v in {w // lanes for w in wanted}}
    parts = [(vectors[v], [w % lanes if w >= 0 else -1 for w in places]) for v, places in sorted(held.items())]
    while len(parts) > 1:
        merged = []
        for (a, in_a), (b, in_b) in zip(parts[::2], parts[1::2], strict=False):
            picks = [x if x >= 0 else y + lanes if y >= 0 else -1 for x, y in zip(in_a, in_b, strict=True)]
            merged.append((f.shuffle(a, b, picks), [lane if p >= 0 else -1 for lane, p in enumerate(picks)]))
        parts = merged + parts[len(merged) * 2 :]
    ((value, places),) = parts
    return value if places == list(range(lanes)) else f.shuffle(value, value, places)
