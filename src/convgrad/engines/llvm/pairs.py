"""Panels of pairs: words of a term and the next, their least exponents, and which multiply-adds may take them."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import PAIR_BYTES, PATHS

BF16_BYTES = PAIR_BYTES // 2
EVERYTHING = 0xFFFF  # the least of nothing but zeros


def pair(module: Module, isa: Isa) -> None:
    """Emit ``pair``: packed bf16, f32 in ``size`` bytes, become words of a k and, below, the next, ``apart`` bytes on.

    The last have no next, and no pair begins there. The least of all goes to ``leasts``, if that is not less.
    """
    f = module.function("pair", panel="ptr", size="i64", apart="i64", leasts="ptr")
    kind, step = f"<{isa.lanes} x i32>", isa.lanes * PAIR_BYTES
    paired = f.max(f.size - f.apart, 0)
    full = paired >> (step.bit_length() - 1)

    def both(here: Value, following: Value) -> Value:
        lower = f.op(kind, f"lshr {following}, {f.everywhere(kind, 16).name}")
        return f.op(kind, f"or {here}, {lower.name}")

    with f.loop(full, place=f.panel, found=f.load(halves(isa.lanes), f.leasts)) as many:
        word = both(f.load(kind, many.place), f.load(kind, f.at(many.place, f.apart)))
        f.store(word, many.place)
        many.next(place=f.at(many.place, step), found=lesser(f, isa.lanes, many.found, word))
    f.store(many.found, f.leasts)
    mask = f.mask((paired >> 2) - full * isa.lanes, isa.lanes)
    some, following = (f.masked_load(kind, place, mask) for place in (many.place, f.at(many.place, f.apart)))
    f.masked_store(both(some, following), many.place, mask)
    f.call("minimum", many.place, 1, 0, (f.size - full * step) >> 1, f.leasts)
    f.done()


def minimum(module: Module, isa: Isa) -> None:
    """Emit ``minimum``: the least of ``count`` stretches of some elements goes to ``leasts``, if that is not less.

    Stretches are ``step`` bytes apart; those without a gap are one.
    """
    f = module.function("minimum", source="ptr", count="i64", step="i64", elements="i64", leasts="ptr")
    unit, kind = 2 * isa.lanes, halves(isa.lanes)
    shift, dense = unit.bit_length() - 1, f.compare("eq", f.step, f.elements * BF16_BYTES)
    count, elements = f.select(dense, f.value(1), f.count), f.select(dense, f.count * f.elements, f.elements)
    full = elements >> shift
    left = elements - full * unit
    mask = f.mask(left, unit)
    with f.loop(count, source=f.source, found=f.load(kind, f.leasts)) as each:
        with f.loop(full, source=each.source, found=each.found) as many:
            found = lesser(f, isa.lanes, many.found, f.load(kind, many.source))
            many.next(source=f.at(many.source, unit * BF16_BYTES), found=found)
        with f.loop(f.min(left, 1), found=many.found) as last:
            some = f.masked_load(kind, many.source, mask)
            last.next(found=lesser(f, isa.lanes, last.found, some))
        each.next(source=f.at(each.source, f.step), found=last.found)
    f.store(each.found, f.leasts)
    f.done()


def halves(words: int) -> str:
    """Return the type of a vector of all halves of some words."""
    return f"<{2 * words} x i16>"


def lesser(f: Function, lanes: int, found: Value, words: Value) -> Value:
    """Return the lesser, half by half, of what was found and of 2|v| - 1 of words of two bf16."""
    kind = halves(lanes)
    values = f.op(kind, f"bitcast {words} to {kind}")
    sizes = f.op(kind, f"sub {f.op(kind, f'shl {values}, {f.everywhere(kind, 1).name}')}, {f.everywhere(kind, 1).name}")
    return f.intrinsic(kind, f"llvm.umin.v{2 * lanes}i16", found, sizes)


def nothing_yet(f: Function, isa: Isa, least: Value) -> None:
    """Begin to look for a least: there is none."""
    f.store(f.everywhere(halves(isa.lanes), EVERYTHING), least)


def exponent(f: Function, isa: Isa, least: Value) -> Value:
    """Return the least biased exponent of what is not zero, 0 of denormals, and a large one where all is zero."""
    found = f.intrinsic("i16", f"llvm.vector.reduce.umin.v{2 * isa.lanes}i16", f.load(halves(isa.lanes), least))
    return (f.op("i64", f"zext {found} to i64") + 1) >> 8


def quick(f: Function, isa: Isa, a: Named, leasts: tuple[Value, Value]) -> Value:
    """Return -1 where pairs may be taken of two operands of these leasts, else 0; count which."""
    x, y = (exponent(f, isa, least) for least in leasts)
    normal = f.compare("sge", f.min(x, y), 1)
    fits = f.compare("sge", x + y, a.least_sum) & normal
    where = f.select(fits, f.value(8 * PATHS.index("pairs")), f.value(8 * PATHS.index("single")))
    f.op("i64", f"atomicrmw add {f.at(a.paths, where)}, i64 1 monotonic")
    return f.select(fits, f.value(-1), f.value(0))
