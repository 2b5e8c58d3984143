"""Finishing: sums of a panel, under all its taps, become output: +0, the old value where asked, one rounding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from convgrad.engines.llvm.convert import BYTES, narrow, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.recipe import F32_BYTES, KernelSpec
from convgrad.plan.taps import NOWHERE


def finish(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish``: out[row, lane, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, of ``lanes`` lanes.

    Lanes next to each other in the output are written as vectors; others one by one, in the order that runs through
    the output: taps innermost, which lie together in OIX. Where lanes hold groups, each vector is another channel, and
    those before ``skip_vectors`` are skipped too.
    """
    f = module.function(
        "finish",
        sums="ptr", sums_step="i64", outs="ptr", tap_tiles="i64", out="ptr", skip="i64", skip_vectors="i64",
        lanes="i64", row_step="i64", vector_step="i64", lane_step="i64", accumulate="i64",
    )  # fmt: skip
    lanes, size = spec.isa.lanes, BYTES[spec.output]
    pitch = f.value(spec.width * F32_BYTES)
    old, rows = f.compare("ne", f.accumulate, 0), f.value(spec.tile.rows) - f.skip
    sums, out = f.at(f.sums, f.skip * pitch), f.at(f.out, f.skip * f.row_step)
    with (
        f.when(f.compare("eq", f.lane_step, size)),
        _each_tap(f, spec, sums, out) as (there_sums, there),
        f.loop(rows, sums=there_sums, out=there) as row,
    ):
        for v, left in enumerate(_vectors(f, spec)):
            total = f.load(f"<{lanes} x float>", row.sums, v * lanes * F32_BYTES)
            _finish_vector(f, spec, total, f.at(row.out, f.vector_step * v), left, old)
        row.next(sums=f.at(row.sums, pitch), out=f.at(row.out, f.row_step))
    with f.otherwise():
        for v, left in enumerate(_vectors(f, spec) if spec.groups_in_lanes else [f.lanes]):
            by_row = (rows, pitch, f.row_step)
            by_lane = (left, f.value(F32_BYTES), f.lane_step)
            lanes_outside = f.row_step < f.lane_step
            outside = [f.select(lanes_outside, a, b) for a, b in zip(by_lane, by_row, strict=True)]
            inside = [f.select(lanes_outside, a, b) for a, b in zip(by_row, by_lane, strict=True)]
            first, start = f.at(sums, v * lanes * F32_BYTES), f.at(out, f.vector_step * v)
            with f.loop(outside[0], sums=first, out=start) as outer:
                with f.loop(inside[0], sums=outer.sums, out=outer.out) as inner:
                    with _each_tap(f, spec, inner.sums, inner.out) as (there_sums, there):
                        _finish_values(f, spec, f.load("float", there_sums), there, old)
                    inner.next(sums=f.at(inner.sums, inside[1]), out=f.at(inner.out, inside[2]))
                outer.next(sums=f.at(outer.sums, outside[1]), out=f.at(outer.out, outside[2]))
    f.done()


def _vectors(f: Function, spec: KernelSpec) -> list[Value]:
    """Return how many lanes of each vector are output."""
    vectors = range(spec.tile.vectors)
    if not spec.groups_in_lanes:
        return [f.lanes - v * spec.isa.lanes for v in vectors]
    return [f.select(f.compare("sge", f.value(v), f.skip_vectors), f.lanes, f.value(0)) for v in vectors]


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
