"""The output-stationary loop nest of forwards and data gradients:

    1. for group of task:
    2.     for set of panels of B that fit into scratch: pack these panels and their biases
    3.         for output block: pack its part of A
    4.             for region of the block (the positions at which the same taps exist): list its segments
    5.                 for panel of the set:
    6.                     for pass of chains:
    7.                         for line of positions:
    8.                             for micro-tile of the line: micro-kernel over the chains of the pass

``task`` emits 1 to 3, ``_output_block`` 4, ``_region`` 5 and 6, ``_lines`` 7, and ``_micro_tiles`` 8. Micro-tiles are
placed along the axis that leaves the fewest of their rows unused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.forward import pack
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.forward.grouped_stencil import grouped_tile, rows_of_taps
from convgrad.engines.llvm.forward.micro_tile import store_panel, tile
from convgrad.engines.llvm.forward.segments import COUNTED, segments
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.packing import bias as pack_bias
from convgrad.engines.llvm.pairs import minimum, nothing_yet, pairs_allowed
from convgrad.plan.constants import PREFETCH_MAX_TILE_BYTES, PREFETCH_PANELS
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.schedule import CHAIN, OUTPUT_BLOCK, PART, TASK
from convgrad.plan.recipe import F32_BYTES

NOTHING = -1
EachLine = Callable[[Value, Value, Value], None]  # (address in memory, address in scratch, positions) of a line


def bodies(module: Module, spec: ForwardSpec) -> None:
    """Emit the functions that the nest calls: packing, the reduction tree, segments, micro-tiles and regions."""
    pack.panels_of_b(module, spec, spec)
    if not spec.a_in_place:
        pack.pack_line(module, spec)
    tree.combine_up(module, spec.isa)
    store_panel(module, spec)
    if spec.step == 2:
        minimum(module, spec.isa)
    if spec.stencil:
        rows_of_taps(module, spec)
    else:
        segments(module, spec)
    for rows in spec.mr_sizes:
        for vectors in spec.nr_sizes:
            if spec.stencil:
                grouped_tile(module, spec, rows, vectors)
            else:
                tile(module, spec, rows, vectors, spec.prefetches_panels)
    _micro_tiles(module, spec)
    pack_bias(module, spec.operand)
    _region(module, spec)


def begin(f: Function, spec: ForwardSpec) -> None:
    """Emit the code that runs before a thread's first task: it marks the thread's scratch as not packed."""
    f.store(f.value(NOTHING), f.at(f.scratch, arguments(f, spec).packed_at))


def task(module: Module, spec: ForwardSpec) -> None:
    """Emit ``task``, which loops over groups, over sets of panels that are packed together, and over output blocks.

    If a task needs the panels that its thread packed last, they are not packed again.
    """
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    with f.loop(t.groups) as group:
        number = t.group + group.index
        weights = f.at(a.weights, number * a.weights_group)
        data = f.at(a.data, number * a.data_group)
        out = f.at(a.out, number * a.out_group)
        bias = f.at(a.bias, number * a.n * a.bias_n)
        with f.loop(t.panels, panel=t.panel, left=t.panels) as some:
            count = f.min(some.left, a.panels)
            with f.when(f.compare("sgt", count, 0) & going(f, a)):
                which, packed = number * a.n + some.panel, f.at(f.scratch, a.packed_at)
                with f.when(f.compare("ne", f.load("i64", packed), which)):
                    _pack_panels(f, spec, a, weights, bias, some.panel, count)
                    f.store(which, packed)
                with f.loop(t.blocks) as each, f.when(going(f, a)):
                    _output_block(f, spec, a, t.block + each.index, (data, weights, out), (some.panel, count))
            some.next(panel=some.panel + count, left=some.left - count)
    f.done()


def _pack_panels(
    f: Function, spec: ForwardSpec, a: Named, weights: Value, bias: Value, panel: Value, count: Value
) -> None:  # fmt: skip
    """Pack ``count`` panels of B and their biases. A transposed GEMM has a bias per row of A, and packs all biases."""
    bias_at, bias_n, width = f.at(f.scratch, a.bias_at), a.bias_n, spec.width
    if spec.transposed_gemm:
        given = {"given": a.bias, "to": bias_at, "source": a.bias, "step": bias_n}
        rows = along(a, spec)[-1].extent
        f.pass_to("pack_bias", count=rows, full=rows, **given)
    first = panel * width
    left = a.n - first
    if not spec.b_in_place:
        source = f.at(weights, panel * a.weights_panel)
        pack.pack_panels(f, spec, a, f.at(f.scratch, a.b_at), source, left, count, a.weights_panel)
    if spec.transposed_gemm:
        return
    with f.loop(count, to=bias_at, bias=f.at(bias, first * bias_n), left=left) as each:
        source, some = each.bias, f.min(each.left, width)
        if spec.overlaps:
            source, some = f.at(source, f.min(each.left - width, 0) * bias_n), f.value(width)
        f.pass_to("pack_bias", given=a.bias, to=each.to, source=source, step=bias_n, count=some, full=width)
        each.next(to=f.at(each.to, width * F32_BYTES), bias=f.at(each.bias, bias_n * width), left=each.left - width)


def _output_block(
    f: Function, spec: ForwardSpec, a: Named, number: Value, operands: tuple[Value, Value, Value],
    panels: tuple[Value, Value],
) -> None:  # fmt: skip
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
    if spec.step == 2:
        nothing_yet(f, spec.isa, f.at(f.scratch, a.min_at))

    data = _read_a(f, spec, a, axes, block, data)

    def regions(at: int, parts: list[Value], *where: Value) -> None:
        if at == spec.axes:
            f.call("region", f.arguments, f.scratch, data, weights, *where, *parts)
            return
        with f.loop(block[at].parts, part=f.at(a.parts, block[at].part)) as each:
            regions(at + 1, [*parts, each.part], *where)
            each.next(part=f.at(each.part, PART.bytes))

    if not spec.collects:
        regions(0, [], out, *panels, f.value(0))
        return
    collected = f.at(f.scratch, a.out_at)
    out_axes, out_block = [axis.of("out") for axis in axes], [row.of("out") for row in block]
    with f.loop(panels[1]) as each:
        number = panels[0] + each.index
        first = _first_column(f, spec, a, number * spec.width)
        left = f.min(a.n - first, spec.width)
        bias = f.at(f.scratch, a.bias_at + each.index * (spec.width * F32_BYTES))

        def store(to: Value, sums: Value, count: Value) -> None:
            step = (out_axes[-1].given, left, f.value(F32_BYTES))
            f.call("store_panel", f.arguments, sums, to, bias, count, f.value(0), *step)

        out_lines = (out_axes, out_block, f.at(out, first * a.out_n), collected)
        regions(0, [], _origin(f, collected, out_axes, out_block), number, f.value(1), each.index)
        _each_line(f, *out_lines, store)


def _origin(f: Function, begin: Value, axes: Sequence[Named], block: Sequence[Named]) -> Value:
    """Return the address that position 0 of all axes would have, if the first position of a block is at ``begin``."""
    moved = reduce(lambda s, one: s + one[1].first * one[0].step, zip(axes, block, strict=True), f.value(0))
    return f.at(begin, f.value(0) - moved)


def _read_a(
    f: Function, spec: ForwardSpec, a: Named, axes: Sequence[Named], block: Sequence[Named], data: Value
) -> Value:
    """Pack the part of A that an output block reads, unless A is packed or in place. Find its minimum exponent.

    Return the address that position 0 of all axes has in A, or would have in the packed part.
    """

    def find_min(source: Value, to: Value, count: Value) -> None:
        f.call("minimum", source, count, axes[-1].given, a.channels, f.at(f.scratch, a.min_at))

    def pack_line(source: Value, to: Value, count: Value) -> None:
        pack.line_of_a(f, spec, a, to, source, count)

    lines, begin = (axes, block, data), f.at(f.scratch, a.a_at)
    packs = f.value(0) if spec.a_in_place else a.packs
    if not spec.a_in_place:
        with f.when(f.compare("ne", packs, 0)):
            _each_line(f, *lines, begin, pack_line)
        data = f.select(f.compare("ne", packs, 0), _origin(f, begin, axes, block), data)
    if spec.step == 2:
        with f.when(f.compare("eq", packs, 0)):
            _each_line(f, *lines, begin, find_min)
    return data


def _each_line(
    f: Function, axes: Sequence[Named], block: Sequence[Named], memory: Value, scratch: Value, each_line: EachLine
) -> None:  # fmt: skip
    """Visit the lines of A that an output block reads, or the lines of its outputs.

    Position 0 of all axes is at ``memory``, and the block's first position is at ``scratch``. If the lines of the last
    axis follow each other without gaps, in memory and in scratch, all lines of the last two axes are visited as one.
    """
    *_, outer, inner = [axis.given for axis in axes]
    *_, outer_step, inner_step = [axis.step for axis in axes]
    *_, count, length = [each.count for each in block]
    together = f.compare("eq", outer, length * inner) & f.compare("eq", outer_step, length * inner_step)
    counts = [each.count for each in block[:-2]] + [f.select(together, f.value(1), count)]
    length = f.select(together, count * length, length)

    def lines(at: int, source: Value, to: Value) -> None:
        source = f.at(source, block[at].first * axes[at].given)
        if at == len(axes) - 1:
            each_line(source, to, length)
            return
        with f.loop(counts[at], source=source, to=to) as each:
            lines(at + 1, each.source, each.to)
            each.next(source=f.at(each.source, axes[at].given), to=f.at(each.to, axes[at].step))

    lines(0, memory, scratch)


@dataclass(frozen=True)
class _Region:
    """The function ``region`` while it is emitted: its arguments, its part of each axis, and its lists of chains."""

    f: Function
    spec: ForwardSpec
    a: Named
    parts: list[Named]
    lists: tuple[Value, Value]  # addresses of the segments and of the chains
    chains: Value  # the number of chains
    data: Value  # where position 0 of all axes is
    out: Value
    axis: Value  # the axis along which micro-tiles are placed
    tiled: dict[str, Value]  # the region's part of this axis
    last: Value  # distance of the next micro-tile of A after the last of a line
    first_panel: dict[str, Value]  # weights, biases, first column, and bytes that are prefetched per k
    waiting: Value  # address of the offset of the next micro-tile's sums in scratch


def _region(module: Module, spec: ForwardSpec) -> None:
    """Emit ``region``, which lists a region's segments and computes its micro-tiles for each panel of B.

    If a panel of B exceeds the second cache, chains are divided into passes. Each pass adds some chains to all
    micro-tiles of the panel, whose sums are in scratch between passes. On AVX-512, plans of 3x3 layers with 256 or more
    channels do so.
    """
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "region", False, arguments="ptr", scratch="ptr", data="ptr", weights="ptr", out="ptr", panel="i64",
        panels="i64", packed="i64", **dict.fromkeys(names, "ptr"),
    )  # fmt: skip
    r = _listed(f, spec, [f.parameters[name] for name in names])
    a = r.a
    with f.loop(f.panels, **r.first_panel) as panel:
        first = _first_column(f, spec, a, panel.first)
        given = _panel(r, panel, first)
        data = r.data
        if spec.stencil:  # a panel reads only the channels of its own groups
            data = f.at(data, (f.panel + panel.index) * (a.a_k * (spec.stencil.groups * spec.stencil.in_channels)))
        passes = f.max(f.op("i64", f"udiv {r.chains + a.pass_chains - 1}, {a.pass_chains.name}"), 1)
        with f.loop(passes) as some, f.when(going(f, a)):
            given |= _pass(r, some.index, passes)
            f.store(f.value(0), r.waiting)
            _lines(r, 0, given, data, r.out if spec.collects else f.at(r.out, first * a.out_n))
        panel.next(
            weights=panel.weights if spec.b_in_place else f.at(panel.weights, a.panel_bytes),
            bias=panel.bias if spec.transposed_gemm else f.at(panel.bias, spec.width * F32_BYTES),
            first=panel.first + spec.width, rate=f.value(0),
        )  # fmt: skip
    f.done()


def _listed(f: Function, spec: ForwardSpec, rows: list[Value]) -> _Region:
    """Emit the call that lists the segments of a region, and choose the axis of its micro-tiles."""
    a = arguments(f, spec)
    lists = f.at(f.scratch, a.segments_at), f.at(f.scratch, a.chains_at)
    counted = f.alloca("i64", len(COUNTED.columns))
    f.call("segments", f.arguments, *lists, counted, *rows)
    of_lists = columns(f, counted, COUNTED)
    chains, all_k, last = of_lists.chains, of_lists.k, of_lists.last
    parts = [columns(f, row, PART) for row in rows]
    data = reduce(lambda p, part: f.at(p, part.data), parts, f.data)
    out = reduce(lambda p, part: f.at(p, part.out), parts, f.out)
    axis, tiled = _tiled_axis(f, spec, parts)
    if spec.stencil:
        last = last + _to_next_block(f, along(a, spec), parts)
    elif spec.step == 2 and spec.a_in_place:  # finding its minimum has loaded this block into the cache
        last = _to_next_block(f, along(a, spec), parts)
    first_panel = {
        "weights": f.weights if spec.b_in_place else f.at(f.scratch, a.b_at + f.packed * a.panel_bytes),
        "bias": f.at(f.scratch, a.bias_at + f.packed * (spec.width * F32_BYTES)), "first": f.panel * spec.width,
        "rate": _prefetch_rate(f, tiled["mr"] * tiled["data_step"], all_k),
    }  # fmt: skip
    waiting = f.alloca("i64", 1)
    return _Region(f, spec, a, parts, lists, chains, data, out, axis, tiled, last, first_panel, waiting)


def _panel(r: _Region, panel: Loop, first: Value) -> dict[str, Value]:
    """Return the values of a panel of B that its micro-tiles need. ``first`` is its first column."""
    f, spec, a = r.f, r.spec, r.a
    given = {
        "weights": f.at(panel.weights, first * a.weights_n) if spec.b_in_place else panel.weights,
        "bias": f.at(panel.bias, r.parts[-1].first_bias) if spec.transposed_gemm else panel.bias, "rate": panel.rate,
        "left": f.min(a.n - first, spec.width) if spec.stencil else a.n - first,
    }  # fmt: skip
    if spec.prefetches_panels:  # of this image or the next one; ``f.panels`` panels are packed together
        later = first + (f.value(PREFETCH_PANELS) if spec.b_in_place else f.panels) * spec.width
        place = f.at(f.weights, later * a.weights_n)
        given["later"] = f.select(later < a.n, place, f.at(place, a.weights_group - a.n * a.weights_n))
    if spec.step == 2:
        minimums = f.at(f.scratch, a.min_at), pack.minimum_of_panel(f, a, panel.weights)
        given["pairs"] = pairs_allowed(f, spec.isa, a, minimums)
    return given


def _pass(r: _Region, number: Value, passes: Value) -> dict[str, Value]:
    """Return the chains of a pass, and whether it is the first and the last one."""
    f = r.f
    done = number * r.a.pass_chains
    chain = f.at(r.lists[1], done * CHAIN.bytes)
    return {
        "segments": f.at(r.lists[0], f.load("i64", chain, CHAIN.at("segment"))), "chains": chain,
        "chain_count": f.min(r.chains - done, r.a.pass_chains), "begins": f.compare("eq", number, 0),
        "ends": f.compare("eq", number, passes - 1),
    }  # fmt: skip


def _lines(r: _Region, at: int, panel: dict[str, Value], data: Value, out: Value) -> None:
    """Emit a loop for each axis but that of the micro-tiles; inside, call ``micro_tiles`` for a line of positions."""
    f = r.f
    if at == r.spec.axes:
        step = r.tiled["data_step"]
        of_axis = r.tiled | {"rows": r.tiled["mr"], "row_step": step, "bias_step": r.tiled["bias"]}
        own = {"sums": f.at(f.scratch, r.a.sums_at), "waiting": r.waiting, "last": r.last, "data": data, "out": out}
        f.pass_to("micro_tiles", **{**f.parameters, **of_axis, **panel, **own})
        return
    part = r.parts[at]
    count = f.select(f.compare("eq", r.axis, at), f.value(1), part.count)
    with f.loop(count, data=data, out=out) as line:
        _lines(r, at + 1, panel, line.data, line.out)
        line.next(data=f.at(line.data, part.data_step), out=f.at(line.out, part.out_step))


def _first_column(f: Function, spec: ForwardSpec, a: Named, first: Value) -> Value:
    """Return the first column of a panel. If panels overlap, the last panel ends at the last column."""
    return f.min(first, a.n - spec.width) if spec.overlaps else first


def _tiled_axis(f: Function, spec: ForwardSpec, parts: Sequence[Named]) -> tuple[Value, dict[str, Value]]:
    """Return the number of the axis along which micro-tiles are placed, and the region's part of this axis.

    It is the axis that wastes the least time on unused rows of micro-tiles, or the later axis if two are equal. For
    grouped stencils, it is always the last axis.
    """
    best: dict[str, Value] = {name: getattr(parts[-1], name) for name in PART.columns}
    which = f.value(len(parts) - 1)
    for at in () if spec.stencil else reversed(range(len(parts) - 1)):
        less = f.compare("slt", parts[at].waste, best["waste"])
        best = {name: f.select(less, getattr(parts[at], name), best[name]) for name in PART.columns}
        which = f.select(less, f.value(at), which)
    return which, best


def _to_next_block(f: Function, axes: Sequence[Named], parts: Sequence[Named]) -> Value:
    """Return the distance in A, in bytes, from a region to the same region of the next output block.

    Grouped stencils, and kernels that read bf16 pairs in place, prefetch at this distance. The data of their next
    micro-tile is already in the cache. The next block follows along the last axis that is divided into blocks.
    """
    steps = [part.count * part.data_step for part in parts]
    found = steps[0]
    for axis, step in zip(axes[1:], steps[1:], strict=True):
        found = f.select(f.compare("sgt", axis.blocks, 1), step, found)
    return found


def _prefetch_rate(f: Function, size: Value, count: Value) -> Value:
    """Return the number of bytes of the next micro-tile of A that are prefetched per k, during the first panel of B.

    The rate is 0 if rows of A are so far apart that one or two cache lines per k are not enough. ``size`` is the bytes
    of A per micro-tile, and ``count`` is the number of k.
    """
    rate = f.op("i64", f"sdiv {size}, {f.max(count, 1).name}")
    near = f.compare("sgt", rate, 0) & f.compare("sle", rate, PREFETCH_MAX_TILE_BYTES)
    return f.select(near, rate, f.value(0))


def _micro_tiles(module: Module, spec: ForwardSpec) -> None:
    """Emit ``micro_tiles``, which computes the micro-tiles of a line of positions. The last two may overlap."""
    f = module.function(
        "micro_tiles", False, arguments="ptr", sums="ptr", segments="ptr", chains="ptr", chain_count="i64", data="ptr",
        weights="ptr", out="ptr", bias="ptr", row_step="i64", out_step="i64", last="i64", rate="i64", left="i64",
        rows="i64", tiles="i64", count="i64", bias_step="i64", begins="i1", ends="i1", waiting="ptr",
        **({"met": "i64", "met_step": "i64"} if spec.stencil else {}),
        **({"pairs": "i64"} if spec.step == 2 else {}),
        **({"later": "ptr"} if spec.prefetches_panels else {}),
    )  # fmt: skip
    with f.loop(f.tiles) as each:
        wanted = each.index * f.rows
        first = f.min(wanted, f.count - f.rows)
        data, out = f.at(f.data, first * f.row_step), f.at(f.out, first * f.out_step)
        if spec.prefetches_panels:
            prefetched = f.later
            rate = f.select(f.compare("eq", each.index, 0), arguments(f, spec).weights_k, f.value(0))
        else:
            prefetched, rate = f.at(f.at(data, f.value(0) if spec.stencil else f.rows * f.row_step), f.last), f.rate
        bias = f.at(f.bias, first * f.bias_step) if spec.transposed_gemm else f.bias
        at = f.load("i64", f.waiting)
        f.store(at + arguments(f, spec).waiting_bytes, f.waiting)
        given = f.parameters | {
            "sums": f.at(f.sums, at), "count": f.chain_count, "data": data, "out": out, "bias": bias,
            "next": prefetched, "rate": rate, "skip": wanted - first,
        }  # fmt: skip
        if spec.stencil:
            given["met"] = f.met + first * f.met_step
        for rows in spec.mr_sizes:
            with f.when(f.compare("eq", f.rows, rows)):
                by_width(f, spec.isa.lanes, spec.nr_sizes, f.left, f"tile{rows}_", given)
    f.done()
