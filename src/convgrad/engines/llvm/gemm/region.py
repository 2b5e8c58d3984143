"""The part of the output-stationary loop nest in a region: panels of B, passes of chains, lines, and micro-tiles."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce

from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.gemm.arguments import along, arguments
from convgrad.engines.llvm.gemm.segments import COUNTED
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.pairs import minima_of, pairs_allowed
from convgrad.plan.gemm.constants import PREFETCH_MAX_TILE_BYTES, PREFETCH_PANELS
from convgrad.plan.gemm.schedule import CHAIN, PART
from convgrad.plan.gemm.spec import NEXT_BLOCK, SAME_TILE, GemmSpec
from convgrad.plan.recipe import F32_BYTES


@dataclass(frozen=True)
class Region:
    """The function ``region`` while it is emitted: its arguments, its part of each axis, and its lists of chains."""

    f: Function
    spec: GemmSpec
    a: Named
    parts: list[Named]
    lists: tuple[Value, Value]  # addresses of the segments and of the chains
    chains: Value  # the number of chains
    data: Value  # where the region's first output position reads through its first tap
    out: Value  # where the first output is stored, without the offset of the panel
    axis: Value  # the axis along which micro-tiles are placed
    tiled: dict[str, Value]  # the region's part of this axis
    # Bytes to the data that a micro-tile prefetches: from its own A if ``spec.prefetched`` is SAME_TILE, else from that
    # of the next micro-tile.
    prefetch_offset: Value
    first_panel: dict[str, Value]  # weights, biases, first column, and bytes that are prefetched per k
    waiting: Value  # address of the offset of the next micro-tile's sums in scratch
    across: Value | None  # the axis along which two lines are computed at once; None: the kernel never does


def region(module: Module, spec: GemmSpec) -> None:
    """Emit ``region``, which lists a region's segments and computes its micro-tiles for each panel of B.

    If a panel of B exceeds half of the second cache, a plan may divide the chains into passes. Each pass adds some
    chains to all micro-tiles of the panel, whose sums are in scratch between passes. ``panel`` is the number of the
    first of ``panels`` panels, and ``packed_panel`` its number among the panels that are packed.
    """
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "region",
        False,
        arguments="ptr",
        scratch="ptr",
        data="ptr",
        weights="ptr",
        out="ptr",
        panel="i64",
        panels="i64",
        packed_panel="i64",
        **dict.fromkeys(names, "ptr"),
    )
    r = _listed(f, spec, [f.parameters[name] for name in names])
    a = r.a
    with f.loop(f.panels, **r.first_panel) as panel:
        first = first_column(f, spec, a, panel.first)
        values = _panel(r, panel, first)
        data = r.data
        if spec.panel_channels:
            data = f.at(data, (f.panel + panel.index) * (a.a_k * spec.panel_channels))
        passes = f.max(f.op("i64", f"udiv {r.chains + a.pass_chains - 1}, {a.pass_chains.name}"), 1)
        with f.loop(passes) as some, f.when(going(f, a)):
            values |= _pass(r, some.index, passes)
            f.store(f.value(0), r.waiting)
            _lines(r, 0, values, data, r.out if spec.collects else f.at(r.out, first * a.out_n))
        panel.next(
            weights=panel.weights if spec.b.in_place else f.at(panel.weights, a.panel_bytes),
            bias=panel.bias if spec.bias_per_row else f.at(panel.bias, spec.width * F32_BYTES),
            first=panel.first + spec.width,
            rate=f.value(0),
        )
    f.done()


def _listed(f: Function, spec: GemmSpec, rows: list[Value]) -> Region:
    """Emit the call that lists the segments of a region, and choose the axis of its micro-tiles."""
    a = arguments(f, spec)
    lists = f.at(f.scratch, a.segments_at), f.at(f.scratch, a.chains_at)
    counted = f.alloca("i64", len(COUNTED.columns))
    f.call("segments", f.arguments, *lists, counted, **{f"part{axis}": row for axis, row in enumerate(rows)})
    of_lists = columns(f, counted, COUNTED)
    # The next micro-tile's A is prefetched at its last tap. In a forward pass, no earlier tap reads these positions.
    chains, all_k, prefetch_offset = of_lists.chains, of_lists.k, of_lists.last_a
    parts = [columns(f, row, PART) for row in rows]
    data = reduce(lambda p, part: f.at(p, part.data), parts, f.data)
    out = reduce(lambda p, part: f.at(p, part.out), parts, f.out)
    axis, tiled = _tiled_axis(f, spec, parts)
    if spec.prefetched == SAME_TILE:
        prefetch_offset = prefetch_offset + _to_next_block(f, along(a, spec), parts)
    elif spec.prefetched == NEXT_BLOCK:
        prefetch_offset = _to_next_block(f, along(a, spec), parts)
    first_panel = {
        "weights": f.weights if spec.b.in_place else f.at(f.scratch, a.b_at + f.packed_panel * a.panel_bytes),
        "bias": f.at(f.scratch, a.bias_at + f.packed_panel * (spec.width * F32_BYTES)),
        "first": f.panel * spec.width,
        "rate": _prefetch_rate(f, tiled["mr"] * tiled["data_step"], all_k),
    }
    waiting = f.alloca("i64", 1)
    across = _across(f, parts, axis, (tiled["mr"] * 2) < spec.mr + 1) if spec.has_two_lines else None
    return Region(
        f, spec, a, parts, lists, chains, data, out, axis, tiled, prefetch_offset, first_panel, waiting, across
    )


def _across(f: Function, parts: Sequence[Named], axis: Value, fits: Value) -> Value:
    """Return the axis along which two lines of tiles are computed at once, preferably with an even extent; -1: none.

    ``fits`` is ``GemmSpec.two_lines`` for the rows of the region's micro-tiles.
    """
    best, even = f.value(-1), f.value(0)
    for at, part in enumerate(parts):
        other = f.compare("ne", axis, at) & f.compare("sgt", part.count, 1) & fits
        is_even = (part.count & 1) < 1
        better = other & f.op("i1", f"or {is_even}, {f.compare('eq', even, 0).name}")
        best = f.select(better, f.value(at), best)
        even = f.select(better & is_even, f.value(1), even)
    return best


def _panel(r: Region, panel: Loop, first: Value) -> dict[str, Value]:
    """Return the values of a panel of B that its micro-tiles need. ``first`` is its first column."""
    f, spec, a = r.f, r.spec, r.a
    values = {
        "weights": f.at(panel.weights, first * a.weights_n) if spec.b.in_place else panel.weights,
        "bias": f.at(panel.bias, r.parts[-1].first_bias) if spec.bias_per_row else panel.bias,
        "rate": panel.rate,
        "left": f.min(a.n - first, spec.width) if spec.panel_channels else a.n - first,
    }
    if spec.prefetches_panels:  # of this image or the next one; ``f.panels`` panels are packed together
        later = first + (f.value(PREFETCH_PANELS) if spec.b.in_place else f.panels) * spec.width
        place = f.at(f.weights, later * a.weights_n)
        values["later"] = f.select(later < a.n, place, f.at(place, a.weights_group - a.n * a.weights_n))
    if spec.k_per_add == 2:
        minimums = f.at(f.scratch, a.min_at), minima_of(f, panel.weights, a.panel_bytes)
        values["pairs"] = pairs_allowed(f, spec.isa, a, minimums)
    if spec.amx_tiles:
        values["configured"] = f.at(f.scratch, a.tiles_at)
    if spec.has_two_lines:
        values |= {"line_count": f.value(1), "line_step": f.value(0), "out_line": f.value(0)}
    return values


def _pass(r: Region, number: Value, passes: Value) -> dict[str, Value]:
    """Return the chains of a pass, and whether it is the first and the last one."""
    f = r.f
    done = number * r.a.pass_chains
    chain = f.at(r.lists[1], done * CHAIN.bytes)
    return {
        "segments": f.at(r.lists[0], f.load("i64", chain, CHAIN.at("segment"))),
        "chains": chain,
        "chain_count": f.min(r.chains - done, r.a.pass_chains),
        "begins": f.compare("eq", number, 0),
        "ends": f.compare("eq", number, passes - 1),
    }


def _lines(r: Region, at: int, panel: dict[str, Value], data: Value, out: Value) -> None:
    """Emit a loop for each axis but that of the micro-tiles; inside, call ``micro_tiles`` for a line of positions.

    Tiles of AMX may compute two lines at once, which are neighbours along the axis ``across``.
    """
    f = r.f
    if at == r.spec.axes:
        step = r.tiled["data_step"]
        of_axis = r.tiled | {"rows": r.tiled["mr"], "row_step": step, "bias_step": r.tiled["bias"]}
        of_line = {
            "sums": f.at(f.scratch, r.a.sums_at),
            "waiting": r.waiting,
            "prefetch_offset": r.prefetch_offset,
            "data": data,
            "out": out,
        }
        f.call("micro_tiles", **{**f.parameters, **of_axis, **panel, **of_line})
        return
    part = r.parts[at]
    count, steps = f.select(f.compare("eq", r.axis, at), f.value(1), part.count), (part.data_step, part.out_step)
    across = f.compare("eq", r.across, at) if r.across else None
    if across:
        count = f.select(across, (part.count + 1) >> 1, count)
        steps = f.select(across, steps[0] * 2, steps[0]), f.select(across, steps[1] * 2, steps[1])
    with f.loop(count, data=data, out=out) as line:
        if across:
            lines = f.select(across, f.min(part.count - line.index * 2, 2), panel["line_count"])
            of_lines = {"line_count": lines}
            for name, step in (("line_step", part.data_step), ("out_line", part.out_step)):
                of_lines[name] = f.select(across, step, panel[name])
            panel = panel | of_lines
        _lines(r, at + 1, panel, line.data, line.out)
        line.next(data=f.at(line.data, steps[0]), out=f.at(line.out, steps[1]))


def first_column(f: Function, spec: GemmSpec, a: Named, first: Value) -> Value:
    """Return the first column of a panel. If panels overlap, the last panel ends at the last column."""
    return f.min(first, a.n - spec.width) if spec.overlaps else first


def _tiled_axis(f: Function, spec: GemmSpec, parts: Sequence[Named]) -> tuple[Value, dict[str, Value]]:
    """Return the number of the axis along which micro-tiles are placed, and the region's part of this axis.

    It is the axis that wastes the least time on unused rows of micro-tiles, or the later axis if two are equal. Some
    kernels always take the last axis.
    """
    best: dict[str, Value] = {name: getattr(parts[-1], name) for name in PART.columns}
    which = f.value(len(parts) - 1)
    for at in () if spec.tiles_last_axis else reversed(range(len(parts) - 1)):
        less = f.compare("slt", parts[at].cycles, best["cycles"])
        best = {name: f.select(less, getattr(parts[at], name), best[name]) for name in PART.columns}
        which = f.select(less, f.value(at), which)
    return which, best


def _to_next_block(f: Function, axes: Sequence[Named], parts: Sequence[Named]) -> Value:
    """Return the approximate distance in A, in bytes, from a region to the same region of the next output block.

    Kernels prefetch at this distance if the data of their next micro-tile is already in the cache. The next block
    follows along the last axis that is divided into blocks. The distance is the extent of the region along this axis,
    which is that of the block only if the block has one part there.
    """
    steps = [part.count * part.data_step for part in parts]
    distance = steps[0]
    for axis, step in zip(axes[1:], steps[1:], strict=True):
        distance = f.select(f.compare("sgt", axis.blocks, 1), step, distance)
    return distance


def _prefetch_rate(f: Function, size: Value, count: Value) -> Value:
    """Return the number of bytes of the next micro-tile of A that are prefetched per k, during the first panel of B.

    ``size`` is the bytes of A per micro-tile, and ``count`` is the number of k. Each iteration over k prefetches one
    cache line, so a rate above 64 bytes per iteration leaves lines out. Above PREFETCH_MAX_TILE_BYTES, the rate is 0.
    """
    rate = f.op("i64", f"sdiv {size}, {f.max(count, 1).name}")
    near = f.compare("sgt", rate, 0) & f.compare("sle", rate, PREFETCH_MAX_TILE_BYTES)
    return f.select(near, rate, f.value(0))


def micro_tiles(module: Module, spec: GemmSpec) -> None:
    """Emit ``micro_tiles``, which computes the micro-tiles of a line of positions. The last two may overlap."""
    f = module.function(
        "micro_tiles",
        False,
        arguments="ptr",
        sums="ptr",
        segments="ptr",
        chains="ptr",
        chain_count="i64",
        data="ptr",
        weights="ptr",
        out="ptr",
        bias="ptr",
        row_step="i64",
        out_step="i64",
        prefetch_offset="i64",
        rate="i64",
        left="i64",
        rows="i64",
        tiles="i64",
        count="i64",
        bias_step="i64",
        begins="i1",
        ends="i1",
        waiting="ptr",
        **({"input": "i64", "input_step": "i64"} if spec.checks_positions else {}),
        **({"pairs": "i64"} if spec.k_per_add == 2 else {}),
        **({"configured": "ptr"} if spec.amx_tiles else {}),
        **(dict.fromkeys(("line_count", "line_step", "out_line"), "i64") if spec.has_two_lines else {}),
        **({"later": "ptr"} if spec.prefetches_panels else {}),
    )
    with f.loop(f.tiles) as tile:
        wanted = tile.index * f.rows
        first = f.min(wanted, f.count - f.rows)
        data, out = f.at(f.data, first * f.row_step), f.at(f.out, first * f.out_step)
        if spec.prefetches_panels:
            prefetched = f.later
            rate = f.select(f.compare("eq", tile.index, 0), arguments(f, spec).weights_k, f.value(0))
        else:
            step = f.value(0) if spec.prefetched == SAME_TILE else f.rows * f.row_step
            prefetched, rate = f.at(f.at(data, step), f.prefetch_offset), f.rate
        bias = f.at(f.bias, first * f.bias_step) if spec.bias_per_row else f.bias
        # If there are several passes, each of at most ``max_tiles`` micro-tiles takes the next bytes of ``sums``, where
        # its sums wait for the next pass. Otherwise, ``waiting_bytes`` is 0, and all micro-tiles use the same bytes.
        at = f.load("i64", f.waiting)
        f.store(at + arguments(f, spec).waiting_bytes, f.waiting)
        arguments_of_tile = f.parameters | {
            "sums": f.at(f.sums, at),
            "data": data,
            "out": out,
            "bias": bias,
            "next": prefetched,
            "rate": rate,
            "skip": wanted - first,
        }
        if spec.checks_positions:
            arguments_of_tile["input"] = f.input + first * f.input_step
        _micro_tile(f, spec, arguments_of_tile)
    f.done()


def _micro_tile(f: Function, spec: GemmSpec, values: dict[str, Value]) -> None:
    """Call the micro-tile for the height of the line, for the columns that are left, and for one or two lines."""
    for rows in spec.mr_sizes:
        with f.when(f.compare("eq", f.rows, rows)), ExitStack() as otherwise:
            if spec.two_lines(rows):
                with f.when(f.compare("eq", f.line_count, 2)):
                    by_width(f, spec.isa.lanes, spec.nr_sizes, f.left, f"tile{rows}x2_", values)
                otherwise.enter_context(f.otherwise())
            by_width(f, spec.isa.lanes, spec.nr_sizes, f.left, f"tile{rows}_", values)
