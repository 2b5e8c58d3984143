"""The direct depthwise kernel of weight gradients, which reads a segment of a row of src and of dst in place.

A lane is a group of one channel. In the middle of a row all taps exist. There, a value of src that a position uses with
one tap is used with another tap by the next position, so it stays in a register. At the edges of a row, taps that do
not exist are neither read nor added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from convgrad.engines.llvm.arguments import Named, arguments, columns
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.split_k.segment import SegmentRows
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.schedule import ARGUMENTS
from convgrad.plan.split_k.taps import TAP_RANGE, taps_record

SCALES = 3  # an x86 address can multiply a register by 2^0 to 2^3
Values = dict[str, Value]


def first_group(f: Function, spec: SplitKSpec, a: Named, group: Value) -> Value:
    """Return the first group of a panel: ``group``, or an earlier one if the panel would exceed the last group."""
    return f.min(group, a.groups - spec.isa.lanes)


def depthwise(module: Module, spec: SplitKSpec) -> None:
    """Emit ``depthwise``, which sums a segment for some taps: chain[t] = fma(x[t], y, chain[t]), panel by panel.

    An outer tap that does not exist reads another row, and its sum is not stored.
    """
    f = module.function(
        "depthwise",
        arguments="ptr",
        chain="ptr",
        chain_step="i64",
        panels="i64",
        begins="i1",
        image="i64",
        segment="ptr",
        tap="ptr",
        group="i64",
    )
    args, taps, kind = arguments(f, ARGUMENTS), columns(f, f.tap, taps_record(spec)), f"<{spec.isa.lanes} x float>"
    a, b = args.of("a"), args.of("b")
    steps, prefetched = {"x": a.read_k, "y": b.read_k}, {"x": a.prefetch, "y": b.prefetch}
    ranges = f.at(args.ranges, taps.range * TAP_RANGE.bytes)
    s = _Depthwise(f, spec, ranges, steps, args.tap_step, prefetched)
    segment, all_exist = SegmentRows(f, spec, args, taps, f.segment), columns(f, ranges, TAP_RANGE)
    first, end = segment.first, segment.end
    left = f.min(f.max(all_exist.first, first), end)
    right = f.min(f.max(all_exist.end, left), end)
    image = f.image + segment.image
    x, y = f.at(a.data, image * a.image), f.at(b.data, image * b.image)
    begin = {f"x{u}": f.at(f.at(x, offset), first * steps["x"]) for u, offset in enumerate(segment.src)}
    begin["y"] = f.at(f.at(y, segment.dst), first * steps["y"])
    with f.loop(f.panels, chain=f.chain) as panel:
        group = first_group(f, spec, args, (f.group + panel.index) * spec.isa.lanes)
        here = {name: f.at(pointer, group * BYTES[spec.operand]) for name, pointer in begin.items()}
        for t in range(spec.micro_tile.taps):
            before = f.load(kind, panel.chain, t * spec.tap_bytes)
            here[f"sum{t}"] = f.select(f.begins, f.zeros(kind), before)
        here = s.edge(first, left - first, here)
        here = s.middle(right - left, here)
        here = s.edge(right, end - right, here)
        for u, absent in enumerate(segment.absent):
            inner_taps = range(u * spec.micro_tile.inner_taps, (u + 1) * spec.micro_tile.inner_taps)
            with f.when(absent), f.when(f.begins):
                for t in inner_taps:
                    f.store(f.zeros(kind), panel.chain, t * spec.tap_bytes)
            with f.otherwise():
                for t in inner_taps:
                    f.store(here[f"sum{t}"], panel.chain, t * spec.tap_bytes)
        panel.next(chain=f.at(panel.chain, f.chain_step))
    f.done()


@dataclass(frozen=True)
class _Depthwise:
    """A depthwise kernel that is being emitted."""

    f: Function
    spec: SplitKSpec
    ranges: Value  # the address of the range in which all inner taps exist, followed by the range of each inner tap
    steps: dict[str, Value]  # bytes between two positions in x and in y
    tap: Value  # bytes between two inner taps in src
    prefetched: dict[str, Value]  # bytes from a position in x and in y to the memory that is prefetched

    def middle(self, count: Value, here: Values) -> Values:
        """Sum positions at which all taps exist. Values of src that the next position also uses stay in registers."""
        f, spec, micro_tile = self.f, self.spec, self.spec.micro_tile
        moved_on = range(micro_tile.inner_taps - spec.slide) if spec.slide else range(0)
        held = list(product(range(micro_tile.outer_taps), moved_on))
        with f.loop(f.min(count, 1), **here) as some:  # an empty range must not read memory
            known = {f"held{u}_{k}": self.read(some.carried[f"x{u}"], self.tap * k) for u, k in held}
            with f.loop(count, **some.carried, **known) as at:
                y = self.read(at.y, 0)
                self.prefetch(at.carried)
                shifts = self.shifts()
                values = {}
                for u, k in product(range(micro_tile.outer_taps), range(micro_tile.inner_taps)):
                    there = at.carried.get(f"held{u}_{k}")
                    values[u, k] = self.read(at.carried[f"x{u}"], shifts[k]) if there is None else there
                for t, tap in enumerate(values):
                    at.next(**{f"sum{t}": f.fma(values[tap], y, at.carried[f"sum{t}"])})
                at.next(**self.moved(at.carried), **{f"held{u}_{k}": values[u, k + spec.slide] for u, k in held})
            some.next(**{name: at.carried[name] for name in here})
        return dict(some.carried)

    def edge(self, first: Value, count: Value, here: Values) -> Values:
        """Sum positions at which some inner taps are absent; absent taps are skipped."""
        f, micro_tile = self.f, self.spec.micro_tile
        with f.loop(count, **here) as at:
            position, y = first + at.index, self.read(at.y, 0)
            self.prefetch(at.carried)
            for k in range(micro_tile.inner_taps):
                exists = columns(f, f.at(self.ranges, TAP_RANGE.bytes * (1 + k)), TAP_RANGE)
                there = f.compare("ult", position - exists.first, exists.end - exists.first)
                src_of = {f"sum{u * micro_tile.inner_taps + k}": f"x{u}" for u in range(micro_tile.outer_taps)}
                with f.loop(
                    f.select(there, f.value(1), f.value(0)), **{name: at.carried[name] for name in src_of}
                ) as iteration:
                    for name, x in src_of.items():
                        iteration.next(
                            **{name: f.fma(self.read(at.carried[x], self.tap * k), y, iteration.carried[name])}
                        )
                at.next(**iteration.carried)
            at.next(**self.moved(at.carried))
        return dict(at.carried)

    def prefetch(self, here: Values) -> None:
        """Prefetch elements of later rows of src and dst."""
        f = self.f
        last_row = here[f"x{self.spec.micro_tile.outer_taps - 1}"]
        f.prefetch(f.at(here["y"], self.prefetched["y"]), locality=2)
        f.prefetch(f.at(last_row, self.prefetched["x"]), locality=2)

    def read(self, pointer: Value, offset: Value | int) -> Value:
        """Load a vector of groups as f32."""
        f, spec = self.f, self.spec
        return read(f, spec.operand, f.at(pointer, offset), spec.isa.lanes)

    def shifts(self) -> list[Value | int]:
        """Return the offset of each inner tap in bytes, as a few multiples of the step times 1, 2, 4 or 8.

        The multiples are opaque to LLVM. Otherwise LLVM would increment a pointer for every tap.
        """
        f, spec = self.f, self.spec
        multiples: dict[int, Value] = {}
        shifts: list[Value | int] = [0]
        for k in range(1, spec.micro_tile.inner_taps):
            scale = min((k & -k).bit_length() - 1, SCALES)
            if spec.slide and k < spec.micro_tile.inner_taps - spec.slide:
                shifts.append(0)  # unused, because the tap's value is in a register
                continue
            if k >> scale not in multiples:
                multiples[k >> scale] = f.opaque(self.tap * (k >> scale))
            shifts.append(multiples[k >> scale] * (1 << scale))
        return shifts

    def moved(self, here: Values) -> Values:
        """Return the pointers to src and dst for the next position."""
        return {name: self.f.at(value, self.steps[name[0]]) for name, value in here.items() if name[0] in self.steps}
