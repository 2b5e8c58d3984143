"""The micro-tile of the spatial stencil: vectors are neighbouring outputs of a line, and a weight is in all lanes.

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

from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.convert import BYTES, read, read_interleaved, read_pairs
from convgrad.engines.llvm.emit import Module, Value
from convgrad.engines.llvm.gemm.arguments import along, arguments, each_tap
from convgrad.engines.llvm.intrinsics import PAIR_SUMS
from convgrad.engines.llvm.microkernel import multiply_add
from convgrad.engines.llvm.store import Epilogue, interleaved, total
from convgrad.formats import BF16
from convgrad.plan.pairs import order_of_k
from convgrad.plan.recipe import F32_BYTES
from convgrad.plan.stencils.spatial import SpatialStencilSpec
from convgrad.plan.stencils.spatial_schedule import PART

MAX_BLOCK_ADDS = 96  # multiply-adds of a block of IR
HELD_SPARE = 7  # registers that remain for inputs if all weights are held; sums use the other half
Step = tuple[int, int, int]  # a phase and a tap of the last axis, and an input channel or a pair of channels
WHOLE = "whole"  # the kernel for micro-tiles whose inputs all exist
# Kernels for others: both skip absent rows; absent inputs of a row are zeros, or their products are omitted. The kernel
# that omits them adds single k, and is used for all micro-tiles if pairs are not allowed.
ZEROS, OMITTED = "zeros", "omitted"


def outer_parts(spec: SpatialStencilSpec) -> dict[str, str]:
    """Return the parameters for a part of each axis before the last two."""
    return {f"part{axis}": "ptr" for axis in range(spec.axes - 2)}


class SpatialTile:
    """A micro-tile of outputs: some results, lines and vectors, in a phase of lines."""

    def __init__(self, module: Module, spec: SpatialStencilSpec, phase: int, exists: str) -> None:
        self.f = module.function(
            f"micro_tile_{phase}_{exists}",
            False,
            arguments="ptr",
            data="ptr",
            weights="ptr",
            row="i64",
            first="i64",
            out="ptr",
            out_step="i64",
            bias="ptr",
            left="i64",
            line_left="i64",
            skip="i64",
            **outer_parts(spec),
        )
        self.spec, self.footprint, self.phase, self.exists = spec, spec.footprint, phase, exists
        self.a: Named = arguments(self.f, spec)
        *_, self.along_lines, self.along_last = along(self.a, spec)
        self.lanes = spec.isa.lanes
        self.k_per_add = 1 if exists == OMITTED else spec.k_per_add
        self.held: list[Value] = []  # weights in registers for the whole micro-tile: all or none
        self.masks: dict[tuple[int, int, int], Value] = {}  # by first position, step and number of lanes

    def emit(self) -> None:
        """Emit the function, which sums row by row, then stores."""
        f, spec = self.f, self.spec
        indices = product(range(spec.results), range(spec.lines), range(len(self.footprint.last)), range(spec.vectors))
        sums = {"sum" + "_".join(map(str, part)): f.zeros(f"<{self.lanes} x float>") for part in indices}
        if spec.results > 1:
            self._prefetch_out()
        if self.exists != WHOLE:
            self._make_masks()
        if self.footprint.kernel[0] > 1:
            parts = [columns(f, f.parameters[name], PART) for name in outer_parts(spec)]
            sums = each_tap(f, parts, sums, lambda tap, data, sums: self._summed(f.at(f.data, data), tap, sums))
        else:
            weights = spec.results * prod(self.footprint.kernel) * spec.k_steps
            if self.k_per_add == spec.k_per_add and weights + HELD_SPARE <= spec.isa.registers // 2:
                self.held = [self._weight(f.value(0), number) for number in range(weights)]
            sums = self._summed(f.data, f.value(0), sums)
        self._store(sums)
        f.done()

    def _summed(self, data: Value, tap: Value, sums: dict[str, Value]) -> dict[str, Value]:
        """Return the sums after all products with a plane of inputs; ``tap`` is the offset of its weights in bytes."""
        f, line_bytes, input_lines = self.f, self.along_lines.data, self.along_lines.inputs
        once = f.opaque(f.value(1))
        for row, used in self.footprint.rows(self.phase, self.spec.lines).items():
            inputs, rounds = f.at(data, line_bytes * row), once
            if self.exists != WHOLE:
                exists = f.op("i1", f"icmp ult {f.row + row}, {input_lines.name}")
                rounds = f.select(exists, once, f.value(0))
            for steps in self._parts_of_row(len(used)):
                with f.loop(rounds, **sums) as part:
                    part.next(**self._added(inputs, tap, used, steps, dict(part.carried)))
                sums = dict(part.carried)
        return sums

    def _prefetch_out(self) -> None:
        """Prefetch the outputs of several results, because these are so far apart that the processor does not."""
        f, size = self.f, self.spec.line_outputs * BYTES[self.spec.output]
        for r, line in product(range(self.spec.results), range(self.spec.lines)):
            place = f.at(f.at(f.out, self.a.out_n * r), f.out_step * line)
            f.prefetch_all(place, size, write=True)

    def _make_masks(self) -> None:
        """Compute the masks of existing positions: of loaded vectors, and of the lanes that a tap has."""
        f, apart = self.f, self.footprint.apart
        begin, limit = (f.op("i32", f"trunc {value} to i32") for value in (f.first, self.along_last.inputs))
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
        shape = (spec.results, *self.footprint.kernel, spec.k_steps * spec.k_per_add // self.k_per_add)
        add = PAIR_SUMS[spec.isa.pairs] if self.k_per_add == 2 else multiply_add
        loaded: dict[tuple[int, int], Value] = {}
        for phase, number, k in steps:
            taps = self.footprint.last[phase]
            inputs = [self._inputs(row, taps.offset(v * self.lanes, number), k, loaded) for v in range(spec.vectors)]
            for (line, line_tap), r in product(used, range(spec.results)):
                place = (r, 0, lines.first + line_tap * lines.step, taps.first + number * taps.step, k)
                weight = self._weight(tap, int(np.ravel_multi_index(place, shape)))
                for v, (x, mask) in enumerate(inputs):
                    name = f"sum{r}_{line}_{phase}_{v}"
                    after = add(f, sums[name], x, weight)
                    sums[name] = after if mask is None else f.select(mask, after, sums[name])
        return sums

    def _order_of_k(self) -> list[int]:
        """Return the pairs of input channels, or the channels in the order of the sum: a pair's second is first."""
        return list(range(self.spec.k_steps)) if self.k_per_add == 2 else order_of_k(self.footprint.k, self.spec.pairs)

    def _weight(self, tap: Value, number: int) -> Value:
        """Load a weight of a plane, or a pair of weights, into all lanes, unless a register holds it."""
        f = self.f
        if self.held:
            return self.held[number]
        place = f.at(f.at(f.weights, tap), number * self.k_per_add * BYTES[self.spec.packed])
        return f.splat(f.load("i32", place) if self.k_per_add == 2 else read(f, self.spec.packed, place), self.lanes)

    def _inputs(
        self, row: Value, offset: int, k: int, loaded: dict[tuple[int, int], Value]
    ) -> tuple[Value, Value | None]:
        """Return the inputs that a vector of outputs meets, and the mask of those that exist, or None for all."""
        f, lanes, apart = self.f, self.lanes, self.footprint.apart
        if (offset, k) not in loaded:
            start = offset - offset % apart
            row, mask = f.at(row, start * BYTES[self.spec.operand]), self.masks.get((start, 1, lanes * apart))
            if self.k_per_add == 2:
                channels = range(self.footprint.k)[2 * k : 2 * k + 2]
                vectors = read_pairs(f, [f.at(row, self.a.data_k * n) for n in channels], lanes, apart, mask)
            else:
                vectors = read_interleaved(f, self.spec.operand, f.at(row, self.a.data_k * k), lanes, apart, mask)
            loaded |= {(start + offset, k): vector for offset, vector in enumerate(vectors)}
        return loaded[offset, k], self.masks[offset, apart, lanes] if self.exists == OMITTED else None

    def _store(self, sums: dict[str, Value]) -> None:
        """Store the results from ``skip`` on, for lines and lanes that exist."""
        f, spec, lanes, size = self.f, self.spec, self.lanes, BYTES[self.spec.output]
        e, phases = Epilogue.of(f, spec, self.a.accumulate), range(len(self.footprint.last))
        together = len(phases) if spec.output == BF16.name else 1  # vectors that are narrowed to one
        stores = range(0, spec.vectors * len(phases), together)
        left = {first: f.line_left - first * lanes for first in stores}
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
