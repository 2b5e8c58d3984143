"""Packs of weight gradients: panels of items, converted to f32, term by term in the order the tile reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convgrad.engines.llvm.arguments import of_side
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.constants import PACK_AHEAD, PACK_AHEAD_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL, STRIDED, KernelSpec, Read


def pack(module: Module, spec: KernelSpec, name: str, read: Read) -> None:
    """Emit a pack of a panel: to[term][item] = source[term * term_step + item * item_step], in f32.

    It reads ``items`` items of ``count`` terms and no byte else, and writes as many a term as a panel has: beyond the
    items zeros, or items again, as a tile of several taps looks whether all its sums are finite.
    """
    f = module.function(name, to="ptr", source="ptr", count="i64", side="ptr", items="i64")
    side = of_side(f, f.side)
    _COPIES[read.contiguous](_Copy(f, spec, read.items, read.items * F32_BYTES, side.term, side.item, side.ahead))
    f.done()


def pack_groups(module: Module, spec: KernelSpec, name: str, read: Read) -> None:
    """Emit a pack of groups, some panels of as many as there are lanes: to[panel][term][item][group], in f32.

    Its source is source[panel * lanes * group_step + term * term_step + item * item_step + group * group_step], of
    ``items`` groups of ``read.items`` items each; it reads no byte else.
    """
    lanes = spec.isa.lanes
    shift = lanes.bit_length() - 1
    f = module.function(name, to="ptr", source="ptr", count="i64", side="ptr", items="i64")
    side = of_side(f, f.side)
    term, group, item, panel_to = side.term, side.group, side.item, side.panel
    panel_from = group * lanes
    if read.contiguous == CHANNELS:
        _from_groups(f, spec, read.items, term, (panel_from, panel_to))
        f.done()
        return
    one = f"{name}_item"
    with f.loop((f.items + (lanes - 1)) >> shift, to=f.to, source=f.source) as panel:
        left = f.min(f.items - panel.index * lanes, lanes)
        with f.loop(read.items, to=panel.to, source=panel.source) as each:
            f.call(one, each.to, each.source, f.count, term, group, side.ahead, left)
            each.next(to=f.at(each.to, lanes * F32_BYTES), source=f.at(each.source, item))
        panel.next(to=f.at(panel.to, panel_to), source=f.at(panel.source, panel_from))
    f.done()
    f = module.function(one, to="ptr", source="ptr", count="i64", term="i64", item="i64", ahead="i64", items="i64")
    _COPIES[read.contiguous](_Copy(f, spec, lanes, spec.term_bytes(read), f.term, f.item, f.ahead))
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


@dataclass(frozen=True)
class _Copy:
    """A copy being emitted: ``width`` items a term, ``pitch`` bytes from a packed term to the next."""

    f: Function
    spec: KernelSpec
    width: int
    pitch: int
    term: Value  # bytes from a term to the next in memory,
    item: Value  # and from an item
    ahead: Value  # bytes to what a transpose asks for ahead, none where 0

    def items_together(self) -> None:
        """Items are neighbours: copy them in pieces of a power of two, the last overlapping the one before."""
        f, spec, size = self.f, self.spec, BYTES[self.spec.operand]
        piece = min(spec.isa.lanes, 1 << (self.width.bit_length() - 1))
        starts = [*range(0, self.width - piece + 1, piece)]
        if starts[-1] + piece < self.width:
            starts.append(self.width - piece)
        thin = self.width < spec.isa.lanes and self.pitch == self.width * F32_BYTES
        dense = f.compare("eq", self.term, self.width * size) if thin else None
        if dense is not None:
            with f.when(dense & f.compare("eq", f.items, self.width)):
                self._all_values(f.count * self.width)
        here = f.items >= self.width
        with (
            f.when(here if dense is None else here & f.compare("ne", self.term, self.width * size)),
            f.loop(f.count, source=f.source, to=f.to) as term,
        ):
            for c in starts:
                f.store(read(f, spec.operand, f.at(term.source, c * size), piece), term.to, c * F32_BYTES)
            f.prefetch(f.at(term.source, self.term * PACK_AHEAD))
            term.next(source=f.at(term.source, self.term), to=f.at(term.to, self.pitch))
        with f.when(f.items < self.width):
            self._some_items()

    def _all_values(self, count: Value) -> None:
        """Copy values that lie together."""
        f, spec, lanes, size = self.f, self.spec, self.spec.isa.lanes, BYTES[self.spec.operand]
        with f.loop(count >> (lanes.bit_length() - 1), source=f.source, to=f.to) as many:
            f.store(read(f, spec.operand, many.source, lanes), many.to)
            f.prefetch(f.at(many.source, PACK_AHEAD_BYTES))
            many.next(source=f.at(many.source, lanes * size), to=f.at(many.to, lanes * F32_BYTES))
        mask = f.mask(count - (count >> (lanes.bit_length() - 1)) * lanes, lanes)
        f.masked_store(read(f, spec.operand, many.source, lanes, mask), many.to, mask)

    def _some_items(self) -> None:
        """Items are neighbours, but fewer than the panel is wide: loads are masked."""
        f, spec, lanes, size = self.f, self.spec, self.spec.isa.lanes, BYTES[self.spec.operand]
        starts = range(0, self.width, lanes)
        masks = [f.mask(f.items - c, lanes) for c in starts]
        with f.loop(f.count, source=f.source, to=f.to) as term:
            for c, mask in zip(starts, masks, strict=True):
                some = read(f, spec.operand, f.at(term.source, c * size), lanes, mask)
                f.store_first(some, min(lanes, self.width - c), term.to, c * F32_BYTES)
            term.next(source=f.at(term.source, self.term), to=f.at(term.to, self.pitch))

    def terms_together(self) -> None:
        """Terms are neighbours: transpose squares in registers; the last square overlaps the one before."""
        f, lanes, width, pitch = self.f, self.spec.isa.lanes, self.width, self.pitch
        with f.when(f.count >= lanes):
            with f.when(f.compare("eq", self.ahead, 0)):
                self._whole_squares(asks=False)
            with f.otherwise():
                self._whole_squares(asks=True)
        with f.otherwise(), f.when(f.count >= 1):
            for c0, columns in self._squares(f.source, f.mask(f.count, lanes)):
                for p, column in enumerate(columns[:-1]):
                    with f.when(f.compare("sgt", f.count, p)):
                        f.store_first(column, min(lanes, width - c0), f.to, p * pitch + c0 * F32_BYTES)

    def _whole_squares(self, asks: bool) -> None:
        """Transpose squares of terms that are all there; with ``asks``, ask for what comes some squares on."""
        f, lanes, width, pitch = self.f, self.spec.isa.lanes, self.width, self.pitch
        with f.loop((f.count + (lanes - 1)) >> (lanes.bit_length() - 1)) as square:
            first = f.min(square.index * lanes, f.count - lanes)
            source, to = f.at(f.source, first * self.term), f.at(f.to, first * pitch)
            for c0, columns in self._squares(source, None, asks):
                for p, column in enumerate(columns):
                    f.store_first(column, min(lanes, width - c0), to, p * pitch + c0 * F32_BYTES)

    def _squares(self, source: Value, mask: Value | None, asks: bool = False) -> Iterator[tuple[int, list[Value]]]:
        """Yield the first item and the terms, one a vector, of squares of items by as many terms."""
        f, spec, lanes = self.f, self.spec, self.spec.isa.lanes
        for c0 in range(0, self.width, lanes):
            rows = []
            for c in range(c0, min(c0 + lanes, self.width)):
                place = f.at(source, f.min(f.value(c), f.items - 1) * self.item)
                if asks:
                    f.prefetch(f.at(place, self.ahead))
                rows.append(read(f, spec.operand, place, lanes, mask))
            yield c0, transposed(f, rows, lanes)

    def one_by_one(self) -> None:
        """Any layout, item by item; the rest of the panel is zero, so that its sums stay ordinary numbers."""
        f, spec = self.f, self.spec
        with f.loop(f.count, source=f.source, to=f.to) as term:
            with f.loop(f.items, source=term.source, to=term.to) as each:
                f.store(read(f, spec.operand, each.source), each.to)
                each.next(source=f.at(each.source, self.item), to=f.at(each.to, F32_BYTES))
            with f.loop(f.value(self.width) - f.items, to=each.to) as rest:
                f.store(f.zeros("float"), rest.to)
                rest.next(to=f.at(rest.to, F32_BYTES))
            term.next(source=f.at(term.source, self.term), to=f.at(term.to, self.pitch))


_COPIES = {CHANNELS: _Copy.items_together, SPATIAL: _Copy.terms_together, STRIDED: _Copy.one_by_one}
