"""Finishing: sums of a panel, under all its taps, become output: +0, the old value where asked, one rounding."""

from __future__ import annotations

from convgrad.engines.llvm.convert import BYTES, narrow, stored, widen
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.tile import F32_BYTES
from convgrad.plan.recipe import KernelSpec
from convgrad.plan.schedule import TAP

TAP_BYTES = 8 * len(TAP)
TAP_OUT = 8 * TAP.index("out")


def finish(module: Module, spec: KernelSpec) -> None:
    """Emit ``finish``: out[row, lane, tap] = round(sum + 0 [+ old]), rows from ``skip`` on, ``channels`` lanes.

    Lanes next to each other in the output are written as vectors; others one by one, in the order that runs through
    the output: taps innermost, which lie together in OIX.
    """
    f = module.function(
        "finish",
        sums="ptr", sums_step="i64", taps="ptr", tap_count="i64", out="ptr", skip="i64", channels="i64",
        row_step="i64", lane_step="i64", accumulate="i64",
    )  # fmt: skip
    tile, lanes, size = spec.tile, spec.isa.lanes, BYTES[spec.output]
    pitch = f.value(spec.width * F32_BYTES)
    old, rows = f.compare("ne", f.accumulate, 0), f.value(tile.rows) - f.skip
    sums, out = f.at(f.sums, f.skip * pitch), f.at(f.out, f.skip * f.row_step)
    with f.when(f.compare("eq", f.lane_step, size)), f.loop(f.tap_count, sums=sums, tap=f.taps) as tap:
        there = f.at(out, f.load("i64", tap.tap, TAP_OUT))
        with f.loop(rows, sums=tap.sums, out=there) as row:
            for v in range(tile.vectors):
                left = f.channels - v * lanes
                total = f.load(f"<{lanes} x float>", row.sums, v * lanes * F32_BYTES)
                _finish_vector(f, spec, total, f.at(row.out, v * lanes * size), left, old)
            row.next(sums=f.at(row.sums, pitch), out=f.at(row.out, f.row_step))
        tap.next(sums=f.at(tap.sums, f.sums_step), tap=f.at(tap.tap, TAP_BYTES))
    with f.otherwise():
        by_row = (rows, pitch, f.row_step)
        by_lane = (f.channels, f.value(F32_BYTES), f.lane_step)
        lanes_outside = f.row_step < f.lane_step
        outside = [f.select(lanes_outside, a, b) for a, b in zip(by_lane, by_row, strict=True)]
        inside = [f.select(lanes_outside, a, b) for a, b in zip(by_row, by_lane, strict=True)]
        with f.loop(outside[0], sums=sums, out=out) as outer:
            with f.loop(inside[0], sums=outer.sums, out=outer.out) as inner:
                with f.loop(f.tap_count, sums=inner.sums, tap=f.taps) as tap:
                    there = f.at(inner.out, f.load("i64", tap.tap, TAP_OUT))
                    _finish_values(f, spec, f.load("float", tap.sums), there, old)
                    tap.next(sums=f.at(tap.sums, f.sums_step), tap=f.at(tap.tap, TAP_BYTES))
                inner.next(sums=f.at(inner.sums, inside[1]), out=f.at(inner.out, inside[2]))
            outer.next(sums=f.at(outer.sums, outside[1]), out=f.at(outer.out, outside[2]))
    f.done()


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
