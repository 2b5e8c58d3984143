"""The spatial stencil: the lanes of a vector are neighbouring outputs of a line, and a weight is in all lanes.

Micro-tiles are unrolled over the taps of the last two axes, and have a loop over those of each other axis. A vector of
inputs is loaded once per input row and tap of the last axis, and serves all lines of the micro-tile that have a tap in
this row. Rows are visited in the order in which the taps of each output ascend. If the last axis has two phases, as in
a data gradient with stride 2, their sums are interleaved when they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from math import prod

import numpy as np

from convgrad.engines.llvm.arguments import Named, columns, going
from convgrad.engines.llvm.convert import BYTES, read, read_interleaved
from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.engines.llvm.forward.arguments import along, arguments, each_tap
from convgrad.engines.llvm.packing import bias, nested
from convgrad.engines.llvm.store import Epilogue, interleaved, total
from convgrad.formats import BF16
from convgrad.plan.constants import PREFETCH_BLOCKS
from convgrad.plan.forward.spatial_stencil import SpatialStencilSpec
from convgrad.plan.forward.spatial_stencil_schedule import PART, TASK
from convgrad.plan.recipe import F32_BYTES

MAX_BLOCK_ADDS = 96  # multiply-adds of a block of IR
HELD_SPARE = 7  # registers that remain for inputs if all weights are held; sums use the other half
Step = tuple[int, int, int]  # a phase and a tap of the last axis, and an input channel
WHOLE = "whole"  # the kernel for micro-tiles whose inputs all exist
# Kernels for others: both skip absent rows; absent inputs of a row are zeros, or their products are omitted
ZEROS, OMITTED = "zeros", "omitted"


def bodies(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit the functions that the nest calls: packing, and micro-tiles for each phase of lines."""
    bias(module, spec.operand)
    _pack_a(module, spec)
    for phase, exists in product(range(len(spec.footprint.lines)), (WHOLE, ZEROS, OMITTED)):
        _MicroTile(module, spec, phase, exists).emit()
    _plane(module, spec)
    _groups(module, spec)


def task(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``task``, which packs the weights of some groups, and then computes these groups."""
    f = module.function("task", arguments="ptr", scratch="ptr", task="ptr")
    a, t = arguments(f, spec), columns(f, f.task, TASK)
    axes, size = along(a, spec), a.result_bytes * a.n
    begin = {
        "weights": f.at(a.weights, t.group * a.weights_group), "bias": f.at(a.bias, t.group * a.n * a.bias_n),
        "to": f.at(f.scratch, a.b_at), "bias_to": f.at(f.scratch, a.bias_at),
    }  # fmt: skip
    with f.loop(t.groups, **begin) as group:
        f.call("pack_a", f.arguments, group.weights, group.bias, group.to, group.bias_to)
        group.next(
            weights=f.at(group.weights, a.weights_group), bias=f.at(group.bias, a.bias_n * a.n),
            to=f.at(group.to, size), bias_to=f.at(group.bias_to, a.n * F32_BYTES),
        )  # fmt: skip
    finite = _finite(f, spec.isa.lanes, begin["to"], f.op("i64", f"udiv {t.groups * size}, {F32_BYTES}"))

    def parts(at: int, chosen: list[Value]) -> None:
        if at == spec.axes - 2:
            f.call("compute", f.arguments, f.scratch, t.group, t.groups, finite, *chosen)
            return
        with f.loop(axes[at].count, part=f.at(a.parts, axes[at].first)) as each:
            parts(at + 1, [*chosen, each.part])
            each.next(part=f.at(each.part, PART.bytes))

    parts(0, [])
    f.done()


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


def _finite(f: Function, lanes: int, values: Value, count: Value) -> Value:
    """Return 1 if all of ``count`` packed weights are finite, else 0: the product of 0 and another weight is NaN.

    If all are finite, products with padding are +0 or -0, which can change only the sign of a sum that is 0. The
    epilogue adds +0, so that sums of 0 have no sign.
    """
    zeros = f.zeros(f"<{lanes} x float>")
    vectors = (count + (lanes - 1)) >> (lanes.bit_length() - 1)
    with f.loop(vectors, values=values, found=zeros) as each:
        value = f.masked_load(zeros.type, each.values, f.mask(count - each.index * lanes, lanes))
        found = f.add(each.found, f.op(zeros.type, f"fmul {value}, {zeros.name}"))
        each.next(values=f.at(each.values, lanes * F32_BYTES), found=found)
    infinite = f.op(f"<{lanes} x i1>", f"fcmp uno {each.found}, {each.found.name}")
    return f.select(f.any_of([infinite]), f.value(0), f.value(1))


def _groups(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``compute``, which computes the planes of some groups, image by image: planes of an image are neighbours."""
    f = module.function(
        "compute", False, arguments="ptr", scratch="ptr", group="i64", groups="i64", finite="i64", **_outer(spec)
    )
    a, chosen = arguments(f, spec), [f.parameters[name] for name in _outer(spec)]
    parts = [columns(f, part, PART) for part in chosen]

    def images(at: int, data: Value, out: Value) -> None:
        if at == len(parts):
            groups(data, out)
            return
        data, out = f.at(data, parts[at].data), f.at(out, parts[at].out)
        with f.loop(parts[at].count, data=data, out=out) as each:
            images(at + 1, each.data, each.out)
            each.next(data=f.at(each.data, parts[at].data_step), out=f.at(each.out, parts[at].out_step))

    def groups(data: Value, out: Value) -> None:
        weights, bias = f.at(f.scratch, a.b_at), f.at(f.scratch, a.bias_at)
        with f.when(going(f, a)), f.loop(f.groups, data=data, out=out, weights=weights, bias=bias) as group:
            f.call("plane", f.arguments, group.data, group.out, group.weights, group.bias, f.finite, *chosen)
            group.next(
                data=f.at(group.data, a.data_group), out=f.at(group.out, a.out_group),
                weights=f.at(group.weights, a.result_bytes * a.n), bias=f.at(group.bias, a.n * F32_BYTES),
            )  # fmt: skip

    images(0, f.at(a.data, f.group * a.data_group), f.at(a.out, f.group * a.out_group))
    f.done()


def _outer(spec: SpatialStencilSpec) -> dict[str, str]:
    """Return the parameters for a part of each axis before the last two."""
    return {f"part{axis}": "ptr" for axis in range(spec.axes - 2)}


def _plane(module: Module, spec: SpatialStencilSpec) -> None:
    """Emit ``plane``, which computes the outputs of a group and an image."""
    f = module.function(
        "plane",
        False,
        arguments="ptr",
        data="ptr",
        out="ptr",
        weights="ptr",
        biases="ptr",
        finite="i64",
        **_outer(spec),
    )
    a, size, out_bytes = arguments(f, spec), BYTES[spec.operand], BYTES[spec.output]
    footprint, (lines, last) = spec.footprint, along(a, spec)[-2:]
    across = spec.vectors * spec.isa.lanes * footprint.apart
    q = columns(f, f.at(a.parts, last.first), PART)
    pieces = f.op("i64", f"udiv {a.extent + (spec.across - 1)}, {spec.across}")
    by_results = f.op("i64", f"udiv {a.n + (spec.results - 1)}, {spec.results}")
    loaded = footprint.loads(spec.isa.lanes, spec.vectors)
    for phase, taps in enumerate(footprint.lines):
        p = columns(f, f.at(a.parts, lines.first + phase * PART.bytes), PART)
        blocks = f.op("i64", f"udiv {p.count + (spec.lines - 1)}, {spec.lines}")
        rows = list(footprint.rows(phase, spec.lines))
        with f.loop(blocks, line=f.value(0)) as block:
            row, left = p.met + block.line * taps.by_position, f.min(p.count - block.line, spec.lines)
            inside = Value(f, "i1", "true")
            if rows:
                inside = f.compare("sge", row, -min(rows)) & f.compare("slt", row + max(rows), a.line_met)
            begin = {
                "data": f.at(f.at(f.data, q.data), p.data + block.line * p.data_step),
                "out": f.at(f.out, p.out + block.line * p.out_step), "first": q.met, "left": a.extent,
            }  # fmt: skip
            inputs = a.prefetched_line * (spec.lines * taps.by_position)
            f.prefetch_all(f.at(begin["data"], inputs * PREFETCH_BLOCKS), inputs, locality=2)
            with f.loop(pieces, **begin) as piece:
                whole = inside
                if loaded:
                    whole = whole & f.compare("sge", piece.first, -loaded[0])
                    end = loaded[-1] + footprint.apart * spec.isa.lanes
                    whole = whole & f.compare("sle", piece.first + end, a.met)
                with f.loop(by_results) as result:
                    wanted = result.index * spec.results
                    start = f.min(wanted, a.n - spec.results)
                    given = (
                        f.arguments, piece.data, f.at(f.weights, start * a.result_bytes), row, piece.first,
                        f.at(piece.out, start * a.out_n), p.out_step, f.at(f.biases, start * F32_BYTES),
                        left, piece.left, wanted - start, *(f.parameters[name] for name in _outer(spec)),
                    )  # fmt: skip
                    with f.when(whole):
                        f.call(f"micro_tile_{phase}_{WHOLE}", *given)
                    with f.otherwise():
                        with f.when(f.compare("ne", f.finite, 0)):
                            f.call(f"micro_tile_{phase}_{ZEROS}", *given)
                        with f.otherwise():
                            f.call(f"micro_tile_{phase}_{OMITTED}", *given)
                piece.next(
                    data=f.at(piece.data, across * size), out=f.at(piece.out, spec.across * out_bytes),
                    first=piece.first + across, left=piece.left - spec.across,
                )  # fmt: skip
            block.next(line=block.line + spec.lines)
    f.done()


class _MicroTile:
    """A micro-tile of outputs: some results, lines and vectors, in a phase of lines."""

    def __init__(self, module: Module, spec: SpatialStencilSpec, phase: int, exists: str) -> None:
        self.f = module.function(
            f"micro_tile_{phase}_{exists}", False, arguments="ptr", data="ptr", weights="ptr", row="i64", first="i64",
            out="ptr", out_step="i64", bias="ptr", left="i64", across="i64", skip="i64", **_outer(spec),
        )  # fmt: skip
        self.spec, self.footprint, self.phase, self.exists = spec, spec.footprint, phase, exists
        self.a: Named = arguments(self.f, spec)
        self.lanes = spec.isa.lanes
        self.held: list[Value] = []  # weights in registers for the whole micro-tile: all or none
        self.masks: dict[tuple[int, int, int], Value] = {}  # by first position, step and number of lanes

    def emit(self) -> None:
        """Emit the function, which sums row by row, then stores."""
        f, spec = self.f, self.spec
        each = product(range(spec.results), range(spec.lines), range(len(self.footprint.last)), range(spec.vectors))
        sums = {"sum" + "_".join(map(str, part)): f.zeros(f"<{self.lanes} x float>") for part in each}
        if spec.results > 1:
            self._prefetch_out()
        if self.exists != WHOLE:
            self._make_masks()
        if self.footprint.kernel[0] > 1:
            parts = [columns(f, f.parameters[name], PART) for name in _outer(spec)]
            sums = each_tap(f, parts, sums, lambda tap, data, sums: self._summed(f.at(f.data, data), tap, sums))
        else:
            weights = spec.results * prod(self.footprint.kernel) * self.footprint.k
            if weights + HELD_SPARE <= spec.isa.registers // 2:
                self.held = [self._weight(f.value(0), number) for number in range(weights)]
            sums = self._summed(f.data, f.value(0), sums)
        self._store(sums)
        f.done()

    def _summed(self, data: Value, tap: Value, sums: dict[str, Value]) -> dict[str, Value]:
        """Return the sums after all products with a plane of inputs; ``tap`` is the offset of its weights in bytes."""
        f, line_bytes, line_met = self.f, self.a.line_bytes, self.a.line_met
        once = f.opaque(f.value(1))
        for row, used in self.footprint.rows(self.phase, self.spec.lines).items():
            inputs, rounds = f.at(data, line_bytes * row), once
            if self.exists != WHOLE:
                exists = f.op("i1", f"icmp ult {f.row + row}, {line_met.name}")
                rounds = f.select(exists, once, f.value(0))
            for steps in self._parts_of_row(len(used)):
                with f.loop(rounds, **sums) as part:
                    part.next(**self._added(inputs, tap, used, steps, dict(part.carried)))
                sums = dict(part.carried)
        return sums

    def _prefetch_out(self) -> None:
        """Prefetch the outputs of several results, because these are so far apart that the processor does not."""
        f, size = self.f, self.spec.across * BYTES[self.spec.output]
        for r, line in product(range(self.spec.results), range(self.spec.lines)):
            place = f.at(f.at(f.out, self.a.out_n * r), f.out_step * line)
            f.prefetch_all(place, size, write=True)

    def _make_masks(self) -> None:
        """Compute the masks of existing positions: of loaded vectors, and of the lanes that a tap has."""
        f, apart = self.f, self.footprint.apart
        begin, limit = (f.op("i32", f"trunc {value} to i32") for value in (f.first, self.a.met))
        wanted = {(start, 1, self.lanes * apart) for start in self.footprint.loads(self.lanes, self.spec.vectors)}
        if self.exists == OMITTED:
            for taps, v in product(self.footprint.last, range(self.spec.vectors)):
                wanted |= {(taps.offset(v * self.lanes, tap), apart, self.lanes) for tap in range(taps.number)}
        for start, step, lanes in sorted(wanted):
            numbers = f.numbers("i32", range(start, start + lanes * step, step))
            there = f.op(f"<{lanes} x i32>", f"add {f.splat(begin, lanes)}, {numbers.name}")
            self.masks[start, step, lanes] = f.op(f"<{lanes} x i1>", f"icmp ult {there}, {f.splat(limit, lanes).name}")

    def _parts_of_row(self, lines: int) -> Iterator[Sequence[Step]]:
        """Yield the steps of an input row that ``lines`` lines use, in parts that are blocks of their own in the IR.

        In longer blocks, LLVM moves loads so far from their uses that it must spill registers.
        """
        last = self.footprint.last
        ascending = product(range(max(taps.number for taps in last)), self._order_of_k(), range(len(last)))
        steps = [(phase, tap, k) for tap, k, phase in ascending if tap < last[phase].number]
        together = max(1, MAX_BLOCK_ADDS // (lines * self.spec.results * self.spec.vectors))
        return (steps[first : first + together] for first in range(0, len(steps), together))

    def _added(
        self, row: Value, tap: Value, used: list[tuple[int, int]], steps: Sequence[Step], sums: dict[str, Value]
    ) -> dict[str, Value]:
        """Return the sums after some steps of all lines that use a row."""
        f, spec, lines = self.f, self.spec, self.footprint.lines[self.phase]
        shape = (spec.results, *self.footprint.kernel, self.footprint.k)
        loaded: dict[tuple[int, int], Value] = {}
        for phase, number, k in steps:
            taps = self.footprint.last[phase]
            inputs = [self._inputs(row, taps.offset(v * self.lanes, number), k, loaded) for v in range(spec.vectors)]
            for (line, line_tap), r in product(used, range(spec.results)):
                place = (r, 0, lines.first + line_tap * lines.step, taps.first + number * taps.step, k)
                weight = self._weight(tap, int(np.ravel_multi_index(place, shape)))
                for v, (x, mask) in enumerate(inputs):
                    name = f"sum{r}_{line}_{phase}_{v}"
                    after = f.fma(x, weight, sums[name])
                    sums[name] = after if mask is None else f.select(mask, after, sums[name])
        return sums

    def _order_of_k(self) -> list[int]:
        """Return the input channels in the order of the sum: of bf16 pairs, the second is first."""
        count = self.footprint.k
        return [k ^ 1 if self.spec.pairs and k ^ 1 < count else k for k in range(count)]

    def _weight(self, tap: Value, number: int) -> Value:
        """Load a weight of a plane into all lanes, unless a register holds it."""
        f = self.f
        if self.held:
            return self.held[number]
        return f.splat(f.load("float", f.at(f.weights, tap), number * F32_BYTES), self.lanes)

    def _inputs(
        self, row: Value, offset: int, k: int, loaded: dict[tuple[int, int], Value]
    ) -> tuple[Value, Value | None]:
        """Return the inputs that a vector of outputs meets, and the mask of those that exist, or None for all."""
        f, lanes, apart = self.f, self.lanes, self.footprint.apart
        if (offset, k) not in loaded:
            start = offset - offset % apart
            place = f.at(f.at(row, start * BYTES[self.spec.operand]), self.a.data_k * k)
            vectors = read_interleaved(
                f, self.spec.operand, place, lanes, apart, self.masks.get((start, 1, lanes * apart))
            )
            loaded |= {(start + each, k): vector for each, vector in enumerate(vectors)}
        return loaded[offset, k], self.masks[offset, apart, lanes] if self.exists == OMITTED else None

    def _store(self, sums: dict[str, Value]) -> None:
        """Store the results from ``skip`` on, for lines and lanes that exist."""
        f, spec, lanes, size = self.f, self.spec, self.lanes, BYTES[self.spec.output]
        e, phases = Epilogue.of(f, spec, self.a.accumulate), range(len(self.footprint.last))
        together = len(phases) if spec.output == BF16.name else 1  # vectors that are narrowed to one
        stores = range(0, spec.vectors * len(phases), together)
        left = {first: f.across - first * lanes for first in stores}
        masks = {first: f.mask(left[first], lanes * together) for first in stores}
        for r in range(spec.results):
            bias = f.splat(f.load("float", f.bias, r * F32_BYTES), lanes)
            with f.when(f.compare("sle", f.skip, r)), ExitStack() as lines:
                for line in range(spec.lines):
                    if line:
                        lines.enter_context(f.when(f.compare("sgt", f.left, line)))
                    place = f.at(f.at(f.out, self.a.out_n * r), f.out_step * line)
                    vectors = list[Value]()
                    for v in range(spec.vectors):
                        totals = [total(f, sums[f"sum{r}_{line}_{phase}_{v}"], bias) for phase in phases]
                        vectors += (
                            totals if together > 1 else [interleaved(f, totals, n * lanes, lanes) for n in phases]
                        )
                    for first in stores:
                        values, to = vectors[first : first + together], f.at(place, first * lanes * size)
                        e.store_first(values, to, left[first], masks[first])
