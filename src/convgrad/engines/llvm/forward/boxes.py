"""The nest of boxes: weights are packed panel by panel; slab by slab data is made ready, and its boxes are computed.

A box is a part of each axis: positions that meet the same taps. The runs of terms that it meets are listed once; then,
under each panel, tiles run along the axis where they waste least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward import pack
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.forward.grouped_stencil import rows_of_taps, window
from convgrad.engines.llvm.forward.runs import runs
from convgrad.engines.llvm.forward.tile import store_panel, tile
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.packing import bias as pack_bias
from convgrad.engines.llvm.pairs import minimum, nothing_yet, quick
from convgrad.plan.constants import PREFETCH_MAX_TILE_BYTES
from convgrad.plan.forward.recipe import ForwardSpec
from convgrad.plan.forward.schedule import BLOCK, PART, SLAB, TASK
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES

NOTHING = -1
EachLine = Callable[[Value, Value, Value], None]  # of a source, a place, a count


def bodies(module: Module, spec: ForwardSpec) -> None:
    """Emit what the nest calls."""
    pack.weights(module, spec)
    if not spec.in_place:
        pack.data(module, spec)
    tree.combine_up(module, spec.isa)
    store_panel(module, spec)
    if spec.step == 2:
        minimum(module, spec.isa)
    if spec.window:
        rows_of_taps(module, spec)
    else:
        runs(module, spec)
    for height in spec.heights:
        for vectors in spec.widths:
            if spec.window:
                window(module, spec, height, vectors)
            else:
                tile(module, spec, height, vectors)
    _tiles(module, spec)
    pack_bias(module, spec.operand)
    _box(module, spec)


def begin(f: Function, spec: ForwardSpec) -> None:
    """Before the first task of a thread: nothing is packed."""
    f.store(f.value(NOTHING), f.at(f.scratch, arguments(f, spec).packed_at))


def task(module: Module, spec: ForwardSpec) -> None:
    """Emit ``task``: groups, panels that are packed at a time, slabs.

    A thread that has packed the same panels for its task before does not so again.
    """
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    with f.loop(t.groups) as group:
        number = t.group + group.index
        weights = f.at(a.weights, number * a.weights_group)
        data = f.at(a.data, number * a.data_group)
        out = f.at(a.out, number * a.out_group)
        bias = f.at(a.bias, number * a.results * a.bias_item)
        with f.loop(t.panels, panel=t.panel, left=t.panels) as chunk:
            taken = f.min(chunk.left, a.panels)
            with f.when(f.compare("sgt", taken, 0) & going(f, a)):
                which, packed = number * a.results + chunk.panel, f.at(f.scratch, a.packed_at)
                with f.when(f.compare("ne", f.load("i64", packed), which)):
                    _panels(f, spec, a, weights, bias, chunk.panel, taken)
                    f.store(which, packed)
                with f.loop(t.slabs) as each, f.when(going(f, a)):
                    _slab(f, spec, a, t.slab + each.index, (data, weights, out), (chunk.panel, taken))
            chunk.next(panel=chunk.panel + taken, left=chunk.left - taken)
    f.done()


def _panels(f: Function, spec: ForwardSpec, a: Named, weights: Value, bias: Value, panel: Value, count: Value) -> None:
    """Pack the weights and the biases of some panels: where rows are results, the biases of all."""
    bias_at, bias_item, width = f.at(f.scratch, a.bias_at), a.bias_item, spec.width
    if spec.transposed_gemm:
        f.call("pack_bias", a.bias, bias_at, a.bias, bias_item, *[along(a, spec)[-1].extent] * 2)
        if spec.lanes_in_place:
            return
    first = panel * width
    begin = {
        "to": f.at(f.scratch, a.weights_at), "source": f.at(weights, panel * a.weights_panel), "bias_to": bias_at,
        "bias": f.at(bias, first * bias_item), "left": a.results - first,
    }  # fmt: skip
    with f.loop(count, **begin) as each:
        if not spec.lanes_in_place:
            f.call("pack_weights", f.arguments, each.to, each.source, each.left)
            if spec.step == 2:
                _panel_minimum(f, spec, a, each.to, each.left)
        if not spec.transposed_gemm:
            source, some = each.bias, f.min(each.left, width)
            if spec.overlaps:
                source, some = f.at(source, f.min(each.left - width, 0) * bias_item), f.value(width)
            f.call("pack_bias", a.bias, each.bias_to, source, bias_item, some, width)
        each.next(
            to=f.at(each.to, a.panel_bytes), source=f.at(each.source, a.weights_panel),
            bias_to=f.at(each.bias_to, width * F32_BYTES), bias=f.at(each.bias, bias_item * width),
            left=each.left - width,
        )  # fmt: skip


def _panel_minimum(f: Function, spec: ForwardSpec, a: Named, panel: Value, left: Value) -> None:
    """Find the least of a packed panel of bf16 pairs; cells beyond the columns do not count."""
    found, rows = _least_of_panel(f, a, panel), a.taps * (a.terms + 1 >> 1)
    nothing_yet(f, spec.isa, found)
    f.call("minimum", panel, rows, spec.pitch * F32_BYTES, f.min(left, spec.width) * 2, found)


def _slab(
    f: Function, spec: ForwardSpec, a: Named, number: Value, places: tuple[Value, Value, Value],
    panels: tuple[Value, Value],
) -> None:  # fmt: skip
    """One slab: a range of positions of each axis, whose numbers are the digits of the slab's."""
    data, weights, out = places
    axes = along(a, spec)
    rows = []
    for axis in reversed(axes):
        count = axis.slabs
        digit = f.op("i64", f"urem {number}, {count.name}")
        number = f.op("i64", f"udiv {number}, {count.name}")
        rows.append(columns(f, f.at(a.slabs, axis.slab + digit * SLAB.bytes), SLAB))
    slab = rows[::-1]
    if spec.step == 2:
        nothing_yet(f, spec.isa, f.at(f.scratch, a.least_at))
    if not spec.in_place:
        data = _packed(f, spec, a, axes, slab, data)
    elif spec.step == 2:

        def found(source: Value, to: Value, count: Value) -> None:
            f.call("minimum", source, count, axes[-1].given, a.channels, f.at(f.scratch, a.least_at))

        _lines(f, axes, slab, data, f.scratch, found)

    def parts(at: int, chosen: list[Value]) -> None:
        if at == spec.axes:
            f.call("box", f.arguments, f.scratch, data, weights, out, *panels, *chosen)
            return
        with f.loop(slab[at].parts, part=f.at(a.parts, slab[at].part)) as each:
            parts(at + 1, [*chosen, each.part])
            each.next(part=f.at(each.part, PART.bytes))

    parts(0, [])


def _packed(
    f: Function, spec: ForwardSpec, a: Named, axes: Sequence[Named], slab: Sequence[Named], data: Value
) -> Value:
    """Pack what a slab meets; return where position 0 of all axes would be."""
    begin = f.at(f.scratch, a.data_at)

    def line(source: Value, to: Value, count: Value) -> None:
        f.call("pack_line", f.arguments, to, source, count)
        if spec.step == 2:
            f.call("minimum", to, 1, 0, count * ((a.channels + 1 >> 1) * 2), f.at(f.scratch, a.least_at))

    _lines(f, axes, slab, data, begin, line)
    moved = reduce(lambda s, one: s + one[1].first * one[0].step, zip(axes, slab, strict=True), f.value(0) + f.value(0))
    return f.at(begin, f.value(0) - moved)


def _lines(
    f: Function, axes: Sequence[Named], slab: Sequence[Named], data: Value, begin: Value, each_line: EachLine
) -> None:  # fmt: skip
    """Visit the lines that a slab meets: packed, each begins where the one before ends, from ``begin`` on."""

    def lines(at: int, source: Value, to: Value) -> None:
        source = f.at(source, slab[at].first * axes[at].given)
        if at == len(axes) - 1:
            each_line(source, to, slab[at].count)
            return
        with f.loop(slab[at].count, source=source, to=to) as each:
            lines(at + 1, each.source, each.to)
            each.next(source=f.at(each.source, axes[at].given), to=f.at(each.to, axes[at].step))

    lines(0, data, begin)


def _least_of_panel(f: Function, a: Named, panel: Value) -> Value:
    """Return where the least of a panel of weights is: behind it."""
    return f.at(panel, a.panel_bytes - LINE_BYTES)


def _box(module: Module, spec: ForwardSpec) -> None:
    """Emit ``box``: the runs of one part of each axis, then its tiles under each of some panels."""
    names = [f"part{axis}" for axis in range(spec.axes)]
    f = module.function(
        "box", False, arguments="ptr", scratch="ptr", data="ptr", weights="ptr", out="ptr", panel="i64", panels="i64",
        **dict.fromkeys(names, "ptr"),
    )  # fmt: skip
    a = arguments(f, spec)
    given = [f.parameters[name] for name in names]
    lists = f.at(f.scratch, a.runs_at), f.at(f.scratch, a.blocks_at)
    counted = f.alloca("i64", 3)
    f.call("runs", f.arguments, *lists, counted, *given)
    blocks, terms, last = (f.load("i64", counted, 8 * at) for at in range(3))
    parts = [columns(f, part, PART) for part in given]
    data = reduce(lambda p, part: f.at(p, part.data), parts, f.data)
    out = reduce(lambda p, part: f.at(p, part.out), parts, f.out)
    which, best = _last_axis(f, parts) if spec.window else _tiled_axis(f, parts)
    if spec.window:
        last = last + _to_next_slab(f, along(a, spec), parts)
    elif spec.step == 2 and spec.in_place:  # what the next tile reads was met when its least was looked for
        last = _to_next_slab(f, along(a, spec), parts)
    height, step = best["height"], best["data_step"]
    begin = {
        "weights": f.weights if spec.lanes_in_place else f.at(f.scratch, a.weights_at),
        "bias": f.at(f.scratch, a.bias_at), "first": f.panel * spec.width, "rate": _rate(f, height * step, terms),
    }  # fmt: skip

    waiting = f.alloca("i64", 1)  # bytes to the sums of the next tile, where they wait for more blocks

    def lines(at: int, panel: dict[str, Value], data: Value, out: Value) -> None:
        if at == spec.axes:
            f.call(
                "tiles", f.arguments, f.at(f.scratch, a.sums_at), panel["runs"], panel["blocks"], panel["count"], data,
                panel["weights"], out, panel["bias"], step, best["out_step"], last, panel["rate"], panel["left"],
                height, best["tiles"], best["count"], best["bias"], panel["begins"], panel["ends"], waiting,
                *((best["met"], best["met_step"]) if spec.window else ()),
                *((panel["pairs"],) if spec.step == 2 else ()),
            )  # fmt: skip
            return
        count = f.select(f.compare("eq", which, at), f.value(1), parts[at].count)
        with f.loop(count, data=data, out=out) as each:
            lines(at + 1, panel, each.data, each.out)
            each.next(data=f.at(each.data, parts[at].data_step), out=f.at(each.out, parts[at].out_step))

    with f.loop(f.panels, **begin) as each:
        first = each.first
        if spec.overlaps:  # the last panel does the one before
            first = f.min(first, a.results - spec.width)
        panel = {
            "weights": f.at(each.weights, first * a.weights_item) if spec.lanes_in_place else each.weights,
            "bias": _row_bias(f, spec, each.bias, parts), "rate": each.rate,
            "left": f.min(a.results - first, spec.width) if spec.window else a.results - first,
        }  # fmt: skip
        if spec.step == 2:
            leasts = f.at(f.scratch, a.least_at), _least_of_panel(f, a, each.weights)
            panel["pairs"] = quick(f, spec.isa, a, leasts)
        met = data
        if spec.window:  # a panel meets the channels of its own groups
            met = f.at(data, (f.panel + each.index) * (a.term_step * (spec.window.groups * spec.window.terms)))
        passes = f.max(f.op("i64", f"udiv {blocks + a.pass_blocks - 1}, {a.pass_blocks.name}"), 1)
        with f.loop(passes) as some, f.when(going(f, a)):
            done = some.index * a.pass_blocks
            there = f.at(lists[1], done * BLOCK.bytes)
            panel |= {
                "runs": f.at(lists[0], f.load("i64", there, BLOCK.at("run"))), "blocks": there,
                "count": f.min(blocks - done, a.pass_blocks), "begins": f.compare("eq", some.index, 0),
                "ends": f.compare("eq", some.index, passes - 1),
            }  # fmt: skip
            f.store(f.value(0), waiting)
            lines(0, panel, met, f.at(out, first * a.out_item))
        each.next(
            weights=each.weights if spec.lanes_in_place else f.at(each.weights, a.panel_bytes),
            bias=each.bias if spec.transposed_gemm else f.at(each.bias, spec.width * F32_BYTES),
            first=each.first + spec.width, rate=f.value(0),
        )  # fmt: skip
    f.done()


def _to_next_slab(f: Function, axes: Sequence[Named], parts: Sequence[Named]) -> Value:
    """Return how far behind what a box meets is what the next slab meets: along the last axis that is cut."""
    steps = [part.count * part.data_step for part in parts]
    found = steps[0]
    for axis, step in zip(axes[1:], steps[1:], strict=True):
        found = f.select(f.compare("sgt", axis.slabs, 1), step, found)
    return found


def _last_axis(f: Function, parts: Sequence[Named]) -> tuple[Value, dict[str, Value]]:
    """Return the last axis as the one that tiles run along, and its part."""
    return f.value(len(parts) - 1), {name: getattr(parts[-1], name) for name in PART.columns}


def _tiled_axis(f: Function, parts: Sequence[Named]) -> tuple[Value, dict[str, Value]]:
    """Return which axis tiles run along, the last of those that waste least, and its part."""
    best: dict[str, Value] = {name: getattr(parts[-1], name) for name in PART.columns}
    which = f.value(len(parts) - 1)
    for at in reversed(range(len(parts) - 1)):
        less = f.compare("slt", parts[at].waste, best["waste"])
        best = {name: f.select(less, getattr(parts[at], name), best[name]) for name in PART.columns}
        which = f.select(less, f.value(at), which)
    return which, best


def _rate(f: Function, piece: Value, terms: Value) -> Value:
    """Return how many bytes a term of what the next tile reads is asked for, under the first panel.

    None where rows do not lie in one piece, which a line or two a term is enough for.
    """
    rate = f.op("i64", f"sdiv {piece}, {f.max(terms, 1).name}")
    near = f.compare("sgt", rate, 0) & f.compare("sle", rate, PREFETCH_MAX_TILE_BYTES)
    return f.select(near, rate, f.value(0))


def _row_bias(f: Function, spec: ForwardSpec, bias: Value, parts: Sequence[Named]) -> Value:
    """Return where the bias of the first row is: of a box of results, as many behind as they are from the first."""
    if not spec.transposed_gemm:
        return bias
    return f.at(bias, parts[-1].first_bias)


def _tiles(module: Module, spec: ForwardSpec) -> None:
    """Emit ``tiles``: tiles of a height along a line of positions, the last overlapping the one before."""
    f = module.function(
        "tiles", False, arguments="ptr", sums="ptr", runs="ptr", blocks="ptr", block_count="i64", data="ptr",
        weights="ptr", out="ptr", bias="ptr", row_step="i64", out_step="i64", last="i64", rate="i64", left="i64",
        height="i64", tiles="i64", count="i64", bias_step="i64", begins="i1", ends="i1", waiting="ptr",
        **({"met": "i64", "met_step": "i64"} if spec.window else {}),
        **({"pairs": "i64"} if spec.step == 2 else {}),
    )  # fmt: skip
    with f.loop(f.tiles) as each:
        wanted = each.index * f.height
        first = f.min(wanted, f.count - f.height)
        data, out = f.at(f.data, first * f.row_step), f.at(f.out, first * f.out_step)
        ahead = f.at(f.at(data, f.value(0) if spec.window else f.height * f.row_step), f.last)
        bias = f.at(f.bias, first * f.bias_step) if spec.transposed_gemm else f.bias
        at = f.load("i64", f.waiting)
        f.store(at + arguments(f, spec).tile_sums, f.waiting)
        given = (
            f.arguments, f.at(f.sums, at), f.runs, f.blocks, f.block_count, data, f.weights, out, bias, f.row_step,
            f.out_step, ahead, f.rate, f.left, wanted - first, f.bias_step, f.begins, f.ends,
            *((f.met + first * f.met_step, f.met_step) if spec.window else ()),
            *((f.pairs,) if spec.step == 2 else ()),
        )  # fmt: skip
        for rows in spec.heights:
            with f.when(f.compare("eq", f.height, rows)):
                by_width(f, spec.isa.lanes, spec.widths, f.left, f"tile{rows}_", given)
    f.done()
