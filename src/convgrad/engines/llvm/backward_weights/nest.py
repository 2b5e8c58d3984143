"""What the nests of weight gradients share: a task's sides, where panels begin, the tree of sums, their output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, arguments, columns, going
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import Epilogue, Panel, Taps
from convgrad.plan.backward_weights.recipe import KernelSpec, Read
from convgrad.plan.backward_weights.schedule import CACHE_BLOCK, TASK
from convgrad.plan.recipe import F32_BYTES


@dataclass(frozen=True)
class TaskSide:
    """A side of a task: how its operand is read, its arguments, the panels that the task has of it."""

    name: str
    read: Read
    a: Named
    t: Named
    items: int  # of a panel
    overlaps: bool  # whether the last panel overlaps the one before rather than run over


@dataclass(frozen=True)
class Nest:
    """A task being emitted."""

    f: Function
    spec: KernelSpec
    a: Named
    t: Named

    @property
    def rows(self) -> TaskSide:
        """The side of the rows."""
        a, t = self.a.rows, self.t.rows
        return TaskSide("rows", self.spec.rows, a, t, self.spec.tile.rows, True)

    @property
    def lanes(self) -> TaskSide:
        """The side of the lanes: beyond the last item of a panel of channels, lanes are idle."""
        a, t = self.a.lanes, self.t.lanes
        return TaskSide("lanes", self.spec.lanes, a, t, self.spec.lane_items, self.spec.groups_in_lanes)

    @property
    def sides(self) -> tuple[TaskSide, TaskSide]:
        """Both."""
        return self.rows, self.lanes

    def first(self, side: TaskSide, panel: Value) -> Value:
        """Return the first item of a panel."""
        first = panel * side.items
        return self.f.min(first, side.a.items - side.items) if side.overlaps else first

    def lanes_left(self, group: Value, lane: Value) -> Value:
        """Return how many lanes of a panel's tile are output."""
        if self.spec.groups_in_lanes:
            return self.f.min(self.a.groups - group * self.spec.isa.lanes, self.spec.isa.lanes)
        return self.f.min(self.a.lanes.items - self.first(self.lanes, lane), self.spec.width)

    @contextmanager
    def cache_blocks(self) -> Iterator[Named]:
        """Do a block for each cache block of the task."""
        f, t = self.f, self.t
        with f.loop(t.cache_blocks, chunk=f.at(self.a.cache_blocks, t.cache_block * CACHE_BLOCK.bytes)) as each:
            yield columns(f, each.chunk, CACHE_BLOCK)
            each.next(chunk=f.at(each.chunk, CACHE_BLOCK.bytes))

    def store(self, group: Value, lane: Value, row: Value, sums: Value, sums_step: Value) -> None:
        """Store the sums of a panel of A and one of B under the task's taps."""
        f, a, t = self.f, self.a, self.t
        first_lane, first_row = self.first(self.lanes, lane), self.first(self.rows, row)
        skip_row, skip_lane = row * self.rows.items - first_row, lane * self.lanes.items - first_lane
        outs = f.at(a.outs, t.tap * (8 * self.spec.tile.taps))
        out = f.at(a.out, group * (a.out_group * self.spec.groups_a_panel))
        out = f.at(f.at(out, first_lane * a.lanes.out), first_row * a.rows.out)
        left = self.lanes_left(group, lane)
        f.call("store_panel", f.arguments, sums, sums_step, outs, t.taps, out, skip_row, skip_lane, left)

    def reduce(self, kept: Value) -> None:
        """Reduce the stored sums of all units, of a tile, to the first of them."""
        a, size = self.a, self.spec.tile_bytes
        self.f.call("reduce", kept, size, a.units, size, a.unit_levels)


def store_panel(module: Module, spec: KernelSpec) -> None:
    """Emit ``store_panel``: out[row, column, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, ``left`` columns.

    If lanes hold groups, each vector is another column of B, and vectors before ``skip_vectors`` are not stored.
    """
    f = module.function(
        "store_panel", arguments="ptr", sums="ptr", sums_step="i64", outs="ptr", tap_tiles="i64", out="ptr",
        skip="i64", skip_vectors="i64", left="i64",
    )  # fmt: skip
    a, lanes, size = arguments(f), spec.isa.lanes, f.value(BYTES[spec.output])
    pitch, row_step, column_step = spec.width * F32_BYTES, a.rows.out, a.lanes.out
    vector_step = column_step * lanes
    if spec.groups_in_lanes:
        column_step, vector_step = a.out_group, a.lanes.out

    def left(vector: Value) -> Value:
        if spec.groups_in_lanes:
            return f.select(vector >= f.skip_vectors, f.left, f.value(0))
        return f.left - vector * lanes

    panel = Panel(
        Epilogue.of(f, spec, a.accumulate), f.value(spec.tile.rows) - f.skip, spec.tile.vectors, left,
        f.at(f.sums, f.skip * pitch), pitch, f.at(f.out, f.skip * row_step), row_step, column_step, vector_step,
        taps=Taps(f.tap_tiles, f.sums_step, spec.tile.taps, spec.tap_bytes, f.outs),
    )  # fmt: skip
    panel.store([
        (f.compare("eq", column_step, size), panel.along_columns),
        (f.compare("eq", row_step, size), panel.along_rows),
        (f.compare("ne", a.taps_together, 0), panel.along_taps),
    ])  # fmt: skip
    f.done()


def trees(module: Module, spec: KernelSpec) -> None:
    """Emit what the tree of sums needs."""
    tree.combine_up(module, spec.isa)
    tree.reduce(module, spec.isa)


def combine_after(n: Nest, sums: Value, chain: Named, kept: Value) -> None:
    """Combine what is complete after a chain; store the sum of a unit that several tasks share."""
    f, a, size = n.f, n.a, n.spec.tile_bytes
    tree.combine_complete(f, sums, size, size, a.levels, chain.number, chain.following)
    with f.when(chain.unit >= 0):
        top = f.at(sums, (a.levels - 1) * size)
        f.call("combine", top, f.at(kept, chain.unit * size), size, Value(f, "i1", "true"))


@contextmanager
def when_all_ended(f: Function, a: Named, t: Named) -> Iterator[None]:
    """Do a block in the last to end of the tasks that share a part of the weights: then all units' sums are there."""
    with f.when(f.compare("sgt", a.image_parts, 1)):
        before = f.op("i64", f"atomicrmw add {f.at(a.partial_sums, t.part * 8)}, i64 1 seq_cst")
        with f.when(f.compare("eq", before, a.image_parts - 1) & going(f, a)):
            yield


def nest(module: Module, spec: KernelSpec) -> Nest:
    """Begin ``task``, which does one."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    return Nest(f, spec, arguments(f), columns(f, f.task, TASK))
