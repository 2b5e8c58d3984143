"""The micro-tile of Intel's AMX: a product of one or two tiles of A and of B, each of 16 rows of 64 bytes.

An instruction adds a portion of 32 terms to a tile of C: C + (even chain + odd chain), which is the order of the sum.
The tiles of C have the sums of a node of the reduction tree. They are stored when the node is complete. The instruction
flushes denormals to zero. So if the condition of bf16 pairs does not hold, vectors add the terms of the same panels.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.cached import cached_property
from convgrad.engines.llvm import tree
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm.arguments import arguments
from convgrad.engines.llvm.gemm.micro_tile import PARAMETERS, MicroTile
from convgrad.engines.llvm.microkernel import VECTOR_ROWS, Values, by_height, heights_of
from convgrad.engines.llvm.tiles import TileProduct
from convgrad.plan.gemm.schedule import CHAIN, SEGMENT
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.tiling import tile_rows


def tile(module: Module, spec: GemmSpec, rows: int, vectors: int) -> None:
    """Emit ``tile<rows>_<vectors>`` with the parameters of the other micro-tiles, and ``tile<rows>x2_<vectors>``.

    The latter computes two lines of positions, which are ``line_step`` bytes apart in A and ``out_line`` bytes apart in
    the output. ``configured`` is the address of the configuration of the thread's tiles, as a number.
    Both call ``single<rows>_<vectors>``, micro-tiles of vectors, if the condition of bf16 pairs does not hold.
    """
    for height in heights_of(rows, VECTOR_ROWS):
        if f"single{height}_{vectors}" not in module.functions:
            f = module.function(f"single{height}_{vectors}", False, **PARAMETERS, pairs="i64")
            MicroTile(f, spec, height, vectors).micro_kernel()
            f.done()
    for lines in (1, 2) if spec.two_lines(rows) else (1,):
        apart = {"line_step": "i64", "out_line": "i64"} if lines == 2 else {}
        name = f"tile{rows}{'x2' * (lines == 2)}_{vectors}"
        f = module.function(name, False, **PARAMETERS, pairs="i64", configured="ptr", **apart)
        of_lines: list[Values] = [{}]
        if lines == 2:
            sums = f.at(f.sums, rows * spec.pitch * F32_BYTES)
            of_lines.append({"data": f.at(f.data, f.line_step), "out": f.at(f.out, f.out_line), "sums": sums})
        with f.when(f.compare("ne", f.pairs, 0)):
            AmxTile(f, spec, rows, vectors, lines=tuple(of_lines)).micro_kernel()
        with f.otherwise():
            for of_line in of_lines:
                _by_vectors(f, spec, (rows, vectors), f.parameters | of_line)
        f.done()


def _by_vectors(f: Function, spec: GemmSpec, tile: tuple[int, int], values: Values) -> None:
    """Compute the rows of a line by micro-tiles of vectors. These do not overlap, because each has sums that wait."""
    rows, vectors = tile

    def some(first: Value, height: int) -> None:
        of_rows = {
            "sums": f.at(values["sums"], first * (spec.pitch * F32_BYTES)),
            "data": f.at(values["data"], first * f.row_step),
            "out": f.at(values["out"], first * f.out_step),
            "bias": f.at(f.bias, first * f.bias_step),
            "skip": f.min(f.max(f.skip - first, 0), height),
        }
        f.call(f"single{height}_{vectors}", **{**values, **of_rows})

    by_height(f, rows, VECTOR_ROWS, some)


@dataclass(frozen=True)
class AmxTile(MicroTile):
    """The micro-tile that is being emitted."""

    lines: tuple[Values, ...] = ({},)  # the arguments of each line that differ from the function's

    @property
    def heights(self) -> tuple[int, ...]:
        """The rows of each tile of A."""
        return tile_rows(self.rows) if len(self.lines) == 1 else (self.rows, self.rows)

    @cached_property
    def product(self) -> TileProduct:
        """The product of tiles that the function adds up."""
        return TileProduct(self.f, self.spec.isa.tiles, self.heights, self.vectors)

    def micro_kernel(self) -> None:
        """Add all portions of a pass. Store the tiles of C at the end of a node, and the total after the last pass."""
        f, a = self.f, arguments(self.f, self.spec)
        pitch = self.spec.pitch * F32_BYTES
        self.product.configure(f.configured)
        self.product.zero()
        total = f.at(f.sums, (a.levels - 1) * self.spec.tile_bytes)
        with f.when(f.compare("eq", f.chain_count, 0)):  # if no tap exists, the total is 0
            self.product.store(total, pitch)
        number = f.load("i64", f.chains, CHAIN.at("number"))
        begun = f.op("i1", f"xor {f.begins}, true") & f.op("i1", f"xor {tree.begins(f, number)}, true")
        with f.when(begun):
            self.product.load(f.sums, pitch)
        with f.loop(f.chain_count, chain=f.chains, segment=f.segments) as portion:
            self.multiply(portion.segment)  # a row of CHAIN has one segment: at most 32 k of one tap
            number, following = self.numbers(portion.chain)
            complete = tree.completes(f, number, following)
            last = f.compare("eq", portion.index, f.chain_count - 1)
            with f.when(f.op("i1", f"or {complete}, {last.name}")):
                self.product.store(f.sums, pitch)
                self.product.zero()
                size = sum(self.heights) * pitch
                tree.combine_complete(f, f.sums, self.spec.tile_bytes, size, a.levels, (number, following))
            portion.next(chain=f.at(portion.chain, CHAIN.bytes), segment=f.at(portion.segment, SEGMENT.bytes))
        with f.when(f.ends):
            for n, of_line in enumerate(self.lines):
                sums = f.at(total, n * self.rows * self.spec.pitch * F32_BYTES)
                self.from_memory(sums, of_line)

    def multiply(self, segment: Value) -> None:
        """Add a portion of 32 terms."""
        f = self.f
        data, weights = (f.load("i64", segment, SEGMENT.at(name)) for name in ("data", "weights"))
        rows = [f.at(f.data, data)]
        if len(self.heights) == 2:
            apart = f.row_step * self.heights[0] if len(self.lines) == 1 else f.line_step
            rows.append(f.at(rows[0], apart))
        self.product.multiply(rows, f.row_step, f.at(f.weights, weights), self.spec.pitch * F32_BYTES)
