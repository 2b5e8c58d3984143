"""The loop nest of the spatial stencil: a task packs the weights of some groups, then computes them image by image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.convert import BYTES, read
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.gemm.arguments import along, arguments
from convgrad.engines.llvm.packing import bias, nested
from convgrad.engines.llvm.pairs import minimum, nothing_yet, pairs_allowed
from convgrad.engines.llvm.stencils.spatial_tile import OMITTED, WHOLE, ZEROS, SpatialTile, outer_parts
from convgrad.plan.machine import LINE_BYTES
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.stencils.constants import PREFETCH_BLOCKS
from convgrad.plan.stencils.spatial import SpatialStencilSpec
from convgrad.plan.stencils.spatial_schedule import PART, TASK


def bodies(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit the functions that the nest calls: packing, and micro-tiles for each phase of lines."""
    bias(module, spec.operand)
    if spec.k_per_add == 2:
        minimum(module, spec.isa)
    _pack_a(module, spec)
    for phase, exists in product(range(len(spec.footprint.lines)), (WHOLE, ZEROS, OMITTED)):
        SpatialTile(module, spec, phase, exists).emit()
    _plane(module, spec)
    _groups(module, spec)


def task(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``task``, which packs the weights of some groups, and then computes these groups."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    axes, size = along(a, spec), a.result_bytes * a.n
    begin = {
        "weights": f.at(a.weights, t.group * a.weights_group),
        "bias": f.at(a.bias, t.group * a.n * a.bias_n),
        "to": f.at(f.scratch, a.b_at),
        "bias_to": f.at(f.scratch, a.bias_at),
    }
    with f.loop(t.groups, **begin) as group:
        f.call("pack_a", f.arguments, group.weights, group.bias, group.to, group.bias_to)
        group.next(
            weights=f.at(group.weights, a.weights_group),
            bias=f.at(group.bias, a.bias_n * a.n),
            to=f.at(group.to, size),
            bias_to=f.at(group.bias_to, a.n * F32_BYTES),
        )
    count = f.op("i64", f"udiv {t.groups * size}, {BYTES[spec.packed]}")
    finite = _finite(f, spec, begin["to"], count)
    if spec.k_per_add == 2:
        of_weights = f.at(f.scratch, a.min_at + LINE_BYTES)
        nothing_yet(f, spec.isa, of_weights)
        f.call("minimum", begin["to"], 1, 0, count, of_weights)

    def parts(at: int, chosen: list[Value]) -> None:
        if at == spec.axes - 2:
            f.call("compute", f.arguments, f.scratch, t.group, t.groups, finite, *chosen)
            return
        with f.loop(axes[at].count, part=f.at(a.parts, axes[at].first)) as iteration:
            parts(at + 1, [*chosen, iteration.part])
            iteration.next(part=f.at(iteration.part, PART.bytes))

    parts(0, [])
    f.done()


def _pack_a(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``pack_a``, which packs the weights of a group as [result][tap][k], in f32 or in bf16 pairs, and biases."""
    f = module.function("pack_a", False, arguments="ptr", weights="ptr", bias="ptr", to="ptr", bias_to="ptr")
    a = arguments(f, spec)

    def one_tap(source: Value, to: Value) -> Value:
        for k in range(spec.k_steps * spec.k_per_add):
            if k == spec.footprint.k:
                weight = Value(f, "i16", "0")
            else:
                weight = f.load("i16", source) if spec.k_per_add == 2 else read(f, spec.operand, source)
            f.store(weight, to, k * BYTES[spec.packed])
            source = f.at(source, a.weights_k)
        return f.at(to, spec.tap_bytes)

    taps = ((axis.kernel, axis.tap) for axis in along(a, spec))
    nested(f, [(a.n, a.weights_n), *taps], f.weights, f.to, one_tap)
    f.call("pack_bias", bias=a.bias, to=f.bias_to, source=f.bias, step=a.bias_n, count=a.n, full=a.n)
    f.done()


def _finite(f: Function, spec: SpatialStencilSpec, weights: Value, count: Value) -> Value:
    """Return -1 if all of ``count`` packed weights are finite, else 0: the product of 0 and another weight is NaN.

    If all are finite, products with padding are +0 or -0, which can change only the sign of a sum that is 0. The
    epilogue adds +0, so that sums of 0 have no sign.
    """
    lanes = spec.isa.lanes
    zeros = f.zeros(f"<{lanes} x float>")
    vectors = (count + (lanes - 1)) >> (lanes.bit_length() - 1)
    with f.loop(vectors, weights=weights, sums=zeros) as iteration:
        value = read(f, spec.packed, iteration.weights, lanes, f.mask(count - iteration.index * lanes, lanes))
        sums = f.add(iteration.sums, f.op(zeros.type, f"fmul {value}, {zeros.name}"))
        iteration.next(weights=f.at(iteration.weights, lanes * BYTES[spec.packed]), sums=sums)
    infinite = f.op(f"<{lanes} x i1>", f"fcmp uno {iteration.sums}, {iteration.sums.name}")
    return f.select(f.any_of([infinite]), f.value(0), f.value(-1))


def _groups(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``compute``, which computes the planes of some groups, image by image: planes of an image are neighbours.

    With bf16 pairs, the minimum exponent of an image is found before its planes are computed. If axes before the last
    two have one tap, it is found for each of their positions, because no two of them read the same plane.
    """
    f = module.function(
        "compute", False, arguments="ptr", scratch="ptr", group="i64", groups="i64", finite="i64", **outer_parts(spec)
    )
    a, chosen = arguments(f, spec), [f.parameters[name] for name in outer_parts(spec)]
    parts = [columns(f, part, PART) for part in chosen]
    apart = 0 if spec.footprint.kernel[0] > 1 else len(parts) - 1  # the last axis whose positions share no data

    def images(at: int, data: Value, out: Value, fast: Value) -> None:
        if at == len(parts):
            groups(data, out, fast)
            return
        data, out = f.at(data, parts[at].data), f.at(out, parts[at].out)
        with f.loop(parts[at].count, data=data, out=out) as image:
            if at == apart and spec.k_per_add == 2:
                fast = fast & _pairs_allowed(f, spec, image.data, along(a, spec)[at + 1 :])
            images(at + 1, image.data, image.out, fast)
            image.next(data=f.at(image.data, parts[at].data_step), out=f.at(image.out, parts[at].out_step))

    def groups(data: Value, out: Value, fast: Value) -> None:
        weights, bias = f.at(f.scratch, a.b_at), f.at(f.scratch, a.bias_at)
        with f.when(going(f, a)), f.loop(f.groups, data=data, out=out, weights=weights, bias=bias) as group:
            of_group = {
                "data": group.data,
                "out": group.out,
                "weights": group.weights,
                "biases": group.bias,
                "fast": fast,
            }
            f.call("plane", **{**f.parameters, **of_group})
            group.next(
                data=f.at(group.data, a.data_group),
                out=f.at(group.out, a.out_group),
                weights=f.at(group.weights, a.result_bytes * a.n),
                bias=f.at(group.bias, a.n * F32_BYTES),
            )

    images(0, f.at(a.data, f.group * a.data_group), f.at(a.out, f.group * a.out_group), f.finite)
    f.done()


def _pairs_allowed(f: Function, spec: SpatialStencilSpec, data: Value, axes: Sequence[Named]) -> Value:
    """Return -1 if the exponents of the weights and of the data along some axes allow bf16 pairs, else 0."""
    a, minima = arguments(f, spec), f.at(f.scratch, arguments(f, spec).min_at)
    *outer, lines, last_axis = axes
    nothing_yet(f, spec.isa, minima)

    def one_plane(source: Value, to: Value) -> Value:
        f.call("minimum", source, lines.inputs, lines.data, last_axis.inputs, minima)
        return to

    groups = f.select(f.compare("eq", a.data_group, 0), f.value(1), f.groups)
    loops = [(groups, a.data_group), (a.k, a.data_k), *((axis.inputs, axis.data) for axis in outer)]
    nested(f, loops, data, data, one_plane)
    return pairs_allowed(f, spec.isa, a, (minima, f.at(minima, LINE_BYTES)))


def _plane(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``plane``, which computes the outputs of a group and an image.

    ``fast`` is not 0 if padding may be multiplied as zeros, and, in a kernel with bf16 pairs, if pairs are allowed.
    """
    f = module.function(
        "plane",
        False,
        arguments="ptr",
        data="ptr",
        out="ptr",
        weights="ptr",
        biases="ptr",
        fast="i64",
        **outer_parts(spec),
    )
    a, last_axis = arguments(f, spec), along(arguments(f, spec), spec)[-1]
    of_last = columns(f, f.at(a.parts, last_axis.first), PART)
    pieces = f.op("i64", f"udiv {a.extent + (spec.line_outputs - 1)}, {spec.line_outputs}")
    by_results = f.op("i64", f"udiv {a.n + (spec.results - 1)}, {spec.results}")
    for phase in range(len(spec.footprint.lines)):
        _phase(f, spec, phase, of_last, (pieces, by_results))
    f.done()


def _phase(f: Function, spec: SpatialStencilSpec, phase: int, of_last: Named, counts: tuple[Value, Value]) -> None:
    """Emit the loop over blocks of lines of a phase of lines.

    ``of_last`` is the part of the last axis. ``counts`` are the numbers of micro-tiles along a line and along output
    channels.
    """
    a, (pieces, by_results) = arguments(f, spec), counts
    footprint, (lines, last_axis) = spec.footprint, along(a, spec)[-2:]
    taps, inputs = footprint.lines[phase], spec.vectors * spec.isa.lanes * footprint.apart
    part = columns(f, f.at(a.parts, lines.first + phase * PART.bytes), PART)
    blocks = f.op("i64", f"udiv {part.count + (spec.lines - 1)}, {spec.lines}")
    with f.loop(blocks, line=f.value(0)) as block:
        row, left = part.input + block.line * taps.by_position, f.min(part.count - block.line, spec.lines)
        inside = _rows_exist(f, spec, phase, row, lines.inputs)
        begin = {
            "data": f.at(f.at(f.data, of_last.data), part.data + block.line * part.data_step),
            "out": f.at(f.out, part.out + block.line * part.out_step),
            "first": of_last.input,
            "left": a.extent,
        }
        prefetched = a.prefetched_line * (spec.lines * taps.by_position)
        f.prefetch_all(f.at(begin["data"], prefetched * PREFETCH_BLOCKS), prefetched, locality=2)
        with f.loop(pieces, **begin) as piece:
            fast = f.compare("ne", f.fast, 0)
            whole = _all_exist(f, spec, inside & fast if spec.k_per_add == 2 else inside, piece.first, last_axis.inputs)
            of_piece = {"data": piece.data, "out": piece.out, "first": piece.first, "line_left": piece.left}
            arguments_of_phase = {"row": row, "out_step": part.out_step, "left": left, **of_piece}
            _results(f, spec, phase, by_results, (whole, fast), arguments_of_phase)
            piece.next(
                data=f.at(piece.data, inputs * BYTES[spec.operand]),
                out=f.at(piece.out, spec.line_outputs * BYTES[spec.output]),
                first=piece.first + inputs,
                left=piece.left - spec.line_outputs,
            )
        block.next(line=block.line + spec.lines)


def _rows_exist(f: Function, spec: SpatialStencilSpec, phase: int, row: Value, count: Value) -> Value:
    """Return whether all input rows of a micro-tile exist; ``row`` is its first line's, and ``count`` rows exist."""
    rows = list(spec.footprint.rows(phase, spec.lines))
    if not rows:
        return Value(f, "i1", "true")
    return f.compare("sge", row, -min(rows)) & f.compare("slt", row + max(rows), count)


def _all_exist(f: Function, spec: SpatialStencilSpec, whole: Value, first: Value, count: Value) -> Value:
    """Return ``whole`` and whether all positions exist that a micro-tile loads from a row, which has ``count``."""
    loads = spec.footprint.loads(spec.isa.lanes, spec.vectors)
    if not loads:
        return whole
    end = loads[-1] + spec.footprint.apart * spec.isa.lanes
    return whole & f.compare("sge", first, -loads[0]) & f.compare("sle", first + end, count)


def _results(
    f: Function,
    spec: SpatialStencilSpec,
    phase: int,
    count: Value,
    conditions: tuple[Value, Value],
    of_piece: Mapping[str, Value],
) -> None:
    """Emit the loop over output channels, which calls a micro-tile for some lines and positions.

    ``conditions`` are whether all inputs exist, and whether padding may be multiplied as zeros.
    """
    a, (whole, zeros) = arguments(f, spec), conditions
    with f.loop(count) as result:
        wanted = result.index * spec.results
        start = f.min(wanted, a.n - spec.results)
        arguments_of_tile = f.parameters | {
            **of_piece,
            "weights": f.at(f.weights, start * a.result_bytes),
            "out": f.at(of_piece["out"], start * a.out_n),
            "bias": f.at(f.biases, start * F32_BYTES),
            "skip": wanted - start,
        }
        with f.when(whole):
            f.call(f"micro_tile_{phase}_{WHOLE}", **arguments_of_tile)
        with f.otherwise():
            with f.when(zeros):
                f.call(f"micro_tile_{phase}_{ZEROS}", **arguments_of_tile)
            with f.otherwise():
                f.call(f"micro_tile_{phase}_{OMITTED}", **arguments_of_tile)
