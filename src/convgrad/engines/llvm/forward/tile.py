"""The tile: the sums of some positions and results over the runs that they meet, block by block, joined, finished."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.convert import BYTES, PAIR_NARROWS, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.engines.llvm.forward.terms import Terms, terms_of
from convgrad.engines.llvm.intrinsics import PAIR_SUMS, MultiplyAdd, high_sum, low_sum
from convgrad.engines.llvm.microkernel import StridedRows, Values, outer_product, sum_names
from convgrad.engines.llvm.store import Epilogue, Panel
from convgrad.plan.constants import PREFETCH_B
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.schedule import BLOCK, RUN
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import PAIR_BYTES
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL

PARAMETERS = {
    "arguments": "ptr", "sums": "ptr", "runs": "ptr", "blocks": "ptr", "count": "i64", "data": "ptr", "weights": "ptr",
    "out": "ptr", "bias": "ptr", "row_step": "i64", "out_step": "i64", "next": "ptr", "rate": "i64", "left": "i64",
    "skip": "i64", "bias_step": "i64", "begins": "i1", "ends": "i1",
}  # fmt: skip


def tile(module: Module, spec: ForwardSpec, rows: int, vectors: int) -> None:
    """Emit ``tile<rows>_<vectors>``: sum[r][v] over blocks, runs, terms of data[r] * weights[v], finished into ``out``.

    A row is a position, ``row_step`` bytes from the next in data and ``out_step`` in the output. Blocks are chains of
    the reduction tree. Sums may wait for more blocks: ``begins`` and ``ends`` tell the first of a tile and the last.
    What the next tile reads, from ``next`` on, is asked for at an even rate: ``rate`` bytes a term.
    """
    pairs = {"pairs": "i64"} if spec.step == 2 else {}
    f = module.function(f"tile{rows}_{vectors}", False, **PARAMETERS, **pairs)
    Tile(f, spec, rows, vectors).blocks()
    f.done()


@dataclass(frozen=True)
class Tile:
    """A tile being emitted."""

    f: Function
    spec: ForwardSpec
    rows: int
    vectors: int
    run_bytes: int = RUN.bytes

    @property
    def kind(self) -> str:
        """A vector of sums."""
        return f"<{self.spec.isa.lanes} x float>"

    @property
    def names(self) -> list[str]:
        """The sums: of each row and vector."""
        return sum_names(self.rows, self.vectors)

    @property
    def places(self) -> list[int]:
        """Where each is kept, in bytes."""
        lanes, across = self.spec.isa.lanes * F32_BYTES, self.spec.vectors
        return [(r * across + v) * lanes for r, v in product(range(self.rows), range(self.vectors))]

    def blocks(self) -> None:
        """All blocks: the sums of each but the last are joined with others', the last's finished with those."""
        f = self.f
        zeros = {name: f.zeros(self.kind) for name in self.names}
        joined = f.select(f.ends, f.count - 1, f.count)
        with f.loop(f.count, block=f.blocks, run=f.runs, ahead=f.next, **zeros) as block:
            runs = f.load("i64", block.block, BLOCK.at("runs"))
            with f.loop(runs, run=block.run, ahead=block.ahead, **zeros) as run:
                after = self.run(run.run, run.ahead, {name: run.carried[name] for name in self.names})
                kept = {name: after[name] for name in ("ahead", *self.names)}
                run.next(run=f.at(run.run, self.run_bytes), **kept)
            sums = {name: run.carried[name] for name in self.names}
            with f.when(block.index < joined):
                self.push(list(sums.values()), block.block)
            block.next(block=f.at(block.block, BLOCK.bytes), run=run.run, ahead=run.ahead, **sums)
        with f.when(f.ends):
            self.finished([block.carried[name] for name in self.names], f.at(block.block, -BLOCK.bytes))

    def run(self, run: Value, ahead: Value, sums: Values) -> Values:
        """Terms that lie together in data and in weights."""
        f = self.f
        x, w, count = (f.load("i64", run, RUN.at(name)) for name in RUN.columns)
        a, rows = arguments(f, self.spec), StridedRows(f, f.row_step, self.rows)
        begin = {
            **rows.begin(f.at(f.data, x)), "w": f.at(f.weights, w), "ahead": ahead, **sums,
        }  # fmt: skip
        term_bytes: Value | int = a.term_bytes if self.spec.lanes_in_place else self.spec.pitch * F32_BYTES
        if self.spec.step == 2:
            return self.words(count, begin, rows)
        read = terms_of(self.spec, a)
        if len(read.together) == 1:
            return self.terms(count, begin, rows, term_bytes, read)
        pairs = self.terms(count >> 1, begin, rows, term_bytes, read)
        return self.terms(count & 1, pairs, rows, term_bytes, replace(read, together=((0, read.alone),)))

    def terms(self, count: Value, begin: Values, rows: StridedRows, term_bytes: Value | int, read: Terms) -> Values:
        """A loop over terms, as many at a time as are read together."""
        f, lanes = self.f, self.spec.isa.lanes
        masks = [f.mask(f.left - v * lanes, lanes) for v in range(self.vectors)] if self.spec.masked else []
        with f.loop(count, **begin) as term:
            sums, w = {name: term.carried[name] for name in self.names}, term.w
            many = len(read.together)
            for at, (behind, part) in enumerate(read.together):
                later = many - 1 - 2 * at if self.spec.lanes_in_place else 0  # packed they lie as they are taken
                there = f.at(w, term_bytes * later) if later else w
                columns = [self.column(there, v, masks) for v in range(self.vectors)]
                outer_product(f, sums, (part(f, place, lanes) for place in rows.places(term, behind)), columns)
                w = f.at(w, term_bytes)
            if self.spec.lanes_in_place:
                for line in range(0, self.vectors * lanes * BYTES[self.spec.operand], LINE_BYTES):
                    f.prefetch(f.at(w, arguments(f, self.spec).term_bytes * PREFETCH_B + line))
            f.prefetch(term.ahead)
            term.next(**rows.moved(term, read.step * many), w=w, ahead=f.at(term.ahead, f.rate * many), **sums)
        return {name: term.carried[name] for name in begin}

    def column(self, weights: Value, number: int, masks: list[Value]) -> Value:
        """Return a vector of weights in f32: packed they are, in place they are as stored, of masks those there are."""
        f, lanes, operand = self.f, self.spec.isa.lanes, self.spec.operand
        if not self.spec.lanes_in_place:
            return f.load(self.kind, weights, number * lanes * F32_BYTES)
        place = f.at(weights, number * lanes * BYTES[operand])
        return read(f, operand, place, lanes, masks[number] if masks else None)

    def words(self, count: Value, begin: Values, rows: StridedRows) -> Values:
        """Loops over words: in pairs where ``pairs`` is -1, half by half where it is 0; an odd last term alone.

        That is the lower half of its word of weights; what data has beside it is not read.
        """
        f = self.f
        pairs = (count >> 1) & f.pairs
        after = self.word(pairs, begin, rows, (PAIR_SUMS[self.spec.isa.pairs],))
        after = self.word((count >> 1) - pairs, after, rows, (high_sum, low_sum))
        return self.word(count & 1, after, rows, (low_sum,), "i16")

    def word(
        self, count: Value, begin: Values, rows: StridedRows, ways: tuple[MultiplyAdd, ...], stored: str = "i32"
    ) -> Values:
        """A loop over words, of which data has as much as is ``stored``, added in some ways."""
        f, lanes, kind = self.f, self.spec.isa.lanes, f"<{self.spec.isa.lanes} x i32>"
        with f.loop(count, **begin) as term:
            sums = {name: term.carried[name] for name in self.names}
            for way in ways:  # data is read for each: registers are full of sums
                columns = [f.load(kind, term.w, v * lanes * PAIR_BYTES) for v in range(self.vectors)]
                read = (f.splat(self.one_word(place, stored), lanes) for place in rows.places(term))
                outer_product(f, sums, read, columns, way)
            f.prefetch(term.ahead)
            behind = f.at(term.w, self.spec.pitch * PAIR_BYTES)
            term.next(**rows.moved(term, PAIR_BYTES), w=behind, ahead=f.at(term.ahead, f.rate * 2), **sums)
        return {name: term.carried[name] for name in begin}

    def one_word(self, place: Value, stored: str) -> Value:
        """Return a word of data, of which as much is read as is ``stored``."""
        word = self.f.load(stored, place)
        return word if stored == "i32" else self.f.op("i32", f"zext {word} to i32")

    def push(self, sums: list[Value], block: Value) -> None:
        """Push a block's sums to the tree, and combine what is complete."""
        f, a = self.f, arguments(self.f, self.spec)
        number, following = (f.load("i64", block, at + BLOCK.at("number")) for at in (0, BLOCK.bytes))
        tree.push(f, sums, [f.at(f.sums, place) for place in self.places], tree.begins(f, number))
        size = self.rows * self.spec.pitch * F32_BYTES
        tree.combine_complete(f, f.sums, self.spec.tile_bytes, size, a.levels, number, following)

    def finished(self, sums: list[Value], last: Value) -> None:
        """Make output of the last block's sums and the others': from registers if it is plain and the tree flat."""
        f, a = self.f, arguments(self.f, self.spec)
        plain = f.compare("eq", a.accumulate, 0) & (f.left >= self.vectors * self.spec.isa.lanes)
        if self.spec.out != CHANNELS:
            plain = Value(f, "i1", "false")
        with f.when(f.begins & (f.count < 2)):
            with f.when(plain):
                self.from_registers(sums)
            with f.otherwise():
                for value, place in zip(sums, self.places, strict=True):
                    f.store(value, f.sums, place)
                self.from_memory(f.sums)
        with f.otherwise():
            with f.when(plain & f.compare("eq", a.levels, 1)):
                self.from_registers([
                    f.add(f.load(self.kind, f.sums, place), value)
                    for value, place in zip(sums, self.places, strict=True)
                ])  # fmt: skip
            with f.otherwise():
                self.push(sums, last)
                self.from_memory(f.at(f.sums, (a.levels - 1) * self.spec.tile_bytes))

    def from_registers(self, sums: list[Value]) -> None:
        """Store vectors: two at once if their terms were added in pairs, no bias is added and no sum is NaN.

        Data of which pairs may be taken have no sum that is denormal, or -0.
        """
        f, e = self.f, Epilogue.of(self.f, self.spec)
        rows = [sums[r * self.vectors : (r + 1) * self.vectors] for r in range(self.rows)]
        if self.spec.step == 1 or self.spec.output != "bf16" or self.vectors % 2:
            e.rows(rows, f.out, f.out_step, f.bias, f.bias_step)
            return
        paired = f.compare("ne", f.pairs, 0) & f.op("i1", f"icmp eq {arguments(f, self.spec).bias}, null")
        with f.when(paired & self.no_nan(sums)):
            e.rows_of_pairs(PAIR_NARROWS[self.spec.isa.pairs], rows, f.out, f.out_step)
        with f.otherwise():
            e.rows(rows, f.out, f.out_step, f.bias, f.bias_step)

    def no_nan(self, sums: list[Value]) -> Value:
        """Return whether no sum is NaN."""
        f, lanes = self.f, self.spec.isa.lanes
        found = [f.op(f"<{lanes} x i1>", f"fcmp uno {a}, {b.name}") for a, b in zip(sums[::2], sums[1::2], strict=True)]
        return f.op("i1", f"xor {f.any_of(found)}, true")

    def from_memory(self, sums: Value) -> None:
        """Store sums that are in memory, along any axis."""
        f = self.f
        step = (f.out_step, f.left, f.bias_step)
        f.call("store_panel", f.arguments, sums, f.out, f.bias, f.value(self.rows), f.skip, *step)


def store_panel(module: Module, spec: ForwardSpec) -> None:
    """Emit ``store_panel``: out[row, column] = round(sum + 0 + bias [+ old]), of ``rows`` rows from ``skip`` on.

    Rows are ``out_step`` bytes apart, and ``left`` columns are output. A row's own bias is ``bias_step`` bytes from the
    next row's. A missing bias is -0.0, which adds nothing, not even to a zero.
    """
    f = module.function(
        "store_panel", arguments="ptr", sums="ptr", out="ptr", bias="ptr", rows="i64", skip="i64", out_step="i64",
        left="i64", bias_step="i64",
    )  # fmt: skip
    a, lanes, size, pitch = arguments(f, spec), spec.isa.lanes, BYTES[spec.output], spec.pitch * F32_BYTES
    column_step = f.value(size) if spec.out == CHANNELS else a.out_item
    panel = Panel(
        Epilogue.of(f, spec, a.accumulate), f.rows - f.skip, spec.vectors,
        lambda vector: f.left - vector * lanes,
        f.at(f.sums, f.skip * pitch), pitch, f.at(f.out, f.skip * f.out_step), f.out_step, column_step,
        column_step * lanes, f.at(f.bias, f.skip * f.bias_step), f.bias_step,
    )  # fmt: skip
    if spec.out == CHANNELS:
        panel.along_columns()
    else:
        contiguous = f.compare("eq", f.out_step, size)
        panel.store([(contiguous, panel.along_rows)] if spec.out == SPATIAL else [])
    f.done()
