"""Chunks in IR: what a thread transforms, sums and transforms back, rows of tiles or blocks of results.

Of many tiles the points of all weights are there, and a chunk is some rows of tiles; of few, the points of all tiles
are there, and a chunk is a block of results. The sums are another kernel's driver, called with arguments of the
thread's own.
"""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import WORD, claimed, loaded
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.tiles import kernel, points, positions
from convgrad.plan.data.fields import CALL
from convgrad.plan.fields import FLAGS
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import F32_BYTES
from convgrad.spec.toom_cook import VARIANTS

SUMS = ("sums", "last")  # of a chunk, and of the last one, which may be shorter
_DRIVERS = tuple(f"{name}.{word}" for name in SUMS for word in ("driver", "words"))
_COUNTS = tuple(f"{name}.count" for name in SUMS)  # of words
_PLACES = ("points_at", "sums_at", "words_at", "inner_at", "planes_at")  # in scratch
_BACK = ("back.out", "back.bias", "back.infinite")
_BACK_NUMBERS = tuple(f"back.{name}" for name in positions.NUMBERS if name not in ("first", "count"))

ROWS_ADDRESSES = ("met.data", "weights", *_BACK, *_DRIVERS)
ROWS_NUMBERS = (
    "count", "each", "all",  # chunks; rows of tiles of one, and of all
    *_COUNTS, *_PLACES, *(f"met.{name}" for name in points.NUMBERS if name not in ("first", "count")), *_BACK_NUMBERS,
)  # fmt: skip
RESULTS_ADDRESSES = ("met", "kernel.data", *_BACK, *_DRIVERS)
RESULTS_NUMBERS = (
    "count", "each", "all",  # chunks; results of one, and of all
    "rows", *_COUNTS, *_PLACES, *(f"kernel.{name}" for name in kernel.NUMBERS), *_BACK_NUMBERS,  # of tiles
)  # fmt: skip


def rows_module(isa: Isa, variant: str, data: str, out: str) -> str:
    """Return the IR of ``driver(arguments, scratch)``: rows of tiles, by what lies together in data and output."""
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ROWS_ADDRESSES, ROWS_NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        first = number * a.each
        count = f.least(a.named("all") - first, a.each)
        met, sums, planes = (f.at(f.scratch, at) for at in (a.points_at, a.sums_at, a.planes_at))
        of_met, back = a.of("met").but(first=first, out=met), a.of("back").but(first=first, sums=sums)
        with f.loop(count) as row:
            points.row(f, isa, VARIANTS[variant], True, data, of_met, planes, row.index)
        _summed(f, a, f.compare("slt", count, a.each), data=met, weights=a.weights, out=sums)
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
        count = f.least(a.named("all") - first, a.each)
        made_of, sums, planes = (f.at(f.scratch, at) for at in (a.points_at, a.sums_at, a.planes_at))
        of_kernel = a.of("kernel").but(
            data=f.at(a.of("kernel").data, first * a.of("kernel").result), out=made_of, results=count
        )
        back = a.of("back")
        back = back.but(
            first=f.value(0), sums=sums, channels=count, out=f.at(back.out, first * back.channel),
            bias=f.at(back.bias, first * F32_BYTES),
        )  # fmt: skip
        with f.loop(of_kernel.count) as some:
            kernel.terms(f, isa, VARIANTS[variant], weights, reverse, of_kernel, planes, some.index)
        _summed(f, a, Value(f, "i1", "false"), data=a.met, weights=made_of, out=sums)
        with f.loop(a.named("rows")) as row:
            positions.row(f, isa, VARIANTS[variant], out, back, planes, row.index)
    return str(made)


def _summed(f: Function, a: Named, shorter: Value, **given: Value) -> None:
    """Call the driver of the sums, with a copy of its arguments whose flags are this thread's."""
    driver, words, count = (
        f.select(shorter, *(a.named(f"{name}.{word}") for name in reversed(SUMS)))
        for word in ("driver", "words", "count")
    )
    to = f.at(f.scratch, a.words_at)
    with f.loop(count, here=words, there=to) as each:
        f.store(f.load("i64", each.here), each.there)
        each.next(here=f.at(each.here, WORD), there=f.at(each.there, WORD))
    flags = f.at(to, (count - len(FLAGS)) * WORD)
    for at in range(len(FLAGS)):
        f.store(f.value(0), flags, at * WORD)
        f.store(f.at(flags, at * WORD), to, at * WORD)
    for name, value in given.items():
        f.store(value, to, CALL.index(name) * WORD)
    f.say(f"call void {driver.name}({to}, {f.at(f.scratch, a.inner_at)})")
