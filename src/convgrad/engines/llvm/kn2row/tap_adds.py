"""The second part of kn2row: tap sums are added to outputs by phases of the stride, then stored in memory order."""

from __future__ import annotations

from contextlib import ExitStack

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import columns, fill
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.gemm.arguments import arguments
from convgrad.engines.llvm.packing import Cells, Copy
from convgrad.engines.llvm.store import Epilogue, interleaved, total
from convgrad.formats import F32
from convgrad.plan.kn2row.schedule import ENTRY, INNER_BLOCK, NODE, OUTER, PHASE
from convgrad.plan.kn2row.spec import VECTORS, Kn2rowSpec
from convgrad.plan.recipe import CHANNELS, F32_BYTES, SPATIAL
from convgrad.plan.tree import DIGIT_BITS

SHUFFLED = (2, 3, 4, 6)  # numbers of streams for which ``order`` has its own code


def bodies(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``line`` and the functions that it calls."""
    _list_taps(module, spec)
    _phase(module, spec)
    _order(module, spec)
    _store(module, spec)
    _line(module, spec)


def _list_taps(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``list_taps``, which lists the taps of a phase, and the nodes of the reduction tree that add them."""
    f = module.function(
        "list_taps",
        False,
        arguments="ptr",
        outer="ptr",
        count="i64",
        phase="ptr",
        entries="ptr",
        nodes="ptr",
        counted="ptr",
    )
    a, p = arguments(f, spec), columns(f, f.phase, PHASE)
    begin = {"entry": f.entries, "node": f.at(f.nodes, -NODE.bytes), "last_node": f.value(-1)}
    with f.loop(f.count, outer=f.outer, **begin) as outer:
        of_others = columns(f, outer.outer, OUTER)
        carried = {name: outer.carried[name] for name in begin}
        with f.loop(p.taps, number=of_others.number + p.tap, input=p.input, **carried) as tap:
            here = tap.number >> DIGIT_BITS
            new = f.compare("ne", here, tap.last_node)
            node = f.select(new, f.at(tap.node, NODE.bytes), tap.node)
            taps = f.select(new, f.value(1), f.load("i64", node, NODE.at("taps")) + 1)
            fill(f, node, NODE, number=here, taps=taps)
            at = of_others.place + tap.number * a.tap_bytes_out + tap.input * F32_BYTES
            fill(f, tap.entry, ENTRY, at=at, input=tap.input)
            tap.next(
                number=tap.number + p.tap_step,
                input=tap.input + p.tap_input,
                entry=f.at(tap.entry, ENTRY.bytes),
                node=node,
                last_node=here,
            )
        outer.next(outer=f.at(outer.outer, OUTER.bytes), **{name: tap.carried[name] for name in begin})
    f.store(f.distance(outer.node, f.nodes) + NODE.bytes, f.counted)
    f.done()


def _phase(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``phase``, which writes to[channel][output] = sum + 0 + bias for ``outputs`` outputs of a phase.

    A tap that does not exist for an output adds +0. Sums begin as +0 on all three levels of the tree. Both can only
    turn a sum of -0 into +0, and the +0 that is added to each sum at the end does this anyway.
    """
    f = module.function(
        "phase",
        arguments="ptr",
        tap_sums="ptr",
        entries="ptr",
        nodes="ptr",
        count="i64",
        inputs="i64",
        outputs="i64",
        bias="ptr",
        to="ptr",
    )
    a, lanes = arguments(f, spec), spec.isa.lanes
    there = f.splat(f.op("i32", f"trunc {f.inputs} to i32"), lanes)
    zeros, sums = f.zeros(f"<{lanes} x float>"), range(VECTORS)
    pieces = f.op("i64", f"udiv {f.outputs + (spec.tile_outputs - 1)}, {spec.tile_outputs}")
    with f.loop(a.n, tap_sums=f.tap_sums, bias=f.bias, to=f.to) as result:
        bias = f.splat(f.load("float", result.bias), lanes)
        with f.loop(pieces, first=f.value(0), to=result.to) as piece:
            levels = {f"level{level}_{v}": zeros for level in (1, 2) for v in sums}
            here = f.at(result.tap_sums, piece.first * F32_BYTES)
            with f.loop(f.count, node=f.nodes, entry=f.entries, above=f.value(-1), **levels) as node:
                n = columns(f, node.node, NODE)
                with f.loop(n.taps, entry=node.entry, **{f"sum{v}": zeros for v in sums}) as tap:
                    added = _with_tap(f, lanes, tap, (here, piece.first), there)
                    tap.next(entry=f.at(tap.entry, ENTRY.bytes), **added)
                above = n.number >> DIGIT_BITS
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
                f.store(total(f, both, bias), piece.to, v * lanes * F32_BYTES)
            piece.next(first=piece.first + spec.tile_outputs, to=f.at(piece.to, spec.tile_outputs * F32_BYTES))
        result.next(
            tap_sums=f.at(result.tap_sums, a.result_bytes),
            bias=f.at(result.bias, F32_BYTES),
            to=f.at(result.to, a.stream_bytes),
        )
    f.done()


def _with_tap(f: Function, lanes: int, tap: Loop, begin: tuple[Value, Value], there: Value) -> dict[str, Value]:
    """Return the sums of a node with those of one more tap, for VECTORS vectors of outputs.

    ``begin`` are the address of the tap sums and the number of the first output. ``there`` is the number of input
    positions, in all lanes.
    """
    kind, wide = f"<{lanes} x float>", f"<{lanes} x i32>"
    entry, (tap_sums, first) = columns(f, tap.entry, ENTRY), begin
    place, first_input = f.at(tap_sums, entry.at), f.op("i32", f"trunc {entry.input + first} to i32")
    number = f.op(wide, f"add {f.splat(first_input, lanes)}, {f.numbers('i32', range(lanes)).name}")
    added = {}
    for v in range(VECTORS):
        inputs = f.op(wide, f"add {number}, {f.everywhere(wide, v * lanes).name}") if v else number
        exists = f.op(f"<{lanes} x i1>", f"icmp ult {inputs}, {there.name}")
        tap_sum = f.load(kind, place, v * lanes * F32_BYTES)
        added[f"sum{v}"] = f.add(tap.carried[f"sum{v}"], f.select(exists, tap_sum, f.zeros(kind)))
    return added


def _order(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``order``, which interleaves ``streams`` streams of ``count`` values: to[i][stream] = source[stream][i].

    Shuffles do this if the number of streams is in SHUFFLED, which makes the whole kernel up to 20 % faster.
    """
    f = module.function("order", source="ptr", step="i64", streams="i64", count="i64", to="ptr")
    size = f.value(F32_BYTES)
    copy = Copy(Cells(f, F32.name, spec.isa.lanes), f.count, size, f.streams, f.step, f.streams * size)
    with ExitStack() as nested:
        for streams in SHUFFLED:
            with f.when(f.compare("eq", f.streams, streams)):
                _shuffled(f, streams, spec.isa.lanes)
            nested.enter_context(f.otherwise())
        copy.along_rows(f.source, f.to)
    f.done()


def _shuffled(f: Function, streams: int, lanes: int) -> None:
    """Interleave the vectors of ``streams`` streams by shuffles. The last vectors may exceed ``count`` values."""
    kind, vector = f"<{lanes} x float>", lanes * F32_BYTES
    with f.loop((f.count + (lanes - 1)) >> (lanes.bit_length() - 1), source=f.source, to=f.to) as piece:
        vectors = [f.load(kind, f.at(piece.source, f.step * stream)) for stream in range(streams)]
        for v in range(streams):
            f.store(interleaved(f, vectors, v * lanes, lanes), piece.to, v * vector)
        piece.next(source=f.at(piece.source, vector), to=f.at(piece.to, streams * vector))


def _store(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``store``, which stores out[i] = round(activation(source[i] [+ old])), where source[i] is sum + 0 + bias.

    If values are contiguous in the output, ``count`` is the number of values. Otherwise it is the number of positions,
    and the channels of each position are stored one by one.
    """
    f = module.function("store", arguments="ptr", source="ptr", out="ptr", count="i64")
    a, lanes, size = arguments(f, spec), spec.isa.lanes, BYTES[spec.output]
    kind, e = f"<{lanes} x float>", Epilogue.of(f, spec, a.accumulates)
    if spec.out in (CHANNELS, SPATIAL):
        vectors = (f.count + (lanes - 1)) >> (lanes.bit_length() - 1)
        with f.loop(vectors, source=f.source, out=f.out) as position:
            e.store_first([f.load(kind, position.source)], position.out, f.count - position.index * lanes)
            position.next(source=f.at(position.source, lanes * F32_BYTES), out=f.at(position.out, lanes * size))
    else:
        with f.loop(f.count, source=f.source, out=f.out) as position:
            with f.loop(a.n, source=position.source, out=position.out) as result:
                e.store(f.load("float", result.source), result.out)
                result.next(source=f.at(result.source, F32_BYTES), out=f.at(result.out, a.out_n))
            position.next(source=result.source, out=f.at(position.out, a.out_step))
    f.done()


def _line(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``line``, which computes the outputs of a block of the last axis, with ``count`` taps of the other axes."""
    f = module.function(
        "line", False, arguments="ptr", scratch="ptr", outer="ptr", count="i64", inner_block="ptr", out="ptr"
    )
    a, e = arguments(f, spec), columns(f, f.inner_block, INNER_BLOCK)
    entries, nodes, streams, ordered = (
        f.at(f.scratch, place) for place in (a.entries_at, a.nodes_at, a.streams_at, a.ordered_at)
    )
    counted = f.alloca("i64", 1)
    tap_sums, bias, phase_outputs = f.at(f.scratch, a.tap_sums_at), f.at(f.scratch, a.bias_at), e.phase_outputs
    of_phase = a.stream_bytes * a.n
    with f.loop(a.phase_count, phase=f.at(a.phases, e.phase), to=streams) as phase:
        lists = {"entries": entries, "nodes": nodes, "counted": counted}
        f.call("list_taps", phase=phase.phase, **f.parameters, **lists)
        many = f.load("i64", counted) >> (NODE.bytes.bit_length() - 1)
        lists = {"entries": entries, "nodes": nodes, "count": many}
        f.call(
            "phase",
            arguments=f.arguments,
            tap_sums=tap_sums,
            inputs=e.count,
            outputs=phase_outputs,
            bias=bias,
            to=phase.to,
            **lists,
        )
        phase.next(phase=f.at(phase.phase, PHASE.bytes), to=f.at(phase.to, of_phase))
    if spec.out == SPATIAL:
        with f.loop(a.n, source=streams, out=f.out) as result:
            _store_in_order(f, (result.source, of_phase, a.phase_count), phase_outputs, ordered, result.out, e.outputs)
            result.next(source=f.at(result.source, a.stream_bytes), out=f.at(result.out, a.out_n))
    else:
        count = e.outputs * a.n if spec.out == CHANNELS else e.outputs
        _store_in_order(f, (streams, a.stream_bytes, a.phase_count * a.n), phase_outputs, ordered, f.out, count)
    f.done()


def _store_in_order(
    f: Function, streams: tuple[Value, Value, Value], phase_outputs: Value, ordered: Value, out: Value, count: Value
) -> None:
    """Store streams in the order of the output in memory. A single stream is already in this order.

    ``streams`` are the address of the first stream, the bytes between two streams, and their number. ``ordered`` is the
    address of scratch for all values in this order.
    """
    source, _, many = streams
    alone = f.compare("eq", many, 1)
    with f.when(f.compare("ne", many, 1)):
        f.call("order", *streams, phase_outputs, ordered)
    f.call("store", f.arguments, f.select(alone, source, ordered), out, count)
