"""Common parts of the loop nests of weight gradients: a task's operands, panels, reduction tree, and store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, arguments, columns, going
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import Epilogue, Panel, PanelTaps
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record
from convgrad.plan.split_k.recipe import SplitKOperand, SplitKSpec
from convgrad.plan.split_k.schedule import ARGUMENTS, CACHE_BLOCK, CHAIN, TASK


@dataclass(frozen=True)
class TaskOperand:
    """The operand A or B of the micro-kernel, as one task reads it."""

    name: str
    operand: SplitKOperand
    args: Named  # the driver's arguments of the operand
    task: Named  # the range of the operand's panels in the task
    width: int  # channels per panel
    overlaps: bool  # whether the last panel may overlap the previous one, so that it has only channels that exist


@dataclass(frozen=True)
class SplitKNest:
    """The function ``task`` that is being emitted, with the driver's arguments and the row of the task."""

    f: Function
    spec: SplitKSpec
    args: Named
    task: Named

    @property
    def a(self) -> TaskOperand:
        """Operand A of the task."""
        return TaskOperand("a", self.spec.a, self.args.of("a"), self.task.of("a"), self.spec.micro_tile.mr, True)

    @property
    def b(self) -> TaskOperand:
        """Operand B of the task. Lanes beyond the last channel are unused."""
        args, task, spec = self.args.of("b"), self.task.of("b"), self.spec
        return TaskOperand("b", spec.b, args, task, spec.b_channels, spec.groups_in_lanes)

    @property
    def operands(self) -> tuple[TaskOperand, TaskOperand]:
        """Operands A and B of the task."""
        return self.a, self.b

    def first(self, operand: TaskOperand, panel: Value) -> Value:
        """Return the number of the first channel in a panel."""
        first = panel * operand.width
        return self.f.min(first, operand.args.channels - operand.width) if operand.overlaps else first

    def columns_left(self, group: Value, panel: Value) -> Value:
        """Return the number of lanes of a panel of B that belong to the output."""
        if self.spec.groups_in_lanes:
            return self.f.min(self.args.groups - group * self.spec.isa.lanes, self.spec.isa.lanes)
        return self.f.min(self.b.args.channels - self.first(self.b, panel), self.spec.width)

    @contextmanager
    def rows(self, record: Record, table: Value, first: Value, count: Value) -> Iterator[Named]:
        """Run the block for ``count`` rows of a table, from the row ``first`` on."""
        with self.f.loop(count, row=self.f.at(table, first * record.bytes)) as iteration:
            yield columns(self.f, iteration.row, record)
            iteration.next(row=self.f.at(iteration.row, record.bytes))

    def cache_blocks(self) -> AbstractContextManager[Named]:
        """Run the block for each cache block of the task."""
        return self.rows(CACHE_BLOCK, self.args.cache_blocks, self.task.cache_block, self.task.cache_blocks)

    def chains(self, block: Named) -> AbstractContextManager[Named]:
        """Run the block for each chain of a cache block."""
        return self.rows(CHAIN, self.args.chains, block.chain, block.chains)

    def store(self, group: Value, b: Value, a: Value, sums: Value, sums_step: Value) -> None:
        """Store the sums of a panel of A and a panel of B for all taps of the task."""
        f, args, t = self.f, self.args, self.task
        first_b, first_a = self.first(self.b, b), self.first(self.a, a)
        skip_a, skip_b = a * self.a.width - first_a, b * self.b.width - first_b
        outs = f.at(args.outs, t.tap * (8 * self.spec.micro_tile.taps))
        out = f.at(args.out, group * (args.out_group * self.spec.groups_a_panel))
        out = f.at(f.at(out, first_b * self.b.args.out), first_a * self.a.args.out)
        left = self.columns_left(group, b)
        skipped = {"skip": skip_a, "skip_vectors": skip_b, "left": left}
        f.call(
            "store_panel",
            arguments=f.arguments,
            sums=sums,
            sums_step=sums_step,
            outs=outs,
            tap_tiles=t.taps,
            out=out,
            **skipped,
        )

    def reduce(self, partial: Value) -> None:
        """Reduce the partial sums of all leaves for one micro-tile; the result replaces the sums of the first leaf."""
        args, size = self.args, self.spec.tile_bytes
        self.f.call("reduce", partial, size, args.leaves, size, args.leaf_levels)


def store_panel(module: Module, spec: SplitKSpec) -> None:
    """Emit ``store_panel``, which stores out[row, column, tap] = round(sum + 0 [+ old]).

    It stores the rows from ``skip`` on, and the first ``left`` columns. If each lane is a group, a vector is a column
    of B, and the vectors before ``skip_vectors`` are not stored.
    """
    f = module.function(
        "store_panel",
        arguments="ptr",
        sums="ptr",
        sums_step="i64",
        outs="ptr",
        tap_tiles="i64",
        out="ptr",
        skip="i64",
        skip_vectors="i64",
        left="i64",
    )
    args, lanes, size = arguments(f, ARGUMENTS), spec.isa.lanes, f.value(BYTES[spec.output])
    pitch, row_step, column_step = spec.width * F32_BYTES, args.of("a").out, args.of("b").out
    vector_step = column_step * lanes
    if spec.groups_in_lanes:
        column_step, vector_step = args.out_group, args.of("b").out

    def left(vector: Value) -> Value:
        if spec.groups_in_lanes:
            return f.select(vector >= f.skip_vectors, f.left, f.value(0))
        return f.left - vector * lanes

    panel = Panel(
        Epilogue.of(f, spec, args.accumulate),
        f.value(spec.micro_tile.mr) - f.skip,
        spec.micro_tile.nr,
        left,
        f.at(f.sums, f.skip * pitch),
        pitch,
        f.at(f.out, f.skip * row_step),
        row_step,
        column_step,
        vector_step,
        taps=PanelTaps(f.tap_tiles, f.sums_step, spec.micro_tile.taps, spec.tap_bytes, f.outs),
    )
    panel.store(
        [
            (f.compare("eq", column_step, size), panel.along_columns),
            (f.compare("eq", row_step, size), panel.along_rows),
            (f.compare("ne", args.taps_contiguous, 0), panel.along_taps),
        ]
    )
    f.done()


def trees(module: Module, spec: SplitKSpec) -> None:
    """Emit the functions of the reduction tree: ``combine``, ``combine_up`` and ``reduce``."""
    tree.combine_up(module, spec.isa)
    tree.reduce(module, spec.isa)


def combine_after(n: SplitKNest, sums: Value, chain: Named, partial: Value) -> None:
    """Combine the nodes that are complete after a chain.

    If several tasks share the weights and the chain ends a leaf, store the leaf's sums at ``partial``.
    """
    f, args, size = n.f, n.args, n.spec.tile_bytes
    tree.combine_complete(f, sums, size, size, args.levels, (chain.number, chain.following))
    with f.when(chain.leaf >= 0):
        top = f.at(sums, (args.levels - 1) * size)
        f.call("combine", top, f.at(partial, chain.leaf * size), size, Value(f, "i1", "true"))


@contextmanager
def when_all_ended(n: SplitKNest) -> Iterator[None]:
    """Run the block in the last of the tasks that share a part of the weights, when all partial sums exist."""
    f, args = n.f, n.args
    with f.when(f.compare("sgt", args.image_parts, 1)):
        before = f.op("i64", f"atomicrmw add {f.at(args.partial_sums, n.task.part * 8)}, i64 1 seq_cst")
        with f.when(f.compare("eq", before, args.image_parts - 1) & going(f, args)):
            yield


def nest(module: Module, spec: SplitKSpec) -> SplitKNest:
    """Begin the function ``task``, which computes one task."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    return SplitKNest(f, spec, arguments(f, ARGUMENTS), columns(f, f.task, TASK))
