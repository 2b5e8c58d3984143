"""Finishing: the sums of a tile become output: +0, bias, the old value where asked, one rounding."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.engines.llvm.store import put, put_first, put_transposed, total
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL


def finish(module: Module, spec: ForwardSpec) -> None:
    """Emit ``finish``: out[row, lane] = round(sum + 0 + bias[lane] [+ old]), of ``rows`` rows from ``skip`` on.

    A missing bias is -0.0, which adds nothing, not even to a zero. Rows are ``out_step`` bytes apart; of lanes ``left``
    are output. Where rows are results, a bias is a row's, ``bias_step`` bytes from the next.
    """
    f = module.function(
        "finish", arguments="ptr", sums="ptr", out="ptr", bias="ptr", rows="i64", skip="i64", out_step="i64",
        left="i64", bias_step="i64",
    )  # fmt: skip
    a = arguments(f, spec)
    sums = f.at(f.sums, f.skip * (spec.pitch * F32_BYTES))
    out = f.at(f.out, f.skip * f.out_step)
    rows = f.rows - f.skip
    if spec.out == CHANNELS:
        _by_lanes(f, spec, a, sums, out, rows)
    elif spec.out == SPATIAL:
        with f.when(f.compare("eq", f.out_step, BYTES[spec.output])):
            _by_rows(f, spec, a, sums, out, rows)
        with f.otherwise():
            _one_by_one(f, spec, a, sums, out, rows)
    else:
        _one_by_one(f, spec, a, sums, out, rows)
    f.done()


def _by_lanes(f: Function, spec: ForwardSpec, a: Named, sums: Value, out: Value, rows: Value) -> None:
    """Results lie together."""
    lanes, size = spec.isa.lanes, BYTES[spec.output]
    kind, old = f"<{lanes} x float>", f.compare("ne", a.accumulate, 0)
    bias = [] if spec.transposed_gemm else [f.load(kind, f.bias, v * lanes * F32_BYTES) for v in range(spec.vectors)]
    with f.loop(rows, sums=sums, out=out, bias=f.at(f.bias, f.skip * f.bias_step)) as row:
        if spec.transposed_gemm:
            bias = [f.splat(f.load("float", row.bias), lanes)] * spec.vectors
        for v in range(spec.vectors):
            place = f.at(row.out, v * lanes * size)
            here = total(f, f.load(kind, row.sums, v * lanes * F32_BYTES), bias[v])
            put_first(f, spec, here, place, old, f.left - v * lanes)
        row.next(
            sums=f.at(row.sums, spec.pitch * F32_BYTES), out=f.at(row.out, f.out_step), bias=f.at(row.bias, f.bias_step)
        )  # fmt: skip


def _by_rows(f: Function, spec: ForwardSpec, a: Named, sums: Value, out: Value, rows: Value) -> None:
    """Positions lie together: squares of positions and results are transposed."""
    lanes, pitch, old = spec.isa.lanes, spec.pitch * F32_BYTES, f.compare("ne", a.accumulate, 0)
    for v in range(spec.vectors):
        left = f.max(f.min(f.left - v * lanes, lanes), 0)
        bias = f.load(f"<{lanes} x float>", f.bias, v * lanes * F32_BYTES)
        begin = f.at(out, a.out_item * (v * lanes))
        count = f.select(f.compare("sgt", left, 0), rows, f.value(0))
        put_transposed(f, spec, f.at(sums, v * lanes * F32_BYTES), pitch, count, begin, a.out_item, left, old, bias)


def _one_by_one(f: Function, spec: ForwardSpec, a: Named, sums: Value, out: Value, rows: Value) -> None:
    """Nothing lies together."""
    old = f.compare("ne", a.accumulate, 0)
    with f.loop(f.min(f.left, spec.width), sums=sums, out=out, bias=f.bias) as lane:
        bias = f.load("float", lane.bias)
        with f.loop(rows, sums=lane.sums, out=lane.out) as row:
            put(f, spec, total(f, f.load("float", row.sums), bias), row.out, old)
            row.next(sums=f.at(row.sums, spec.pitch * F32_BYTES), out=f.at(row.out, f.out_step))
        lane.next(sums=f.at(lane.sums, F32_BYTES), out=f.at(lane.out, a.out_item), bias=f.at(lane.bias, F32_BYTES))
