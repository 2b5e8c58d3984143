"""The kn2row kernel: a GEMM computes a sum per tap and position of the data; each output adds the sums of its taps.

In the GEMM, A is the weights, whose rows are taps times output channels. B is lines of the data, whose columns are
positions. A ring buffer has the tap sums of some lines. The outputs of a block of lines are computed as soon as all
their tap sums are in the ring buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from convgrad.engines.llvm import tree
from convgrad.engines.llvm.arguments import Named, columns, fill, going
from convgrad.engines.llvm.emit import Function, Loop, Module, Value
from convgrad.engines.llvm.gemm import pack
from convgrad.engines.llvm.gemm.arguments import arguments
from convgrad.engines.llvm.gemm.micro_tile import store_panel
from convgrad.engines.llvm.gemm.portion_tile import tile
from convgrad.engines.llvm.kn2row import tap_adds
from convgrad.engines.llvm.microkernel import by_width
from convgrad.engines.llvm.packing import bias, nested
from convgrad.engines.llvm.pairs import minima_of, minimum, nothing_yet, pairs_allowed
from convgrad.engines.llvm.store import NO_BIAS
from convgrad.plan.kn2row.schedule import INNER_BLOCK, OUTER, OUTPUT_BLOCK, PART, TASK
from convgrad.plan.kn2row.spec import Kn2rowSpec
from convgrad.plan.recipe import F32_BYTES

NOT_PACKED = -1


def bodies(module: Module, spec: Kn2rowSpec) -> None:
    """Emit the functions that the nest calls: packing, the GEMM, and the sums of tap sums."""
    gemm = spec.product
    pack.panels_of_b(module, gemm, spec)
    pack.pack_line(module, gemm)
    bias(module, gemm.operand)
    tree.combine_up(module, gemm.isa)
    store_panel(module, gemm)
    if gemm.k_per_add == 2:
        minimum(module, gemm.isa)
    for height in gemm.mr_sizes:
        for vectors in gemm.nr_sizes:
            tile(module, gemm, height, vectors)
    _pack_a(module, spec)
    _tap_sums(module, spec)
    tap_adds.bodies(module, spec)
    _lines(module, spec)
    _output_block(module, spec)


def begin(f: Function, spec: Kn2rowSpec) -> None:
    """Emit the code that runs before a thread's first task: it marks the thread's A as not packed."""
    f.store(f.value(NOT_PACKED), f.at(f.scratch, arguments(f, spec).packed_at))


def task(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``task``, which computes some output blocks. Each block reuses tap sums that the previous one computed."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    packed, done = f.at(f.scratch, a.packed_at), f.at(f.scratch, a.done_at)
    with f.when(f.compare("eq", f.load("i64", packed), NOT_PACKED)):
        f.call("pack_a", f.arguments, f.scratch)
        f.store(f.value(0), packed)
    f.store(f.value(0), done)
    with f.loop(t.output_blocks) as block, f.when(going(f, a)):
        f.call("output_block", f.arguments, f.scratch, t.output_block + block.index)
    f.done()


def _axes(a: Named, spec: Kn2rowSpec) -> list[Named]:
    return [a.of(f"data_axis{axis}") for axis in range(spec.axes)]


def _pack_a(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``pack_a``, which packs A as [result][tap][k] and the biases as f32; a missing bias becomes -0.0."""
    f = module.function("pack_a", False, arguments="ptr", scratch="ptr")
    a, gemm = arguments(f, spec), spec.product
    *outer, last_axis = _axes(a, spec)
    taps, bytes_of_taps = last_axis.taps, last_axis.taps * a.row_bytes

    def taps_of_last_axis(source: Value, to: Value) -> Value:
        pack.line_of_a(f, gemm, a, to, source, taps)
        return f.at(to, bytes_of_taps)

    if gemm.k_per_add == 2:
        nothing_yet(f, gemm.isa, f.at(f.scratch, a.min_at))
    loops = [(a.n, a.weights_group), *((axis.taps, axis.tap) for axis in outer)]
    nested(f, loops, a.weights, f.at(f.scratch, a.a_at), taps_of_last_axis)
    places = {"bias": a.bias, "to": f.at(f.scratch, a.bias_at), "source": a.bias, "step": a.bias_n}
    f.call("pack_bias", count=a.n, full=a.n, **places)
    f.store(Value(f, "float", NO_BIAS), f.at(f.scratch, a.no_bias_at))
    f.done()


def _tap_sums(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``tap_sums``, which writes the tap sums to[result][tap][position] of ``count`` equally spaced positions."""
    f = module.function("tap_sums", arguments="ptr", scratch="ptr", source="ptr", to="ptr", count="i64")
    a, gemm = arguments(f, spec), spec.product
    packed_a, packed = f.at(f.scratch, a.a_at), f.at(f.scratch, a.b_at)
    segments, chains, height = a.segments, a.chains, a.height
    shift = gemm.width.bit_length() - 1
    cache_blocks = f.op("i64", f"udiv {f.count + a.cache_block - 1}, {a.cache_block.name}")
    with f.loop(cache_blocks, source=f.source, to=f.to, left=f.count) as cache_block:
        here = f.min(cache_block.left, a.cache_block)
        panels = (here + (gemm.width - 1)) >> shift
        pack.pack_panels(f, gemm, a, (cache_block.source, packed), here, (panels, a.weights_n * gemm.width))
        a_blocks = f.op("i64", f"udiv {a.micro_tiles + a.a_block - 1}, {a.a_block.name}")
        with f.loop(a_blocks, first=f.value(0)) as a_block:
            following = f.at(cache_block.source, a.weights_n * a.cache_block)
            with f.loop(panels, b=packed, to=cache_block.to, left=here, prefetch=following) as panel:
                begin = f.at(panel.prefetch, a_block.first * a.tile_prefetch)
                pairs = dict[str, Value]()
                if gemm.k_per_add == 2:
                    minimums = f.at(f.scratch, a.min_at), minima_of(f, panel.b, a.panel_bytes)
                    pairs["pairs"] = pairs_allowed(f, gemm.isa, a, minimums)
                lists = {"segments": segments, "chains": chains, "height": height}
                with f.loop(f.min(a.micro_tiles - a_block.first, a.a_block), prefetch=begin) as micro_tile:
                    row = f.min((a_block.first + micro_tile.index) * height, a.row_count - height)
                    _micro_tile(f, spec, row, (packed_a, panel), {**lists, **pairs, "next": micro_tile.prefetch})
                    micro_tile.next(prefetch=f.at(micro_tile.prefetch, a.tile_prefetch))
                panel.next(
                    b=f.at(panel.b, a.panel_bytes),
                    to=f.at(panel.to, gemm.width * F32_BYTES),
                    left=panel.left - gemm.width,
                    prefetch=f.at(panel.prefetch, a.weights_n * gemm.width),
                )
            a_block.next(first=a_block.first + a.a_block)
        cache_block.next(
            source=f.at(cache_block.source, a.weights_n * a.cache_block),
            to=f.at(cache_block.to, a.cache_block * F32_BYTES),
            left=cache_block.left - a.cache_block,
        )
    f.done()


def _micro_tile(
    f: Function, spec: Kn2rowSpec, row: Value, operands: tuple[Value, Loop], places: dict[str, Value]
) -> None:
    """Call the micro-tile whose first row of A is ``row``. ``operands`` are the address of A and the panel of B.

    A row is a tap of an output channel. It has no bias, because biases are added to the sums of all taps. For a
    micro-tile, A is ``data`` and B is ``weights``, although A is the weights here.
    """
    a, gemm, (packed_a, panel), height = arguments(f, spec), spec.product, operands, places["height"]
    yes, zero = Value(f, "i1", "true"), f.value(0)
    values = places | {
        "arguments": f.arguments,
        "sums": f.at(f.scratch, a.sums_at),
        "chain_count": a.chain_count,
        "data": f.at(packed_a, row * a.row_bytes),
        "weights": panel.b,
        "out": f.at(panel.to, row * a.tap_bytes_out),
        "bias": f.at(f.scratch, a.no_bias_at),
        "row_step": a.row_bytes,
        "out_step": a.tap_bytes_out,
        "rate": a.k_prefetch,
        "left": panel.left,
        "skip": zero,
        "bias_step": zero,
        "begins": yes,
        "ends": yes,
    }
    for rows in gemm.mr_sizes:
        with f.when(f.compare("eq", height, rows)):
            by_width(f, gemm.isa.lanes, gemm.nr_sizes, panel.left, f"tile{rows}_", values)


def _lines(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``lines``, which writes the tap sums of ``many`` lines to the ring buffer, from line ``slot`` on.

    ``count1``, ``count2`` and so on are the positions of a line along axes 1, 2. Positions of fused axes are computed
    together.
    """
    inner = range(spec.line + 1, spec.axes)
    counts = dict.fromkeys((f"count{at}" for at in inner), "i64")
    f = module.function("lines", False, arguments="ptr", scratch="ptr", source="ptr", many="i64", slot="i64", **counts)
    a = arguments(f, spec)
    axes = _axes(a, spec)

    def positions(at: int, many: Value, source: Value, to: Value) -> None:
        if at == spec.axes - 1:
            f.call("tap_sums", f.arguments, f.scratch, source, to, many)
            return
        fused, count = f.compare("ne", axes[at].fused, 0), getattr(f, f"count{at + 1}")
        with f.loop(f.select(fused, f.value(1), many), source=source, to=to) as line:
            positions(at + 1, f.select(fused, many * count, count), line.source, line.to)
            line.next(source=f.at(line.source, axes[at].data), to=f.at(line.to, axes[at].place))

    with f.when(f.compare("sgt", f.many, 0)):
        positions(spec.line, f.many, f.source, f.at(f.at(f.scratch, a.tap_sums_at), f.slot * axes[spec.line].place))
    f.done()


def _output_block(module: Module, spec: Kn2rowSpec) -> None:
    """Emit ``output_block``, which computes missing tap sums of an output block, and then its outputs."""
    f = module.function("output_block", arguments="ptr", scratch="ptr", number="i64")
    a = arguments(f, spec)
    axes = _axes(a, spec)
    number, line_block = f.divided(f.number, axes[spec.line].blocks)
    number, inner_block = f.divided(number, axes[-1].blocks)
    inner_block_at = f.at(a.inner_blocks, inner_block * INNER_BLOCK.bytes)
    e = columns(f, inner_block_at, INNER_BLOCK)
    data, out = f.at(a.data, e.first * axes[-1].data), f.at(a.out, e.out)

    def row_of(axis: Named, block: Value) -> Named:
        return columns(f, f.at(a.output_blocks, axis.first_block + block * OUTPUT_BLOCK.bytes), OUTPUT_BLOCK)

    rows = {spec.line: row_of(axes[spec.line], line_block)}
    for at in reversed(range(spec.line + 1, spec.axes - 1)):
        number, block = f.divided(number, axes[at].blocks)
        rows[at] = row_of(axes[at], block)
        data = f.at(data, rows[at].first * axes[at].data)
    for axis in reversed(axes[: spec.line]):
        number, position = f.divided(number, axis.blocks)
        data, out = f.at(data, position * axis.data), f.at(out, position * axis.out)
    done, row = f.at(f.scratch, a.done_at), rows[spec.line]
    first = f.select(f.compare("eq", line_block, 0), row.first, f.max(row.first, f.load("i64", done)))
    counts = {f"count{at}": rows[at].end - rows[at].first for at in range(spec.line + 1, spec.axes - 1)}
    counts[f"count{spec.axes - 1}"] = e.count
    with f.loop(2, first=first) as piece:  # twice, because the lines may continue at the beginning of the ring buffer
        slot = f.op("i64", f"urem {piece.first}, {a.lines.name}")
        many = f.min(row.end - piece.first, a.lines - slot)
        f.call("lines", f.arguments, f.scratch, f.at(data, piece.first * axes[spec.line].data), many, slot, **counts)
        piece.next(first=piece.first + f.max(many, 0))
    f.store(row.end, done)
    outer = f.at(f.scratch, a.outer_at)

    def positions(at: int, chosen: list[tuple[Named, Value]], out: Value) -> None:
        if at == spec.axes - 1:
            ended = _outer_taps(f, spec, a, axes, chosen, outer)
            count = f.distance(ended, outer) >> (OUTER.bytes.bit_length() - 1)
            f.call("line", f.arguments, f.scratch, outer, count, inner_block_at, out)
            return
        with f.loop(rows[at].parts, part=f.at(a.parts, rows[at].part)) as iteration:
            part = columns(f, iteration.part, PART)
            with f.loop(part.count, input=part.input, out=f.at(out, part.out)) as position:
                positions(at + 1, [*chosen, (part, position.input)], position.out)
                position.next(input=position.input + part.input_step, out=f.at(position.out, part.out_step))
            iteration.next(part=f.at(iteration.part, PART.bytes))

    positions(spec.line, [], out)
    f.done()


def _outer_taps(
    f: Function, spec: Kn2rowSpec, a: Named, axes: Sequence[Named], chosen: Sequence[tuple[Named, Value]], to: Value
) -> Value:
    """List the taps of all axes except the last as rows of OUTER, and return the address after the list.

    A row has the offset of the tap's sums and the tap's number.
    """

    def taps(at: int, number: Value, place: Value, to: Value) -> Value:
        if at == len(chosen):
            fill(f, to, OUTER, place=place, number=number)
            return f.at(to, OUTER.bytes)
        part, first_input = chosen[at]
        with f.loop(part.taps, tap=number + part.tap, input=first_input, to=to) as iteration:
            here = f.op("i64", f"urem {iteration.input}, {a.lines.name}") if at == 0 else iteration.input
            ended = taps(at + 1, iteration.tap, place + here * axes[spec.line + at].place, iteration.to)
            iteration.next(tap=iteration.tap + part.tap_step, input=iteration.input + part.tap_input, to=ended)
        return iteration.to

    return taps(0, f.value(0), f.value(0), to)
