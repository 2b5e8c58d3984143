"""Small groups whose positions lie together: lanes are neighbouring outputs of some lines, terms taps and channels.

A tile of results of a group would leave most of its lanes empty. Here a vector of data, as it lies, meets one weight
for each result; where a tap does not exist for a lane, that lane's sum stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from convgrad.formats import BF16
from convgrad.plan import constants
from convgrad.plan.forward.view import OPERAND, ForwardNest
from convgrad.plan.machine import Isa, Machine
from convgrad.plan.recipe import Chosen
from convgrad.spec.order import FAN_IN, height_of
from convgrad.spec.problem import Problem

PLANES = "planes"  # the body
MOST_POSITIONS = 1 << 31  # of a line, as lanes count them in words of 32 bits
SHAPES = ((1, 8), (2, 8), (4, 4), (8, 2))  # results of a tile, and vectors of outputs under each


@dataclass(frozen=True)
class SpatialStencilSpec:
    """What a kernel of planes is specialised on."""

    isa: Isa
    operand: str
    output: str
    axes: int
    results: int  # of a tile
    lines: int
    vectors: int  # of a line
    activation: str = ""  # of results, before their rounding

    @property
    def body(self) -> str:
        """Which nest it runs in."""
        return PLANES

    @property
    def pairs(self) -> bool:
        """Whether the terms of a tap are taken in pairs, the second first."""
        return self.operand == BF16.name

    @property
    def across(self) -> int:
        """Outputs of a line."""
        return self.vectors * self.isa.lanes

    def __str__(self) -> str:
        shape = f"{self.results}x{self.lines}x{self.vectors}"
        return f"{self.operand} to {self.output}, tile {shape} of {self.isa}"


@dataclass(frozen=True, kw_only=True)
class SpatialStencilPlan(Chosen):
    """How a forward or a data gradient of small groups is computed."""

    spec: SpatialStencilSpec
    parts: int  # of the groups

    @property
    def tasks(self) -> int:
        """How many there are."""
        return self.parts

    @property
    def words(self) -> str:
        """Strategy, kernel and layouts in one line."""
        data, weights = self.operands
        return f"{self.strategy}: {self.spec}, weights of {weights} by lanes from {data} (in place)"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        return f"{self.parts} parts of groups"


def planes(problem: Problem, view: ForwardNest, machine: Machine, threads: int) -> Iterator[SpatialStencilPlan]:
    """Yield the plans of planes for a problem that allows them: one for each way to shape a tile."""
    last, order = view.axes[-1], view.order
    size, written = problem.operand_format.dtype.itemsize, problem.output_format.dtype.itemsize
    together = last.data == size and last.out == written
    alone = len(last.phases) == 1 and last.phases[0].by_position == 1
    if view.groups == 1 or not together or not alone or order.blocks_a_line > 1 or order.blocks > FAN_IN:
        return
    if last.met + last.extent >= MOST_POSITIONS:
        return
    isa = machine.isa
    results, most = next(shape for shape in reversed(SHAPES) if shape[0] <= view.results)
    for vectors in (1, 2, 4, 8):
        if vectors <= most and (vectors == 1 or (vectors - 1) * isa.lanes < last.extent):
            names = (problem.operand_format.name, problem.output_format.name)
            spec = SpatialStencilSpec(isa, *names, len(view.axes), results, most // vectors, vectors)
            parts = min(view.groups, 1 if threads == 1 else 4 * threads)
            time = _time_ns(view, machine, spec) * ceil(parts / threads) / parts
            if threads > 1:
                time = time * (1 + constants.UNEVEN_BOXES * threads / parts) + constants.WAKE_NS
            yield SpatialStencilPlan(
                strategy=PLANES, spec=spec, operands=(OPERAND[problem.solves_for], "weights"), parts=parts,
                threads=min(threads, parts), error_height=height_of(problem), time_ms=(time + constants.CALL_NS) / 1e6,
            )  # fmt: skip


def _time_ns(view: ForwardNest, machine: Machine, spec: SpatialStencilSpec) -> float:
    """Return one thread's time: loads and multiply-adds of whole tiles, lists of taps, what is written."""
    cycle_ns = 2 * spec.isa.lanes / machine.fma_per_ns
    lines, last = view.axes[-2], view.axes[-1]
    outer = prod(axis.extent for axis in view.axes[:-2])
    tiles_along = sum(ceil(len(phase.positions) / spec.lines) for phase in lines.phases)
    taps = view.taps / len(lines.phases) * view.terms
    tiles = view.groups * outer * tiles_along * ceil(last.extent / spec.across) * ceil(view.results / spec.results)
    vectors = spec.lines * spec.vectors
    vector = constants.PLANE_LOAD_CYCLES + constants.PLANE_PRODUCT_CYCLES * spec.results
    term = vectors * vector + spec.lines * constants.PLANE_LINE_CYCLES
    cycles = tiles * taps * (term + constants.PLANE_WIDE_CYCLES * (spec.vectors - 1) + constants.TERM_CYCLES)
    listed = tiles_along * taps * constants.LIST_CYCLES
    outputs = view.positions * view.groups * view.results
    return (cycles + listed) * cycle_ns + outputs * constants.FINISH_LANES_NS
