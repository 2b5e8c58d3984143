"""Chunks in IR: what a thread transforms, sums and transforms back, rows of tiles or blocks of results.

Of many tiles the points of all weights are there, and a chunk is some rows of tiles; of few, the points of all tiles
are there, and a chunk is a block of results.
"""

from __future__ import annotations

from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.winograd import kernel, points, positions, sums
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.spec.toom_cook import VARIANTS

_PLACES = ("points_at", "sums_at", "room_at", "planes_at")  # in scratch
_SUMS = ("terms", "levels", *(f"sums.{name}" for name in sums.NUMBERS if name not in ("down", "vectors")))
_BACK = ("back.out", "back.bias", "back.infinite")
_BACK_NUMBERS = tuple(f"back.{name}" for name in positions.NUMBERS if name not in ("first", "count"))

ROWS_ADDRESSES = ("met.data", "weights", *_BACK)
ROWS_NUMBERS = (
    "count", "each", "all",  # chunks; rows of tiles of one, and of all
    "tiles", "results",  # of a row; of all
    *_SUMS, *_PLACES, *(f"met.{name}" for name in points.NUMBERS if name not in ("first", "count")), *_BACK_NUMBERS,
)  # fmt: skip
RESULTS_ADDRESSES = ("met", "kernel.data", *_BACK)
RESULTS_NUMBERS = (
    "count", "each", "all",  # chunks; results of one, and of all
    "rows", "tiles",  # of tiles; of all
    *_SUMS, *_PLACES, *(f"kernel.{name}" for name in kernel.NUMBERS), *_BACK_NUMBERS,
)  # fmt: skip


def rows_module(isa: Isa, variant: str, data: str, out: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: rows of tiles, by what lies together in data and output."""
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ROWS_ADDRESSES, ROWS_NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        first = number * a.each
        count = f.min(a.named("all") - first, a.each)
        met, made_of, room, planes = (f.at(f.scratch, a.named(place)) for place in _PLACES)
        of_met, back = a.of("met").but(first=first, out=met), a.of("back").but(first=first, sums=made_of)
        with f.loop(count) as row:
            points.row(f, isa, VARIANTS[variant], True, data, of_met, planes, row.index)
        of_sums = a.of("sums").but(down=count * a.tiles, vectors=_vectors(isa, a.results))
        sums.trees(f, isa, of_sums, (met, a.weights, made_of), a.terms, a.levels, room)
        with f.loop(count) as row:
            positions.row(f, isa, VARIANTS[variant], out, back, planes, row.index)
    return str(made)


def results_module(isa: Isa, variant: str, weights: str, reverse: bool, out: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: blocks of results, by what lies together in weights, output."""
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, RESULTS_ADDRESSES, RESULTS_NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        first = number * a.each
        count = f.min(a.named("all") - first, a.each)
        weights_of, made_of, room, planes = (f.at(f.scratch, a.named(place)) for place in _PLACES)
        of_kernel = a.of("kernel").but(
            data=f.at(a.of("kernel").data, first * a.of("kernel").result), out=weights_of, results=count
        )
        back = a.of("back")
        back = back.but(
            first=f.value(0), sums=made_of, channels=count, out=f.at(back.out, first * back.channel),
            bias=f.at(back.bias, first * F32_BYTES),
        )  # fmt: skip
        with f.loop(of_kernel.count) as some:
            kernel.terms(f, isa, VARIANTS[variant], weights, reverse, of_kernel, planes, some.index)
        of_sums = a.of("sums").but(down=a.tiles, vectors=_vectors(isa, count))
        sums.trees(f, isa, of_sums, (a.met, weights_of, made_of), a.terms, a.levels, room)
        with f.loop(a.named("rows")) as row:
            positions.row(f, isa, VARIANTS[variant], out, back, planes, row.index)
    return str(made)


def _vectors(isa: Isa, lanes: Value) -> Value:
    return lanes + (isa.lanes - 1) >> isa.lanes.bit_length() - 1
