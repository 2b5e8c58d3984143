"""The spatial stencil: the lanes of a vector are neighbouring outputs of a line, and a weight is in all lanes.

The k (taps times channels) of some lines are listed once for all groups and positions. A micro-tile has three kernels,
by which taps are known to exist for its outputs. The kernel LANES saves 6 to 23 % of the time if lines are short.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from convgrad.engines.llvm.arguments import Named, columns, fill, going
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments, each_tap
from convgrad.engines.llvm.forward.pack import taken
from convgrad.engines.llvm.packing import bias, nested
from convgrad.engines.llvm.store import Epilogue, total
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.forward.spatial_stencil_schedule import CHAIN, ENTRY, OUTER, PART, TASK
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.records import Record

# The kernel WHOLE is for micro-tiles where all taps exist for all outputs.
# The kernel LANES masks lanes, but all lines of the taps exist. The kernel LINES also checks whether each line exists.
WHOLE, LANES, LINES = "whole", "lanes", "lines"
FAR = 1 << 62
# For a list of k: the bytes of its chains, and the smallest and largest line and position that the first output reads.
LISTED = Record("bytes", "low_line", "high_line", "low", "high")


def bodies(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit the functions that the nest calls: packing, lists of k, and micro-tiles."""
    bias(module, spec.operand)
    _pack_a(module, spec)
    _list_k(module, spec)
    for exists in (WHOLE, LANES, LINES):
        _micro_tile(module, spec, exists)
    _micro_tiles(module, spec)
    _line_block(module, spec)


def task(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``task``, which packs the weights of some groups, and then computes these groups region by region."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    axes = along(a, spec)
    begin = {
        "weights": f.at(a.weights, t.group * a.weights_group), "bias": f.at(a.bias, t.group * a.n * a.bias_n),
        "to": f.at(f.scratch, a.b_at), "bias_to": f.at(f.scratch, a.bias_at),
    }  # fmt: skip
    with f.loop(t.groups, **begin) as group:
        f.call("pack_a", f.arguments, group.weights, group.bias, group.to, group.bias_to)
        group.next(
            weights=f.at(group.weights, a.weights_group), bias=f.at(group.bias, a.bias_n * a.n),
            to=f.at(group.to, a.result_bytes * a.n), bias_to=f.at(group.bias_to, a.n * F32_BYTES),
        )  # fmt: skip

    def parts(at: int, chosen: list[Value]) -> None:
        if at == spec.axes - 2:
            f.call("line_block", f.arguments, f.scratch, t.group, t.groups, *chosen)
            return
        with f.loop(axes[at].count, part=f.at(a.parts, axes[at].first)) as each:
            parts(at + 1, [*chosen, each.part])
            each.next(part=f.at(each.part, PART.bytes))

    parts(0, [])
    f.done()


def _outer_taps(f: Function, parts: Sequence[Named], to: Value) -> Value:
    """List the taps of all axes except the last two as rows of OUTER, and return the address after the list.

    A row has the tap's offset in the data and its number.
    """

    def one(tap: Value, data: Value, state: dict[str, Value]) -> dict[str, Value]:
        fill(f, state["to"], OUTER, data=data, tap=tap)
        return {"to": f.at(state["to"], OUTER.bytes)}

    return each_tap(f, parts, {"to": to}, one)["to"]


def _pack_a(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``pack_a``, which packs the weights of a group as [result][tap][k], and its biases, both in f32."""
    f = module.function("pack_a", False, arguments="ptr", weights="ptr", bias="ptr", to="ptr", bias_to="ptr")
    a = arguments(f, spec)

    def one(source: Value, to: Value) -> Value:
        f.store(read(f, spec.operand, source), to)
        return f.at(to, F32_BYTES)

    taps = ((axis.kernel, axis.tap) for axis in along(a, spec))
    nested(f, [(a.n, a.weights_n), *taps, (a.k, a.weights_k)], f.weights, f.to, one)
    f.call("pack_bias", a.bias, f.bias_to, f.bias, a.bias_n, a.n, a.n)
    f.done()


def _list_k(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``list_k``, which lists the k of some lines in the order of the sum, and the chains of these k.

    It writes a row of LISTED to ``counted``.
    """
    f = module.function(
        "list_k", False, arguments="ptr", outer="ptr", count="i64", phase="ptr", last="ptr", line="i64", many="i64",
        entries="ptr", chains="ptr", counted="ptr",
    )  # fmt: skip
    a, p, q = arguments(f, spec), columns(f, f.phase, PART), columns(f, f.last, PART)
    far, near = f.value(FAR), f.value(-FAR)
    begin = {
        "entry": f.entries, "chain": f.at(f.chains, -CHAIN.bytes), "number": f.value(-1),
        "low_line": far, "high_line": near, "low": far, "high": near,
    }  # fmt: skip
    with f.loop(f.count, outer=f.outer, **begin) as outer:
        of_others = columns(f, outer.outer, OUTER)
        first = p.met + f.line * p.met_step
        moved = of_others.data + f.line * p.data_step
        state = {name: outer.carried[name] for name in begin}
        with f.loop(p.taps, tap=of_others.tap + p.tap, met=first, data=moved, **state) as row:
            final = row.met + (f.many - 1) * p.met_step
            some = f.compare("slt", row.met, a.line_met) & f.compare("sge", final, 0)
            met_data = row.data + q.data
            count = f.select(some, q.taps, f.value(0))
            state = {name: row.carried[name] for name in begin}
            state["low_line"] = f.select(some, f.min(row.low_line, row.met), row.low_line)
            state["high_line"] = f.select(some, f.max(row.high_line, row.met), row.high_line)
            with f.loop(count, tap=row.tap + q.tap, at=q.met, data=met_data, **state) as tap:
                number, _ = f.divided(tap.tap, a.number_share)
                new = f.compare("ne", number, tap.number)
                chain = f.select(new, f.at(tap.chain, CHAIN.bytes), tap.chain)
                before = f.select(new, f.value(0), f.load("i64", chain, CHAIN.at("count")))
                fill(f, chain, CHAIN, number=number, count=before + a.k)
                with f.loop(a.k, entry=tap.entry) as k:
                    channel = taken(f, spec, k.index, a.k)
                    fill(
                        f, k.entry, ENTRY, data=tap.data + channel * a.data_k,
                        weight=(tap.tap * a.k + channel) * F32_BYTES, line=row.met, met=tap.at,
                    )  # fmt: skip
                    k.next(entry=f.at(k.entry, ENTRY.bytes))
                tap.next(
                    tap=tap.tap + q.tap_step, at=tap.at + q.tap_met, data=tap.data + q.tap_data,
                    entry=k.entry, chain=chain, number=number, low=f.min(tap.low, tap.at),
                    high=f.max(tap.high, tap.at), low_line=tap.low_line, high_line=tap.high_line,
                )  # fmt: skip
            row.next(
                tap=row.tap + p.tap_step, met=row.met + p.tap_met, data=row.data + p.tap_data,
                **{name: tap.carried[name] for name in begin},
            )  # fmt: skip
        outer.next(outer=f.at(outer.outer, OUTER.bytes), **{name: row.carried[name] for name in begin})
    met = {name: outer.carried[name] for name in ("low_line", "high_line", "low", "high")}
    fill(f, f.counted, LISTED, bytes=f.distance(outer.chain, f.chains) + CHAIN.bytes, **met)
    f.done()


def _line_block(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``line_block``, which lists the k of a few lines and computes these lines for all groups and positions.

    It repeats both steps until all lines are computed.
    """
    names = [f"part{axis}" for axis in range(spec.axes - 2)]
    f = module.function(
        "line_block", False, arguments="ptr", scratch="ptr", group="i64", groups="i64", **dict.fromkeys(names, "ptr")
    )
    a = arguments(f, spec)
    outer, entries, chains = (f.at(f.scratch, place) for place in (a.outer_at, a.entries_at, a.chains_at))
    parts = [columns(f, f.parameters[name], PART) for name in names]
    taps = f.distance(_outer_taps(f, parts, outer), outer) >> (OUTER.bytes.bit_length() - 1)
    lines = along(a, spec)[-2]
    last = f.at(a.parts, along(a, spec)[-1].first)
    data, out = f.at(a.data, f.group * a.data_group), f.at(a.out, f.group * a.out_group)
    for part in parts:
        data, out = f.at(data, part.data), f.at(out, part.out)
    counted = f.alloca("i64", len(LISTED.columns))

    def positions(at: int, data: Value, out: Value, given: tuple[Value, ...]) -> None:
        if at == len(parts):
            f.call("micro_tiles", f.arguments, counted, chains, entries, data, out, *given)
            return
        with f.loop(parts[at].count, data=data, out=out) as each:
            positions(at + 1, each.data, each.out, given)
            each.next(data=f.at(each.data, parts[at].data_step), out=f.at(each.out, parts[at].out_step))

    with f.loop(lines.count, phase=f.at(a.parts, lines.first)) as each:
        p = columns(f, each.phase, PART)
        count = f.op("i64", f"udiv {p.count + (spec.lines - 1)}, {spec.lines}")
        with f.loop(count, line=f.value(0)) as some:
            left = f.min(p.count - some.line, spec.lines)
            f.call("list_k", f.arguments, outer, taps, each.phase, last, some.line, left, entries, chains, counted)
            begin = {
                "data": f.at(data, p.data), "out": f.at(f.at(out, p.out), some.line * p.out_step),
                "weights": f.at(f.scratch, a.b_at), "bias": f.at(f.scratch, a.bias_at),
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


def _micro_tiles(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``micro_tiles``, which calls the right kernel for each micro-tile of some lines of a group."""
    f = module.function(
        "micro_tiles", False, arguments="ptr", counted="ptr", chains="ptr", entries="ptr", data="ptr", out="ptr",
        weights="ptr", biases="ptr", phase="ptr", left="i64",
    )  # fmt: skip
    a, p = arguments(f, spec), columns(f, f.phase, PART)
    size, out_bytes = BYTES[spec.operand], BYTES[spec.output]
    listed = columns(f, f.counted, LISTED)
    count = listed.bytes >> (CHAIN.bytes.bit_length() - 1)
    final = listed.high_line + (f.left - 1) * p.met_step
    inside = f.compare("sge", listed.low_line, 0) & f.compare("slt", final, a.line_met)
    pieces = f.op("i64", f"udiv {a.extent + (spec.across - 1)}, {spec.across}")
    by_results = f.op("i64", f"udiv {a.n + (spec.results - 1)}, {spec.results}")
    with f.loop(pieces, first=f.value(0)) as piece:
        whole = inside & f.compare("sge", listed.low + piece.first, 0)
        whole = whole & f.compare("slt", listed.high + piece.first + (spec.across - 1), a.met)
        with f.loop(by_results) as result:
            wanted = result.index * spec.results
            begin = f.min(wanted, a.n - spec.results)
            given = (
                f.arguments, f.at(f.data, piece.first * size), f.at(f.weights, begin * a.result_bytes), f.chains,
                count, f.entries, p.data_step, p.met_step, f.left, piece.first,
                f.at(f.at(f.out, piece.first * out_bytes), begin * a.out_n), p.out_step,
                f.at(f.biases, begin * F32_BYTES), wanted - begin,
            )  # fmt: skip
            with f.when(whole):
                f.call(f"micro_tile_{WHOLE}", *given)
            with f.otherwise():
                with f.when(inside):
                    f.call(f"micro_tile_{LANES}", *given)
                with f.otherwise():
                    f.call(f"micro_tile_{LINES}", *given)
        piece.next(first=piece.first + spec.across)
    f.done()


def _micro_tile(module: Module, spec: SpatialStencilSpec, exists: str) -> None:
    """Emit a kernel of a micro-tile, which sums and stores vectors of outputs for several results and lines.

    Only the first ``left`` lines exist.
    """
    f = module.function(
        f"micro_tile_{exists}", arguments="ptr", data="ptr", weights="ptr", chains="ptr", count="i64", entries="ptr",
        line_step="i64", met_step="i64", left="i64", first="i64", out="ptr", out_step="i64", bias="ptr", skip="i64",
    )  # fmt: skip
    a, lanes = arguments(f, spec), spec.isa.lanes
    size, kind, wide = BYTES[spec.operand], f"<{lanes} x float>", f"<{lanes} x i32>"
    results, lines, vectors = (range(n) for n in (spec.results, spec.lines, spec.vectors))
    clamped = [f.min(f.value(line), f.left - 1) for line in lines]
    rows = [f.at(f.data, number * f.line_step) for number in clamped]
    moved = [number * f.met_step for number in clamped] if exists == LINES else []
    met, line_met = a.met, a.line_met
    steps = [f.numbers("i32", range(v * lanes, (v + 1) * lanes)) for v in vectors]
    zeros = f.zeros(kind)
    names = [f"{r}_{line}_{v}" for r, line, v in product(results, lines, vectors)]
    with f.loop(f.count, chain=f.chains, entry=f.entries, **{f"all{name}": zeros for name in names}) as chain:
        count = f.load("i64", chain.chain, CHAIN.at("count"))
        with f.loop(count, entry=chain.entry, **{f"sum{name}": zeros for name in names}) as k:
            entry = columns(f, k.entry, ENTRY)
            sums = {f"sum{name}": k.carried[f"sum{name}"] for name in names}
            of_results = [f.at(f.at(f.weights, entry.weight), a.result_bytes * r) for r in results]
            w = [f.splat(f.load("float", place), lanes) for place in of_results]
            masks: list[Value | None] = [None] * spec.vectors
            numbers: list[Value] = []
            if exists != WHOLE:
                begin = f.splat(f.op("i32", f"trunc {entry.met + f.first} to i32"), lanes)
                numbers = [f.op(wide, f"add {begin}, {step.name}") for step in steps]
                masks = [_below(f, number, met, lanes) for number in numbers]
            for line in lines:
                if exists == LINES:
                    there = f.op("i1", f"icmp ult {entry.line + moved[line]}, {line_met.name}")
                    masks = [_below(f, number, f.select(there, met, f.value(0)), lanes) for number in numbers]
                for v in vectors:
                    place = f.at(f.at(rows[line], entry.data), v * lanes * size)
                    mask = masks[v]
                    x = read(f, spec.operand, place, lanes, mask)
                    for r in results:
                        name = f"sum{r}_{line}_{v}"
                        after = f.fma(x, w[r], sums[name])
                        sums[name] = after if mask is None else f.select(mask, after, sums[name])
            k.next(entry=f.at(k.entry, ENTRY.bytes), **sums)
        totals = {f"all{name}": f.add(chain.carried[f"all{name}"], k.carried[f"sum{name}"]) for name in names}
        chain.next(chain=f.at(chain.chain, CHAIN.bytes), entry=k.entry, **totals)
    _store(f, spec, a, {name: chain.carried[f"all{name}"] for name in names})
    f.done()


def _store(f: Function, spec: SpatialStencilSpec, a: Named, sums: dict[str, Value]) -> None:
    """Store the sums of a micro-tile for the results from ``skip`` on, and for lines and lanes that exist."""
    lanes, e = spec.isa.lanes, Epilogue.of(f, spec, a.accumulate)
    across, out_bytes = a.extent - f.first, BYTES[spec.output]
    for r in range(spec.results):
        bias = f.splat(f.load("float", f.bias, r * F32_BYTES), lanes)
        for line in range(spec.lines):
            with f.when(f.compare("sle", f.skip, r) & f.compare("sgt", f.left, line)):
                place = f.at(f.at(f.out, a.out_n * r), f.out_step * line)
                for v in range(spec.vectors):
                    value = total(f, sums[f"{r}_{line}_{v}"], bias)
                    e.store_first(value, f.at(place, v * lanes * out_bytes), across - v * lanes)


def _below(f: Function, numbers: Value, bound: Value, lanes: int) -> Value:
    """Return a mask of the lanes whose numbers are at least 0 and less than ``bound``."""
    limit = f.splat(f.op("i32", f"trunc {bound} to i32"), lanes)
    return f.op(f"<{lanes} x i1>", f"icmp ult {numbers}, {limit.name}")
