"""Packing for forward passes and data gradients, in the order in which chains add k.

B is packed as [tap][k][N index]. A is packed as [input position][k] or, in a transposed GEMM, [output channel][k]. This
is not im2col: an output block packs each position once, and a tap is an offset in A (``PART.tap_data``). A cell is an
f32 value, or a bf16 pair if a multiply-add takes two k. The high half of a pair has the term that vectors add first, or
for tiles the odd term.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm.arguments import along, arguments
from convgrad.engines.llvm.packing import Cells, Copy, in_pairs, nested
from convgrad.engines.llvm.pairs import minima_of, nothing_yet
from convgrad.plan.gemm.constants import PREFETCH_WEIGHTS_BYTES
from convgrad.plan.gemm.schedule import LINE
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.pairs import order_of_k
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, F32_BYTES, SPATIAL, TAPS, Spec

FEW_CHANNELS = (2, 3, 4)  # numbers of channels whose vectors are interleaved, not transposed


def pack_b(module: Module, spec: GemmSpec) -> None:
    """Emit ``pack_b``, which packs a panel of B. Columns from the number ``left`` on are undefined."""
    f = module.function("pack_b", arguments="ptr", to="ptr", source="ptr", left="i64")
    a = arguments(f, spec)
    k, pitch, n_stride, axes = a.k, spec.pitch * F32_BYTES, a.weights_n, along(a, spec)
    prefetch = f.value(PREFETCH_WEIGHTS_BYTES) if spec.b.contiguous in (CHANNELS_IN, TAPS) else None
    copy = Copy(
        cells(f, spec),
        k,
        a.weights_k,
        f.min(f.left, spec.width),
        n_stride,
        pitch,
        spec.pitch,
        prefetch_bytes=prefetch,
        fills=False,
    )
    if spec.pairs and spec.k_per_add == 1:
        copy = replace(copy, row_at=lambda row: taken(f, spec, row, k))
    if spec.group_columns:
        group = a.weights_group

        def of_group(column: Value) -> Value:
            number, left = f.divided(column, spec.group_columns)
            return number * group + left * n_stride

        copy = replace(copy, offset=of_group)

    def one_tap(source: Value, to: Value) -> Value:
        if spec.b.contiguous == CHANNELS_IN:
            copy.along_rows(source, to)
        else:
            way = Copy.along_columns if spec.b.contiguous == CHANNELS_OUT else Copy.one_by_one
            in_pairs(copy, "rows", way, source, to)
        return f.at(to, a.b_tap)

    def all_taps(copy: Copy, source: Value, to: Value) -> None:
        """Copy each block of columns k by k, because the taps of a k are contiguous. They are the rows of a copy."""
        copy_of_taps = replace(copy, rows=a.taps, pitch=a.b_tap, row_at=None)
        for block in copy_of_taps.blocks():
            with f.loop(copy.rows, source=source) as row:
                copy_of_taps.block_along_rows(block, row.source, copy.packed(to, row.index))
                row.next(source=f.at(row.source, copy.row))

    if spec.b.contiguous == TAPS:
        in_pairs(copy, "rows", all_taps, f.source, f.to)
    else:
        nested(f, [(axis.kernel, axis.tap) for axis in axes], f.source, f.to, one_tap)
    f.done()


def _pack_line_of_b(module: Module, gemm: GemmSpec, spec: Spec) -> None:
    """Emit ``pack_line_of_b``, which packs ``count`` contiguous positions as to[panel][k][position]."""
    f = module.function("pack_line_of_b", arguments="ptr", to="ptr", source="ptr", count="i64")
    a, (whole, left) = arguments(f, spec), f.divided(f.count, gemm.width)
    width, row = f.value(gemm.width), f.value(gemm.width * BYTES[gemm.operand])
    count_k, panel_bytes, pitch = a.k, a.panel_bytes, gemm.width * F32_BYTES

    def all_panels(copy: Copy, source: Value, to: Value) -> None:
        """Copy k by k. The rows of the copy of a k are the panels."""
        panels = replace(copy, rows=whole, row=row, columns=width, pitch=panel_bytes, width=gemm.width, row_at=None)
        with f.loop(copy.rows, source=source) as k:
            here = copy.packed(to, k.index)
            panels.along_columns(k.source, here)
            with f.when(f.compare("sgt", left, 0)):
                last_panel = replace(panels, rows=f.value(1), columns=left)
                last_panel.along_columns(f.at(k.source, whole * row), f.at(here, whole * panel_bytes))
            k.next(source=f.at(k.source, copy.row))

    copy = Copy(cells(f, gemm), count_k, a.weights_k, f.count, row, pitch)
    if gemm.pairs and gemm.k_per_add == 1:
        copy = replace(copy, row_at=lambda k: taken(f, gemm, k, count_k))
    in_pairs(copy, "rows", all_panels, f.source, f.to)
    f.done()


def panels_of_b(module: Module, gemm: GemmSpec, spec: Spec) -> None:
    """Emit the function that ``pack_panels`` calls. ``spec`` is that of the driver whose GEMM is ``gemm``."""
    if gemm.packs_lines_of_b:
        _pack_line_of_b(module, gemm, spec)
    else:
        pack_b(module, gemm)


def pack_panels(
    f: Function, gemm: GemmSpec, a: Named, addresses: tuple[Value, Value], left: Value, panels: tuple[Value, Value]
) -> None:
    """Pack panels of B, which have ``left`` columns in all or more than they need.

    ``addresses`` are those of the source and of the packed panels. ``panels`` are the number of panels and the bytes
    from a panel of the source to the next. Find the minimum exponent of each panel of bf16 pairs.
    """
    (source, to), (count, step) = addresses, panels
    if gemm.packs_lines_of_b:
        f.call("pack_line_of_b", f.arguments, to, source, f.min(left, count * gemm.width))
        if gemm.k_per_add == 1:
            return
    with f.loop(count, to=to, source=source, left=left) as panel:
        if not gemm.packs_lines_of_b:
            f.call("pack_b", f.arguments, panel.to, panel.source, panel.left)
        if gemm.amx_tiles:
            with f.loop(a.taps, to=panel.to) as tap:
                _fill_last_portion(f, gemm, a.k, tap.to)
                tap.next(to=f.at(tap.to, a.b_tap))
        if gemm.k_per_add == 2:
            _panel_minimum(f, gemm, a, panel.to, panel.left)
        if gemm.padded:
            _fold_panel(f, gemm, a, "maximum", (panel.to, panel.left), f.at(f.scratch, a.maxima_at))
        panel.next(to=f.at(panel.to, a.panel_bytes), source=f.at(panel.source, step), left=panel.left - gemm.width)


def _fill_last_portion(f: Function, spec: GemmSpec, k: Value, tap: Value) -> None:
    """Fill the last portion of a tap in a packed panel with zeros, because tiles multiply whole portions."""
    first, kind, pitch = (k + 1) >> 1, f"<{spec.isa.lanes} x float>", spec.pitch * F32_BYTES
    with f.loop((_packed_k(spec, k) >> 1) - first, to=f.at(tap, first * pitch)) as pair:
        for vector in range(spec.nr):
            f.store(f.zeros(kind), pair.to, vector * spec.isa.lanes * F32_BYTES)
        pair.next(to=f.at(pair.to, pitch))


def cells(f: Function, spec: GemmSpec) -> Cells:
    """Return f32 cells, or cells of bf16 pairs, whose term that is added first is in the high half."""
    upper = None if spec.k_per_add == 1 else 2 - spec.apart
    return Cells(f, spec.operand, spec.isa.lanes, upper, chains=spec.apart)


def taken(f: Function, spec: GemmSpec, k: Value, count: Value) -> Value:
    """Return the position of ``k`` in the order of the sum, which swaps the two k of a pair.

    A tap has ``count`` k, and an odd last k is not swapped.
    """
    if not spec.pairs:
        return k
    other = f.op("i64", f"xor {k}, 1")
    return f.select(f.compare("slt", other, count), other, k)


def pack_line(module: Module, spec: GemmSpec) -> None:
    """Emit ``pack_line``, which packs ``count`` positions of the last axis as rows of A."""
    f = module.function("pack_line", arguments="ptr", to="ptr", source="ptr", count="i64")
    a = arguments(f, spec)
    channels, k_stride, last_axis = a.channels, a.data_k, along(a, spec)[-1]
    copy = Copy(
        replace(cells(f, spec), stride=spec.a.stride), f.count, last_axis.data, channels, k_stride, last_axis.step
    )
    if spec.swaps_pairs:
        copy = replace(copy, offset=lambda column: taken(f, spec, column, channels) * k_stride)
    if spec.amx_tiles:
        _clear_last_portions(f, spec, channels, last_axis.step)
    if spec.a.contiguous == CHANNELS:
        with f.loop(f.count, source=f.source, to=f.to) as position:
            copy.contiguous(channels, position.source, position.to, spec.swaps_pairs)
            position.next(source=f.at(position.source, copy.row), to=f.at(position.to, last_axis.step))
    else:
        with ExitStack() as otherwise:
            for number in FEW_CHANNELS if spec.a.contiguous == SPATIAL and spec.chains == 1 else ():
                size = spec.packed_k_bytes(number)
                with f.when(f.compare("eq", channels, number) & f.compare("eq", last_axis.step, size)):
                    replace(copy, pitch=size).few_along_rows(order_of_k(number, spec.swaps_pairs), f.source, f.to)
                otherwise.enter_context(f.otherwise())
            in_pairs(
                copy, "columns", Copy.along_rows if spec.a.contiguous == SPATIAL else Copy.one_by_one, f.source, f.to
            )
    f.done()


def _clear_last_portions(f: Function, spec: GemmSpec, k: Value, step: Value) -> None:
    """Set the last portion of ``count`` rows of A to zeros before they are packed, if ``k`` does not fill it."""
    filled = _packed_k(spec, k)
    rows = f.select(f.compare("eq", filled, k), f.value(0), f.count)
    with f.loop(rows, to=f.at(f.to, filled * BYTES[spec.operand] - LINE_BYTES)) as row:
        f.store(f.zeros(f"<{LINE_BYTES} x i8>"), row.to)
        row.next(to=f.at(row.to, step))


def pack_once(module: Module, spec: GemmSpec) -> None:
    """Emit ``task``, which packs a row of LINE, unless the call is stopped. The output of this driver is packed A."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, line = arguments(f, spec), columns(f, f.task, LINE)
    with f.when(going(f, a)):
        f.call("pack_line", f.arguments, f.at(a.out, line.to), f.at(a.data, line.source), line.count)
    f.done()


def line_of_a(f: Function, spec: GemmSpec, a: Named, to: Value, source: Value, count: Value) -> None:
    """Pack ``count`` positions of A. If cells are bf16 pairs, lower the minimum exponent of the packed part of A."""
    f.call("pack_line", f.arguments, to, source, count)
    if spec.k_per_add == 2:
        f.call("minimum", to, count, along(a, spec)[-1].step, _packed_k(spec, a.channels), f.at(f.scratch, a.min_at))


def _packed_k(spec: GemmSpec, k: Value) -> Value:
    """Return the number of packed values of ``k`` values of a tap, of which the last may be zeros."""
    together = spec.packed_together
    return (k + (together - 1)) & -together


def _panel_minimum(f: Function, spec: GemmSpec, a: Named, panel: Value, left: Value) -> None:
    """Write the minimum exponent of a packed panel of bf16 pairs. Only its ``left`` first columns count."""
    minimum = minima_of(f, panel, a.panel_bytes)
    nothing_yet(f, spec.isa, minimum)
    _fold_panel(f, spec, a, "minimum", (panel, left), minimum)


def _fold_panel(
    f: Function, spec: GemmSpec, a: Named, name: str, columns: tuple[Value, Value], extremes: Value
) -> None:
    """Call ``minimum`` or ``maximum`` for the first columns of a packed panel: its address, and their number."""
    panel, left = columns
    rows = a.taps * (_packed_k(spec, a.k) >> 1)
    f.call(name, panel, rows, spec.pitch * F32_BYTES, f.min(left, spec.width) * 2, extremes)
