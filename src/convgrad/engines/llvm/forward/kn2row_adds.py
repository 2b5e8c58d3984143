"""Outputs gather the products of the taps that they meet: phase by phase, then in the order in which they lie."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.store import Epilogue, total
from convgrad.plan.forward.kn2row import VECTORS, Kn2rowSpec
from convgrad.plan.forward.kn2row_schedule import END, ENTRY, NODE, OUTER, PHASE
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.tree import DIGIT_BITS

SHUFFLED = (2, 3, 4, 6)  # numbers of streams
Arguments = Callable[[Function, Kn2rowSpec], Named]


def bodies(module: Module, spec: Kn2rowSpec, arguments: Arguments) -> None:
    """Emit ``line`` and what it calls."""
    _listed(module, spec, arguments)
    _phase(module, spec, arguments)
    _ordered(module, spec)
    _written(module, spec, arguments)
    _line(module, spec, arguments)


def _listed(module: Module, spec: Kn2rowSpec, arguments: Arguments) -> None:
    """Emit ``listed``: the taps of a phase, as entries, and the nodes of the tree that they are below."""
    f = module.function(
        "listed", False, arguments="ptr", outer="ptr", count="i64", phase="ptr", entries="ptr", nodes="ptr",
        counted="ptr",
    )  # fmt: skip
    a, p = arguments(f, spec), columns(f, f.phase, PHASE)
    begin = {"entry": f.entries, "node": f.at(f.nodes, -NODE.bytes), "last": f.value(-1)}
    with f.loop(f.count, outer=f.outer, **begin) as outer:
        place, number = f.load("i64", outer.outer), f.load("i64", outer.outer, 8)
        carried = {name: outer.carried[name] for name in begin}
        with f.loop(p.taps, number=number + p.tap, met=p.met, **carried) as tap:
            here = tap.number >> DIGIT_BITS
            new = f.compare("ne", here, tap.last)
            node = f.select(new, f.at(tap.node, NODE.bytes), tap.node)
            f.store(f.select(new, f.value(1), f.load("i64", node, 8) + 1), node, 8)
            f.store(here, node)
            f.store(place + tap.number * a.tap_bytes_out + tap.met * F32_BYTES, tap.entry)
            f.store(tap.met, tap.entry, 8)
            tap.next(
                number=tap.number + p.tap_step, met=tap.met + p.tap_met, entry=f.at(tap.entry, ENTRY.bytes), node=node,
                last=here,
            )  # fmt: skip
        outer.next(outer=f.at(outer.outer, OUTER.bytes), **{name: tap.carried[name] for name in begin})
    f.store(f.distance(outer.node, f.nodes) + NODE.bytes, f.counted)
    f.done()


def _phase(module: Module, spec: Kn2rowSpec, arguments: Arguments) -> None:
    """Emit ``phase``: sums of ``across`` outputs, to[result][output]: + 0, + bias.

    Absent taps meet no position of the slab's and add +0, as the order of sums has them. The nodes of three levels of
    the tree begin as +0 too: that changes no sum but a -0, to which +0 is added in the end.
    """
    f = module.function(
        "phase", arguments="ptr", products="ptr", entries="ptr", nodes="ptr", count="i64", met="i64", across="i64",
        bias="ptr", to="ptr",
    )  # fmt: skip
    a, lanes = arguments(f, spec), spec.isa.lanes
    kind, wide = f"<{lanes} x float>", f"<{lanes} x i32>"
    steps = Value(f, wide, "<" + ", ".join(f"i32 {lane}" for lane in range(lanes)) + ">")
    there = f.splat(f.op("i32", f"trunc {f.met} to i32"), lanes)
    zeros = f.zeros(kind)
    sums = range(VECTORS)
    blocks = f.op("i64", f"udiv {f.across + (spec.across - 1)}, {spec.across}")
    with f.loop(a.n, products=f.products, bias=f.bias, to=f.to) as result:
        bias = f.splat(f.load("float", result.bias), lanes)
        with f.loop(blocks, first=f.value(0), to=result.to) as block:
            levels = {f"level{level}_{v}": zeros for level in (1, 2) for v in sums}
            here = f.at(result.products, block.first * F32_BYTES)
            with f.loop(f.count, node=f.nodes, entry=f.entries, above=f.value(-1), **levels) as node:
                taps = f.load("i64", node.node, 8)
                with f.loop(taps, entry=node.entry, **{f"sum{v}": zeros for v in sums}) as tap:
                    place = f.at(here, f.load("i64", tap.entry))
                    met = f.op("i32", f"trunc {f.load('i64', tap.entry, 8) + block.first} to i32")
                    number = f.op(wide, f"add {f.splat(met, lanes)}, {steps.name}")
                    added = {}
                    for v in sums:
                        each = f.op(wide, f"add {number}, {_same(f, v * lanes, lanes).name}") if v else number
                        exists = f.op(f"<{lanes} x i1>", f"icmp ult {each}, {there.name}")
                        product = f.load(kind, place, v * lanes * F32_BYTES)
                        added[f"sum{v}"] = f.add(tap.carried[f"sum{v}"], f.select(exists, product, zeros))
                    tap.next(entry=f.at(tap.entry, ENTRY.bytes), **added)
                above = f.load("i64", node.node) >> DIGIT_BITS
                other = f.compare("ne", above, node.above)
                after: dict[str, Value] = {}
                for v in sums:
                    names = f"level1_{v}", f"level2_{v}"
                    first, second = (node.carried[name] for name in names)
                    levels_after = tree.pushed(f, tap.carried[f"sum{v}"], other, first, second)
                    after |= dict(zip(names, levels_after, strict=True))
                node.next(node=f.at(node.node, NODE.bytes), entry=tap.entry, above=above, **after)
            for v in sums:
                both = f.add(node.carried[f"level2_{v}"], node.carried[f"level1_{v}"])
                f.store(total(f, both, bias), block.to, v * lanes * F32_BYTES)
            block.next(first=block.first + spec.across, to=f.at(block.to, spec.across * F32_BYTES))
        result.next(
            products=f.at(result.products, a.result_bytes), bias=f.at(result.bias, F32_BYTES),
            to=f.at(result.to, a.stream_bytes),
        )  # fmt: skip
    f.done()


def _same(f: Function, number: int, lanes: int) -> Value:
    return Value(f, f"<{lanes} x i32>", "<" + ", ".join([f"i32 {number}"] * lanes) + ">")


def _ordered(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``ordered``: to[i][stream] of source[stream][i], ``count`` values of each of ``streams``.

    Of some numbers of streams vectors are shuffled into one another; of others squares of streams and values are
    transposed.
    """
    f = module.function("ordered", source="ptr", step="i64", streams="i64", count="i64", to="ptr")
    lanes = spec.isa.lanes
    kind, pitch = f"<{lanes} x float>", f.streams * F32_BYTES
    shift = lanes.bit_length() - 1
    pieces = (f.count + (lanes - 1)) >> shift

    def squares(rows: int, left: Value, source: Value, to: Value, masked: bool) -> None:
        mask = f.mask(left, lanes) if masked else None
        places = [f.at(source, f.min(f.value(i), left - 1) * f.step) for i in range(rows)]
        with f.loop(pieces, along=f.value(0), to=to) as piece:
            for p, column in enumerate(f.transposed([f.load(kind, f.at(each, piece.along)) for each in places], lanes)):
                place = f.at(piece.to, pitch * p)
                if mask is None:  # the next one is written over what is behind
                    f.store(column, place)
                else:
                    f.masked_store(column, place, mask)
            piece.next(along=piece.along + lanes * F32_BYTES, to=f.at(piece.to, pitch * lanes))

    def shuffled(rows: int) -> None:
        with f.loop(pieces, source=f.source, to=f.to) as piece:
            vectors = [f.load(kind, f.at(piece.source, f.step * row)) for row in range(rows)]
            for v in range(rows):
                f.store(_interleaved(f, vectors, v * lanes, lanes), piece.to, v * lanes * F32_BYTES)
            piece.next(source=f.at(piece.source, lanes * F32_BYTES), to=f.at(piece.to, pitch * lanes))

    with ExitStack() as nested:
        for rows in SHUFFLED:
            with f.when(f.compare("eq", f.streams, rows)):
                shuffled(rows)
            nested.enter_context(f.otherwise())
        with f.when(f.compare("sle", f.streams, lanes)):
            squares(lanes, f.streams, f.source, f.to, False)
    blocks = f.select(f.compare("sgt", f.streams, lanes), (f.streams + (lanes - 1)) >> shift, f.value(0))
    with f.loop(blocks, source=f.source, to=f.to, left=f.streams) as block:
        squares(lanes, f.min(block.left, lanes), block.source, block.to, True)
        block.next(
            source=f.at(block.source, f.step * lanes), to=f.at(block.to, lanes * F32_BYTES), left=block.left - lanes
        )
    f.done()


def _interleaved(f: Function, vectors: list[Value], first: int, lanes: int) -> Value:
    """Return a vector's worth, from ``first`` on, of vectors whose lanes take turns."""
    many, value = len(vectors), None
    for row in sorted({(first + lane) % many for lane in range(lanes)}):
        here = [lane for lane in range(lanes) if (first + lane) % many == row]
        picks = [-1 if value is None else lane for lane in range(lanes)]
        for lane in here:
            picks[lane] = (first + lane) // many + (0 if value is None else lanes)
        value = f.shuffle(vectors[row] if value is None else value, vectors[row], picks)
    assert value is not None
    return value


def _written(module: Module, spec: Kn2rowSpec, arguments: Arguments) -> None:
    """Emit ``written``: out[i] = round(source[i] [+ old]), ``count`` neighbours; or, where none are, one by one."""
    f = module.function("written", arguments="ptr", source="ptr", out="ptr", count="i64")
    a, lanes, size = arguments(f, spec), spec.isa.lanes, BYTES[spec.output]
    kind, e = f"<{lanes} x float>", Epilogue.of(f, spec, a.adds)
    if spec.out in (CHANNELS, SPATIAL):
        whole = f.count >> (lanes.bit_length() - 1)
        with f.loop(whole, source=f.source, out=f.out) as each:
            e.store(f.load(kind, each.source), each.out)
            each.next(source=f.at(each.source, lanes * F32_BYTES), out=f.at(each.out, lanes * size))
        remaining = f.count - whole * lanes
        with f.when(f.compare("sgt", remaining, 0)):
            e.store(f.load(kind, each.source), each.out, f.mask(remaining, lanes))
    else:
        with f.loop(f.count, source=f.source, out=f.out) as each:
            with f.loop(a.n, source=each.source, out=each.out) as result:
                e.store(f.load("float", result.source), result.out)
                result.next(source=f.at(result.source, F32_BYTES), out=f.at(result.out, a.out_n))
            each.next(source=result.source, out=f.at(each.out, a.out_step))
    f.done()


def _line(module: Module, spec: Kn2rowSpec, arguments: Arguments) -> None:
    """Emit ``line``: the outputs of a slab of the last axis, under ``count`` taps of the others."""
    f = module.function("line", False, arguments="ptr", scratch="ptr", outer="ptr", count="i64", end="ptr", out="ptr")
    a, e = arguments(f, spec), columns(f, f.end, END)
    entries, nodes, streams, line = (
        f.at(f.scratch, place) for place in (a.entries_at, a.nodes_at, a.streams_at, a.line_at)
    )
    counted = f.alloca("i64", 1)
    products, bias, across = f.at(f.scratch, a.products_at), f.at(f.scratch, a.bias_at), e.across
    of_phase = a.stream_bytes * a.n
    with f.loop(a.phase_count, phase=f.at(a.phases, e.phase), to=streams) as each:
        f.call("listed", f.arguments, f.outer, f.count, each.phase, entries, nodes, counted)
        many = f.load("i64", counted) >> (NODE.bytes.bit_length() - 1)
        f.call("phase", f.arguments, products, entries, nodes, many, e.count, across, bias, each.to)
        each.next(phase=f.at(each.phase, PHASE.bytes), to=f.at(each.to, of_phase))
    if spec.out == SPATIAL:
        with f.loop(a.n, source=streams, out=f.out) as result:
            _put_in_order(f, (result.source, of_phase, a.phase_count), across, line, result.out, e.outputs)
            result.next(source=f.at(result.source, a.stream_bytes), out=f.at(result.out, a.out_n))
    else:
        count = e.outputs * a.n if spec.out == CHANNELS else e.outputs
        _put_in_order(f, (streams, a.stream_bytes, a.phase_count * a.n), across, line, f.out, count)
    f.done()


def _put_in_order(
    f: Function, streams: tuple[Value, Value, Value], across: Value, line: Value, out: Value, count: Value
) -> None:
    """Write streams, so far apart and so many, in the order of the output; one is in order."""
    source, _, many = streams
    alone = f.compare("eq", many, 1)
    with f.when(f.compare("ne", many, 1)):
        f.call("ordered", *streams, across, line)
    f.call("written", f.arguments, f.select(alone, source, line), out, count)
