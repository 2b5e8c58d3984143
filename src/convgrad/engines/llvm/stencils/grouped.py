"""The grouped stencil: micro-tiles of neighbouring positions and of the channels of several groups.

The taps of a row of the kernel are unrolled. The data is read position by position, and each vector is read once for
all rows and taps that use it. A forward pass reads positions in ascending order and a data gradient in descending
order, so that each row adds its taps in the order of the sum. Positions that do not exist are neither read nor added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from convgrad.engines.llvm.arguments import Named, columns, fill
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm import output_stationary
from convgrad.engines.llvm.gemm.arguments import along, arguments, each_tap
from convgrad.engines.llvm.gemm.micro_tile import PARAMETERS, MicroTile
from convgrad.engines.llvm.gemm.segments import end_lists
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, fused
from convgrad.engines.llvm.microkernel import multiply_add, opaque_pointer
from convgrad.formats import F32
from convgrad.plan.gemm.schedule import CHAIN, PART
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.stencils.grouped import GroupedStencilSpec, StencilShape
from convgrad.plan.stencils.grouped_schedule import SEGMENT
from convgrad.plan.tree import END

Values = dict[str, Value]
Weights = Callable[[int, int, int], Value]  # (tap, k or pair of k, vector): return the vector of weights
# The state of the lists: the next segment; the present chain, its number, its count of segments and its first segment.
# The last two values are the number of chains and the largest offset in A.
STATE = ("segment", "chain", "number", "segments", "first", "chain_count", "last_a")


def bodies(module: Module, spec: GroupedStencilSpec) -> None:
    """Emit the functions that the nest calls. The nest is that of a GEMM of merged groups."""
    output_stationary.functions(module, spec, rows_of_taps, partial(grouped_tile, module, spec))


def grouped_tile(module: Module, spec: GroupedStencilSpec, rows: int, vectors: int) -> None:
    """Emit ``tile<rows>_<vectors>``, which stores sum[r][v], the sum over chains, rows of taps, taps and k.

    Row r of the micro-tile is an output position. Its first tap in a row of the kernel multiplies the position
    ``input`` + r * ``input_step`` of the data.
    """
    pairs = {"pairs": "i64"} if spec.k_per_add == 2 else {}
    f = module.function(f"tile{rows}_{vectors}", False, **PARAMETERS, input="i64", input_step="i64", **pairs)
    micro_tile = GroupedStencil(f, spec, rows, vectors, segment_bytes=SEGMENT.bytes)
    micro_tile.prefetch()
    micro_tile.micro_kernel()
    f.done()


@dataclass(frozen=True)
class GroupedStencil(MicroTile):
    """The micro-tile of a grouped stencil that is being emitted."""

    spec: GroupedStencilSpec

    @property
    def prefetched_out(self) -> Value:
        """The address of the output that is prefetched: that of the next micro-tile."""
        return self.f.at(self.f.out, self.f.out_step * self.rows)

    def prefetch_out(self) -> None:
        """Prefetch the output, unless it is near: its lines arrive in time from a shared cache."""
        with self.f.when(self.f.compare("ne", arguments(self.f, self.spec).prefetches_out, 0)):
            super().prefetch_out()

    @property
    def shape(self) -> StencilShape:
        """The shape for which the kernel is specialised."""
        return self.spec.shape

    @property
    def upward(self) -> bool:
        """Whether the position of the data increases with the tap."""
        return self.shape.by_tap > 0

    @property
    def steps(self) -> int:
        """The number of multiply-adds per tap: one for each k, or one for each bf16 pair."""
        return self.shape.in_channels // self.spec.k_per_add

    @property
    def channel_bytes(self) -> int:
        """The bytes of a channel of the data, packed or in place."""
        return self.spec.packed_k_bytes(2) // 2 if not self.spec.a.in_place else BYTES[self.spec.operand]

    def operand_kind(self, lanes: int) -> str:
        """Return the IR type of a vector operand of the multiply-add: f32 or bf16 pairs."""
        return f"<{lanes} x {'float' if self.spec.k_per_add == 1 else 'i32'}>"

    @property
    def unit(self) -> tuple[Value, Value]:
        """The unit of ``shape`` in positions of the data, and in bytes, which are modulo 2**64, as ``row_step`` is."""
        f = self.f
        unit = f.op("i64", f"sdiv {f.input_step}, {self.shape.by_position}")
        return unit, unit * along(arguments(f, self.spec), self.spec)[-1].step

    def prefetch(self) -> None:
        """Prefetch the data that the same micro-tile of the next output block reads first."""
        f, shape = self.f, self.shape
        _, step = self.unit
        channels = shape.channels(self.spec.isa.lanes, self.vectors - 1).stop
        size, here = self.channel_bytes, f.next
        for _ in range(self.rows * min(shape.by_position, max(shape.sizes))):
            f.prefetch_all(here, channels * size, locality=2)
            here = f.at(here, step)

    def segment(self, segment: Value, prefetched: Value, sums: Values) -> Values:
        """Add a segment, which is some taps of a row of the kernel, and return the new sums.

        ``shape.sizes`` are the numbers of taps that are unrolled at a time.
        """
        f, shape = self.f, self.shape
        x, w, left, first = (f.load("i64", segment, SEGMENT.at(name)) for name in SEGMENT.columns)
        unit, step = self.unit
        x, first_input = f.at(f.data, x), f.input + first * (unit * shape.by_tap)
        if not self.upward:  # begin with the last row, which reads the last position of the data
            x, first_input = f.at(x, f.row_step * (self.rows - 1)), first_input + f.input_step * (self.rows - 1)
            unit, step = (f.value(0) - distance for distance in (unit, step))
        state = {"x": x, "w": f.at(f.weights, w), "input": first_input, **sums}
        if len(shape.sizes) > 1 or shape.guarded:
            for size in shape.sizes:
                rounds = f.op("i64", f"udiv {left}, {size}")
                with f.loop(rounds, **state) as many:
                    many.next(**self.taps(size, dict(many.carried), unit, step))
                left, state = left - rounds * size, dict(many.carried)
        else:
            state = self.taps(shape.sizes[0], state, unit, step)
        return {"prefetched": prefetched, **{name: state[name] for name in self.names}}

    def taps(self, size: int, state: Values, unit: Value, step: Value) -> Values:
        """Add ``size`` unrolled taps and return the new state. Each position is checked if one may not exist."""
        f, shape = self.f, self.shape
        extent = along(arguments(f, self.spec), self.spec)[-1].inputs
        last_input = state["input"] + unit * (shape.reach(self.rows, size) - 1)
        inside = f.compare("ult", state["input"], extent) & f.compare("ult", last_input, extent)
        checked = unit, extent

        def where(condition: Value, sums: Values, checked: tuple[Value, Value] | None, way: MultiplyAdd) -> Values:
            return self.where(condition, sums, lambda now: self.with_positions(size, state, now, step, checked, way))

        sums = {name: state[name] for name in self.names}
        if self.spec.k_per_add == 1:
            sums = where(inside, sums, None, multiply_add)
            sums = where(f.op("i1", f"xor {inside}, true"), sums, checked, multiply_add)
        else:  # the path without pairs is rare, so borders and interior share its code
            paired, way = f.compare("ne", f.pairs, 0), PAIR_SUMS[self.spec.isa.pairs]
            sums = where(inside & paired, sums, None, way)
            sums = where(f.op("i1", f"xor {inside}, true") & paired, sums, checked, way)
            sums = where(f.op("i1", f"xor {paired}, true"), sums, checked, fused)
        moved = abs(shape.by_tap) * size
        tap_bytes = shape.tap_step * self.steps * self.spec.pitch * F32_BYTES
        return {
            "x": f.at(state["x"], step * moved),
            "w": f.at(state["w"], tap_bytes * size),
            "input": state["input"] + unit * moved,
            **sums,
        }

    def with_positions(
        self, size: int, state: Values, sums: Values, step: Value, checked: tuple[Value, Value] | None, way: MultiplyAdd
    ) -> Values:
        """Add the products of one position after the other, and return the new sums.

        If ``checked`` (a step and an extent) is given, a position is read only if it exists.
        """
        f, shape = self.f, self.shape
        reach, tap_step = shape.reach(self.rows, size), abs(shape.by_tap)
        edge = (size - 1) * tap_step
        here, before = opaque_pointer(self.f, state["x"]), 0
        weights = self.weights(size, state["w"])
        offsets = product(range(0, self.rows * shape.by_position, shape.by_position), range(0, edge + 1, tap_step))
        for at in sorted({row + tap for row, tap in offsets}):  # few, although strides and dilations may be large
            rows, here, before = self.meeting(at, size), f.at(here, step * (at - before)) if at else here, at

            def meet(now: Values, rows: Sequence[tuple[int, int]] = rows, place: Value = here) -> Values:
                return self.multiplied(rows, place, weights(), now, way)

            if checked is not None and (shape.guarded or at < edge or at >= reach - edge):
                unit, extent = checked
                there = f.compare("ult", state["input"] + unit * at, extent)
                names = [f"sum{r}_{v}" for r, _ in rows for v in range(self.vectors)]
                some = {name: sums[name] for name in names}
                sums = {**sums, **self.where(there, some, meet)}
            else:
                sums = meet(sums)
        return sums

    def meeting(self, at: int, size: int) -> list[tuple[int, int]]:
        """Return each row that uses the position ``at``, with the tap by which the row uses it.

        ``at`` is the distance from the first position, and ``size`` is the number of taps.
        """
        shape, meetings = self.shape, []
        for order in range(self.rows):
            tap, remainder = divmod(at - order * shape.by_position, abs(shape.by_tap))
            if remainder == 0 and 0 <= tap < size:
                meetings.append((order if self.upward else self.rows - 1 - order, tap))
        return meetings

    def weights(self, size: int, place: Value) -> Callable[[], Weights]:
        """Return a function that returns the weights for the next position.

        If registers have room for all weights, they are loaded once. Otherwise each use loads its weight through an
        opaque pointer, because LLVM would combine equal loads and then spill their results.
        """
        f, shape = self.f, self.shape

        def load(place: Value, tap: int, order: int, v: int) -> Value:
            vector = (tap * shape.tap_step * self.steps + order) * self.spec.nr + v
            return f.load(self.operand_kind(self.spec.isa.lanes), place, vector * self.spec.isa.lanes * F32_BYTES)

        if not self.spec.holds(self.rows, size, self.vectors):
            return lambda: partial(load, opaque_pointer(self.f, place))
        held = {index: load(place, *index) for index in product(range(size), range(self.steps), range(self.vectors))}
        return lambda: lambda *which: held[which]

    def multiplied(
        self, rows: Sequence[tuple[int, int]], place: Value, weights: Weights, sums: Values, way: MultiplyAdd
    ) -> Values:
        """Load the channels of a position, and add their products to the sums of some rows, in the order of k."""
        f, products = self.f, dict(sums)
        for v in range(self.vectors):
            vectors = self.read(place, v)
            for order in range(self.steps):
                data = self.spread(vectors, v, order)
                for row, tap in rows:
                    name = f"sum{row}_{v}"
                    products[name] = way(f, products[name], data, weights(tap, order, v))
        return products

    def read(self, place: Value, v: int) -> list[Value]:
        """Load the channels of a position that a vector of sums uses, as f32 or bf16 pairs in memory order."""
        f, shape, k_per_add = self.f, self.shape, self.spec.k_per_add
        stored_as, vectors = self.spec.operand if self.spec.a.in_place else F32.name, list[Value]()
        for first, count in shape.reads(self.spec.isa.lanes, v, k_per_add):
            there, mask = f.at(place, first * self.channel_bytes), None
            if shape.masked:
                left = f.op("i64", f"udiv {f.left}, {shape.out_channels}") * shape.in_channels - first
                mask = f.mask(left >> 1 if k_per_add == 2 else left, count)
            if k_per_add == 1:
                vectors.append(read(f, stored_as, there, count, mask))
            elif mask is None:
                vectors.append(f.load(self.operand_kind(count), there))
            else:
                vectors.append(f.masked_load(self.operand_kind(count), there, mask))
        return vectors

    def spread(self, vectors: Sequence[Value], v: int, order: int) -> Value:
        """Return a vector whose lanes have the k, or pair of k, with the number ``order`` of their own group."""
        f, shape, lanes, k_per_add = self.f, self.shape, self.spec.isa.lanes, self.spec.k_per_add
        k = order * k_per_add
        if self.spec.pairs and k_per_add == 1 and k ^ 1 < shape.in_channels:
            k ^= 1
        start = shape.channels(lanes, v).start
        wanted = [(shape.group(v * lanes + lane) * shape.in_channels + k - start) // k_per_add for lane in range(lanes)]
        count = shape.reads(lanes, v, k_per_add)[0][1]
        if wanted == list(range(count)):
            return vectors[0]
        two = vectors[: 1 + any(lane >= count for lane in wanted)]
        result = f.shuffle(two[0], two[-1], [lane if lane < 2 * count else 0 for lane in wanted])
        for number, vector in enumerate(vectors[2:], 2):
            mine = [lane - number * lanes for lane in wanted]
            if any(0 <= lane < lanes for lane in mine):
                picks = [lanes + source if 0 <= source < lanes else lane for lane, source in enumerate(mine)]
                result = f.shuffle(result, vector, picks)
        return result


def rows_of_taps(module: Module, spec: GroupedStencilSpec) -> None:
    """Emit ``segments`` with the parameters of the dense kernel's. Here a segment is a row of taps or part of one."""
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "segments", False, arguments="ptr", segments="ptr", chains="ptr", counted="ptr", **dict.fromkeys(names, "ptr")
    )
    *outer, last = (columns(f, f.parameters[name], PART) for name in names)
    begin = dict.fromkeys(STATE, f.value(0)) | {
        "segment": f.segments,
        "chain": f.at(f.chains, -CHAIN.bytes),
        "number": f.value(END),
        "first": f.segments,
    }

    def row(tap: Value, data: Value, state: Values) -> Values:
        return _row(f, spec, tap + last.tap, data, last, state)

    state = each_tap(f, outer, begin, row)
    no_k = f.value(0)  # the number of k is only needed for the rate of prefetches, which this kernel does not use
    end_lists(f, state["chain"], chains=state["chain_count"], k=no_k, last_a=state["last_a"])


def _row(f: Function, spec: GroupedStencilSpec, tap: Value, data: Value, last: Named, state: Values) -> Values:
    """Add one row of taps to the lists, divided into a segment per chain; return the new state."""
    a, step = arguments(f, spec), spec.shape.tap_step
    share, taps = a.number_share, last.taps
    first, _ = f.divided(tap, share)
    final, _ = f.divided(tap + (taps - 1) * step, share)
    pieces = f.select(f.compare("sgt", taps, 0), final - first + 1, f.value(0))
    with f.loop(pieces, done=f.value(0), **state) as piece:
        number = first + piece.index
        end = f.op("i64", f"sdiv {(number + 1) * share - tap + (step - 1)}, {step}")
        end = f.min(end, taps)
        fill(
            f,
            piece.segment,
            SEGMENT,
            data=data + piece.done * last.tap_data,
            weights=(tap + piece.done * step) * a.b_tap,
            count=end - piece.done,
            first=piece.done,
        )
        new = f.compare("ne", number, piece.number)
        chain = f.select(new, f.at(piece.chain, CHAIN.bytes), piece.chain)
        inside = f.select(new, f.value(1), piece.segments + 1)
        opened = f.select(new, piece.segment, piece.first)
        fill(f, chain, CHAIN, number=number, segments=inside, segment=f.distance(opened, f.segments))
        piece.next(
            done=end,
            segment=f.at(piece.segment, SEGMENT.bytes),
            chain=chain,
            number=number,
            segments=inside,
            first=opened,
            chain_count=f.select(new, piece.chain_count + 1, piece.chain_count),
            last_a=f.max(piece.last_a, data),
        )
    return {name: piece.carried[name] for name in STATE}
