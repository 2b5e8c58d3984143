"""Finishing weights: sums of a panel, under all taps, become output: +0, the old value where asked, one rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from convgrad.engines.llvm.arguments import arguments
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import put, put_first, put_transposed, total
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.taps import ELSEWHERE


def finish(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish``: out[row, lane, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, of ``left`` lanes.

    Lanes next to each other in the output are written as vectors. Where rows are, or, as ``taps_together`` tells, taps,
    squares of lanes and of those are transposed; else values go one by one, in the order that runs through the output.
    Where lanes hold groups, each vector is another item, and those before ``skip_vectors`` are skipped too.
    """
    _line(module, spec)
    f = module.function(
        "finish", arguments="ptr", sums="ptr", sums_step="i64", outs="ptr", tap_tiles="i64", out="ptr", skip="i64",
        skip_vectors="i64", left="i64",
    )  # fmt: skip
    a, size, pitch = arguments(f), BYTES[spec.output], f.value(spec.width * F32_BYTES)
    lane, vector = a.lanes.out, a.lanes.out * spec.isa.lanes
    steps = (a.rows.out, *((a.out_group, lane) if spec.groups_in_lanes else (lane, vector)))
    sums, out = f.at(f.sums, f.skip * pitch), f.at(f.out, f.skip * steps[0])
    one = _Finish(f, spec, *steps, f.value(spec.tile.rows) - f.skip, sums, out, a.accumulate)
    ways = (
        (f.compare("eq", one.lane_step, size), one.by_lanes),
        (f.compare("eq", one.row_step, size), one.by_rows),
        (f.compare("ne", a.taps_together, 0), one.by_taps),
    )
    with ExitStack() as nested:
        for fits, way in ways:
            with f.when(fits):
                way()
            nested.enter_context(f.otherwise())
        one.one_by_one()
    f.done()


def _line(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish_line``: out[lane][i] = round(sums[i][lane] + 0 [+ old]) of one vector's ``lanes`` lanes."""
    f = module.function(
        "finish_line", sums="ptr", step="i64", count="i64", out="ptr", lane_step="i64", lanes="i64", accumulate="i64"
    )
    old = f.compare("ne", f.accumulate, 0)
    put_transposed(f, spec, f.sums, f.step, f.count, f.out, f.lane_step, f.lanes, old)
    f.done()


@dataclass(frozen=True)
class _Finish:
    """The output of a panel being emitted: so many ``rows``, their sums, where they go, whether to accumulate."""

    f: Function
    spec: KernelSpec
    row_step: Value  # bytes in the output from a row to the next,
    lane_step: Value
    vector_step: Value
    rows: Value
    sums: Value
    out: Value
    accumulate: Value

    @property
    def pitch(self) -> Value:
        """Bytes from a row's sums to the next."""
        return self.f.value(self.spec.width * F32_BYTES)

    @property
    def old(self) -> Value:
        """Whether to add the old value."""
        return self.f.compare("ne", self.accumulate, 0)

    def by_lanes(self) -> None:
        """Lanes lie together."""
        f, lanes, old = self.f, self.spec.isa.lanes, self.old
        with (
            self.each_tap(self.sums, self.out) as (there_sums, there),
            f.loop(self.rows, sums=there_sums, out=there) as row,
        ):
            for v, left in enumerate(self.vectors()):
                sums = f.load(f"<{lanes} x float>", row.sums, v * lanes * F32_BYTES)
                put_first(f, self.spec, total(f, sums), f.at(row.out, self.vector_step * v), old, left)
            row.next(sums=f.at(row.sums, self.pitch), out=f.at(row.out, self.row_step))

    def by_rows(self) -> None:
        """Rows lie together."""
        for v, left in enumerate(self.vectors()):
            with self.each_tap(*self.of_vector(v)) as (there_sums, there):
                self.line(there_sums, self.pitch, self.rows, there, left)

    def by_taps(self) -> None:
        """Taps lie together, and all taps of a tile go somewhere."""
        f, spec = self.f, self.spec
        tiles, count, step = f.tap_tiles, f.value(spec.tile.taps), f.value(spec.tap_bytes)
        if spec.tile.taps == 1:  # a line runs through the tiles
            tiles, count, step = f.value(1), f.tap_tiles, f.sums_step
        for v, left in enumerate(self.vectors()):
            first, start = self.of_vector(v)
            with f.loop(tiles, sums=first, outs=f.outs) as tile:
                with f.loop(self.rows, sums=tile.sums, out=f.at(start, f.load("i64", tile.outs))) as row:
                    self.line(row.sums, step, count, row.out, left)
                    row.next(sums=f.at(row.sums, self.pitch), out=f.at(row.out, self.row_step))
                tile.next(sums=f.at(tile.sums, f.sums_step), outs=f.at(tile.outs, 8 * spec.tile.taps))

    def one_by_one(self) -> None:
        """Nothing lies together: the longer of both steps outside."""
        f, old = self.f, self.old
        for v, left in enumerate(self.vectors() if self.spec.groups_in_lanes else [f.left]):
            by_row = (self.rows, self.pitch, self.row_step)
            by_lane = (left, f.value(F32_BYTES), self.lane_step)
            lanes_outside = self.row_step < self.lane_step
            outside = [f.select(lanes_outside, a, b) for a, b in zip(by_lane, by_row, strict=True)]
            inside = [f.select(lanes_outside, a, b) for a, b in zip(by_row, by_lane, strict=True)]
            first, start = self.of_vector(v)
            with f.loop(outside[0], sums=first, out=start) as outer:
                with f.loop(inside[0], sums=outer.sums, out=outer.out) as inner:
                    with self.each_tap(inner.sums, inner.out) as (there_sums, there):
                        put(f, self.spec, total(f, f.load("float", there_sums)), there, old)
                    inner.next(sums=f.at(inner.sums, inside[1]), out=f.at(inner.out, inside[2]))
                outer.next(sums=f.at(outer.sums, outside[1]), out=f.at(outer.out, outside[2]))

    def vectors(self) -> list[Value]:
        """Return how many lanes of each vector are output."""
        f, vectors = self.f, range(self.spec.tile.vectors)
        if not self.spec.groups_in_lanes:
            return [f.left - v * self.spec.isa.lanes for v in vectors]
        return [f.select(f.compare("sge", f.value(v), f.skip_vectors), f.left, f.value(0)) for v in vectors]

    def of_vector(self, v: int) -> tuple[Value, Value]:
        """Return where a vector's sums are and where its first lane goes."""
        return self.f.at(self.sums, v * self.spec.isa.lanes * F32_BYTES), self.f.at(self.out, self.vector_step * v)

    @contextmanager
    def each_tap(self, sums: Value, out: Value) -> Iterator[tuple[Value, Value]]:
        """Visit the sums of each tap and where they go; what a tile summed again beside another goes nowhere."""
        f, spec = self.f, self.spec
        with f.loop(f.tap_tiles, sums=sums, outs=f.outs) as tile:
            with f.loop(spec.tile.taps, sums=tile.sums, outs=tile.outs) as tap:
                place = f.load("i64", tap.outs)
                with f.when(f.compare("ne", place, ELSEWHERE)):
                    yield tap.sums, f.at(out, place)
                tap.next(sums=f.at(tap.sums, spec.tap_bytes), outs=f.at(tap.outs, 8))
            tile.next(sums=f.at(tile.sums, f.sums_step), outs=tap.outs)

    def line(self, sums: Value, step: Value, count: Value, out: Value, left: Value) -> None:
        """Write what lies together as transposed squares."""
        lanes = self.f.max(self.f.min(left, self.spec.isa.lanes), 0)
        self.f.call("finish_line", sums, step, count, out, self.lane_step, lanes, self.accumulate)
