"""The nest of planes: group by group, some lines of outputs at a time, in vectors, under the taps that they meet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments
from convgrad.engines.llvm.forward.pack import taken
from convgrad.engines.llvm.packing import bias, nested
from convgrad.engines.llvm.store import Epilogue, total
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.forward.spatial_stencil_schedule import ENTRY, NODE, OUTER, PART, TASK
from convgrad.plan.recipe import F32_BYTES

WHOLE, LANES, LINES = "whole", "lanes", "lines"  # of a tile's outputs all taps exist; of its lines; of none surely
FAR = 1 << 62
COUNTED = 5  # that a list is told by


def bodies(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit what the nest calls."""
    bias(module, spec.operand)
    _ready(module, spec)
    _listed(module, spec)
    for exists in (WHOLE, LANES, LINES):
        _tile(module, spec, exists)
    _tiles(module, spec)
    _plane(module, spec)


def task(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``task``: some groups: all their weights made ready, then box after box of positions of all of them."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    axes = along(a, spec)
    begin = {
        "weights": f.at(a.weights, t.group * a.weights_group), "bias": f.at(a.bias, t.group * a.n * a.bias_n),
        "to": f.at(f.scratch, a.weights_at), "bias_to": f.at(f.scratch, a.bias_at),
    }  # fmt: skip
    with f.loop(t.groups, **begin) as group:
        f.call("ready", f.arguments, group.weights, group.bias, group.to, group.bias_to)
        group.next(
            weights=f.at(group.weights, a.weights_group), bias=f.at(group.bias, a.bias_n * a.n),
            to=f.at(group.to, a.result_bytes * a.n), bias_to=f.at(group.bias_to, a.n * F32_BYTES),
        )  # fmt: skip

    def parts(at: int, chosen: list[Value]) -> None:
        if at == spec.axes - 2:
            f.call("plane", f.arguments, f.scratch, t.group, t.groups, *chosen)
            return
        with f.loop(axes[at].count, part=f.at(a.parts, axes[at].first)) as each:
            parts(at + 1, [*chosen, each.part])
            each.next(part=f.at(each.part, PART.bytes))

    parts(0, [])
    f.done()


def _outer_taps(f: Function, parts: Sequence[Named], to: Value) -> Value:
    """List how far taps of all axes but the last two move the data, and their numbers."""

    def taps(at: int, data: Value, number: Value, to: Value) -> Value:
        if at == len(parts):
            f.store(data, to)
            f.store(number, to, 8)
            return f.at(to, OUTER.bytes)
        with f.loop(parts[at].taps, data=data, number=number + parts[at].tap, to=to) as each:
            ended = taps(at + 1, each.data, each.number, each.to)
            each.next(data=each.data + parts[at].tap_data, number=each.number + parts[at].tap_step, to=ended)
        return each.to

    return taps(0, f.value(0), f.value(0), to)


def _ready(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``ready``: a group's weights as [result][tap][k], its biases; without any, what changes no sum."""
    f = module.function("ready", False, arguments="ptr", weights="ptr", bias="ptr", to="ptr", bias_to="ptr")
    a = arguments(f, spec)

    def one(source: Value, to: Value) -> Value:
        f.store(read(f, spec.operand, source), to)
        return f.at(to, F32_BYTES)

    taps = ((axis.kernel, axis.tap) for axis in along(a, spec))
    nested(f, [(a.n, a.weights_n), *taps, (a.k, a.weights_k)], f.weights, f.to, one)
    f.call("pack_bias", a.bias, f.bias_to, f.bias, a.bias_n, a.n, a.n)
    f.done()


def _listed(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``listed``: the terms that some lines meet, in the order of the sum, and the blocks that they are in.

    ``counted`` is told how many blocks, and from where to where the first line and the first position meet the data.
    """
    f = module.function(
        "listed", False, arguments="ptr", outer="ptr", count="i64", phase="ptr", last="ptr", line="i64", many="i64",
        entries="ptr", nodes="ptr", counted="ptr",
    )  # fmt: skip
    a, p, q = arguments(f, spec), columns(f, f.phase, PART), columns(f, f.last, PART)
    far, near = f.value(FAR), f.value(-FAR)
    begin = {
        "entry": f.entries, "node": f.at(f.nodes, -NODE.bytes), "block": f.value(-1),
        "low_line": far, "high_line": near, "low": far, "high": near,
    }  # fmt: skip
    with f.loop(f.count, outer=f.outer, **begin) as outer:
        data, number = (f.load("i64", outer.outer, at) for at in (0, 8))
        first = p.met + f.line * p.met_step
        moved = data + f.line * p.data_step
        state = {name: outer.carried[name] for name in begin}
        with f.loop(p.taps, number=number + p.tap, met=first, data=moved, **state) as row:
            final = row.met + (f.many - 1) * p.met_step
            some = f.compare("slt", row.met, a.line_met) & f.compare("sge", final, 0)
            met_data = row.data + q.data
            count = f.select(some, q.taps, f.value(0))
            state = {name: row.carried[name] for name in begin}
            state["low_line"] = f.select(some, f.min(row.low_line, row.met), row.low_line)
            state["high_line"] = f.select(some, f.max(row.high_line, row.met), row.high_line)
            with f.loop(count, number=row.number + q.tap, at=q.met, data=met_data, **state) as tap:
                block = f.op("i64", f"udiv {tap.number}, {a.number_share.name}")
                new = f.compare("ne", block, tap.block)
                node = f.select(new, f.at(tap.node, NODE.bytes), tap.node)
                f.store(f.select(new, f.value(0), f.load("i64", node, 8)) + a.k, node, 8)
                f.store(block, node)
                with f.loop(a.k, entry=tap.entry) as term:
                    which = taken(f, spec, term.index, a.k)
                    values = (
                        tap.data + which * a.data_k, (tap.number * a.k + which) * F32_BYTES, row.met, tap.at
                    )  # fmt: skip
                    for name, value in zip(ENTRY.columns, values, strict=True):
                        f.store(value, term.entry, ENTRY.at(name))
                    term.next(entry=f.at(term.entry, ENTRY.bytes))
                kept = {name: tap.carried[name] for name in ("low_line", "high_line")}
                tap.next(
                    number=tap.number + q.tap_step, at=tap.at + q.tap_met, data=tap.data + q.tap_data,
                    entry=term.entry, node=node, block=block, low=f.min(tap.low, tap.at),
                    high=f.max(tap.high, tap.at), **kept,
                )  # fmt: skip
            row.next(
                number=row.number + p.tap_step, met=row.met + p.tap_met, data=row.data + p.tap_data,
                **{name: tap.carried[name] for name in begin},
            )  # fmt: skip
        outer.next(outer=f.at(outer.outer, OUTER.bytes), **{name: row.carried[name] for name in begin})
    blocks = f.distance(outer.node, f.nodes) + NODE.bytes
    for at, value in enumerate((blocks, outer.low_line, outer.high_line, outer.low, outer.high)):
        f.store(value, f.counted, 8 * at)
    f.done()


def _plane(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``plane``: some lines at a time, whose terms are listed once: tiles of those of all groups and positions."""
    names = [f"part{axis}" for axis in range(spec.axes - 2)]
    f = module.function(
        "plane", False, arguments="ptr", scratch="ptr", group="i64", groups="i64", **dict.fromkeys(names, "ptr")
    )
    a = arguments(f, spec)
    outer, entries, nodes = (f.at(f.scratch, place) for place in (a.outer_at, a.entries_at, a.nodes_at))
    parts = [columns(f, f.parameters[name], PART) for name in names]
    taps = f.distance(_outer_taps(f, parts, outer), outer) >> (OUTER.bytes.bit_length() - 1)
    lines = along(a, spec)[-2]
    last = f.at(a.parts, along(a, spec)[-1].first)
    data, out = f.at(a.data, f.group * a.data_group), f.at(a.out, f.group * a.out_group)
    for part in parts:
        data, out = f.at(data, part.data), f.at(out, part.out)
    counted = f.alloca("i64", COUNTED)

    def positions(at: int, data: Value, out: Value, given: tuple[Value, ...]) -> None:
        if at == len(parts):
            f.call("tiles", f.arguments, counted, nodes, entries, data, out, *given)
            return
        with f.loop(parts[at].count, data=data, out=out) as each:
            positions(at + 1, each.data, each.out, given)
            each.next(data=f.at(each.data, parts[at].data_step), out=f.at(each.out, parts[at].out_step))

    with f.loop(lines.count, phase=f.at(a.parts, lines.first)) as each:
        p = columns(f, each.phase, PART)
        count = f.op("i64", f"udiv {p.count + (spec.lines - 1)}, {spec.lines}")
        with f.loop(count, line=f.value(0)) as some:
            left = f.min(p.count - some.line, spec.lines)
            f.call("listed", f.arguments, outer, taps, each.phase, last, some.line, left, entries, nodes, counted)
            begin = {
                "data": f.at(data, p.data), "out": f.at(f.at(out, p.out), some.line * p.out_step),
                "weights": f.at(f.scratch, a.weights_at), "bias": f.at(f.scratch, a.bias_at),
            }  # fmt: skip
            with f.loop(f.groups, **begin) as group:
                with f.when(going(f, a)):
                    positions(0, group.data, group.out, (group.weights, group.bias, each.phase, left))
                group.next(
                    data=f.at(group.data, a.data_group), out=f.at(group.out, a.out_group),
                    weights=f.at(group.weights, a.result_bytes * a.n),
                    bias=f.at(group.bias, a.n * F32_BYTES),
                )  # fmt: skip
            some.next(line=some.line + spec.lines)
        each.next(phase=f.at(each.phase, PART.bytes))
    f.done()


def _tiles(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``tiles``: all tiles of some lines of a group: of how many lanes and lines all taps exist is known."""
    f = module.function(
        "tiles", False, arguments="ptr", counted="ptr", nodes="ptr", entries="ptr", data="ptr", out="ptr",
        weights="ptr", biases="ptr", phase="ptr", left="i64",
    )  # fmt: skip
    a, p = arguments(f, spec), columns(f, f.phase, PART)
    size, written = BYTES[spec.operand], BYTES[spec.output]
    count, low_line, high_line, low, high = (f.load("i64", f.counted, 8 * at) for at in range(COUNTED))
    count = count >> (NODE.bytes.bit_length() - 1)
    final = high_line + (f.left - 1) * p.met_step
    inside = f.compare("sge", low_line, 0) & f.compare("slt", final, a.line_met)
    pieces = f.op("i64", f"udiv {a.extent + (spec.across - 1)}, {spec.across}")
    by_results = f.op("i64", f"udiv {a.n + (spec.results - 1)}, {spec.results}")
    with f.loop(pieces, first=f.value(0)) as piece:
        whole = inside & f.compare("sge", low + piece.first, 0)
        whole = whole & f.compare("slt", high + piece.first + (spec.across - 1), a.met)
        with f.loop(by_results) as result:
            wanted = result.index * spec.results
            begin = f.min(wanted, a.n - spec.results)
            given = (
                f.arguments, f.at(f.data, piece.first * size), f.at(f.weights, begin * a.result_bytes), f.nodes,
                count, f.entries, p.data_step, p.met_step, f.left, piece.first,
                f.at(f.at(f.out, piece.first * written), begin * a.out_n), p.out_step,
                f.at(f.biases, begin * F32_BYTES), wanted - begin,
            )  # fmt: skip
            with f.when(whole):
                f.call(f"tile_{WHOLE}", *given)
            with f.otherwise():
                with f.when(inside):
                    f.call(f"tile_{LANES}", *given)
                with f.otherwise():
                    f.call(f"tile_{LINES}", *given)
        piece.next(first=piece.first + spec.across)
    f.done()


def _tile(module: Module, spec: SpatialStencilSpec, exists: str) -> None:
    """Emit a tile: results of some lines, ``left`` of them there, in vectors, over all blocks of terms; finished."""
    f = module.function(
        f"tile_{exists}", arguments="ptr", data="ptr", weights="ptr", nodes="ptr", count="i64", entries="ptr",
        line_step="i64", met_step="i64", left="i64", first="i64", out="ptr", out_step="i64", bias="ptr", skip="i64",
    )  # fmt: skip
    a, lanes = arguments(f, spec), spec.isa.lanes
    size, kind, wide = BYTES[spec.operand], f"<{lanes} x float>", f"<{lanes} x i32>"
    results, lines, vectors = (range(n) for n in (spec.results, spec.lines, spec.vectors))
    clamped = [f.min(f.value(line), f.left - 1) for line in lines]
    rows = [f.at(f.data, number * f.line_step) for number in clamped]
    moved = [number * f.met_step for number in clamped] if exists == LINES else []
    met, line_met = a.met, a.line_met
    steps = [_numbers(f, range(v * lanes, (v + 1) * lanes)) for v in vectors]
    zeros = f.zeros(kind)
    names = [f"{r}_{line}_{v}" for r, line, v in product(results, lines, vectors)]
    with f.loop(f.count, node=f.nodes, entry=f.entries, **{f"all{name}": zeros for name in names}) as node:
        terms = f.load("i64", node.node, 8)
        with f.loop(terms, entry=node.entry, **{f"sum{name}": zeros for name in names}) as term:
            data, weight, line_at, at = (f.load("i64", term.entry, ENTRY.at(name)) for name in ENTRY.columns)
            sums = {f"sum{name}": term.carried[f"sum{name}"] for name in names}
            w = [f.splat(f.load("float", f.at(f.at(f.weights, weight), a.result_bytes * r)), lanes) for r in results]
            masks: list[Value | None] = [None] * spec.vectors
            numbers: list[Value] = []
            if exists != WHOLE:
                begin = f.splat(f.op("i32", f"trunc {at + f.first} to i32"), lanes)
                numbers = [f.op(wide, f"add {begin}, {step.name}") for step in steps]
                masks = [_below(f, number, met, lanes) for number in numbers]
            for line in lines:
                if exists == LINES:
                    there = f.op("i1", f"icmp ult {line_at + moved[line]}, {line_met.name}")
                    masks = [_below(f, number, f.select(there, met, f.value(0)), lanes) for number in numbers]
                for v in vectors:
                    place = f.at(f.at(rows[line], data), v * lanes * size)
                    mask = masks[v]
                    x = read(f, spec.operand, place, lanes, mask)
                    for r in results:
                        name = f"sum{r}_{line}_{v}"
                        after = f.fma(x, w[r], sums[name])
                        sums[name] = after if mask is None else f.select(mask, after, sums[name])
            term.next(entry=f.at(term.entry, ENTRY.bytes), **sums)
        joined = {f"all{name}": f.add(node.carried[f"all{name}"], term.carried[f"sum{name}"]) for name in names}
        node.next(node=f.at(node.node, NODE.bytes), entry=term.entry, **joined)
    _finished(f, spec, a, {name: node.carried[f"all{name}"] for name in names})
    f.done()


def _finished(f: Function, spec: SpatialStencilSpec, a: Named, sums: dict[str, Value]) -> None:
    """Make output of a tile's sums: of results from ``skip`` on, of the lines and the lanes that there are."""
    lanes, e = spec.isa.lanes, Epilogue.of(f, spec, a.accumulate)
    across, written = a.extent - f.first, BYTES[spec.output]
    for r in range(spec.results):
        bias = f.splat(f.load("float", f.bias, r * F32_BYTES), lanes)
        for line in range(spec.lines):
            with f.when(f.compare("sle", f.skip, r) & f.compare("sgt", f.left, line)):
                place = f.at(f.at(f.out, a.out_n * r), f.out_step * line)
                for v in range(spec.vectors):
                    value = total(f, sums[f"{r}_{line}_{v}"], bias)
                    e.store_first(value, f.at(place, v * lanes * written), across - v * lanes)


def _numbers(f: Function, numbers: range) -> Value:
    return Value(f, f"<{len(numbers)} x i32>", "<" + ", ".join(f"i32 {number}" for number in numbers) + ">")


def _below(f: Function, numbers: Value, bound: Value, lanes: int) -> Value:
    """Return of which lanes the numbers are from 0 to below a bound."""
    limit = f.splat(f.op("i32", f"trunc {bound} to i32"), lanes)
    return f.op(f"<{lanes} x i1>", f"icmp ult {numbers}, {limit.name}")
