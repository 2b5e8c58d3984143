"""The spatial stencil: small groups in channels-first layouts, whose vectors are neighbouring outputs of some lines.

Results of a small group would leave most lanes of B empty. Here a vector of data is read in place and multiplied by
one weight per result. If a tap does not exist for a lane, the sum of this lane does not change.

bf16 is not taken in pairs. A pair needs two vectors of positions interleaved: two loads, four conversions and R dots,
instead of two loads, four conversions and 2 R multiply-adds for R results. It would pay from four results on, where a
pair costs as much as one multiply-add.
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

SPATIAL_STENCIL = "spatial stencil"  # the body
MAX_POSITIONS = 1 << 31  # of a line: lanes count them in 32 bits
SHAPES = ((1, 8), (2, 8), (4, 4), (8, 2))  # results of a micro-tile, and vectors of outputs of each


@dataclass(frozen=True)
class SpatialStencilSpec:
    """The specification of a kernel."""

    isa: Isa
    operand: str
    output: str
    axes: int
    results: int  # of a micro-tile
    lines: int
    vectors: int  # of a line
    activation: str = ""  # of results, before their rounding

    @property
    def body(self) -> str:
        """The loop nest that the kernel runs in."""
        return SPATIAL_STENCIL

    @property
    def pairs(self) -> bool:
        """Whether the k of a tap are taken by twos, the second first."""
        return self.operand == BF16.name

    @property
    def across(self) -> int:
        """Outputs of a line."""
        return self.vectors * self.isa.lanes

    def __str__(self) -> str:
        shape = f"{self.results}x{self.lines}x{self.vectors}"
        return f"{self.operand} to {self.output}, micro-tile {shape} of {self.isa}"


@dataclass(frozen=True, kw_only=True)
class SpatialStencilPlan(Chosen):
    """How a forward or a data gradient of small groups is computed."""

    spec: SpatialStencilSpec
    parts: tuple[int]  # of the groups

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        data, weights = self.operands
        return f"{self.strategy}: {self.spec}, A from {weights} (packed), B from {data} (in place)"

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        return f"{self.tasks} parts of groups"


def unsupported(problem: Problem, view: ForwardNest, isa: Isa) -> str:
    """Return a reason against the spatial stencil, or the empty string."""
    last, order = view.axes[-1], view.order
    if view.groups == 1:
        return "there is one group"
    if (last.data, last.out) != (problem.operand_format.dtype.itemsize, problem.output_format.dtype.itemsize):
        return "positions are not neighbours"
    if len(last.phases) != 1 or last.phases[0].by_position != 1:
        return "neighbouring outputs do not meet neighbouring positions"
    if order.blocks_a_line > 1 or order.blocks > FAN_IN:
        return "sums have more accumulation chains than one node of the tree"
    return "" if last.met + last.extent < MAX_POSITIONS else f"lanes count at most {MAX_POSITIONS} positions"


def kernels(problem: Problem, view: ForwardNest, isa: Isa) -> Iterator[tuple[SpatialStencilSpec, Operands]]:
    """Yield the kernels, one for each shape of a micro-tile."""
    names = (problem.operand_format.name, problem.output_format.name)
    results, max_vectors = next(shape for shape in reversed(SHAPES) if shape[0] <= view.n)
    for vectors in (1, 2, 4, 8):
        if vectors <= max_vectors and (vectors == 1 or (vectors - 1) * isa.lanes < view.axes[-1].extent):
            spec = SpatialStencilSpec(isa, *names, len(view.axes), results, max_vectors // vectors, vectors)
            yield spec, (OPERAND[problem.solves_for], "weights")
