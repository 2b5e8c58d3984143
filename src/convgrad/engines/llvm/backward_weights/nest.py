"""Parts common to the nests of weight gradients: a task's operands, panels, the tree of sums, and the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, arguments, columns, going
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import Epilogue, Panel, Taps
from convgrad.plan.backward_weights.recipe import KernelSpec, Operand
from convgrad.plan.backward_weights.schedule import CACHE_BLOCK, CHAIN, TASK
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record


@dataclass(frozen=True)
class TaskOperand:
    """A or B of a task: how the kernel reads it, its arguments, and the task's panels of it."""

    name: str
    operand: Operand
    args: Named
    task: Named
    width: int  # channels of a panel
    overlaps: bool  # whether the last panel overlaps the one before rather than run over


@dataclass(frozen=True)
class Nest:
    """A task being emitted."""

    f: Function
    spec: KernelSpec
    args: Named
    task: Named

    @property
    def a(self) -> TaskOperand:
        """Return A."""
        return TaskOperand("a", self.spec.a, self.args.of("a"), self.task.of("a"), self.spec.micro_tile.mr, True)

    @property
    def b(self) -> TaskOperand:
        """Return B: lanes beyond its last channel are idle."""
        args, task, spec = self.args.of("b"), self.task.of("b"), self.spec
        return TaskOperand("b", spec.b, args, task, spec.b_channels, spec.groups_in_lanes)

    @property
    def operands(self) -> tuple[TaskOperand, TaskOperand]:
        """Return A and B."""
        return self.a, self.b

    def first(self, operand: TaskOperand, panel: Value) -> Value:
        """Return the first channel of a panel."""
        first = panel * operand.width
        return self.f.min(first, operand.args.channels - operand.width) if operand.overlaps else first

    def columns_left(self, group: Value, panel: Value) -> Value:
        """Return how many lanes of a panel of B are output."""
        if self.spec.groups_in_lanes:
            return self.f.min(self.args.groups - group * self.spec.isa.lanes, self.spec.isa.lanes)
        return self.f.min(self.b.args.channels - self.first(self.b, panel), self.spec.width)

    @contextmanager
    def rows(self, record: Record, table: Value, first: Value, count: Value) -> Iterator[Named]:
        """Do a block of code for each of some rows of a table."""
        with self.f.loop(count, row=self.f.at(table, first * record.bytes)) as each:
            yield columns(self.f, each.row, record)
            each.next(row=self.f.at(each.row, record.bytes))

    def cache_blocks(self) -> AbstractContextManager[Named]:
        """Do a block of code for each cache block of the task."""
        return self.rows(CACHE_BLOCK, self.args.cache_blocks, self.task.cache_block, self.task.cache_blocks)

    def chains(self, block: Named) -> AbstractContextManager[Named]:
        """Do a block of code for each chain of a cache block."""
        return self.rows(CHAIN, self.args.chains, block.chain, block.chains)

    def store(self, group: Value, b: Value, a: Value, sums: Value, sums_step: Value) -> None:
        """Store the sums of a panel of A and one of B under the task's taps."""
        f, args, t = self.f, self.args, self.task
        first_b, first_a = self.first(self.b, b), self.first(self.a, a)
        skip_a, skip_b = a * self.a.width - first_a, b * self.b.width - first_b
        outs = f.at(args.outs, t.tap * (8 * self.spec.micro_tile.taps))
        out = f.at(args.out, group * (args.out_group * self.spec.groups_a_panel))
        out = f.at(f.at(out, first_b * self.b.args.out), first_a * self.a.args.out)
        left = self.columns_left(group, b)
        f.call("store_panel", f.arguments, sums, sums_step, outs, t.taps, out, skip_a, skip_b, left)

    def reduce(self, partial: Value) -> None:
        """Reduce the partial sums of all leaves, of a micro-tile, to the first of them."""
        args, size = self.args, self.spec.tile_bytes
        self.f.call("reduce", partial, size, args.leaves, size, args.leaf_levels)


def store_panel(module: Module, spec: KernelSpec) -> None:
    """Emit ``store_panel``: out[row, column, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, ``left`` columns.

    If lanes hold groups, each vector is another column of B, and vectors before ``skip_vectors`` are not stored.
    """
    f = module.function(
        "store_panel", arguments="ptr", sums="ptr", sums_step="i64", outs="ptr", tap_tiles="i64", out="ptr",
        skip="i64", skip_vectors="i64", left="i64",
    )  # fmt: skip
    args, lanes, size = arguments(f), spec.isa.lanes, f.value(BYTES[spec.output])
    pitch, row_step, column_step = spec.width * F32_BYTES, args.of("a").out, args.of("b").out
    vector_step = column_step * lanes
    if spec.groups_in_lanes:
        column_step, vector_step = args.out_group, args.of("b").out

    def left(vector: Value) -> Value:
        if spec.groups_in_lanes:
            return f.select(vector >= f.skip_vectors, f.left, f.value(0))
        return f.left - vector * lanes

    panel = Panel(
        Epilogue.of(f, spec, args.accumulate), f.value(spec.micro_tile.mr) - f.skip, spec.micro_tile.nr, left,
        f.at(f.sums, f.skip * pitch), pitch, f.at(f.out, f.skip * row_step), row_step, column_step, vector_step,
        taps=Taps(f.tap_tiles, f.sums_step, spec.micro_tile.taps, spec.tap_bytes, f.outs),
    )  # fmt: skip
    panel.store([
        (f.compare("eq", column_step, size), panel.along_columns),
        (f.compare("eq", row_step, size), panel.along_rows),
        (f.compare("ne", args.taps_contiguous, 0), panel.along_taps),
    ])  # fmt: skip
    f.done()


def trees(module: Module, spec: KernelSpec) -> None:
    """Emit the functions of the reduction tree."""
    tree.combine_up(module, spec.isa)
    tree.reduce(module, spec.isa)


def combine_after(n: Nest, sums: Value, chain: Named, partial: Value) -> None:
    """Combine the nodes that are complete after a chain; store the sum of a leaf if several tasks share the weights."""
    f, args, size = n.f, n.args, n.spec.tile_bytes
    tree.combine_complete(f, sums, size, size, args.levels, chain.number, chain.following)
    with f.when(chain.leaf >= 0):
        top = f.at(sums, (args.levels - 1) * size)
        f.call("combine", top, f.at(partial, chain.leaf * size), size, Value(f, "i1", "true"))


@contextmanager
def when_all_ended(n: Nest) -> Iterator[None]:
    """Run a block of code in the last task of a part of the weights, where all partial sums exist."""
    f, args = n.f, n.args
    with f.when(f.compare("sgt", args.image_parts, 1)):
        before = f.op("i64", f"atomicrmw add {f.at(args.partial_sums, n.task.part * 8)}, i64 1 seq_cst")
        with f.when(f.compare("eq", before, args.image_parts - 1) & going(f, args)):
            yield


def nest(module: Module, spec: KernelSpec) -> Nest:
    """Begin ``task``, which does one."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    return Nest(f, spec, arguments(f), columns(f, f.task, TASK))
