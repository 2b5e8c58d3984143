"""The specification of the kernels of a call with Winograd's algorithm, for the strides of its arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from convgrad.formats import FORMATS
from convgrad.plan.machine import Isa
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS
from convgrad.plan.winograd.plans import WinogradPlan
from convgrad.spec.operators import SolvesFor
from convgrad.spec.problem import Problem
from convgrad.spec.winograd.algorithms import DATA, Algorithm
from convgrad.spec.winograd.filtering import FILTERINGS, Filtering

Ints = tuple[int, ...]

# The axes that may be contiguous in a kernel: of the operand with input tiles, the second operand, and the output.
_DATA, _BY_TAPS = {1: CHANNELS, 4: SPATIAL}, {4: TAPS}
CONTIGUOUS: Mapping[str, Sequence[Mapping[int, str]]] = {
    "dst": (_DATA, {0: CHANNELS_OUT, 1: CHANNELS_IN, **_BY_TAPS}, _DATA),
    "src": (_DATA, {1: CHANNELS_OUT, 0: CHANNELS_IN, **_BY_TAPS}, _DATA),
    "weights": (_DATA, _DATA, {0: CHANNELS, **_BY_TAPS}),
}
SECOND = {"dst": "weights", "src": "weights", "weights": "dst"}


@dataclass(frozen=True)
class WinogradSpec:
    """The specification of the kernel of the stage ``body`` of a call. Its only extents are those of last tiles."""

    isa: Isa
    sizes: tuple[tuple[int, int], tuple[int, int]]  # the tile and the taps of rows, and those of columns
    remainders: tuple[int, int]  # the rows of the last row of tiles, the columns of the last column; 0 if whole
    solves_for: SolvesFor
    a: str  # the contiguous axis of the operand with input tiles
    b: str  # the contiguous axis of the weights, or of dst in backward weights
    out: str  # the contiguous axis of the output
    operands: str  # the format of the operands
    output: str  # the format of the output
    accumulate: bool
    activation: str
    body: str = ""  # the stage: the name of the function that emits its task; empty if the stage is not known yet

    @property
    def transforms(self) -> Algorithm:
        """The transforms of the algorithm."""
        rows, columns = (FILTERINGS[sizes] for sizes in self.sizes)
        return Algorithm((rows, columns))

    def kinds(self, axis: int) -> list[Filtering]:
        """Return the filtering of an axis and, if its last tile is smaller, that of the last tile."""
        whole = self.transforms.axes[axis]
        last = whole.remainder(self.remainders[axis])
        return [whole] if last is None else [whole, last]

    @property
    def filter(self) -> int:
        """The number of taps of the rows and columns of the weights."""
        return prod(self.transforms.taps)

    @property
    def element_bytes(self) -> int:
        """The bytes of an element of the operands."""
        return FORMATS[self.operands].itemsize


def spec_of(problem: Problem, isa: Isa, strides: Mapping[str, Ints], plan: WinogradPlan) -> WinogradSpec:
    """Return the specification of the kernels for a problem and the strides of its arrays."""
    operands, output = problem.operand_format, problem.output_format
    tensors, sizes = (DATA[problem.solves_for], SECOND[problem.solves_for], "out"), (operands, operands, output)
    a, b, out = (
        _contiguous(strides[tensor], fmt.itemsize, names, plan.transforms.taps)
        for tensor, fmt, names in zip(tensors, sizes, CONTIGUOUS[problem.solves_for], strict=True)
    )
    rows, columns = ((axis.tile, axis.taps) for axis in plan.transforms.axes)
    remainders = (axis.dst % tile for axis, tile in zip(plan.slices.conv.axes, plan.transforms.tile, strict=True))
    last_rows, last_columns = (0, 0) if problem.solves_for == "weights" else remainders
    return WinogradSpec(
        isa,
        (rows, columns),
        (last_rows, last_columns),
        problem.solves_for,
        a,
        b,
        out,
        operands.name,
        output.name,
        problem.accumulate,
        problem.activation,
    )


def _contiguous(strides: Ints, size: int, names: Mapping[int, str], taps: tuple[int, int]) -> str:
    """Return the name of the axis that is contiguous among those in ``names``, or STRIDED.

    ``strides`` are those of the channels, of the axis that is summed directly, of rows, and of columns. Weights are
    contiguous by taps if all taps of rows and columns are.
    """
    (high, wide), (*_, of_rows, of_columns) = taps, strides
    for axis, name in names.items():
        if name == TAPS:
            if (high == 1 or of_rows == wide * size) and (wide == 1 or of_columns == size):
                return name
        elif strides[axis] == size:
            return name
    return STRIDED
