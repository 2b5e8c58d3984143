"""The nest of products: line by line of the data tiles of taps times results; slab by slab outputs that gather them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.convert import BYTES
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward import kn2row_adds, pack
from convgrad.engines.llvm.forward.arguments import arguments
from convgrad.engines.llvm.forward.micro_tile import store_panel, tile
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.packing import Cells, Copy, bias, nested
from convgrad.engines.llvm.store import NO_BIAS
from convgrad.plan.forward.kn2row import Kn2rowSpec
from convgrad.plan.forward.kn2row_schedule import END, OUTER, PART, SLAB, TASK
from convgrad.plan.recipe import CHANNELS_OUT, F32_BYTES

NOTHING = -1


def bodies(module: Module, spec: Kn2rowSpec) -> None:
    """Emit what the nest calls."""
    one = spec.product
    if one.weights == CHANNELS_OUT:
        _pack_lines(module, spec)
    else:
        pack.weights(module, one)
    pack.data(module, one)
    bias(module, one.operand)
    tree.combine_up(module, one.isa)
    store_panel(module, one)
    for height in one.mr_sizes:
        for vectors in one.nr_sizes:
            tile(module, one, height, vectors)
    _ready(module, spec)
    _products(module, spec)
    kn2row_adds.bodies(module, spec, arguments)
    _lines(module, spec)
    _slab(module, spec)


def begin(f: Function, spec: Kn2rowSpec) -> None:
    """Before the first task of a thread: nothing is packed."""
    f.store(f.value(NOTHING), f.at(f.scratch, arguments(f, spec).packed_at))


def task(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``task``: some slabs; of those that follow one another, each has the lines of the one before."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    packed, done = f.at(f.scratch, a.packed_at), f.at(f.scratch, a.done_at)
    with f.when(f.compare("eq", f.load("i64", packed), NOTHING)):
        f.call("ready", f.arguments, f.scratch)
        f.store(f.value(0), packed)
    f.store(f.value(0), done)
    with f.loop(t.slabs) as each, f.when(going(f, a)):
        f.call("slab", f.arguments, f.scratch, t.slab + each.index)
    f.done()


def _axes(a: Named, spec: Kn2rowSpec) -> list[Named]:
    return [a.of(f"line{axis}") for axis in range(spec.axes)]


def _ready(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``ready``: weights as [result][tap][k], biases in f32; where there are none, what changes no sum."""
    f = module.function("ready", False, arguments="ptr", scratch="ptr")
    a = arguments(f, spec)
    *outer, last = _axes(a, spec)
    taps, bytes_of_taps = last.taps, last.taps * a.row_bytes

    def line(source: Value, to: Value) -> Value:
        f.call("pack_line", f.arguments, to, source, taps)
        return f.at(to, bytes_of_taps)

    loops = [(a.n, a.weights_group), *((axis.taps, axis.tap) for axis in outer)]
    nested(f, loops, a.weights, f.at(f.scratch, a.data_at), line)
    f.call("pack_bias", a.bias, f.at(f.scratch, a.bias_at), a.bias, a.bias_n, a.n, a.n)
    f.store(Value(f, "float", NO_BIAS), f.at(f.scratch, a.nothing_at))
    f.done()


def _pack_lines(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``pack_lines``: ``count`` positions that are contiguous, k by k, to[panel][k][position]."""
    f = module.function("pack_lines", arguments="ptr", to="ptr", source="ptr", count="i64")
    a, one = arguments(f, spec), spec.product
    whole, left = f.divided(f.count, one.width)
    width, row = f.value(one.width), f.value(one.width * BYTES[one.operand])
    terms, step, panel_bytes = a.k, a.weights_k, a.panel_bytes
    panels = Copy(Cells(f, one.operand, one.isa.lanes), whole, row, width, row, panel_bytes, one.width)
    with f.loop(terms, source=f.source) as term:
        to = f.at(f.to, pack.taken(f, one, term.index, terms) * (one.width * F32_BYTES))
        panels.along_columns(term.source, to)
        with f.when(f.compare("sgt", left, 0)):
            last = replace(panels, rows=f.value(1), columns=left)
            last.along_columns(f.at(term.source, whole * row), f.at(to, whole * panel_bytes))
        term.next(source=f.at(term.source, step))
    f.done()


def _products(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``products``: of ``count`` positions evenly apart, to[result][tap][position]."""
    f = module.function("products", arguments="ptr", scratch="ptr", source="ptr", to="ptr", count="i64")
    a, one = arguments(f, spec), spec.product
    data, packed = f.at(f.scratch, a.data_at), f.at(f.scratch, a.weights_at)
    runs, blocks, height = a.runs, a.blocks, a.height
    shift = one.width.bit_length() - 1
    yes, zero = Value(f, "i1", "true"), f.value(0)
    chunks = f.op("i64", f"udiv {f.count + a.chunk - 1}, {a.chunk.name}")
    with f.loop(chunks, source=f.source, to=f.to, left=f.count) as chunk:
        here = f.min(chunk.left, a.chunk)
        panels = (here + (one.width - 1)) >> shift
        if one.weights == CHANNELS_OUT:
            f.call("pack_lines", f.arguments, packed, chunk.source, here)
        else:
            with f.loop(panels, x=packed, source=chunk.source, left=here) as panel:
                f.call("pack_weights", f.arguments, panel.x, panel.source, panel.left)
                panel.next(
                    x=f.at(panel.x, a.panel_bytes), source=f.at(panel.source, a.weights_n * one.width),
                    left=panel.left - one.width,
                )  # fmt: skip
        with f.loop(f.op("i64", f"udiv {a.tiles + a.block - 1}, {a.block.name}"), first=f.value(0)) as block:
            following = f.at(chunk.source, a.weights_n * a.chunk)
            with f.loop(panels, x=packed, to=chunk.to, left=here, ahead=following) as panel:
                begin = f.at(panel.ahead, block.first * a.tile_ahead)
                with f.loop(f.min(a.tiles - block.first, a.block), ahead=begin) as each:
                    row = f.min((block.first + each.index) * height, a.row_count - height)
                    rows = f.at(data, row * a.row_bytes)
                    given = (
                        f.arguments, f.at(f.scratch, a.sums_at), runs, blocks, a.block_count, rows, panel.x,
                        f.at(panel.to, row * a.tap_bytes_out), f.at(f.scratch, a.nothing_at), a.row_bytes,
                        a.tap_bytes_out, each.ahead, a.term_ahead, panel.left, zero, zero, yes, yes,
                    )  # fmt: skip
                    for high in one.mr_sizes:
                        with f.when(f.compare("eq", height, high)):
                            by_width(f, one.isa.lanes, one.nr_sizes, panel.left, f"tile{high}_", given)
                    each.next(ahead=f.at(each.ahead, a.tile_ahead))
                panel.next(
                    x=f.at(panel.x, a.panel_bytes), to=f.at(panel.to, one.width * F32_BYTES),
                    left=panel.left - one.width, ahead=f.at(panel.ahead, a.weights_n * one.width),
                )  # fmt: skip
            block.next(first=block.first + a.block)
        chunk.next(
            source=f.at(chunk.source, a.weights_n * a.chunk), to=f.at(chunk.to, a.chunk * F32_BYTES),
            left=chunk.left - a.chunk,
        )  # fmt: skip
    f.done()


def _lines(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``lines``: the products of some lines, which are kept one behind the other; ``count`` positions of each."""
    f = module.function(
        "lines", arguments="ptr", scratch="ptr", data="ptr", first="i64", many="i64", slot="i64", count="i64"
    )
    a = arguments(f, spec)
    axes = _axes(a, spec)
    together = f.compare("ne", a.together, 0)
    count = f.select(together, f.many * a.inner, f.count)

    def inner(at: int, source: Value, to: Value) -> None:
        if at == spec.axes - 1:
            f.call("products", f.arguments, f.scratch, source, to, count)
            return
        with f.loop(f.select(together, f.value(1), axes[at].met), source=source, to=to) as each:
            inner(at + 1, each.source, each.to)
            each.next(source=f.at(each.source, axes[at].given), to=f.at(each.to, axes[at].place))

    source = f.at(f.data, f.first * axes[spec.line].given)
    to = f.at(f.at(f.scratch, a.products_at), f.slot * a.line_bytes)
    lines = f.select(f.compare("sgt", f.many, 0), f.select(together, f.value(1), f.many), f.value(0))
    with f.loop(lines, source=source, to=to) as line:
        inner(spec.line + 1, line.source, line.to)
        line.next(source=f.at(line.source, axes[spec.line].given), to=f.at(line.to, a.line_bytes))
    f.done()


def _slab(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``slab``: the products of the lines that are not there yet, then the outputs of a slab."""
    f = module.function("slab", arguments="ptr", scratch="ptr", number="i64")
    a = arguments(f, spec)
    axes = _axes(a, spec)
    number, slab = _digit(f, f.number, a.slab_count)
    number, end = _digit(f, number, a.end_count)
    row = columns(f, f.at(a.output_blocks, slab * SLAB.bytes), SLAB)
    at_end = f.at(a.ends, end * END.bytes)
    e = columns(f, at_end, END)
    data, out = f.at(a.data, e.first * axes[-1].given), f.at(a.out, e.out)
    for axis in reversed(axes[: spec.line]):
        number, position = _digit(f, number, axis.extent)
        data, out = f.at(data, position * axis.given), f.at(out, position * axis.out)
    done = f.at(f.scratch, a.done_at)
    first = f.select(f.compare("eq", slab, 0), row.first, f.max(row.first, f.load("i64", done)))
    with f.loop(2, first=first) as piece:  # as what is kept begins again behind its end
        slot = f.op("i64", f"urem {piece.first}, {a.lines.name}")
        many = f.min(row.end - piece.first, a.lines - slot)
        f.call("lines", f.arguments, f.scratch, data, piece.first, many, slot, e.count)
        piece.next(first=piece.first + f.max(many, 0))
    f.store(row.end, done)
    outer = f.at(f.scratch, a.outer_at)

    def positions(at: int, chosen: list[tuple[Named, Value]], out: Value) -> None:
        if at == spec.axes - 1:
            ended = _outer_taps(f, spec, a, axes, chosen, outer)
            f.call("line", f.arguments, f.scratch, outer, f.distance(ended, outer) >> 4, at_end, out)
            return
        table = row
        if at > spec.line:
            table = columns(f, f.at(a.output_blocks, (a.slab_count + (at - spec.line - 1)) * SLAB.bytes), SLAB)
        with f.loop(table.parts, part=f.at(a.parts, table.part)) as each:
            part = columns(f, each.part, PART)
            with f.loop(part.count, met=part.met, out=f.at(out, part.out)) as one:
                positions(at + 1, [*chosen, (part, one.met)], one.out)
                one.next(met=one.met + part.met_step, out=f.at(one.out, part.out_step))
            each.next(part=f.at(each.part, PART.bytes))

    positions(spec.line, [], out)
    f.done()


def _digit(f: Function, number: Value, count: Value) -> tuple[Value, Value]:
    """Return a number divided, and what is left."""
    return f.op("i64", f"udiv {number}, {count.name}"), f.op("i64", f"urem {number}, {count.name}")


def _outer_taps(
    f: Function, spec: Kn2rowSpec, a: Named, axes: Sequence[Named], chosen: Sequence[tuple[Named, Value]], to: Value
) -> Value:
    """List where the products of a position's taps of all axes but the last lie, and the taps' numbers."""

    def taps(at: int, number: Value, place: Value, to: Value) -> Value:
        if at == len(chosen):
            f.store(place, to)
            f.store(number, to, OUTER.at("number"))
            return f.at(to, OUTER.bytes)
        part, met = chosen[at]
        with f.loop(part.taps, tap=number + part.tap, met=met, to=to) as each:
            here = f.op("i64", f"urem {each.met}, {a.lines.name}") if at == 0 else each.met
            ended = taps(at + 1, each.tap, place + here * axes[spec.line + at].place, each.to)
            each.next(tap=each.tap + part.tap_step, met=each.met + part.tap_met, to=ended)
        return each.to

    return taps(0, f.value(0), f.value(0) + f.value(0), to)
