"""The spatial stencil: small groups in channels-first layouts, with neighbouring output positions in a vector.

In other kernels, the output channels of a small group leave most lanes of a vector empty. Here a vector of input
positions is read in place and multiplied by one weight per output channel. If a tap is absent for a lane, the sum of
this lane does not change.

The kernel has no bf16 pairs, because each pair would need two vectors of positions, interleaved. Pairs would pay only
for four or more output channels, and only if a multiply-add of a pair is as fast as one of a single k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convgrad.formats import BF16
from convgrad.plan.forward.nest import OPERAND, ForwardNest
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import Chosen, Operands
from convgrad.spec.order import FAN_IN
from convgrad.spec.problem import Problem

SPATIAL_STENCIL = "spatial stencil"  # the name of the loop nest
MAX_POSITIONS = 1 << 31  # the limit of positions per line, because lanes count positions in 32 bits
SHAPES = ((1, 8), (2, 8), (4, 4), (8, 2))  # output channels of a micro-tile, and vectors of each channel


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
    activation: str = ""  # applied to outputs before rounding; "" for none

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""
        return SPATIAL_STENCIL

    @property
    def pairs(self) -> bool:
        """Whether chains add the k of a tap in pairs, the second k of each pair first."""
        return self.operand == BF16.name

    @property
    def across(self) -> int:
        """The number of outputs of a line of a micro-tile."""
        return self.vectors * self.isa.lanes

    def __str__(self) -> str:
        shape = f"{self.results}x{self.lines}x{self.vectors}"
        return f"{self.operand} to {self.output}, micro-tile {shape} of {self.isa}"


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
    last, order = view.axes[-1], view.order
    if view.groups == 1:
        return "there is one group"
    if (last.data, last.out) != (problem.operand_format.dtype.itemsize, problem.output_format.dtype.itemsize):
        return "positions are not contiguous"
    if len(last.phases) != 1 or last.phases[0].by_position != 1:
        return "neighbouring outputs do not read neighbouring inputs"
    if order.blocks_a_line > 1 or order.blocks > FAN_IN:
        return "a sum has more accumulation chains than a node of the tree has children"
    return "" if last.met + last.extent < MAX_POSITIONS else f"a row has more than {MAX_POSITIONS} positions"


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[SpatialStencilSpec, Operands]]:
    """Yield the spatial stencils, one for each shape of a micro-tile."""
    names = (problem.operand_format.name, problem.output_format.name)
    results, max_vectors = next(shape for shape in reversed(SHAPES) if shape[0] <= view.n)
    for vectors in (1, 2, 4, 8):
        if vectors <= max_vectors and (vectors == 1 or (vectors - 1) * isa.lanes < view.axes[-1].extent):
            spec = SpatialStencilSpec(isa, *names, len(view.axes), results, max_vectors // vectors, vectors)
            yield spec, (OPERAND[problem.solves_for], "weights")
