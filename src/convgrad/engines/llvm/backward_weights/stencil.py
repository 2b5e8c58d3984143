"""The strip: taps of a stretch of a row, as it lies, of one vector of groups after the other.

A lane is a group of one channel each way. In the middle of a row all taps exist, and what one position met by a tap the
next one meets by another, which stays in a register; at the edges what an absent tap would meet is neither read nor
added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from convgrad.engines.llvm.arguments import Named, arguments, columns
from convgrad.engines.llvm.backward_weights.lines import Met, outer_taps
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.backward_weights.recipe import KernelSpec
from convgrad.plan.backward_weights.taps import SEGMENT, TAP

SCALES = 3  # an address adds an index times 1, 2, 4 or 8
Values = dict[str, Value]


def first_group(f: Function, spec: KernelSpec, a: Named, group: Value) -> Value:
    """Return the first group of the panel that begins with a group, or earlier rather than run over."""
    return f.min(group, a.groups - spec.isa.lanes)


def strip(module: Module, spec: KernelSpec) -> None:
    """Emit ``strip``: a line under a tile of taps, group panel by panel: chain[t] = fma(x[t], y, chain[t]).

    A line is a stretch of dst positions in a row. Its segments are where all inner taps of the tile exist, then where
    each of them does. An outer tap that does not exist meets some other row, and that is dropped.
    """
    f = module.function(
        "strip", arguments="ptr", chain="ptr", chain_step="i64", panels="i64", begins="i1", image="i64", line="ptr",
        tap="ptr", group="i64",
    )  # fmt: skip
    a, k, kind = arguments(f), columns(f, f.tap, TAP), f"<{spec.isa.lanes} x float>"
    steps = {"x": a.rows.read_term, "y": a.lanes.read_term}
    tap_step, ahead = a.tap_step, {"x": a.rows.ahead, "y": a.lanes.ahead}
    s = _Strip(f, spec, f.at(a.segments, k.whole * SEGMENT.bytes), steps, tap_step, ahead)
    met = Met(f, f.line, outer_taps(f, spec, a.places, a.shifts, k.outer))
    first, end = met.first, met.end
    low, high = f.load("i64", s.segments), f.load("i64", s.segments, 8)
    left = f.min(f.max(low, first), end)
    right = f.min(f.max(high, left), end)
    x = f.at(f.at(a.rows.data, f.image * a.rows.image), k.rows.shift)
    y = f.at(a.lanes.data, f.image * a.lanes.image)
    begin = {f"x{u}": f.at(f.at(x, offset), first * steps["x"]) for u, offset in enumerate(met.places)}
    begin["y"] = f.at(f.at(y, met.fixed), first * steps["y"])
    with f.loop(f.panels, chain=f.chain) as panel:
        group = first_group(f, spec, a, (f.group + panel.index) * spec.isa.lanes)
        here = {name: f.at(place, group * BYTES[spec.operand]) for name, place in begin.items()}
        for t in range(spec.tile.taps):
            before = f.load(kind, panel.chain, t * spec.tap_bytes)
            here[f"sum{t}"] = f.select(f.begins, f.zeros(kind), before)
        here = s.edge(first, left - first, here)
        here = s.middle(right - left, here)
        here = s.edge(right, end - right, here)
        for u, missing in enumerate(met.missing):
            taps = range(u * spec.tile.inner_taps, (u + 1) * spec.tile.inner_taps)
            with f.when(missing), f.when(f.begins):
                for t in taps:
                    f.store(f.zeros(kind), panel.chain, t * spec.tap_bytes)
            with f.otherwise():
                for t in taps:
                    f.store(here[f"sum{t}"], panel.chain, t * spec.tap_bytes)
        panel.next(chain=f.at(panel.chain, f.chain_step))
    f.done()


@dataclass(frozen=True)
class _Strip:
    """A strip being emitted; ``segments`` tell where its inner taps exist."""

    f: Function
    spec: KernelSpec
    segments: Value
    steps: dict[str, Value]  # bytes from a position to the next, of x and y,
    tap: Value  # from what a tap meets to what the next one does,
    ahead: dict[str, Value]  # to what is asked for ahead

    def middle(self, count: Value, here: Values) -> Values:
        """Positions where all taps exist; what the next one meets too is held."""
        f, spec, tile = self.f, self.spec, self.spec.tile
        kept = range(tile.inner_taps - spec.slide) if spec.slide else range(0)
        held = list(product(range(tile.outer_taps), kept))
        with f.loop(f.min(count, 1), **here) as some:  # nothing is read where there is no position
            known = {f"held{u}_{k}": self.read(some.carried[f"x{u}"], self.tap * k) for u, k in held}
            with f.loop(count, **some.carried, **known) as at:
                y = self.read(at.y, 0)
                self.ask(at.carried)
                shifts = self.shifts()
                met = {}
                for u, k in product(range(tile.outer_taps), range(tile.inner_taps)):
                    there = at.carried.get(f"held{u}_{k}")
                    met[u, k] = self.read(at.carried[f"x{u}"], shifts[k]) if there is None else there
                for t, place in enumerate(met):
                    at.next(**{f"sum{t}": f.fma(met[place], y, at.carried[f"sum{t}"])})
                at.next(**self.moved(at.carried), **{f"held{u}_{k}": met[u, k + spec.slide] for u, k in held})
            some.next(**{name: at.carried[name] for name in here})
        return dict(some.carried)

    def edge(self, first: Value, count: Value, here: Values) -> Values:
        """Positions where some inner taps are absent, by their segments: those are passed over."""
        f, tile = self.f, self.spec.tile
        with f.loop(count, **here) as at:
            position, y = first + at.index, self.read(at.y, 0)
            self.ask(at.carried)
            for k in range(tile.inner_taps):
                begin, end = (
                    f.load("i64", self.segments, SEGMENT.bytes * (1 + k) + SEGMENT.at(word)) for word in ("low", "high")
                )
                there = f.compare("ult", position - begin, end - begin)
                met = {f"sum{u * tile.inner_taps + k}": f"x{u}" for u in range(tile.outer_taps)}
                with f.loop(f.select(there, f.value(1), f.value(0)), **{name: at.carried[name] for name in met}) as one:
                    for name, x in met.items():
                        one.next(**{name: f.fma(self.read(at.carried[x], self.tap * k), y, one.carried[name])})
                at.next(**one.carried)
            at.next(**self.moved(at.carried))
        return dict(at.carried)

    def ask(self, here: Values) -> None:
        """Ask for what is met some rows on."""
        f = self.f
        newest = here[f"x{self.spec.tile.outer_taps - 1}"]
        f.prefetch(f.at(here["y"], self.ahead["y"]), locality=2)
        f.prefetch(f.at(newest, self.ahead["x"]), locality=2)

    def read(self, pointer: Value, offset: Value | int) -> Value:
        """Load a vector of groups."""
        f, spec = self.f, self.spec
        return read(f, spec.operand, f.at(pointer, offset), spec.isa.lanes)

    def shifts(self) -> list[Value | int]:
        """Return the bytes to each of the neighbouring taps, for addresses: few multiples of the step, scaled.

        They are hidden from LLVM, which would keep a pointer for every tap and count all of them up.
        """
        f, spec = self.f, self.spec
        multiples: dict[int, Value] = {}
        shifts: list[Value | int] = [0]
        for k in range(1, spec.tile.inner_taps):
            scale = min((k & -k).bit_length() - 1, SCALES)
            if spec.slide and k < spec.tile.inner_taps - spec.slide:
                shifts.append(0)  # held
                continue
            if k >> scale not in multiples:
                multiples[k >> scale] = f.opaque(self.tap * (k >> scale))
            shifts.append(multiples[k >> scale] * (1 << scale))
        return shifts

    def moved(self, here: Values) -> Values:
        """Return the pointers at the next position."""
        return {name: self.f.at(value, self.steps[name[0]]) for name, value in here.items() if name[0] in self.steps}
