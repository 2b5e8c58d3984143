"""The spatial stencil: few input channels in channels-first layouts, with neighbouring output positions in a vector.

In other kernels, the output channels of a small group leave most lanes of a vector empty, and packing and transposing
take longer than few multiply-adds. Here a vector of input positions is read in place and multiplied by one weight per
output channel. Kernels are unrolled over the taps of the last two axes, and have loops over those of other axes. If a
tap is absent for a lane, the sum of this lane does not change.

A bf16 pair of inputs is a position of two channels. The lines of both channels are read, and combined in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from convgrad.formats import BF16, F32, FORMATS
from convgrad.plan.forward_nest import ONE_POSITION, OPERAND, ForwardNest
from convgrad.plan.machine import Isa
from convgrad.plan.pairs import k_per_add_choices
from convgrad.plan.recipe import Chosen, Operands
from convgrad.plan.regions import AxisPart, Parts
from convgrad.plan.stencils import constants
from convgrad.spec.problem import Problem

SPATIAL_STENCIL = "spatial stencil"  # the name of the loop nest
MAX_POSITIONS = 1 << 31  # the limit of positions per line, because lanes count positions in 32 bits
SPARE_POSITIONS = 1 << 10  # more than a micro-tile has in a line
RESULTS = (8, 4, 2, 1)  # output channels of a micro-tile, the most first
MAX_LINE_PHASES = 8  # of the axis before the last
MAX_PHASES = 2  # of the last axis, whose outputs are interleaved, times the step of inputs between outputs of a phase


class PhaseTaps(NamedTuple):
    """The taps of a phase of an axis, and the input positions that its outputs meet through them."""

    first: int
    step: int
    number: int
    input: int  # the input position that the first output meets through the first tap, after that of the first phase
    by_position: int
    by_tap: int

    def offset(self, position: int, tap: int) -> int:
        """Return the input position that output number ``position`` meets through tap number ``tap`` of the phase."""
        return self.input + position * self.by_position + tap * self.by_tap


class Footprint(NamedTuple):
    """The taps of the last two axes, by phase, the numbers of taps, and the input channels of a group."""

    lines: tuple[PhaseTaps, ...]
    last: tuple[PhaseTaps, ...]
    kernel: tuple[int, int, int]  # taps of the axes before the last two together, of lines, of the last axis
    k: int

    def rows(self, phase: int, lines: int) -> dict[int, list[tuple[int, int]]]:
        """Return the lines and taps that use each input row, by its number, in an order in which taps ascend.

        >>> Footprint((PhaseTaps(0, 1, 2, 0, 1, 1),), (), (1, 2, 1), 1).rows(0, 2)
        {0: [(0, 0)], 1: [(0, 1), (1, 0)], 2: [(1, 1)]}
        """
        taps, meetings = self.lines[phase], dict[int, list[tuple[int, int]]]()
        for line in range(lines):
            for tap in range(taps.number):
                meetings.setdefault(line * taps.by_position + tap * taps.by_tap, []).append((line, tap))
        return dict(sorted(meetings.items(), reverse=taps.by_tap < 0))

    @property
    def apart(self) -> int:
        """The step of the input position between neighbouring outputs of a phase of the last axis."""
        return max(taps.by_position for taps in self.last)

    def loads(self, lanes: int, vectors: int) -> list[int]:
        """Return the first positions of the loads of a row of a micro-tile, ascending. Each fills ``apart`` vectors."""
        offsets = {
            taps.offset(v * lanes, tap) for taps in self.last for tap in range(taps.number) for v in range(vectors)
        }
        return sorted({offset - offset % self.apart for offset in offsets})


@dataclass(frozen=True)
class SpatialStencilSpec:
    """The specification of a spatial stencil. Extents are arguments, so a new shape seldom compiles a kernel."""

    isa: Isa
    operand: str  # the number format of the operands
    output: str  # the number format of the output
    axes: int  # the number of axes
    results: int  # output channels of a micro-tile
    lines: int  # lines of positions of a micro-tile
    vectors: int  # vectors per line
    footprint: Footprint
    k_per_add: int = 1  # k per multiply-add; 2 for bf16 pairs, with the second k in the high half
    activation: str = ""  # applied to outputs before rounding; "" for none

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return SPATIAL_STENCIL

    @property
    def k_steps(self) -> int:
        """The number of multiply-adds of a tap. With bf16 pairs, an odd last channel fills a whole pair."""
        return ceil(self.footprint.k / self.k_per_add)

    @property
    def packed(self) -> str:
        """The number format of packed weights: that of the operands if multiply-adds take pairs, else f32."""
        return self.operand if self.k_per_add == 2 else F32.name

    @property
    def tap_bytes(self) -> int:
        """The bytes from a tap to the next in packed weights."""
        return self.k_steps * self.k_per_add * FORMATS[self.packed].itemsize

    @property
    def pairs(self) -> bool:
        """Whether chains add the k of a tap in pairs, the second k of each pair first."""
        return self.operand == BF16.name

    @property
    def line_outputs(self) -> int:
        """The number of outputs of a line of a micro-tile."""
        return self.vectors * self.isa.lanes * len(self.footprint.last)

    def __str__(self) -> str:
        shape = f"{self.results}x{self.lines}x{self.vectors}"
        pairs = ", bf16 pairs" if self.k_per_add == 2 else ""
        return f"{self.operand} to {self.output}, micro-tile {shape} of {self.isa}{pairs}"


@dataclass(frozen=True, kw_only=True)
class SpatialStencilPlan(Chosen):
    """The plan of a forward or a data gradient by the spatial stencil."""

    spec: SpatialStencilSpec
    parts: tuple[int]  # the number of parts of the groups

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the operands, as one line of text."""
        data, weights = self.operands
        return f"{self.strategy}: {self.spec}, A from {weights} (packed), B from {data} (in place)"

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        return f"{self.tasks} parts of groups"


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return why the spatial stencil does not support a problem, or the empty string if it does."""
    last_axis = view.axes[-1]
    if view.order.chains > 1:
        return "blocks have two chains"
    if view.groups == 1 and view.n % RESULTS[0]:
        return f"output channels are not a multiple of {RESULTS[0]}"
    if (last_axis.data, last_axis.out) != (problem.operand_format.itemsize, problem.output_format.itemsize):
        return "positions are not contiguous"
    if reason := _too_many_phases(view):
        return reason
    if max(last_axis.inputs + last_axis.extent, *map(_reach, last_axis.phases)) >= MAX_POSITIONS:
        return f"a row has more than {MAX_POSITIONS} positions"
    return _not_unrolled(view)


def nest_of(view: ForwardNest) -> ForwardNest:
    """Return the nest that a kernel computes. Several output channels of one group form a group of their own.

    The first axis shares no data between its positions, because kernels find minimum exponents for each of them.
    """
    view = view.in_groups(RESULTS[0]) if view.groups == 1 else view
    return view if view.axes[0].identity else replace(view, axes=(ONE_POSITION, *view.axes))


def _too_many_phases(view: ForwardNest) -> str:
    """Return why the phases of lines and of positions, which have code of their own, are too many, or ""."""
    lines, last_axis = view.axes[-2:]
    if last_axis.phases.by_position * len(last_axis.phases) > MAX_PHASES:
        return f"neighbouring outputs read inputs over {MAX_PHASES} apart"
    return f"lines have more than {MAX_LINE_PHASES} phases" if len(lines.phases) > MAX_LINE_PHASES else ""


def _reach(part: AxisPart) -> int:
    """Return a bound of the distances between position 0 and the input positions of a phase, padding too."""
    return (
        abs(part.input) + len(part.positions) * part.by_position + len(part.taps) * abs(part.by_tap) + SPARE_POSITIONS
    )


def _not_unrolled(view: ForwardNest) -> str:
    """Return why a kernel cannot be unrolled over the taps of a nest, or the empty string if it can."""
    if view.taps * view.k > constants.SPATIAL_MAX_TERMS or view.k > constants.SPATIAL_MAX_CHANNELS:
        return "there are too many taps or channels"
    *outer, _, _ = view.axes
    if prod(axis.kernel for axis in outer) == 1 and any((axis.parts.taps == 0).any() for axis in outer):
        return "outer axes have one tap, and some positions meet no input"
    return "a sum has more than one accumulation chain" if view.order.blocks * view.order.units > 1 else ""


def _footprint(view: ForwardNest, even_odd: bool) -> Footprint:
    """Return the taps of a kernel that is unrolled over the taps of a nest.

    If ``even_odd`` is true, even and odd outputs of a line are phases of their own. Then one load of bf16 has the
    inputs of two vectors, and a single instruction widens every second one.
    """
    lines, last = view.axes[-2:]
    of_lines, of_last = map(_taps_of_phases, (lines.phases, last.phases))
    if even_odd and len(of_last) == of_last[0].by_position == 1:
        (taps,) = of_last
        of_last = tuple(taps._replace(input=taps.input + turn, by_position=2) for turn in range(2))
    outer = prod(axis.kernel for axis in view.axes[:-2])
    return Footprint(of_lines, of_last, (outer, lines.kernel, last.kernel), view.k)


def _taps_of_phases(phases: Parts) -> tuple[PhaseTaps, ...]:
    """Return the taps of each phase. Input positions are counted from that of the first phase."""
    first = np.where(phases.taps > 0, phases.input - phases.input[0], 0)
    rows = zip(phases.tap.tolist(), phases.taps.tolist(), first.tolist(), strict=True)
    return tuple(
        PhaseTaps(tap, phases.tap_step, taps, first_input, phases.by_position, phases.by_tap)
        for tap, taps, first_input in rows
    )


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[SpatialStencilSpec, Operands]]:
    """Yield the spatial stencils. Half of the registers hold sums, and lines are chosen to divide their number."""
    view = nest_of(view)
    names = (problem.operand_format.name, problem.output_format.name)
    results = next(number for number in RESULTS if number <= view.n)
    even_odd = problem.operand_format == BF16 and view.axes[-1].extent > isa.lanes and 4 * results <= isa.registers
    footprint = _footprint(view, even_odd)
    last, lines, phases = view.axes[-1].extent, view.axes[-2], len(footprint.last)
    extent = max(len(part.positions) for part in lines.phases)
    for vectors, k_per_add in product((1, 2, 4), k_per_add_choices(problem, isa)):
        if k_per_add > min(view.k, results):  # for one output channel, pairs are not worth while
            continue
        sums = isa.registers // 2 // (results * vectors * phases)
        if sums and (vectors == 1 or (vectors - 1) * isa.lanes * phases < last):
            maximum = min(extent, sums)
            for many in {maximum, -(-extent // -(-extent // maximum))}:
                spec = SpatialStencilSpec(isa, *names, len(view.axes), results, many, vectors, footprint, k_per_add)
                yield spec, (OPERAND[problem.solves_for], "weights")
