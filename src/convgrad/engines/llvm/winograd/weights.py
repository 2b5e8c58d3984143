"""Weights of the sums of points, in IR."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.engines.llvm.winograd.lanes import InLanes, divided, flag_infinite, scattered
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, F32_BYTES
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.spec.toom_cook import TAPS, VARIANTS, Variant

ADDRESSES = ("sums", "out", "infinite")  # where 1 goes if a weight is not finite
UNITS = ("units", "levels", "unit")  # of the sums; of their tree; bytes to the next
NUMBERS = (
    "count",  # of src channels, or of vectors of dst channels
    "down", "across", "point", "row",  # src channels, dst channels; bytes of the sums to the next
    "tap.y", "tap.x", "out_row", "out_lane",  # bytes of the output to the next
    *UNITS,
)  # fmt: skip


def module(isa: Isa, variant: str, contiguous: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: weights of src channels, by what lies together in the output.

    Items are dst channels, terms are taps. The sums of all units are added first, into those of the first one.

    out[tap][src channel, dst channel] of sums[unit][point][src channel][dst channel].
    """
    made = Module()
    tree.reduce(made, isa)
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ADDRESSES, NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        _joined(f, isa, VARIANTS[variant], contiguous, a, number)
        some(f, isa, VARIANTS[variant], contiguous, a, number)
    return str(made)


def _joined(f: Function, isa: Isa, variant: Variant, contiguous: str, a: Named, number: Value) -> None:
    """Add what ``some`` reads of all units."""
    vector = isa.lanes * F32_BYTES
    if contiguous == BY_TAPS:
        begin, rows, vectors = f.at(a.sums, number * vector), a.down, f.value(1)
    else:
        begin, rows = f.at(a.sums, number * a.row), f.value(1)
        vectors = a.across + (isa.lanes - 1) >> isa.lanes.bit_length() - 1
    with f.loop(variant.points, there=begin) as point:
        with f.loop(rows, there=point.there) as row:
            f.call("reduce", row.there, a.unit, a.units, vectors * vector, a.levels)
            row.next(there=f.at(row.there, a.row))
        point.next(there=f.at(point.there, a.point))


def some(f: Function, isa: Isa, variant: Variant, contiguous: str, a: Named, number: Value) -> None:
    """Emit the weights of a src channel, vector by vector; or, where taps lie together, of a vector, row by row."""
    vector = isa.lanes * F32_BYTES
    if contiguous == BY_TAPS:
        first = number * isa.lanes
        begin = {"sums": f.at(a.sums, number * vector), "out": f.at(a.out, first * a.out_lane)}
        with f.loop(a.down, **begin) as row:
            _vector(f, isa, variant, contiguous, a, row.sums, row.out, a.across - first)
            row.next(sums=f.at(row.sums, a.row), out=f.at(row.out, a.out_row))
        return
    begin = {"sums": f.at(a.sums, number * a.row), "out": f.at(a.out, number * a.out_row), "left": a.across}
    with f.loop(a.across + (isa.lanes - 1) >> isa.lanes.bit_length() - 1, **begin) as some:
        _vector(f, isa, variant, contiguous, a, some.sums, some.out, some.left)
        some.next(sums=f.at(some.sums, vector), out=f.at(some.out, a.out_lane * isa.lanes), left=some.left - isa.lanes)


def _vector(
    f: Function, isa: Isa, variant: Variant, contiguous: str, a: Named, sums: Value, out: Value, left: Value
) -> None:  # fmt: skip
    """A vector of weights, all taps: back along the last axis, then along the first."""
    lanes, side = isa.lanes, variant.axis_points
    kind, arithmetic, mask = f"<{lanes} x float>", InLanes(f, lanes), f.mask(left, lanes)
    place, rows = sums, []
    for _ in range(side):
        values = []
        for _ in range(side):
            values.append(f.load(kind, place))
            place = f.at(place, a.point)
        rows.append(variant.of_weights.back(arithmetic, values))
    columns = [variant.of_weights.back(arithmetic, column) for column in zip(*rows, strict=True)]
    done = [divided(f, arithmetic, variant, columns[x][y]) for y in range(TAPS) for x in range(TAPS)]
    flag_infinite(f, done, mask, a.infinite)
    if contiguous == BY_TAPS:
        _by_taps(f, lanes, done, out, a.out_lane, left)
        return
    for tap, value in enumerate(done):
        there = f.at(f.at(out, a.of("tap").y * (tap // TAPS)), a.of("tap").x * (tap % TAPS))
        if contiguous == CHANNELS:
            f.masked_store(value, there, mask)
        else:
            scattered(f, lanes, value, there, a.out_lane, mask)


def _by_taps(f: Function, lanes: int, values: Sequence[Value], out: Value, step: Value, left: Value) -> None:
    """Write all taps of each lane together: squares of lanes and taps are transposed."""
    pieces = [values[first : first + lanes] for first in range(0, len(values), lanes)]
    squares = [transposed(f, list(piece), lanes) for piece in pieces]
    for lane in range(lanes):
        with f.when(f.compare("sgt", left, lane)):
            for number, (piece, square) in enumerate(zip(pieces, squares, strict=True)):
                f.store_first(square[lane], len(piece), f.at(out, step * lane), number * lanes * F32_BYTES)
