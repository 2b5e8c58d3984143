"""The micro-tile of forward passes and data gradients: sums of some rows of A and columns of B, in registers.

The kernel adds one chain after the other. It pushes each chain to the reduction tree and stores the total of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm.arguments import arguments
from convgrad.engines.llvm.gemm.steps import (
    MultiplyAddStep,
    element,
    first_of_pair,
    k_bytes,
    of_both_chains,
    pair_of_a,
    steps_of,
)
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, high_sum, low_sum
from convgrad.engines.llvm.microkernel import (
    CHAIN_TAGS,
    StridedRows,
    Values,
    even_and_odd,
    outer_product,
    sum_names,
)
from convgrad.engines.llvm.store import PER_COLUMN, PER_ROW, Epilogue, Panel
from convgrad.formats import F32
from convgrad.plan.constants import PREFETCH_B
from convgrad.plan.gemm.schedule import CHAIN, SEGMENT
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL

PARAMETERS = {
    "arguments": "ptr",  # the driver's arguments
    "sums": "ptr",  # scratch for the sums of the tree's levels, in which they also wait between passes
    "segments": "ptr",  # the first row of SEGMENT of the pass
    "chains": "ptr",  # the first row of CHAIN of the pass
    "chain_count": "i64",  # rows of CHAIN in the pass
    "data": "ptr",  # A of the first row through tap 0, which is the weights if the GEMM is transposed
    "weights": "ptr",  # the panel of B, which is the data if the GEMM is transposed
    "out": "ptr",  # the output of the first row and the panel's first column, or its collected sums
    "bias": "ptr",  # the packed biases of the panel's columns or, if there is one per row, of the rows
    "row_step": "i64",  # bytes from a row of A to the next
    "out_step": "i64",  # bytes from a row of the output to the next
    "next": "ptr",  # the data to prefetch at the first k
    "rate": "i64",  # bytes by which ``next`` moves per k
    "left": "i64",  # columns from the panel's first one on; may exceed the width, because later panels have columns too
    "skip": "i64",  # the first rows that are not stored, because the micro-tile before overlaps and has stored them
    "bias_step": "i64",  # bytes from the bias of a row to the next; 0 if biases are per column
    "begins": "i1",  # whether this is the first pass, in which ``sums`` are undefined
    "ends": "i1",  # whether this is the last pass, which stores the outputs
}


@dataclass(frozen=True)
class MicroTile:
    """The micro-tile that is being emitted."""

    f: Function
    spec: GemmSpec
    rows: int
    vectors: int
    prefetches_panels: bool = False  # rows of a later panel of B, else the data of the next micro-tile
    segment_bytes: int = SEGMENT.bytes

    @property
    def kind(self) -> str:
        """The IR type of a vector of sums."""
        return f"<{self.spec.isa.lanes} x float>"

    @property
    def names(self) -> list[str]:
        """The names of the sums of each row and vector, of one chain after the other."""
        return [name for tag in CHAIN_TAGS[: self.spec.chains] for name in sum_names(self.rows, self.vectors, tag)]

    @property
    def offsets(self) -> list[int]:
        """The offset of each vector of sums in memory, in bytes."""
        vector_bytes, nr = self.spec.isa.lanes * F32_BYTES, self.spec.nr
        return [(r * nr + v) * vector_bytes for r, v in product(range(self.rows), range(self.vectors))]

    @property
    def size(self) -> int:
        """The bytes of the sums of a node."""
        return self.rows * self.spec.pitch * F32_BYTES

    @property
    def plain(self) -> Value:
        """An i1: whether sums may be stored from registers, or collected; see ``store``."""
        f, whole = self.f, self.vectors * self.spec.isa.lanes
        if self.spec.out != CHANNELS:
            return Value(f, "i1", "true" if self.spec.collects else "false")
        return f.compare("eq", arguments(f, self.spec).accumulate, 0) & (f.left >= whole)

    @property
    def prefetched_out(self) -> Value:
        """The address of the output that is prefetched: that of this micro-tile."""
        return self.f.out

    def micro_kernel(self) -> None:
        """Add all chains of a pass. Push their sums to the tree, except the last pass's last chain, which is stored."""
        f = self.f
        zeros = {name: f.zeros(self.kind) for name in self.names}
        pushed = f.select(f.ends, f.chain_count - 1, f.chain_count)
        if self.spec.out == CHANNELS:
            self.prefetch_out()
        with f.loop(f.chain_count, chain=f.chains, segment=f.segments, prefetched=f.next, **zeros) as chain:
            segments = f.load("i64", chain.chain, CHAIN.at("segments"))
            with f.loop(segments, segment=chain.segment, prefetched=chain.prefetched, **zeros) as iteration:
                after = self.segment(
                    iteration.segment, iteration.prefetched, {name: iteration.carried[name] for name in self.names}
                )
                state = {name: after[name] for name in ("prefetched", *self.names)}
                iteration.next(segment=f.at(iteration.segment, self.segment_bytes), **state)
            sums = {name: iteration.carried[name] for name in self.names}
            with f.when(chain.index < pushed):
                self.push(self.totals(sums), chain.chain)
            # Sums are carried only to reach the code after the last chain; each chain starts from +0.
            chain.next(
                chain=f.at(chain.chain, CHAIN.bytes), segment=iteration.segment, prefetched=iteration.prefetched, **sums
            )
        with f.when(f.ends):
            last = {name: chain.carried[name] for name in self.names}
            self.store(self.totals(last), f.at(chain.chain, -CHAIN.bytes))

    def totals(self, sums: Values) -> list[Value]:
        """Return the sums of a leaf of the tree: its only chain, or the even chain plus the odd one."""
        values = list(sums.values())
        return values if self.spec.chains == 1 else even_and_odd(self.f, values)

    def prefetch_out(self) -> None:
        """Prefetch the output, whose lines are often far apart."""
        f, size = self.f, self.vectors * self.spec.isa.lanes * BYTES[self.spec.output]
        row = self.prefetched_out
        for _ in range(self.rows):
            f.prefetch_all(row, size, write=True)
            row = f.at(row, f.out_step)

    def segment(self, segment: Value, prefetched: Value, sums: Values) -> Values:
        """Add a segment to the sums by loops over its k, and return the new state of the loops.

        The loops depend on the specification. Each line has the multiply-adds (steps) of an iteration and its k:

        - tiles, in vectors: low half to the even chain, high half to the odd chain; 2 k
        - bf16 pairs, two chains: a pair of each chain by one instruction; 4 k. If the data forbids it: by halves
        - bf16 pairs, one chain: a pair by one instruction; 2 k. If the data forbids it: by halves. Then an odd last k
        - single k, two chains: a k of each chain; 2 k. Then an odd last k
        - single k, one chain, pairs in the order of the sum, A in place: the second k, the first k; 2 k. Then an odd k
        - single k, one chain, pairs in the order of the sum, A packed: one k, because packing has swapped them
        - other formats: one k
        """
        f, spec = self.f, self.spec
        data, weights, count = (f.load("i64", segment, SEGMENT.at(name)) for name in SEGMENT.columns)
        rows = StridedRows(f, f.row_step, self.rows)
        state = {**rows.begin(f.at(f.data, data)), "w": f.at(f.weights, weights), "prefetched": prefetched, **sums}
        if spec.amx_tiles:  # a word has a term of each chain, in the order of memory
            halves = [MultiplyAddStep(pair_of_a, add=low_sum), MultiplyAddStep(pair_of_a, add=high_sum, chain=1)]
            return self.over_k(count >> 1, state, rows, halves, 2)
        if spec.k_per_add == 2 and spec.chains == 2:  # packed by four k: a pair of each chain
            pairs = (count >> 2) & f.pairs
            state = self.over_k(pairs, state, rows, of_both_chains(PAIR_SUMS[spec.isa.pairs]), 4)
            return self.over_k((count >> 2) - pairs, state, rows, of_both_chains(high_sum, low_sum), 4)
        if spec.k_per_add == 2:
            pairs = (count >> 1) & f.pairs
            state = self.over_k(pairs, state, rows, [MultiplyAddStep(pair_of_a, add=PAIR_SUMS[spec.isa.pairs])], 2)
            # Sums fill the registers, so A is loaded twice.
            halves = [MultiplyAddStep(pair_of_a, add=high_sum), MultiplyAddStep(pair_of_a, add=low_sum)]
            state = self.over_k((count >> 1) - pairs, state, rows, halves, 2)
            return self.over_k(count & 1, state, rows, [MultiplyAddStep(first_of_pair, add=low_sum)], 2)
        steps = steps_of(spec, arguments(f, spec))
        if len(steps) == 1:
            return self.over_k(count, state, rows, steps, 1)
        state = self.over_k(count >> 1, state, rows, steps, 2)
        last = element(F32.name if not spec.a.in_place else spec.operand)
        return self.over_k(count & 1, state, rows, [MultiplyAddStep(last)], 1)

    def over_k(
        self, count: Value, begin: Values, rows: StridedRows, steps: Sequence[MultiplyAddStep], size: int
    ) -> Values:
        """Emit a loop of ``count`` iterations, each of which adds ``size`` k by ``steps``; return the new state."""
        f, spec, lanes = self.f, self.spec, self.spec.isa.lanes
        a = arguments(f, spec)
        a_step = k_bytes(spec, a)
        b_step: Value | int = a.b_k if spec.b.in_place else spec.pitch * F32_BYTES // spec.k_per_add
        masks = [f.mask(f.left - v * lanes, lanes) for v in range(self.vectors)] if spec.masked else []
        with f.loop(count, **begin) as k:
            sums = {name: k.carried[name] for name in self.names}
            for step in steps:
                place = f.at(k.w, b_step * step.b) if step.b else k.w
                columns = [self.vector_of_b(place, v, masks) for v in range(self.vectors)]
                rows_of_a = (step.read(f, place, lanes) for place in rows.places(k, step.a))
                outer_product(sums, rows_of_a, columns, step.add, CHAIN_TAGS[step.chain])
            after = f.at(k.w, b_step * size)
            if spec.b.in_place:
                f.prefetch_all(f.at(after, b_step * PREFETCH_B), self.vectors * lanes * BYTES[spec.operand])
            for n in range(size if self.prefetches_panels else 1):
                row_bytes = spec.panel_row_bytes if self.prefetches_panels else 1
                # A later panel that is packed first is only prefetched into L2.
                locality = 2 if self.prefetches_panels and not spec.b.in_place else 3
                f.prefetch_all(f.at(k.prefetched, f.rate * n) if n else k.prefetched, row_bytes, locality)
            k.next(**rows.moved(k, a_step * size), w=after, prefetched=f.at(k.prefetched, f.rate * size), **sums)
        return {name: k.carried[name] for name in begin}

    def vector_of_b(self, weights: Value, number: int, masks: list[Value]) -> Value:
        """Load a vector of B: packed f32 or bf16 pairs, or, if B is read in place, its stored format as f32."""
        f, lanes, operand = self.f, self.spec.isa.lanes, self.spec.operand
        if self.spec.b.in_place:
            return read(
                f, operand, f.at(weights, number * lanes * BYTES[operand]), lanes, masks[number] if masks else None
            )
        kind = self.kind if self.spec.k_per_add == 1 else f"<{lanes} x i32>"
        return f.load(kind, weights, number * lanes * F32_BYTES)

    def push(self, sums: list[Value], chain: Value) -> None:
        """Push the sums of a chain to the tree, and combine the nodes that this completes."""
        f, numbers = self.f, self.numbers(chain)
        tree.push(f, sums, [f.at(f.sums, place) for place in self.offsets], tree.begins(f, numbers[0]))
        self.combine(numbers)

    def numbers(self, chain: Value) -> tuple[Value, Value]:
        """Load the numbers of a chain and of the next one."""
        number = CHAIN.at("number")
        return self.f.load("i64", chain, number), self.f.load("i64", chain, CHAIN.bytes + number)

    def combine(self, numbers: tuple[Value, Value]) -> None:
        """Combine the nodes that are complete after the first of two chains, whose numbers are ``numbers``."""
        levels = arguments(self.f, self.spec).levels
        tree.combine_complete(self.f, self.f.sums, self.spec.tile_bytes, self.size, levels, numbers)

    def keep(self, sums: list[Value]) -> None:
        """Store sums as those of the node of level 0."""
        for value, place in zip(sums, self.offsets, strict=True):
            self.f.store(value, self.f.sums, place)

    def where(self, condition: Value, sums: Values, body: Callable[[Values], Values]) -> Values:
        """Emit ``body`` under a condition, and return the sums, which are changed only if the condition is true.

        It is a loop of 0 or 1 rounds, because ``Function.when`` does not carry values.
        """
        f = self.f
        with f.loop(f.op("i64", f"zext {condition} to i64"), **sums) as once:
            once.next(**body(dict(once.carried)))
        return {name: once.carried[name] for name in sums}

    def store(self, sums: list[Value], last: Value) -> None:
        """Add the last chain to the tree, and store the total, or collect it.

        The total stays in registers if the tree has at most one level, or all sums are one leaf, and one of these
        conditions is true: the micro-tile is collected, or channels are contiguous in the output, all columns exist,
        and the call does not accumulate.
        """
        f, a, plain = self.f, arguments(self.f, self.spec), self.plain
        with f.when(f.begins & (f.chain_count < 2)):
            with f.when(plain):
                self.from_registers(sums)
            with f.otherwise():
                self.keep(sums)
                self.from_memory(f.sums)
        with f.otherwise():
            with f.when(plain & f.compare("eq", a.levels, 1)):
                self.from_registers(
                    [
                        f.add(f.load(self.kind, f.sums, place), value)
                        for value, place in zip(sums, self.offsets, strict=True)
                    ]
                )
            with f.otherwise():
                self.push(sums, last)
                self.from_memory(f.at(f.sums, (a.levels - 1) * self.spec.tile_bytes))

    def from_registers(self, sums: list[Value], out: Value | None = None) -> None:
        """Store whole vectors of sums, or collect them as they are.

        Data for which bf16 pairs are allowed has no sum that is denormal or -0. So without a bias, such sums need no +0
        and only a test for NaN, which takes two vectors at a time.
        """
        f, out = self.f, out or self.f.out
        if self.spec.collects:
            row = out
            for r, v in product(range(self.rows), range(self.vectors)):
                row = f.at(row, f.out_step) if r and not v else row
                f.store(sums[r * self.vectors + v], row, v * self.spec.isa.lanes * F32_BYTES)
            return
        e = epilogue(f, self.spec)
        rows = [sums[r * self.vectors : (r + 1) * self.vectors] for r in range(self.rows)]
        with ExitStack() as otherwise:
            if e.rounds and self.spec.k_per_add == 2 and len(sums) % 2 == 0:
                paired = f.compare("ne", f.pairs, 0) & f.op("i1", f"icmp eq {arguments(f, self.spec).bias}, null")
                with f.when(paired & self.no_nan(sums)):
                    e.rounded_rows(rows, out, f.out_step)
                otherwise.enter_context(f.otherwise())
            e.rows(rows, out, f.out_step, f.bias, f.bias_step)

    def no_nan(self, sums: list[Value]) -> Value:
        """Return an i1: whether none of the sums is NaN."""
        f, lanes = self.f, self.spec.isa.lanes
        is_nan = [
            f.op(f"<{lanes} x i1>", f"fcmp uno {a}, {b.name}") for a, b in zip(sums[::2], sums[1::2], strict=True)
        ]
        return f.op("i1", f"xor {f.any_of(is_nan)}, true")

    def from_memory(self, sums: Value, of_line: Values | None = None) -> None:
        """Store sums that are in memory, or collect them. ``of_line`` replaces some arguments of the function."""
        f = self.f
        values = f.parameters | (of_line or {})
        if self.spec.collects:
            self.from_registers([f.load(self.kind, sums, place) for place in self.offsets], values["out"])
            return
        f.call("store_panel", **{**values, "sums": sums, "rows": f.value(self.rows)})


def epilogue(f: Function, spec: GemmSpec, accumulate: Value | None = None) -> Epilogue:
    """Return the epilogue of a kernel."""
    return Epilogue.of(f, spec, accumulate, PER_ROW if spec.bias_per_row else PER_COLUMN)


def store_panel(module: Module, spec: GemmSpec) -> None:
    """Emit ``store_panel``, which stores out[row, column] = round(activation(sum + 0 + bias [+ old])).

    It stores the rows from ``skip`` up to ``rows``; an earlier micro-tile has stored the rows before ``skip``. ``left``
    is the number of columns that exist, which may be larger than the width. Rows are ``out_step`` bytes apart in the
    output, and biases per row ``bias_step`` bytes. A missing bias was packed as -0.0, which changes no value.
    """
    f = module.function(
        "store_panel",
        arguments="ptr",
        sums="ptr",
        out="ptr",
        bias="ptr",
        rows="i64",
        skip="i64",
        out_step="i64",
        left="i64",
        bias_step="i64",
    )
    a, lanes, size, pitch = arguments(f, spec), spec.isa.lanes, BYTES[spec.output], spec.pitch * F32_BYTES
    column_step = f.value(size) if spec.out == CHANNELS else a.out_n
    panel = Panel(
        epilogue(f, spec, a.accumulate),
        f.rows - f.skip,
        spec.nr,
        lambda vector: f.left - vector * lanes,
        f.at(f.sums, f.skip * pitch),
        pitch,
        f.at(f.out, f.skip * f.out_step),
        f.out_step,
        column_step,
        column_step * lanes,
        f.at(f.bias, f.skip * f.bias_step),
        f.bias_step,
    )
    if spec.out == CHANNELS:
        panel.along_columns()
    elif spec.out == SPATIAL:
        panel.along_rows()
    else:
        panel.one_by_one()
    f.done()
