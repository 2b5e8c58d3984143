"""Packs of words, for weight gradients whose blocks are one line each: two terms of bf16 a word, the first above."""

from __future__ import annotations

from collections.abc import Callable

from convgrad.engines.llvm.arguments import Named, of_side
from convgrad.engines.llvm.convert import BYTES, load_masked
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.pairs import halves, lesser
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.constants import PACK_AHEAD
from convgrad.plan.pairs import WORD_BYTES
from convgrad.plan.recipe import CHANNELS, SPATIAL, KernelSpec, Read


def pack_words(module: Module, spec: KernelSpec, name: str, read: Read) -> None:
    """Emit a pack of a panel: to[pair][item] = source[2 * pair][item] above source[2 * pair + 1][item].

    An odd last term has nothing below. Items beyond ``items`` are zeros, or items again. The least of all goes to
    ``leasts``, if what is there is not less.
    """
    f = module.function(name, to="ptr", source="ptr", count="i64", side="ptr", items="i64", leasts="ptr")
    _PACKS[read.contiguous](f, spec, read.items, of_side(f, f.side))
    f.done()


def _items_together(f: Function, spec: KernelSpec, width: int, side: Named) -> None:
    """Items are neighbours: vectors of two terms' are put together, and the last stores what the width has of it."""
    lanes, size, kind = spec.isa.lanes, BYTES[spec.operand], f"<{spec.isa.lanes} x i32>"
    starts = range(0, width, lanes)
    there = [f.mask(f.min(f.items, width) - c, lanes) for c in starts]

    def half(source: Value, at: int) -> Value:
        raw = load_masked(f, spec.operand, lanes, f.at(source, starts[at] * size), there[at])
        return f.op(kind, f"zext {raw} to {kind}")

    def one(source: Value, to: Value, found: Value, both: bool) -> Value:
        for at, start in enumerate(starts):
            word = f.op(kind, f"shl {half(source, at)}, {f.everywhere(kind, 16).name}")
            if both:
                word = f.op(kind, f"or {word}, {half(f.at(source, side.term), at).name}")
            f.store_first(word, min(lanes, width - start), to, start * WORD_BYTES)
            found = lesser(f, lanes, found, word)
        return found

    pitch = width * WORD_BYTES
    before = f.load(halves(lanes), f.leasts)
    with f.loop(f.count >> 1, source=f.source, to=f.to, found=before) as pair:
        found = one(pair.source, pair.to, pair.found, both=True)
        for behind in (0, 1):
            f.prefetch(f.at(pair.source, side.term * (PACK_AHEAD + behind)))
        pair.next(source=f.at(pair.source, side.term * 2), to=f.at(pair.to, pitch), found=found)
    with f.loop(f.count & 1, found=pair.found) as last:
        last.next(found=one(pair.source, pair.to, last.found, both=False))
    f.store(last.found, f.leasts)


def _terms_together(f: Function, spec: KernelSpec, width: int, side: Named) -> None:
    """Terms are neighbours: two are a word, but for the order of its halves; squares of words are transposed."""
    with f.when(f.compare("eq", side.ahead, 0)):
        _squares(f, spec, width, side, asks=False)
    with f.otherwise():
        _squares(f, spec, width, side, asks=True)


def _squares(f: Function, spec: KernelSpec, width: int, side: Named, asks: bool) -> None:
    lanes, pitch = spec.isa.lanes, width * WORD_BYTES
    kind, floats, terms = f"<{lanes} x i32>", f"<{lanes} x float>", 2 * lanes

    def words(place: Value, mask: Value | None) -> Value:
        if mask is None:
            raw = f.load(kind, place)
        else:
            some = load_masked(f, spec.operand, terms, place, mask)
            raw = f.op(kind, f"bitcast {some} to {kind}")
        return f.intrinsic(kind, f"llvm.fshl.v{lanes}i32", raw, raw, f.everywhere(kind, 16))

    def square(source: Value, to: Value, found: Value, mask: Value | None, there: Value | None) -> Value:
        for c0 in range(0, width, lanes):
            rows = []
            for c in range(c0, min(c0 + lanes, width)):
                place = f.at(source, f.min(f.value(c), f.items - 1) * side.item)
                if asks:
                    f.prefetch(f.at(place, side.ahead))
                row = words(place, mask)
                found = lesser(f, lanes, found, row)
                rows.append(f.op(floats, f"bitcast {row} to {floats}"))
            for p, column in enumerate(transposed(f, rows, lanes)):
                if there is None:
                    f.store_first(column, min(lanes, width - c0), to, p * pitch + c0 * WORD_BYTES)
                    continue
                with f.when(f.compare("sgt", there, 2 * p)):
                    f.store_first(column, min(lanes, width - c0), to, p * pitch + c0 * WORD_BYTES)
        return found

    full = f.count >> (terms.bit_length() - 1)
    rest = f.count - full * terms
    before = f.load(halves(lanes), f.leasts)
    with f.loop(full, source=f.source, to=f.to, found=before) as whole:
        found = square(whole.source, whole.to, whole.found, None, None)
        whole.next(source=f.at(whole.source, side.term * terms), to=f.at(whole.to, lanes * pitch), found=found)
    with f.loop(f.min(rest, 1), found=whole.found) as last:
        last.next(found=square(whole.source, whole.to, last.found, f.mask(rest, terms), rest))
    f.store(last.found, f.leasts)


_PACKS: dict[str, Callable[[Function, KernelSpec, int, Named], None]] = {
    CHANNELS: _items_together, SPATIAL: _terms_together,
}  # fmt: skip
