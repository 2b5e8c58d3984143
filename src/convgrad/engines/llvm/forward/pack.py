"""Packs of forwards: B as [tap][k][N index], A as [M index][k], in the order in which chains take k.

Cells are f32, or, where a multiply-add takes two k, bf16 pairs, whose second k is above.
"""

from __future__ import annotations

from dataclasses import replace

from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.packing import Cells, Copy, Pairs, in_pairs, nested
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, TAPS


def weights(module: Module, spec: ForwardSpec) -> None:
    """Emit ``pack_weights``: a panel of B of ``left`` columns or more; cells beyond are anything."""
    f = module.function("pack_weights", arguments="ptr", to="ptr", source="ptr", left="i64")
    a = arguments(f, spec)
    taps = [(axis.kernel, axis.tap) for axis in along(a, spec)]
    terms, pitch, item = a.terms, spec.pitch * F32_BYTES, a.weights_item
    tap_bytes = (terms + (spec.step - 1) >> spec.step - 1) * pitch
    copy = Copy(
        Cells(f, spec.operand, spec.isa.lanes), terms, a.weights_term, f.min(f.left, spec.width), item, pitch,
        spec.pitch, fills=False,
    )  # fmt: skip
    if spec.step == 1:
        copy = replace(copy, row_at=lambda row: taken(f, spec, row, terms))
    if spec.window and spec.window.apart:
        group, results = a.weights_group, spec.window.results

        def of_group(column: Value) -> Value:
            quotient, left = f.divided(column, results)
            return quotient * group + left * item

        copy = replace(copy, offset=of_group)

    def one_tap(source: Value, to: Value) -> Value:
        if spec.weights == CHANNELS_IN:
            cells = copy.cells if spec.step == 1 else Pairs(f, spec.operand, spec.isa.lanes, BYTES[spec.operand], False)
            replace(copy, cells=cells).along_rows(source, to)
        else:
            way = Copy.along_columns if spec.weights == CHANNELS_OUT else Copy.one_by_one
            if spec.step == 1:
                way(copy, source, to)
            else:
                in_pairs(copy, "rows", False, way, source, to)
        return f.at(to, tap_bytes)

    def all_taps(of_term: Copy, source: Value, to: Value) -> None:
        """Taps of a k are contiguous, and the rows of its copy."""
        with f.loop(of_term.rows, source=source) as term:
            rows = replace(of_term, rows=a.taps, pitch=tap_bytes, row_at=None)
            rows.along_rows(term.source, of_term.packed(to, term.index))
            term.next(source=f.at(term.source, of_term.row))

    if spec.weights != TAPS:
        nested(f, taps, f.source, f.to, one_tap)
    elif spec.step == 1:
        all_taps(copy, f.source, f.to)
    else:
        in_pairs(copy, "rows", False, all_taps, f.source, f.to)
    f.done()


def taken(f: Function, spec: ForwardSpec | SpatialStencilSpec, term: Value, terms: Value) -> Value:
    """Return at which place a k of a tap is taken: those of a pair change places."""
    if not spec.pairs:
        return term
    other = f.op("i64", f"xor {term}, 1")
    return f.select(f.compare("slt", other, terms), other, term)


def data(module: Module, spec: ForwardSpec) -> None:
    """Emit ``pack_line``: ``count`` positions of the last axis as rows of A."""
    f = module.function("pack_line", arguments="ptr", to="ptr", source="ptr", count="i64")
    a, lanes = arguments(f, spec), spec.isa.lanes
    channels, item = a.channels, a.data_item
    pitch = (channels + 1 >> 1) * F32_BYTES if spec.step == 2 else channels * F32_BYTES
    copy = Copy(Cells(f, spec.operand, lanes), f.count, along(a, spec)[-1].given, channels, item, pitch)
    changes = spec.packs_pairs and spec.step == 1  # windows take the k of a group in their order themselves
    if changes:
        copy = replace(copy, offset=lambda column: taken(f, spec, column, channels) * item)
    if spec.data == CHANNELS:
        if spec.step == 2:
            copy = replace(copy, cells=Pairs(f, spec.operand, lanes, BYTES[spec.operand], False))
        changed = (lambda values: f.shuffle(values, values, [lane ^ 1 for lane in range(lanes)])) if changes else None
        with f.loop(f.count, source=f.source, to=f.to) as position:
            copy.contiguous(channels, position.source, position.to, changed)
            position.next(source=f.at(position.source, copy.row), to=f.at(position.to, pitch))
    else:
        way = Copy.along_rows if spec.data == SPATIAL else Copy.one_by_one
        if spec.step == 1:
            way(copy, f.source, f.to)
        else:
            in_pairs(copy, "columns", False, way, f.source, f.to)
    f.done()
