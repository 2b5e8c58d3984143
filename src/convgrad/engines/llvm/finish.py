"""Finishing: sums of a panel, under all its taps, become output: +0, the old value where asked, one rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from convgrad.engines.llvm.convert import BYTES, narrow, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.taps import NOWHERE


def finish(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish``: out[row, lane, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, of ``lanes`` lanes.

    Lanes next to each other in the output are written as vectors. Where rows are, or, as ``taps_together`` tells, taps,
    squares of lanes and of those are transposed; else values go one by one, in the order that runs through the output.
    Where lanes hold groups, each vector is another channel, and those before ``skip_vectors`` are skipped too.
    """
    _line(module, spec)
    f = module.function(
        "finish",
        sums="ptr", sums_step="i64", outs="ptr", tap_tiles="i64", out="ptr", skip="i64", skip_vectors="i64",
        lanes="i64", row_step="i64", vector_step="i64", lane_step="i64", taps_together="i64", accumulate="i64",
    )  # fmt: skip
    size, pitch = BYTES[spec.output], f.value(spec.width * F32_BYTES)
    rows = f.value(spec.tile.rows) - f.skip
    sums, out = f.at(f.sums, f.skip * pitch), f.at(f.out, f.skip * f.row_step)
    ways = (
        (f.compare("eq", f.lane_step, size), _by_lanes),
        (f.compare("eq", f.row_step, size), _by_rows),
        (f.compare("ne", f.taps_together, 0), _by_taps),
    )
    with ExitStack() as nested:
        for fits, way in ways:
            with f.when(fits):
                way(f, spec, sums, out, rows, pitch)
            nested.enter_context(f.otherwise())
        _one_by_one(f, spec, sums, out, rows, pitch)
    f.done()


def _line(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish_line``: out[lane][i] = round(sums[i][lane] + 0 [+ old]) of one vector's ``lanes`` lanes.

    What ``count`` sums become lies together in the output; where it is more than lanes, square by square.
    """
    f = module.function(
        "finish_line", sums="ptr", step="i64", count="i64", out="ptr", lane_step="i64", lanes="i64", accumulate="i64"
    )
    lanes, size = spec.isa.lanes, BYTES[spec.output]
    kind, old = f"<{lanes} x float>", f.compare("ne", f.accumulate, 0)
    square = f.room(kind, lanes)
    with f.loop((f.count + (lanes - 1)) >> (lanes.bit_length() - 1), sums=f.sums, out=f.out) as piece:
        left = f.least(f.count - piece.index * lanes, lanes)
        rows = [f.load(kind, f.at(piece.sums, f.least(f.value(i), left - 1) * f.step)) for i in range(lanes)]
        for i, column in enumerate(transposed(f, rows, lanes)):
            f.store(column, square, i * lanes * F32_BYTES)
        mask = f.mask(left, lanes)
        with f.loop(f.lanes, column=square, out=piece.out) as lane:
            _finish_values(f, spec, f.load(kind, lane.column), lane.out, old, mask)
            lane.next(column=f.at(lane.column, lanes * F32_BYTES), out=f.at(lane.out, f.lane_step))
        piece.next(sums=f.at(piece.sums, f.step * lanes), out=f.at(piece.out, lanes * size))
    f.done()


def _by_lanes(f: Function, spec: KernelSpec, sums: Value, out: Value, rows: Value, pitch: Value) -> None:
    lanes, old = spec.isa.lanes, f.compare("ne", f.accumulate, 0)
    with (
        _each_tap(f, spec, sums, out) as (there_sums, there),
        f.loop(rows, sums=there_sums, out=there) as row,
    ):
        for v, left in enumerate(_vectors(f, spec)):
            total = f.load(f"<{lanes} x float>", row.sums, v * lanes * F32_BYTES)
            _finish_vector(f, spec, total, f.at(row.out, f.vector_step * v), left, old)
        row.next(sums=f.at(row.sums, pitch), out=f.at(row.out, f.row_step))


def _by_rows(f: Function, spec: KernelSpec, sums: Value, out: Value, rows: Value, pitch: Value) -> None:
    for v, left in enumerate(_vectors(f, spec)):
        with _each_tap(f, spec, *_vector(f, spec, v, sums, out)) as (there_sums, there):
            _finish_line(f, spec, there_sums, pitch, rows, there, left)


def _by_taps(f: Function, spec: KernelSpec, sums: Value, out: Value, rows: Value, pitch: Value) -> None:
    """All taps of a tile go somewhere, where taps lie together."""
    tiles, count, step = f.tap_tiles, f.value(spec.tile.taps), f.value(spec.tap_bytes)
    if spec.tile.taps == 1:  # a line runs through the tiles
        tiles, count, step = f.value(1), f.tap_tiles, f.sums_step
    for v, left in enumerate(_vectors(f, spec)):
        first, start = _vector(f, spec, v, sums, out)
        with f.loop(tiles, sums=first, outs=f.outs) as tile:
            with f.loop(rows, sums=tile.sums, out=f.at(start, f.load("i64", tile.outs))) as row:
                _finish_line(f, spec, row.sums, step, count, row.out, left)
                row.next(sums=f.at(row.sums, pitch), out=f.at(row.out, f.row_step))
            tile.next(sums=f.at(tile.sums, f.sums_step), outs=f.at(tile.outs, 8 * spec.tile.taps))


def _finish_line(
    f: Function, spec: KernelSpec, sums: Value, step: Value, count: Value, out: Value, left: Value
) -> None:
    lanes = f.most(f.least(left, spec.isa.lanes), 0)
    f.call("finish_line", sums, step, count, out, f.lane_step, lanes, f.accumulate)


def _one_by_one(f: Function, spec: KernelSpec, sums: Value, out: Value, rows: Value, pitch: Value) -> None:
    old = f.compare("ne", f.accumulate, 0)
    for v, left in enumerate(_vectors(f, spec) if spec.groups_in_lanes else [f.lanes]):
        by_row = (rows, pitch, f.row_step)
        by_lane = (left, f.value(F32_BYTES), f.lane_step)
        lanes_outside = f.row_step < f.lane_step
        outside = [f.select(lanes_outside, a, b) for a, b in zip(by_lane, by_row, strict=True)]
        inside = [f.select(lanes_outside, a, b) for a, b in zip(by_row, by_lane, strict=True)]
        first, start = _vector(f, spec, v, sums, out)
        with f.loop(outside[0], sums=first, out=start) as outer:
            with f.loop(inside[0], sums=outer.sums, out=outer.out) as inner:
                with _each_tap(f, spec, inner.sums, inner.out) as (there_sums, there):
                    _finish_values(f, spec, f.load("float", there_sums), there, old)
                inner.next(sums=f.at(inner.sums, inside[1]), out=f.at(inner.out, inside[2]))
            outer.next(sums=f.at(outer.sums, outside[1]), out=f.at(outer.out, outside[2]))


def _vectors(f: Function, spec: KernelSpec) -> list[Value]:
    """Return how many lanes of each vector are output."""
    vectors = range(spec.tile.vectors)
    if not spec.groups_in_lanes:
        return [f.lanes - v * spec.isa.lanes for v in vectors]
    return [f.select(f.compare("sge", f.value(v), f.skip_vectors), f.lanes, f.value(0)) for v in vectors]


def _vector(f: Function, spec: KernelSpec, v: int, sums: Value, out: Value) -> tuple[Value, Value]:
    """Return where a vector's sums are and where its first lane goes."""
    return f.at(sums, v * spec.isa.lanes * F32_BYTES), f.at(out, f.vector_step * v)


@contextmanager
def _each_tap(f: Function, spec: KernelSpec, sums: Value, out: Value) -> Iterator[tuple[Value, Value]]:
    """Visit the sums of each tap and where they go; what a tile summed again beside another goes nowhere."""
    with f.loop(f.tap_tiles, sums=sums, outs=f.outs) as tile:
        with f.loop(spec.tile.taps, sums=tile.sums, outs=tile.outs) as tap:
            place = f.load("i64", tap.outs)
            with f.when(f.compare("ne", place, NOWHERE)):
                yield tap.sums, f.at(out, place)
            tap.next(sums=f.at(tap.sums, spec.tap_bytes), outs=f.at(tap.outs, 8))
        tile.next(sums=f.at(tile.sums, f.sums_step), outs=tap.outs)


def _finish_vector(f: Function, spec: KernelSpec, sums: Value, out: Value, left: Value, old: Value) -> None:
    with f.when(left >= spec.isa.lanes):
        _finish_values(f, spec, sums, out, old)
    with f.otherwise():
        _finish_values(f, spec, sums, out, old, f.mask(left, spec.isa.lanes))


def _finish_values(
    f: Function, spec: KernelSpec, sums: Value, out: Value, old: Value, mask: Value | None = None
) -> None:
    """Add 0, which turns -0 into +0; add the old value where asked; round; store."""
    kind = stored(spec.output, spec.isa.lanes if sums.type[0] == "<" else 0)

    def put(value: Value) -> None:
        rounded = narrow(f, spec.output, value)
        if mask is None:
            f.store(rounded, out)
        else:
            f.masked_store(rounded, out, mask)

    finished = f.add(sums, f.zeros(sums.type))
    with f.when(old):
        before = f.load(kind, out) if mask is None else f.masked_load(kind, out, mask)
        put(f.add(finished, widen(f, spec.output, before)))
    with f.otherwise():
        put(finished)
