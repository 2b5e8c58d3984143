"""The micro-kernel of weight gradients: outer products of channels under one or several taps, for one chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum, low_sum
from convgrad.engines.llvm.microkernel import (
    CHAIN_TAGS,
    Values,
    even_and_odd,
    multiply_add,
    outer_product,
    sum_names,
)
from convgrad.engines.llvm.split_k.segment import SegmentRows
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.split_k.constants import PREFETCH_POSITIONS
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.schedule import ARGUMENTS
from convgrad.plan.split_k.segments import SEGMENT
from convgrad.plan.split_k.taps import MASK_BYTES, TAP_RANGE, taps_record

USED = (
    "indirection",
    "ranges",
    "masks",
    "tap_step",
    "swapped",
    "a_next",
    "a.read_image",
    "b.read_image",
    "a.read_k",
    "b.read_k",
)


def tile(module: Module, spec: SplitKSpec, vectors: int) -> None:
    """Emit ``tile<vectors>``, which sums a chain and pushes its sums to ``node``.

    The sums are sum[t][r][v], the sum over segments and k of x[r] * y[v]. A tap range has the positions at
    which taps exist, and only the positions that it shares with a segment are summed. For an outer tap, the row of src
    comes from the indirection table. For an inner tap, an offset is added to the address in src.

    A micro-tile of one tap has one range. With several taps, all taps are summed at all positions where one exists,
    because src is packed with zeros on its padding. If a sum is not finite, the chain is summed again in parts, and
    taps that are absent in a part add nothing.
    """
    flags = {"pairs": "i64"} if spec.k_per_add == 2 else {}
    if spec.chains == 2:
        flags["portions"] = "i64"
    f = module.function(
        f"tile{vectors}",
        False,
        arguments="ptr",
        node="ptr",
        first="i1",
        x="ptr",
        y="ptr",
        segments="ptr",
        segment_count="i64",
        tap="ptr",
        **flags,
    )
    args, taps = columns(f, f.arguments, ARGUMENTS, *USED), columns(f, f.tap, taps_record(spec))
    emitter = _Tile(f, spec, vectors, args, taps)
    whole, parts = (f.at(args.ranges, number * TAP_RANGE.bytes) for number in (taps.range, taps.range + 1))
    zeros, always = {name: f.zeros(emitter.kind) for name in emitter.names}, f.value(1)
    everything = (f.segments, f.segment_count)
    if spec.chains == 2:
        sums = emitter.portions((whole, always), zeros)
    elif spec.micro_tile.taps == 1:
        sums = list(emitter.summed(everything, (whole, always), zeros).values())
    else:
        with f.loop(f.opaque(f.value(2)), left=f.segment_count, ranges=whole, number=always, **zeros) as attempt:
            some, ranges = (f.segments, attempt.left), (attempt.ranges, attempt.number)
            attempted = emitter.summed(some, ranges, _of(attempt, emitter.names))
            again = f.compare("eq", attempt.index, 0) & _some_is_not_finite(f, list(attempted.values()))
            attempt.next(
                left=f.select(again, f.segment_count, f.value(0)),
                ranges=parts,
                number=taps.parts,
                **{name: f.select(again, zeros[name], attempted[name]) for name in emitter.names},
            )
        sums = [attempt.carried[name] for name in emitter.names]
    tree.push(f, sums, emitter.sums_of(f.node), f.first)
    f.done()


@dataclass(frozen=True)
class ChainStep:
    """A multiply-add of all sums of a chain. An iteration of a loop over k has one or more steps."""

    add: MultiplyAdd
    k: int = 0  # counted from the first k of the iteration
    chain: int = 0


State = tuple[Values, Values, Values]  # the addresses of A and of B, and the sums


@dataclass(frozen=True)
class _Tile:
    """A micro-kernel that is being emitted."""

    f: Function
    spec: SplitKSpec
    vectors: int
    args: Named
    taps: Named

    @property
    def steps(self) -> tuple[Value, Value]:
        """The bytes from one k to the next, in A and in B."""
        return self.args.of("a").read_k, self.args.of("b").read_k

    @property
    def kind(self) -> str:
        """The IR type of a vector of sums."""
        return f"<{self.spec.isa.lanes} x float>"

    @property
    def names(self) -> list[str]:
        """The names of the sums of each chain, tap, row and vector."""
        micro_tile = self.spec.micro_tile
        tags = [f"{chain}{t}_" for chain in CHAIN_TAGS[: self.spec.chains] for t in range(micro_tile.taps)]
        return [name for tag in tags for name in sum_names(micro_tile.mr, self.vectors, tag)]

    def portions(self, ranges: tuple[Value, Value], zeros: Values) -> list[Value]:
        """Return the sums of a block, which adds the sums of its portions. Only the last portion stays in registers."""
        f, names = self.f, self.names
        half = len(names) // 2
        vector_bytes = self.spec.isa.lanes * F32_BYTES
        memory = f.alloca(self.kind, half)
        before = [f.at(memory, n * vector_bytes) for n in range(half)]
        for name, place in zip(names, before, strict=False):
            f.store(zeros[name], place)

        def added(portion: Loop) -> list[Value]:
            sums = even_and_odd(f, [portion.carried[name] for name in names])
            return [f.add(f.load(self.kind, place), value) for place, value in zip(before, sums, strict=True)]

        begin = {"segment": f.segments, "left": f.segment_count}
        with f.loop(f.portions, **begin, **zeros) as portion:
            with f.when(f.compare("ne", portion.index, 0)):
                for value, place in zip(added(portion), before, strict=True):
                    f.store(value, place)
            count = f.min(f.load("i64", portion.segment, SEGMENT.at("of_portion")), portion.left)
            sums = self.summed((portion.segment, count), ranges, zeros)
            portion.next(segment=f.at(portion.segment, count * SEGMENT.bytes), left=portion.left - count, **sums)
        return added(portion)

    def summed(self, segments: tuple[Value, Value], ranges: tuple[Value, Value], sums: Values) -> Values:
        """Add the products of some segments in some tap ranges to ``sums``, and return the new sums.

        ``segments`` and ``ranges`` are each the address of the first and their number.
        """
        f, names = self.f, self.names
        only = columns(f, ranges[0], TAP_RANGE) if self.spec.micro_tile.taps == 1 else None
        with f.loop(segments[1], segment=segments[0], **sums) as iteration:
            segment = SegmentRows(f, self.spec, self.args, self.taps, iteration.segment)
            if only is not None:
                after = self.shared(segment, only, _of(iteration, names))
            else:
                masks = segment.masks(self.spec.micro_tile.taps)
                with f.loop(ranges[1], range=ranges[0], **_of(iteration, names)) as part:
                    here = columns(f, part.range, TAP_RANGE)
                    done = self.shared(segment, here, _of(part, names), masks)
                    part.next(range=f.at(part.range, TAP_RANGE.bytes), **done)
                after = _of(part, names)
            iteration.next(segment=f.at(iteration.segment, SEGMENT.bytes), **after)
        return _of(iteration, names)

    def shared(self, segment: SegmentRows, taps: Named, sums: Values, outer_masks: Value | int = 0) -> Values:
        """Add the products at positions that a segment and a tap range share, and return the new sums.

        Masks are used if taps are absent.
        """
        f = self.f
        begin = f.max(segment.first, taps.first)
        count = f.min(segment.end, taps.end) - begin
        src, dst = segment.src, segment.dst
        if self.spec.micro_tile.taps == 1:  # one kernel serves both orders of src and dst
            swapped = f.compare("ne", self.args.swapped, 0)
            src, dst = [f.select(swapped, dst, src[0])], f.select(swapped, src[0], dst)
        offsets = (src, [dst]) if self.spec.a.moves else ([dst], src)
        x, y = (
            {
                f"{name}{at}": f.at(start, segment.image * self.args.of(side).read_image + offset + begin * step)
                for at, offset in enumerate(places)
            }
            for name, side, start, places, step in zip("xy", "ab", (f.x, f.y), offsets, self.steps, strict=True)
        )
        if self.spec.chains == 2:
            return self.sum_chains(count, (segment.odd + begin) & 1, (x, y, sums))
        if self.spec.micro_tile.taps == 1:
            return self.sum_k(count, x, y, sums, None)
        masks = taps.masks + outer_masks
        unmasked = f.select(f.compare("eq", masks, 0), count, f.value(0))
        sums = self.sum_k(unmasked, x, y, sums, None)
        return self.sum_k(count - unmasked, x, y, sums, f.at(self.args.masks, masks))

    def sum_chains(self, count: Value, odd: Value, state: State) -> Values:
        """Emit loops that add the products of ``count`` k to the chains in turn, and return the new sums.

        The first k is an odd one if ``odd`` is 1. A bf16 pair has two k of the same chain.
        """
        f, of_pairs = self.f, self.spec.k_per_add == 2
        single = high_sum if of_pairs else multiply_add
        even_k, odd_k = ChainStep(single), ChainStep(single, chain=1)
        count = f.max(count, 0)
        alone = f.min(odd, count)
        state, count = self.loop(alone, state, None, (odd_k,)), count - alone
        if of_pairs:
            pair, many = PAIR_SUMS[self.spec.isa.pairs], (count >> 2) & f.pairs
            state = self.loop(many, state, None, (ChainStep(pair), ChainStep(pair, 1, 1)), 4)
            count = count - many * 4
        state = self.loop(count >> 1, state, None, (even_k, replace(odd_k, k=1)), 2)
        return self.loop(count & 1, state, None, (even_k,))[-1]

    def sum_k(self, count: Value, x: Values, y: Values, sums: Values, masks: Value | None) -> Values:
        """Emit loops that add the products of ``count`` k, and return the new sums. Taps outside ``masks`` add nothing.

        Products are added as bf16 pairs if ``pairs`` is -1, and one by one if it is 0. An odd last k is always added
        alone. A compact pair exists only for every second k, so both its halves are added.
        """
        f, single = self.f, (ChainStep(high_sum),)
        if self.spec.k_per_add == 1:
            return self.loop(count, (x, y, sums), masks, (ChainStep(multiply_add),))[-1]
        count = f.max(count, 0)
        paired = (count >> 1) & f.pairs
        state = self.loop(paired, (x, y, sums), masks, (ChainStep(PAIR_SUMS[self.spec.isa.pairs]),), 2)
        if self.spec.compact:
            state = self.loop((count >> 1) - paired, state, masks, (ChainStep(high_sum), ChainStep(low_sum)), 2)
            return self.loop(count & 1, state, masks, single)[-1]
        return self.loop(count - paired * 2, state, masks, single)[-1]

    def loop(
        self, count: Value, state: State, masks: Value | None, steps: tuple[ChainStep, ...], many: int = 1
    ) -> State:
        """Emit a loop whose iterations add ``many`` k by ``steps``; return the addresses and the sums after it."""
        f, spec, micro_tile, lanes = self.f, self.spec, self.spec.micro_tile, self.spec.isa.lanes
        taps = range(micro_tile.taps)
        exist = [None for _ in taps] if masks is None else [_exists(f, masks, t, lanes) for t in taps]
        k_bytes = spec.k_bytes(spec.moving)
        inner = [k * k_bytes if spec.adjacent else self.args.tap_step * k for k in range(micro_tile.inner_taps)]
        x, y, sums = state
        with f.loop(count, **x, **y, **sums) as at:
            a, b = ([at.carried[name] for name in pointers] for pointers in (x, y))
            for step in steps:
                self.added(at, step, (a, b), inner, exist, many)
            for pointers, k_step in zip((x, y), self.steps, strict=True):
                at.next(**{name: f.at(at.carried[name], k_step * many) for name in pointers})
        return _of(at, list(x)), _of(at, list(y)), _of(at, list(sums))

    def added(
        self,
        at: Loop,
        step: ChainStep,
        addresses: tuple[list[Value], list[Value]],
        inner: Sequence[Value | int],
        exist: Sequence[Value | None],
        many: int,
    ) -> None:
        """Add the products of one step of a loop to its sums, for all taps of the micro-tile."""
        f, spec, micro_tile = self.f, self.spec, self.spec.micro_tile
        rows = range(micro_tile.mr)
        a, b = (
            [f.at(place, k_step * step.k) if step.k else place for place in places]
            for places, k_step in zip(addresses, self.steps, strict=True)
        )
        if not spec.a.moves:
            held = [self.a_row(a[0], row) for row in rows]
        else:
            b_vectors = self.b_vectors(b[0], 0)
        if micro_tile.taps == 1 and not step.k:
            self.prefetch(a[0], b[0], many)
        for t, (outer, k) in enumerate(product(range(micro_tile.outer_taps), inner)):
            if not spec.a.moves:
                b_vectors = self.b_vectors(b[outer], k)
            read = (self.a_row(f.at(a[outer], k), row) for row in rows) if spec.a.moves else held
            outer_product(at.following, read, b_vectors, step.add, f"{CHAIN_TAGS[step.chain]}{t}_", exist[t])

    @property
    def read_kind(self) -> str:
        """The IR type of a packed vector: f32 values or bf16 pairs."""
        return self.kind if self.spec.k_per_add == 1 else f"<{self.spec.isa.lanes} x i32>"

    def a_row(self, pointer: Value, row: int) -> Value:
        """Load a row of A: a channel in all lanes or, if each lane is a group, a channel of each lane's group."""
        f, offset = self.f, row * self.spec.groups_a_panel * F32_BYTES
        if self.spec.groups_in_lanes:
            return f.load(self.read_kind, pointer, offset)
        return f.splat(f.load("float" if self.spec.k_per_add == 1 else "i32", pointer, offset), self.spec.isa.lanes)

    def b_vectors(self, pointer: Value, shift: Value | int) -> list[Value]:
        """Load the vectors of B for one k, ``shift`` bytes after ``pointer``."""
        here, step = self.f.at(pointer, shift), self.spec.isa.lanes * F32_BYTES
        return [self.f.load(self.read_kind, here, v * step) for v in range(self.vectors)]

    def prefetch(self, x: Value, y: Value, many: int) -> None:
        """Prefetch operands of a later step of the loop, and A of the next cache block if A is read in place."""
        f, (x_step, y_step) = self.f, self.steps
        for line in range(0, self.vectors * self.spec.isa.lanes * F32_BYTES, 64):
            f.prefetch(f.at(y, y_step * (PREFETCH_POSITIONS * many) + line))
        if self.spec.a.in_place:
            f.prefetch(f.at(x, x_step * PREFETCH_POSITIONS))
            f.prefetch(f.at(x, self.args.a_next), locality=2)

    def sums_of(self, node: Value) -> list[Value]:
        """Return the address of each sum of a tree node."""
        micro_tile, vector = self.spec.micro_tile, self.spec.isa.lanes * F32_BYTES
        indices = product(range(micro_tile.taps), range(micro_tile.mr), range(self.vectors))
        return [self.f.at(node, ((t * micro_tile.mr + r) * micro_tile.nr + v) * vector) for t, r, v in indices]


def _some_is_not_finite(f: Function, sums: list[Value]) -> Value:
    """Return whether a sum is NaN or infinite, or the total of all sums is: if so, 0 times the total is NaN."""
    while len(sums) > 1:
        sums = [f.add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)] + sums[len(sums) // 2 * 2 :]
    kind = sums[0].type
    lanes = kind[1:].split(" x ")[0]
    zero = f.fma(sums[0], f.zeros(kind), f.zeros(kind))
    odd = f.op(f"<{lanes} x i1>", f"fcmp uno {zero}, zeroinitializer")
    return f.intrinsic("i1", f"llvm.vector.reduce.or.v{lanes}i1", odd)


def _of(loop: Loop, names: list[str]) -> Values:
    return {name: loop.carried[name] for name in names}


def _exists(f: Function, masks: Value, tap: int, lanes: int) -> Value:
    """Return a mask in which all lanes are set if a tap exists, and none otherwise."""
    word = f.splat(f.load("i32", masks, tap * MASK_BYTES), lanes)
    return f.op(f"<{lanes} x i1>", f"icmp ne {word}, zeroinitializer")
