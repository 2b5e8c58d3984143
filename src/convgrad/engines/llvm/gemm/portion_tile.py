"""The micro-tile of vectors for portions of two chains, and the choice between it and the micro-tile of one chain.

The sums of a node of the reduction tree stay in registers until it is complete. If the registers have no room for them,
`micro_tile.py` adds each portion in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.gemm.arguments import arguments
from convgrad.engines.llvm.gemm.micro_tile import PARAMETERS, MicroTile
from convgrad.engines.llvm.microkernel import Values
from convgrad.plan.gemm.schedule import CHAIN
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.recipe import CHANNELS


def tile(module: Module, spec: GemmSpec, rows: int, vectors: int, prefetches_panels: bool = False) -> None:
    """Emit ``tile<rows>_<vectors>``, which computes sum[r][v], the sum of data[r] * weights[v] over chains and k.

    A row is a position. Rows are ``row_step`` bytes apart in A and ``out_step`` bytes apart in the output. A micro-tile
    may take several passes over its chains: ``begins`` and ``ends`` are true in the first and in the last pass. Each k
    prefetches at ``next`` and moves it by ``rate`` bytes. There is the data of the next micro-tile, or a row of a later
    panel if ``prefetches_panels`` is true. ``pairs`` is a mask of numbers of pairs: -1 if the data permits bf16 pairs,
    else 0.
    """
    pairs = {"pairs": "i64"} if spec.k_per_add == 2 else {}
    f = module.function(f"tile{rows}_{vectors}", False, **PARAMETERS, **pairs)
    kind = PortionTile if spec.holds_node(rows, vectors) else MicroTile
    kind(f, spec, rows, vectors, prefetches_panels).micro_kernel()
    f.done()


@dataclass(frozen=True)
class PortionTile(MicroTile):
    """The micro-tile that is being emitted."""

    def micro_kernel(self) -> None:
        """Add all portions of a pass to nodes. Keep the last node for the next pass, or store the total."""
        f = self.f
        if self.spec.out == CHANNELS:
            self.prefetch_out()
        zeros = {name: f.zeros(self.kind) for name in self.names}
        with f.loop(f.chain_count, chain=f.chains, segment=f.segments, prefetched=f.next, **self.begun()) as portion:
            after = self.segment(portion.segment, portion.prefetched, zeros)  # a row of CHAIN has one segment
            totals = self.totals({name: after[name] for name in self.names})
            node = {n: f.add(portion.carried[n], total) for n, total in zip(self.node_names, totals, strict=True)}
            numbers = self.numbers(portion.chain)
            last = f.ends & f.compare("eq", portion.index, f.chain_count - 1)
            complete = tree.completes(f, *numbers) & f.op("i1", f"xor {last}, true")
            portion.next(
                chain=f.at(portion.chain, CHAIN.bytes),
                segment=f.at(portion.segment, self.segment_bytes),
                prefetched=after["prefetched"],
                **self.where(complete, node, partial(self.emptied, numbers)),
            )
        sums = [portion.carried[name] for name in self.node_names]
        with f.when(f.ends):
            self.store(sums, f.at(portion.chain, -CHAIN.bytes))
        with f.otherwise():
            self.keep(sums)

    @property
    def node_names(self) -> list[str]:
        """The names of the sums of a node."""
        return [f"node{number}" for number in range(self.rows * self.vectors)]

    @property
    def nothing(self) -> Value:
        """The sums of an empty node: -0, which changes no number that is added."""
        return self.f.splat(Value(self.f, "float", "-0.0"), self.spec.isa.lanes)

    def begun(self) -> Values:
        """Return the sums of the node with which a pass begins: none, or those that the previous pass kept."""
        f = self.f
        empty = f.select(f.chain_count < 1, f.zeros(self.kind), self.nothing)  # without portions, the total is +0
        sums = [f.select(f.begins, empty, f.load(self.kind, f.sums, place)) for place in self.offsets]
        return dict(zip(self.node_names, sums, strict=True))

    def emptied(self, numbers: tuple[Value, Value], node: Values) -> Values:
        """Store the sums of a complete node, combine it, and return those of an empty one."""
        self.keep(list(node.values()))
        self.combine(numbers)
        return dict.fromkeys(node, self.nothing)

    def store(self, sums: list[Value], last: Value) -> None:
        """Store the total of all nodes, of which the last one is in registers, or collect it."""
        f, a, plain = self.f, arguments(self.f, self.spec), self.plain
        empty = (f.chain_count < 1) & f.begins
        single = f.op("i1", f"or {f.compare('eq', a.levels, 1)}, {empty.name}")
        with f.when(single & plain):
            self.from_registers(sums)
        with f.otherwise():
            self.keep(sums)
            with f.when(single):
                self.from_memory(f.sums)
            with f.otherwise():
                self.combine(self.numbers(last))
                self.from_memory(f.at(f.sums, (a.levels - 1) * self.spec.tile_bytes))
