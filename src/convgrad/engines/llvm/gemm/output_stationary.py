"""The output-stationary loop nest of forwards and data gradients. The page `docs/design/engine.md` defines its terms.

    0. a thread claims a task
    1. for group of task:
    2.     for set of panels of B that fit into scratch: pack these panels and their biases
    3.         for output block: pack its part of A
    4.             for region of the block (the positions at which the same taps exist): list its segments
    5.                 for panel of the set:
    6.                     for pass of chains:
    7.                         for line of positions:
    8.                             for micro-tile of the line: micro-kernel over the chains of the pass
    9.                                 in the last pass: store the outputs, or collect the sums in scratch

``driver.py`` emits 0, ``task`` 1 to 3, and ``_output_block`` 4. In `region.py`, ``region`` emits 5 and 6, ``_lines`` 7,
and ``micro_tiles`` 8. `micro_tile.py` emits 9. If sums are collected, 5 is outside 4, and ``_output_block`` stores the
lines of a panel after its last region. 2 packs nothing if the thread has packed this set before, and only biases if B
is in place. 3 packs nothing if A is in place or was packed once. Micro-tiles are placed along the axis of a region that
takes the fewest cycles per position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm import amx, pack
from convgrad.engines.llvm.gemm.arguments import along, arguments
from convgrad.engines.llvm.gemm.micro_tile import store_panel
from convgrad.engines.llvm.gemm.portion_tile import tile
from convgrad.engines.llvm.gemm.region import first_column, micro_tiles, region
from convgrad.engines.llvm.gemm.segments import segments
from convgrad.engines.llvm.packing import bias as pack_bias
from convgrad.engines.llvm.pairs import all_finite, halves, maximum, minimum, nothing_yet
from convgrad.engines.llvm.tiles import TILES
from convgrad.plan.gemm.schedule import OUTPUT_BLOCK, PART, TASK
from convgrad.plan.gemm.spec import GemmSpec
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES

NOT_PACKED = -1
EachLine = Callable[[Value, Value, Value], None]  # (address in memory, address in scratch, positions) of a line


def bodies(module: Module, spec: GemmSpec) -> None:
    """Emit the functions that the nest of a GEMM calls."""
    if spec.amx_tiles:
        functions(module, spec, segments, partial(amx.tile, module, spec))
        return
    functions(module, spec, segments, lambda rows, vectors: tile(module, spec, rows, vectors, spec.prefetches_panels))


def functions(
    module: Module, spec: GemmSpec, lists: Callable[[Module, Any], None], micro_tile: Callable[[int, int], None]
) -> None:
    """Emit the functions that the nest calls: packing, the reduction tree, segments, micro-tiles and regions.

    ``lists`` emits ``segments``, and ``micro_tile`` emits a micro-tile with some rows and vectors.
    """
    pack.panels_of_b(module, spec, spec)
    if not spec.a.in_place:
        pack.pack_line(module, spec)
    tree.combine_up(module, spec.isa)
    store_panel(module, spec)
    if spec.k_per_add == 2:
        minimum(module, spec.isa)
    if spec.padded:
        maximum(module, spec.isa)
    lists(module, spec)
    for rows, vectors in product(spec.mr_sizes, spec.nr_sizes):
        micro_tile(rows, vectors)
    micro_tiles(module, spec)
    pack_bias(module, spec.operand)
    region(module, spec)


def begin(f: Function, spec: GemmSpec) -> None:
    """Emit the code that runs before a thread's first task: it marks the thread's scratch as not packed."""
    f.store(f.value(NOT_PACKED), f.at(f.scratch, arguments(f, spec).packed_at))


def task(module: Module, spec: GemmSpec) -> None:
    """Emit ``task``, which loops over groups, over sets of panels that are packed together, and over output blocks.

    If a task needs the panels that its thread packed last, they are not packed again.
    """
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    if spec.amx_tiles:
        f.store(f.value(0), f.at(f.scratch, a.tiles_at))
    with f.loop(t.groups) as group:
        number = t.group + group.index
        weights = f.at(a.weights, number * a.weights_group)
        data = f.at(a.data, number * a.data_group)
        out = f.at(a.out, number * a.out_group)
        bias = f.at(a.bias, number * a.n * a.bias_n)
        with f.loop(t.panels, panel=t.panel, left=t.panels) as some:  # at most this many sets; the last ones are empty
            count = f.min(some.left, a.panels)
            with f.when(f.compare("sgt", count, 0) & going(f, a)):
                which, packed = number * a.n + some.panel, f.at(f.scratch, a.packed_at)
                with f.when(f.compare("ne", f.load("i64", packed), which)):
                    _pack_panels(f, spec, a, weights, bias, (some.panel, count))
                    f.store(which, packed)
                with f.loop(t.blocks) as block, f.when(going(f, a)):
                    _output_block(f, spec, a, t.block + block.index, (data, weights, out), (some.panel, count))
            some.next(panel=some.panel + count, left=some.left - count)
    if spec.amx_tiles:
        TILES[spec.isa.tiles](f).release()
    f.done()


def _pack_panels(
    f: Function, spec: GemmSpec, a: Named, weights: Value, bias: Value, panels: tuple[Value, Value]
) -> None:
    """Pack panels of B and their biases, or all biases if each row of A has one.

    ``panels`` are the number of the first panel, and how many panels are packed.
    """
    panel, count = panels
    bias_at, bias_n, width = f.at(f.scratch, a.bias_at), a.bias_n, spec.width
    if spec.bias_per_row:
        places = {"bias": a.bias, "to": bias_at, "source": a.bias, "step": bias_n}
        rows = along(a, spec)[-1].extent
        f.call("pack_bias", count=rows, full=rows, **places)
    first = panel * width
    left = a.n - first
    if not spec.b.in_place:
        source = f.at(weights, panel * a.weights_panel)
        to = f.at(f.scratch, a.b_at)
        if spec.padded:
            f.store(f.zeros(halves(spec.isa.lanes)), f.at(f.scratch, a.maxima_at))
        pack.pack_panels(f, spec, a, (source, to), left, (count, a.weights_panel))
    if spec.bias_per_row:
        return
    with f.loop(count, to=bias_at, bias=f.at(bias, first * bias_n), left=left) as packed_bias:
        source, some = packed_bias.bias, f.min(packed_bias.left, width)
        if spec.overlaps:
            source, some = f.at(source, f.min(packed_bias.left - width, 0) * bias_n), f.value(width)
        f.call("pack_bias", bias=a.bias, to=packed_bias.to, source=source, step=bias_n, count=some, full=width)
        packed_bias.next(
            to=f.at(packed_bias.to, width * F32_BYTES),
            bias=f.at(packed_bias.bias, bias_n * width),
            left=packed_bias.left - width,
        )


def _output_block(
    f: Function,
    spec: GemmSpec,
    a: Named,
    number: Value,
    operands: tuple[Value, Value, Value],
    panels: tuple[Value, Value],
) -> None:
    """Compute one output block, region by region. The digits of its number select its range of positions per axis."""
    data, weights, out = operands
    axes = along(a, spec)
    rows = []
    for axis in reversed(axes):
        count = axis.blocks
        digit = f.op("i64", f"urem {number}, {count.name}")
        number = f.op("i64", f"udiv {number}, {count.name}")
        rows.append(columns(f, f.at(a.output_blocks, axis.block + digit * OUTPUT_BLOCK.bytes), OUTPUT_BLOCK))
    block = rows[::-1]
    if spec.k_per_add == 2:
        nothing_yet(f, spec.isa, f.at(f.scratch, a.min_at))

    data = _read_a(f, spec, a, axes, block, data)
    parts_of = [(row.part, row.parts) for row in block]
    if spec.padded:
        finite = all_finite(f, spec.isa, f.at(f.scratch, a.maxima_at))
        whole = [row.of("uncut") for row in block]
        parts_of = [
            (f.select(finite, row.part, part), f.select(finite, row.parts, count))
            for row, (part, count) in zip(whole, parts_of, strict=True)
        ]

    def regions(at: int, parts: list[Value], *where: Value) -> None:
        if at == spec.axes:
            named = {f"part{axis}": part for axis, part in enumerate(parts)}
            f.call("region", f.arguments, f.scratch, data, weights, *where, **named)
            return
        first, count = parts_of[at]
        with f.loop(count, part=f.at(a.parts, first)) as iteration:
            regions(at + 1, [*parts, iteration.part], *where)
            iteration.next(part=f.at(iteration.part, PART.bytes))

    if not spec.collects:
        regions(0, [], out, *panels, f.value(0))
        return
    collected = f.at(f.scratch, a.out_at)
    out_axes, out_block = [axis.of("out") for axis in axes], [row.of("out") for row in block]
    with f.loop(panels[1]) as iteration:
        number = panels[0] + iteration.index
        first = first_column(f, spec, a, number * spec.width)
        left = f.min(a.n - first, spec.width)
        bias = f.at(f.scratch, a.bias_at + iteration.index * (spec.width * F32_BYTES))

        def store(to: Value, sums: Value, count: Value) -> None:
            step, next_bias = out_axes[-1].data, f.value(F32_BYTES)
            panel = {"sums": sums, "out": to, "bias": bias, "rows": count, "skip": f.value(0), "left": left}
            f.call("store_panel", f.arguments, **panel, out_step=step, bias_step=next_bias)

        out_lines = (out_axes, out_block, f.at(out, first * a.out_n), collected)
        regions(0, [], _origin(f, collected, out_axes, out_block), number, f.value(1), iteration.index)
        _each_line(f, *out_lines, store)


def _origin(f: Function, begin: Value, axes: Sequence[Named], block: Sequence[Named]) -> Value:
    """Return the address that position 0 of all axes would have, if the first position of a block is at ``begin``."""
    moved = reduce(lambda s, pair: s + pair[1].first * pair[0].step, zip(axes, block, strict=True), f.value(0))
    return f.at(begin, f.value(0) - moved)


def _read_a(f: Function, spec: GemmSpec, a: Named, axes: Sequence[Named], block: Sequence[Named], data: Value) -> Value:
    """Pack the part of A that an output block reads, unless A is packed or in place. Find its minimum exponent.

    Return the address that position 0 of all axes has in A, or would have in the packed part.
    """

    def find_min(source: Value, to: Value, count: Value) -> None:
        f.call("minimum", source, count, axes[-1].data, a.channels, f.at(f.scratch, a.min_at))

    def pack_line(source: Value, to: Value, count: Value) -> None:
        pack.line_of_a(f, spec, a, to, source, count)

    begin, existing = f.at(f.scratch, a.a_at), block
    if spec.padded:
        existing, begin = _pad(f, a, axes, block, begin)
    lines = (axes, existing, data)
    packs = f.value(0) if spec.a.in_place else a.packs
    if not spec.a.in_place:
        with f.when(f.compare("ne", packs, 0)):
            _each_line(f, *lines, begin, pack_line)
        data = f.select(f.compare("ne", packs, 0), _origin(f, begin, axes, existing), data)
    if spec.k_per_add == 2:
        with f.when(f.compare("eq", packs, 0)):
            _each_line(f, *lines, begin, find_min)
    return data


def _pad(
    f: Function, a: Named, axes: Sequence[Named], block: Sequence[Named], begin: Value
) -> tuple[list[Named], Value]:
    """Fill the padding in the packed A of an output block with zeros.

    Return the block's positions of A that are not padding, and the address of the first one in packed A.
    """
    existing, before = [], []
    for axis, row in zip(axes, block, strict=True):
        first = f.max(row.first, 0)
        existing.append(row.but(first=first, count=f.min(row.first + row.count, axis.inputs) - first))
        before.append(first - row.first)

    def fill(at: int, to: Value, exists: Value) -> None:
        """Fill the padding of lines: positions before and after those that exist, or the whole line."""
        step, count = axes[at].step, block[at].count
        first = f.select(exists, f.min(before[at], count), count)
        after = f.max(f.min(first + existing[at].count, count), first)
        if at == len(axes) - 1:
            _clear(f, to, first * step)
            _clear(f, f.at(to, after * step), (count - after) * step)
            return
        with f.loop(count, to=to) as line:
            there = (line.index >= first) & (line.index < after)
            fill(at + 1, line.to, exists & there)
            line.next(to=f.at(line.to, step))

    fill(0, begin, f.compare("eq", f.value(0), 0))
    offset = sum((positions * axis.step for positions, axis in zip(before, axes, strict=True)), f.value(0))
    return existing, f.at(begin, offset)


def _clear(f: Function, begin: Value, size: Value) -> None:
    """Set the cache lines of ``size`` bytes to zeros."""
    with f.loop(size >> (LINE_BYTES.bit_length() - 1), to=begin) as line:
        f.store(f.zeros(f"<{LINE_BYTES} x i8>"), line.to)
        line.next(to=f.at(line.to, LINE_BYTES))


def _each_line(
    f: Function, axes: Sequence[Named], block: Sequence[Named], memory: Value, scratch: Value, each_line: EachLine
) -> None:
    """Visit the lines of A that an output block reads, or the lines of its outputs.

    Position 0 of all axes is at ``memory``, and the block's first position is at ``scratch``. If the lines of the last
    axis follow each other without gaps, in memory and in scratch, all lines of the last two axes are visited as one.
    """
    *_, outer, inner = [axis.data for axis in axes]
    *_, outer_step, inner_step = [axis.step for axis in axes]
    *_, count, length = [axis.count for axis in block]
    together = f.compare("eq", outer, length * inner) & f.compare("eq", outer_step, length * inner_step)
    counts = [axis.count for axis in block[:-2]] + [f.select(together, f.value(1), count)]
    length = f.select(together, count * length, length)

    def lines(at: int, source: Value, to: Value) -> None:
        source = f.at(source, block[at].first * axes[at].data)
        if at == len(axes) - 1:
            each_line(source, to, length)
            return
        with f.loop(counts[at], source=source, to=to) as line:
            lines(at + 1, line.source, line.to)
            line.next(source=f.at(line.source, axes[at].data), to=f.at(line.to, axes[at].step))

    lines(0, memory, scratch)
