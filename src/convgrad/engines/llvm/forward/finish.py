"""Finishing: the sums of a tile become output: +0, bias, the old value where asked, one rounding."""

from __future__ import annotations

from convgrad.engines.llvm.arguments import Named
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.finish import put
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.engines.llvm.transpose import transposed
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.recipe import F32_BYTES, ITEMS, TERMS

NO_BIAS = "-0.0"  # x + -0.0 is x, whatever x is


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
    if spec.out == ITEMS:
        _by_lanes(f, spec, a, sums, out, rows)
    elif spec.out == TERMS:
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
    masks = [f.mask(f.left - v * lanes, lanes) for v in range(spec.vectors)]
    with f.loop(rows, sums=sums, out=out, bias=f.at(f.bias, f.skip * f.bias_step)) as row:
        if spec.transposed_gemm:
            bias = [f.splat(f.load("float", row.bias), lanes)] * spec.vectors
        for v in range(spec.vectors):
            place = f.at(row.out, v * lanes * size)
            here = total(f, f.load(kind, row.sums, v * lanes * F32_BYTES), bias[v])
            with f.when(f.left >= (v + 1) * lanes):
                put(f, spec, here, place, old)
            with f.otherwise(), f.when(f.compare("sgt", f.left, v * lanes)):
                put(f, spec, here, place, old, masks[v])
        row.next(
            sums=f.at(row.sums, spec.pitch * F32_BYTES), out=f.at(row.out, f.out_step), bias=f.at(row.bias, f.bias_step)
        )  # fmt: skip


def _by_rows(f: Function, spec: ForwardSpec, a: Named, sums: Value, out: Value, rows: Value) -> None:
    """Positions lie together: squares of positions and results are transposed."""
    lanes, size, pitch = spec.isa.lanes, BYTES[spec.output], spec.pitch * F32_BYTES
    kind, old = f"<{lanes} x float>", f.compare("ne", a.accumulate, 0)
    square = f.room(kind, lanes)
    step = a.out_item
    for v in range(spec.vectors):
        left = f.most(f.least(f.left - v * lanes, lanes), 0)
        bias = f.load(kind, f.bias, v * lanes * F32_BYTES)
        begin = f.at(out, step * (v * lanes))
        pieces = f.select(f.compare("sgt", left, 0), (rows + (lanes - 1)) >> (lanes.bit_length() - 1), f.value(0))
        with f.loop(pieces, sums=f.at(sums, v * lanes * F32_BYTES), out=begin) as piece:
            some = f.least(rows - piece.index * lanes, lanes)
            values = [
                total(f, f.load(kind, f.at(piece.sums, f.least(f.value(i), some - 1) * pitch)), bias)
                for i in range(lanes)
            ]
            for i, column in enumerate(transposed(f, values, lanes)):
                f.store(column, square, i * lanes * F32_BYTES)
            mask = f.mask(some, lanes)
            with f.loop(left, column=square, out=piece.out) as lane:
                put(f, spec, f.load(kind, lane.column), lane.out, old, mask)
                lane.next(column=f.at(lane.column, lanes * F32_BYTES), out=f.at(lane.out, step))
            piece.next(sums=f.at(piece.sums, lanes * pitch), out=f.at(piece.out, lanes * size))


def _one_by_one(f: Function, spec: ForwardSpec, a: Named, sums: Value, out: Value, rows: Value) -> None:
    """Nothing lies together."""
    old = f.compare("ne", a.accumulate, 0)
    with f.loop(f.least(f.left, spec.width), sums=sums, out=out, bias=f.bias) as lane:
        bias = f.load("float", lane.bias)
        with f.loop(rows, sums=lane.sums, out=lane.out) as row:
            put(f, spec, total(f, f.load("float", row.sums), bias), row.out, old)
            row.next(sums=f.at(row.sums, spec.pitch * F32_BYTES), out=f.at(row.out, f.out_step))
        lane.next(sums=f.at(lane.sums, F32_BYTES), out=f.at(lane.out, a.out_item), bias=f.at(lane.bias, F32_BYTES))


def total(f: Function, sums: Value, bias: Value) -> Value:
    """Return sums + 0, which turns -0 into +0, + bias."""
    return f.add(f.add(sums, f.zeros(sums.type)), bias)
