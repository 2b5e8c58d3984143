"""bf16 pairs: packing them, and the condition under which a panel's multiply-adds may use them.

The instruction flushes denormals to zero. So a panel uses pairs only if no operand, product or sum can be denormal.
This is so if the exponents of both operands are large enough. Packing records the minimum exponents of each panel.
"""

from __future__ import annotations

from collections.abc import Callable

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.machine import LINE_BYTES, Isa
from convgrad.plan.pairs import PAIR_BYTES, PATHS

BF16_BYTES = PAIR_BYTES // 2
EVERYTHING = 0xFFFF  # the initial minimum, which is also the minimum of zeros
TWICE_INFINITY = 0xFF00  # the bits of infinity, shifted left by 1; those of NaN are larger


def pair(module: Module, isa: Isa) -> None:
    """Emit ``pair``, which combines bf16 values that were packed as f32 into bf16 pairs, in place.

    A panel has ``size`` bytes. The value of each k becomes a high half, and the value ``stride`` bytes after it the low
    half. The low half of the last k is 0. ``minima`` are lowered to the minima of all values.
    """
    f = module.function("pair", panel="ptr", size="i64", stride="i64", minima="ptr")
    kind, step = f"<{isa.lanes} x i32>", isa.lanes * PAIR_BYTES
    paired = f.max(f.size - f.stride, 0)
    full = paired >> (step.bit_length() - 1)

    def both(here: Value, following: Value) -> Value:
        lower = f.op(kind, f"lshr {following}, {f.everywhere(kind, 16).name}")
        return f.op(kind, f"or {here}, {lower.name}")

    with f.loop(full, place=f.panel, smallest=f.load(halves(isa.lanes), f.minima)) as many:
        pairs = both(f.load(kind, many.place), f.load(kind, f.at(many.place, f.stride)))
        f.store(pairs, many.place)
        many.next(place=f.at(many.place, step), smallest=lesser(f, isa.lanes, many.smallest, pairs))
    f.store(many.smallest, f.minima)
    mask = f.mask((paired >> 2) - full * isa.lanes, isa.lanes)
    some, following = (f.masked_load(kind, place, mask) for place in (many.place, f.at(many.place, f.stride)))
    f.masked_store(both(some, following), many.place, mask)
    f.call("minimum", many.place, 1, 0, (f.size - full * step) >> 1, f.minima)
    f.done()


def minimum(module: Module, isa: Isa) -> None:
    """Emit ``minimum``, which lowers ``extremes`` to the minima of bf16 values in memory, except zeros."""
    _extreme(module, isa, "minimum", lesser)


def maximum(module: Module, isa: Isa) -> None:
    """Emit ``maximum``, which raises ``extremes`` to the maxima of bf16 values in memory."""
    _extreme(module, isa, "maximum", greater)


def _extreme(module: Module, isa: Isa, name: str, folded: Callable[[Function, int, Value, Value], Value]) -> None:
    """Emit a function that folds bf16 values into ``extremes``.

    The values are in ``count`` segments of ``elements`` values, whose beginnings are ``step`` bytes apart. Segments
    without gaps between them are read as one segment.
    """
    f = module.function(name, source="ptr", count="i64", step="i64", elements="i64", extremes="ptr")
    unit, kind = 2 * isa.lanes, halves(isa.lanes)
    shift, dense = unit.bit_length() - 1, f.compare("eq", f.step, f.elements * BF16_BYTES)
    count, elements = f.select(dense, f.value(1), f.count), f.select(dense, f.count * f.elements, f.elements)
    full = elements >> shift
    left = elements - full * unit
    mask = f.mask(left, unit)
    with f.loop(count, source=f.source, extreme=f.load(kind, f.extremes)) as row:
        with f.loop(full, source=row.source, extreme=row.extreme) as many:
            extreme = folded(f, isa.lanes, many.extreme, f.load(kind, many.source))
            many.next(source=f.at(many.source, unit * BF16_BYTES), extreme=extreme)
        with f.loop(f.min(left, 1), extreme=many.extreme) as last:
            some = f.masked_load(kind, many.source, mask)
            last.next(extreme=folded(f, isa.lanes, last.extreme, some))
        row.next(source=f.at(row.source, f.step), extreme=last.extreme)
    f.store(row.extreme, f.extremes)
    f.done()


def halves(pairs: int) -> str:
    """Return the IR type of a vector of ``pairs`` bf16 pairs, as 16-bit integers."""
    return f"<{2 * pairs} x i16>"


def lesser(f: Function, lanes: int, smallest: Value, pairs: Value) -> Value:
    """Return the lane-wise minimum of ``smallest`` and of 2|v| - 1, where v are the bits of each bf16 value.

    In unsigned arithmetic, 2|v| - 1 of a zero is the largest integer, so zeros do not count.
    """
    kind = halves(lanes)
    values = f.op(kind, f"bitcast {pairs} to {kind}")
    sizes = f.op(kind, f"sub {f.op(kind, f'shl {values}, {f.everywhere(kind, 1).name}')}, {f.everywhere(kind, 1).name}")
    return f.intrinsic(kind, f"llvm.umin.v{2 * lanes}i16", smallest, sizes)


def greater(f: Function, lanes: int, largest: Value, pairs: Value) -> Value:
    """Return the lane-wise maximum of ``largest`` and of 2|v|, where v are the bits of each bf16 value."""
    kind = halves(lanes)
    twice = f.op(kind, f"shl {f.op(kind, f'bitcast {pairs} to {kind}')}, {f.everywhere(kind, 1).name}")
    return f.intrinsic(kind, f"llvm.umax.v{2 * lanes}i16", largest, twice)


def all_finite(f: Function, isa: Isa, maxima: Value) -> Value:
    """Return whether no value is infinite or NaN, of values with these maxima."""
    largest = f.intrinsic("i16", f"llvm.vector.reduce.umax.v{2 * isa.lanes}i16", f.load(halves(isa.lanes), maxima))
    return f.op("i64", f"zext {largest} to i64") < TWICE_INFINITY


def nothing_yet(f: Function, isa: Isa, minima: Value) -> None:
    """Set the minima of a panel to their initial value, before any value is packed."""
    f.store(f.everywhere(halves(isa.lanes), EVERYTHING), minima)


def minima_of(f: Function, panel: Value, panel_bytes: Value) -> Value:
    """Return the address of the minima of a packed panel, which are its last cache line."""
    return f.at(panel, panel_bytes - LINE_BYTES)


def exponent(f: Function, isa: Isa, minima: Value) -> Value:
    """Return the minimum biased exponent of the nonzero values of a panel.

    The exponent is 0 if a value is denormal, and 256 if all values are zero.
    """
    smallest = f.intrinsic("i16", f"llvm.vector.reduce.umin.v{2 * isa.lanes}i16", f.load(halves(isa.lanes), minima))
    return (f.op("i64", f"zext {smallest} to i64") + 1) >> 8


def pairs_allowed(f: Function, isa: Isa, a: Named, minima: tuple[Value, Value]) -> Value:
    """Return -1 if the minima of two operands allow bf16 pairs, else 0; count the panel in the table ``paths``."""
    x, y = (exponent(f, isa, address) for address in minima)
    normal = f.compare("sge", f.min(x, y), 1)
    fits = f.compare("sge", x + y, a.min_sum) & normal
    where = f.select(fits, f.value(8 * PATHS.index("pairs")), f.value(8 * PATHS.index("single")))
    f.op("i64", f"atomicrmw add {f.at(a.paths, where)}, i64 1 monotonic")
    return f.select(fits, f.value(-1), f.value(0))
