"""Points of weights in IR: what forwards and data gradients multiply the points of tiles by."""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.claims import claimed, loaded
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.engines.llvm.winograd.lanes import InLanes, gathered
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS_IN, CHANNELS_OUT, F32_BYTES, STRIDED
from convgrad.plan.recipe import TAPS as BY_TAPS
from convgrad.plan.winograd.recipe import PANEL
from convgrad.spec.toom_cook import AXES, TAPS, VARIANTS, Variant

ADDRESSES = ("data", "out")
NUMBERS = (
    "count",  # of terms, some lanes at a time
    "results", "terms", "result", "term", "tap.y", "tap.x",  # bytes of data to the next
    "point", "panel",  # bytes of what is made to the next
)  # fmt: skip


def module(isa: Isa, variant: str, contiguous: str, reverse: bool) -> str:
    """Return the IR of ``driver(arguments, scratch)``: out[point][panel][term][result], panels of two vectors.

    By what lies together in the weights: results are lanes. Where terms lie together, squares of both are transposed,
    tap by tap, into scratch; where taps do, squares of results and taps. ``reverse`` takes the taps of both axes from
    the last to the first.
    """
    made = Module()
    f = made.function("driver", public=True, arguments="ptr", scratch="ptr")
    a = loaded(f, ADDRESSES, NUMBERS)
    with claimed(f, isa, a, a.count) as number:
        terms(f, isa, VARIANTS[variant], contiguous, reverse, a, f.scratch, number)
    return str(made)


def terms(
    f: Function, isa: Isa, variant: Variant, contiguous: str, reverse: bool, a: Named, planes: Value, number: Value
) -> None:  # fmt: skip
    """Emit as many terms as there are lanes, the ``number``-th of them; ``planes`` is scratch."""
    _Points(f, isa, variant, contiguous, reverse, a, planes).terms(number)


class _Points:
    """The points of some terms being emitted."""

    def __init__(
        self, f: Function, isa: Isa, variant: Variant, contiguous: str, reverse: bool, a: Named, planes: Value
    ) -> None:  # fmt: skip
        self.f, self.lanes, self.variant, self.contiguous, self.reverse, self.a = (
            f,
            isa.lanes,
            variant,
            contiguous,
            reverse,
            a,
        )
        self.planes = planes
        self.kind, self.vector = f"<{isa.lanes} x float>", isa.lanes * F32_BYTES

    def terms(self, number: Value) -> None:
        """As many terms as there are lanes, and all results of each."""
        f, a, lanes = self.f, self.a, self.lanes
        first = number * lanes
        data, out = f.at(a.data, first * a.term), f.at(a.out, first * (PANEL * self.vector))
        terms = f.min(a.terms - first, lanes)
        if self.contiguous in (CHANNELS_OUT, STRIDED):  # rows of results, as they are read and written
            with f.loop(terms, data=data, out=out) as term:
                with f.loop(self._vectors(), data=term.data, left=a.results) as some:
                    self._term(self._taps(some.data, some.left), self._of_vector(term.out, some.index))
                    self._next(some)
                term.next(data=f.at(term.data, a.term), out=f.at(term.out, PANEL * self.vector))
            return
        with f.loop(self._vectors(), data=data, left=a.results) as some:
            if self.contiguous == CHANNELS_IN:
                self._turned(some.data, some.left, terms)
            begin, step = (
                self._of_vector(out, some.index),
                f.value(self.vector) if self.contiguous == CHANNELS_IN else a.term,
            )
            with f.loop(terms, data=self.planes if self.contiguous == CHANNELS_IN else some.data, out=begin) as term:
                self._term(self._taps(term.data, some.left), term.out)
                term.next(data=f.at(term.data, step), out=f.at(term.out, PANEL * self.vector))
            self._next(some)

    def _of_vector(self, out: Value, number: Value) -> Value:
        panel, place = self.f.divided(number, PANEL)
        return self.f.at(self.f.at(out, panel * self.a.panel), place * self.vector)

    def _vectors(self) -> Value:
        return self.a.results + (self.lanes - 1) >> self.lanes.bit_length() - 1

    def _next(self, some: Loop) -> None:
        f, a = self.f, self.a
        some.next(
            data=f.at(some.data, a.result * self.lanes), left=some.left - self.lanes
        )  # fmt: skip

    def _turned(self, data: Value, left: Value, terms: Value) -> None:
        """Transpose squares of results and terms, tap by tap: scratch[tap][term][result]."""
        f, a, lanes = self.f, self.a, self.lanes
        mask = f.mask(terms, lanes)
        none = Value(f, mask.type, "zeroinitializer")
        with f.loop(TAPS, data=data, to=self.planes) as y:
            with f.loop(TAPS, data=y.data, to=y.to) as x:
                rows = [
                    f.masked_load(
                        self.kind, f.at(x.data, a.result * lane), f.select(f.compare("sgt", left, lane), mask, none)
                    )
                    for lane in range(lanes)
                ]
                for term, value in enumerate(transposed(f, rows, lanes)):
                    f.store(value, x.to, term * self.vector)
                x.next(data=f.at(x.data, a.of("tap").x), to=f.at(x.to, lanes * self.vector))
            y.next(data=f.at(y.data, a.of("tap").y), to=x.to)

    def _taps(self, data: Value, left: Value) -> list[Value]:
        """Return the taps of a term, row-major, each a vector of results."""
        f, a, lanes = self.f, self.a, self.lanes
        if self.contiguous == CHANNELS_IN:
            return [f.load(self.kind, data, tap * lanes * self.vector) for tap in range(TAPS**AXES)]
        if self.contiguous == BY_TAPS:
            return self._by_taps(data, left)
        mask, step, found = f.mask(left, lanes), a.of("tap"), []
        for tap in range(TAPS**AXES):
            place = f.at(f.at(data, step.y * (tap // TAPS)), step.x * (tap % TAPS))
            found.append(
                f.masked_load(self.kind, place, mask)
                if self.contiguous == CHANNELS_OUT
                else gathered(f, lanes, place, a.result, mask)
            )
        return found

    def _by_taps(self, data: Value, left: Value) -> list[Value]:
        """Return the taps where they lie together."""
        f, lanes, found = self.f, self.lanes, list[Value]()
        zeros = f.value(0)
        for first in range(0, TAPS**AXES, lanes):
            count = min(lanes, TAPS**AXES - first)
            rows = []
            for lane in range(lanes):
                there = f.select(f.compare("sgt", left, lane), f.value(count), zeros)
                place = f.at(f.at(data, self.a.result * lane), first * F32_BYTES)
                rows.append(f.masked_load(self.kind, place, f.mask(there, lanes)))
            found += transposed(f, rows, lanes)[:count]
        return found

    def _term(self, taps: Sequence[Value], out: Value) -> None:
        """All points of a vector of weights: along the first axis, then along the last."""
        f, transform, arithmetic = self.f, self.variant.of_positions.other, InLanes(self.f, self.lanes)
        taps = taps[::-1] if self.reverse else taps
        columns = [transform(arithmetic, taps[x::TAPS]) for x in range(TAPS)]
        place = out
        for row in zip(*columns, strict=True):
            for value in transform(arithmetic, row):
                f.store(value, place)
                place = f.at(place, self.a.point)
