"""The window: some positions of a row in registers, lanes channels of several groups, the taps of a row unrolled.

What the operand has is met position by position, each vector read once for all rows that meet it, by whichever tap: in
a forward upward, in a data gradient downward, so that every row takes its taps in their order. What does not exist is
neither read nor added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from convgrad.engines.llvm.arguments import columns
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.forward.micro_tile import PARAMETERS, MicroTile
from convgrad.engines.llvm.forward.segments import end_chains
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, fused
from convgrad.engines.llvm.microkernel import multiply_add, opaque_pointer
from convgrad.formats import F32
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.recipe import GroupedStencil as Numbers
from convgrad.plan.forward.schedule import CHAIN, PART, STENCIL_SEGMENT
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tree import END

Values = dict[str, Value]
Weights = Callable[[int, int, int], Value]  # of a tap, a term, a vector
COUNTS = ("run", "block", "number", "block_runs", "block_count", "furthest")


def window(module: Module, spec: ForwardSpec, rows: int, vectors: int) -> None:
    """Emit ``tile<rows>_<vectors>``: sum[r][v] over blocks, rows of taps, taps, terms, finished into ``out``.

    The first row meets the operand's position ``met`` by the first tap of a row of the kernel, the next ``met_step``
    further.
    """
    pairs = {"pairs": "i64"} if spec.step == 2 else {}
    f = module.function(f"tile{rows}_{vectors}", False, **PARAMETERS, met="i64", met_step="i64", **pairs)
    made = GroupedStencil(f, spec, rows, vectors, STENCIL_SEGMENT.bytes)
    made.ask()
    made.chains()
    f.done()


@dataclass(frozen=True)
class GroupedStencil(MicroTile):
    """A window being emitted."""

    @property
    def n(self) -> Numbers:
        """What it is specialised on."""
        assert self.spec.stencil is not None
        return self.spec.stencil

    @property
    def upward(self) -> bool:
        """Whether further taps meet further positions."""
        return self.n.by_tap > 0

    @property
    def steps(self) -> int:
        """Multiply-adds of a tap: one for each K, or for each pair."""
        return self.n.in_channels // self.spec.step

    @property
    def channel_bytes(self) -> int:
        """Bytes of a channel of the data where tiles read it."""
        return self.spec.position_bytes(2) // 2 if not self.spec.a_in_place else BYTES[self.spec.operand]

    def operand_kind(self, lanes: int) -> str:
        """A vector of what a multiply-add takes."""
        return f"<{lanes} x {'float' if self.spec.step == 1 else 'i32'}>"

    def ask(self) -> None:
        """Ask for what the same rows of the next slab read newly."""
        f, n = self.f, self.n
        step = f.op("i64", f"sdiv {f.row_step}, {n.by_position}")
        channels = n.channels(self.spec.isa.lanes, self.vectors - 1).stop
        size, here = self.channel_bytes, f.next
        for _ in range(self.rows * min(n.by_position, max(n.sizes))):
            for line in range(0, channels * size, LINE_BYTES):
                f.prefetch(f.at(here, line), locality=2)
            here = f.at(here, step)

    def segment(self, segment: Value, prefetched: Value, sums: Values) -> Values:
        """Some taps of a row of the kernel, as many at a time as are unrolled."""
        f, n = self.f, self.n
        x, w, left, first = (f.load("i64", segment, STENCIL_SEGMENT.at(name)) for name in STENCIL_SEGMENT.columns)
        unit = f.op("i64", f"sdiv {f.met_step}, {n.by_position}")
        step = f.op("i64", f"sdiv {f.row_step}, {n.by_position}")
        x, met = f.at(f.data, x), f.met + first * (unit * n.by_tap)
        if not self.upward:  # the last row meets the furthest
            x, met = f.at(x, f.row_step * (self.rows - 1)), met + f.met_step * (self.rows - 1)
            unit, step = (f.value(0) - each for each in (unit, step))
        state = {"x": x, "w": f.at(f.weights, w), "met": met, **sums}
        if len(n.sizes) > 1 or n.guarded:
            for size in n.sizes:
                rounds = f.op("i64", f"udiv {left}, {size}")
                with f.loop(rounds, **state) as many:
                    many.next(**self.taps(size, dict(many.carried), unit, step))
                left, state = left - rounds * size, dict(many.carried)
        else:
            state = self.taps(n.sizes[0], state, unit, step)
        return {"prefetched": prefetched, **{name: state[name] for name in self.names}}

    def taps(self, size: int, state: Values, unit: Value, step: Value) -> Values:
        """So many taps: without looking if all they meet exists, else looking at each."""
        f, n = self.f, self.n
        extent = along(arguments(f, self.spec), self.spec)[-1].met
        last = state["met"] + unit * (n.reach(self.rows, size) - 1)
        inside = f.compare("ult", state["met"], extent) & f.compare("ult", last, extent)
        looked = unit, extent

        def where(condition: Value, sums: Values, looked: tuple[Value, Value] | None, way: MultiplyAdd) -> Values:
            return self.where(condition, sums, lambda now: self.met(size, state, now, step, looked, way))

        sums = {name: state[name] for name in self.names}
        if self.spec.step == 1:
            sums = where(inside, sums, None, multiply_add)
            sums = where(f.op("i1", f"xor {inside}, true"), sums, looked, multiply_add)
        else:  # half by half they are taken seldom: one way serves wherever the tile is
            paired, way = f.compare("ne", f.pairs, 0), PAIR_SUMS[self.spec.isa.pairs]
            sums = where(inside & paired, sums, None, way)
            sums = where(f.op("i1", f"xor {inside}, true") & paired, sums, looked, way)
            sums = where(f.op("i1", f"xor {paired}, true"), sums, looked, fused)
        moved = abs(n.by_tap) * size
        weights = n.tap_step * self.steps * self.spec.pitch * F32_BYTES * size
        return {"x": f.at(state["x"], step * moved), "w": f.at(state["w"], weights), "met": state["met"] + unit * moved,
                **sums}  # fmt: skip

    def where(self, condition: Value, sums: Values, body: Callable[[Values], Values]) -> Values:
        """Do what changes sums only where a condition holds."""
        f = self.f
        with f.loop(f.op("i64", f"zext {condition} to i64"), **sums) as once:
            once.next(**body(dict(once.carried)))
        return {name: once.carried[name] for name in sums}

    def met(
        self, size: int, state: Values, sums: Values, step: Value, looked: tuple[Value, Value] | None, way: MultiplyAdd
    ) -> Values:
        """Meet what the operand has, one after the other: ``looked`` tells which of it exists."""
        f, n = self.f, self.n
        reach, edge = n.reach(self.rows, size), (size - 1) * abs(n.by_tap)
        here = opaque_pointer(self.f, state["x"])
        weights = self.weights(size, state["w"])
        for at in range(reach):
            rows = self.meeting(at, size)
            if rows:
                place = here

                def meet(now: Values, rows: Sequence[tuple[int, int]] = rows, place: Value = place) -> Values:
                    return self.multiplied(rows, place, weights(), now, way)

                if looked is not None and (n.guarded or at < edge or at >= reach - edge):
                    unit, extent = looked
                    there = f.compare("ult", state["met"] + unit * at, extent)
                    names = [f"sum{r}_{v}" for r, _ in rows for v in range(self.vectors)]
                    some = {name: sums[name] for name in names}
                    sums = {**sums, **self.where(there, some, meet)}
                else:
                    sums = meet(sums)
            here = f.at(here, step)
        return sums

    def meeting(self, at: int, size: int) -> list[tuple[int, int]]:
        """Return the rows that meet what is so far from the first, and by which tap."""
        n, found = self.n, []
        for order in range(self.rows):
            tap, rest = divmod(at - order * n.by_position, abs(n.by_tap))
            if rest == 0 and 0 <= tap < size:
                found.append((order if self.upward else self.rows - 1 - order, tap))
        return found

    def weights(self, size: int, place: Value) -> Callable[[], Weights]:
        """Return how weights are had at one place after the other: from registers, if there are as many.

        Else each is loaded where it is used; LLVM is not told that it was before, and does not keep it on the stack.
        """
        f, n = self.f, self.n

        def load(place: Value, tap: int, term: int, v: int) -> Value:
            vector = (tap * n.tap_step * self.steps + term) * self.spec.nr + v
            return f.load(self.operand_kind(self.spec.isa.lanes), place, vector * self.spec.isa.lanes * F32_BYTES)

        if not self.spec.holds(n, self.rows, size, self.vectors):
            return lambda: partial(load, opaque_pointer(self.f, place))
        held = {each: load(place, *each) for each in product(range(size), range(self.steps), range(self.vectors))}
        return lambda: lambda *which: held[which]

    def multiplied(
        self, rows: Sequence[tuple[int, int]], place: Value, weights: Weights, sums: Values, way: MultiplyAdd
    ) -> Values:
        """Read the channels of some groups once, and add their terms to the sums of some rows in their order."""
        f, found = self.f, dict(sums)
        for v in range(self.vectors):
            vectors = self.read(place, v)
            for order in range(self.steps):
                data = self.spread(vectors, v, order)
                for row, tap in rows:
                    name = f"sum{row}_{v}"
                    found[name] = way(f, found[name], data, weights(tap, order, v))
        return found

    def read(self, place: Value, v: int) -> list[Value]:
        """Return the channels that a vector of a position meets: in f32, or in pairs as they are."""
        f, n, step = self.f, self.n, self.spec.step
        stored_as, vectors = self.spec.operand if self.spec.a_in_place else F32.name, list[Value]()
        for first, count in n.reads(self.spec.isa.lanes, v, step):
            there, mask = f.at(place, first * self.channel_bytes), None
            if n.masked:
                left = f.op("i64", f"udiv {f.left}, {n.out_channels}") * n.in_channels - first
                mask = f.mask(left >> 1 if step == 2 else left, count)
            if step == 1:
                vectors.append(read(f, stored_as, there, count, mask))
            elif mask is None:
                vectors.append(f.load(self.operand_kind(count), there))
            else:
                vectors.append(f.masked_load(self.operand_kind(count), there, mask))
        return vectors

    def spread(self, vectors: Sequence[Value], v: int, order: int) -> Value:
        """Return in each lane what its own group has of the K that are taken as the ``order``-th: one, or a pair."""
        f, n, lanes, step = self.f, self.n, self.spec.isa.lanes, self.spec.step
        k = order * step
        if self.spec.pairs and step == 1 and k ^ 1 < n.in_channels:
            k ^= 1
        start = n.channels(lanes, v).start
        wanted = [(n.group(v * lanes + lane) * n.in_channels + k - start) // step for lane in range(lanes)]
        count = n.reads(lanes, v, step)[0][1]
        if wanted == list(range(count)):
            return vectors[0]
        two = vectors[: 1 + any(each >= count for each in wanted)]
        result = f.shuffle(two[0], two[-1], [each if each < 2 * count else 0 for each in wanted])
        for number, vector in enumerate(vectors[2:], 2):
            mine = [each - number * lanes for each in wanted]
            if any(0 <= each < lanes for each in mine):
                picks = [lanes + each if 0 <= each < lanes else lane for lane, each in enumerate(mine)]
                result = f.shuffle(result, vector, picks)
        return result


def rows_of_taps(module: Module, spec: ForwardSpec) -> None:
    """Emit ``segments``: each is a row of taps of the filter, or a chain's part of it; ``counted`` gets the same."""
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "segments", False, arguments="ptr", segments="ptr", chains="ptr", counted="ptr", **dict.fromkeys(names, "ptr")
    )
    *outer, last = (columns(f, f.parameters[name], PART) for name in names)
    begin = {
        "run": f.segments, "block": f.at(f.chains, -CHAIN.bytes), "number": f.value(END), "block_runs": f.value(0),
        "block_count": f.value(0), "furthest": f.value(0),
    }  # fmt: skip

    def rows(at: int, tap: Value, met: Value, state: Values) -> Values:
        if at == len(outer):
            return _row(
                f, spec, tap + last.tap, met, columns(f, f.parameters[names[-1]], PART).taps, last.tap_data, state
            )
        part = outer[at]
        with f.loop(part.taps, tap=tap + part.tap, met=met, **state) as each:
            after = rows(at + 1, each.tap, each.met, {name: each.carried[name] for name in COUNTS})
            each.next(tap=each.tap + part.tap_step, met=each.met + part.tap_data, **after)
        return {name: each.carried[name] for name in COUNTS}

    state = rows(0, f.value(0), f.value(0), begin)
    end_chains(f, state["block"], state["block_count"])
    f.store(f.value(0), f.chains, CHAIN.at("segment"))
    f.store(state["block_count"], f.counted)
    f.store(f.value(0), f.counted, 8)  # nothing is asked for ahead by terms
    f.store(state["furthest"], f.counted, 16)
    f.done()


def _row(
    f: Function, spec: ForwardSpec, tap: Value, met: Value, taps: Value, tap_data: Value, state: Values
) -> Values:  # fmt: skip
    """One row of taps, cut where blocks end."""
    assert spec.stencil is not None
    a, step = arguments(f, spec), spec.stencil.tap_step
    share = a.number_share
    first = f.op("i64", f"udiv {tap}, {share.name}")
    ends = f.op("i64", f"udiv {tap + (taps - 1) * step}, {share.name}")
    pieces = f.select(f.compare("sgt", taps, 0), ends - first + 1, f.value(0))
    with f.loop(pieces, done=f.value(0), **state) as piece:
        s = {name: piece.carried[name] for name in COUNTS}
        number = first + piece.index
        end = f.op("i64", f"sdiv {(number + 1) * share - tap + (step - 1)}, {step}")
        end = f.min(end, taps)
        values = (met + piece.done * tap_data, (tap + piece.done * step) * a.b_tap, end - piece.done, piece.done)
        for at, value in enumerate(values):
            f.store(value, s["run"], 8 * at)
        new = f.compare("ne", number, s["number"])
        block = f.select(new, f.at(s["block"], CHAIN.bytes), s["block"])
        inside = f.select(new, f.value(1), s["block_runs"] + 1)
        f.store(number, block, CHAIN.at("number"))
        f.store(inside, block, CHAIN.at("segments"))
        with f.when(new):
            f.store(f.distance(s["run"], f.segments), block, CHAIN.at("segment"))
        piece.next(
            done=end, run=f.at(s["run"], STENCIL_SEGMENT.bytes), block=block, number=number, block_runs=inside,
            block_count=f.select(new, s["block_count"] + 1, s["block_count"]), furthest=f.max(s["furthest"], met),
        )  # fmt: skip
    return {name: piece.carried[name] for name in COUNTS}
