"""Values that all plans share: names of contiguous axes, the fields and the text of a plan, rejected candidates."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from convgrad.plan.machine import Isa
from convgrad.plan.pairs import WHERE_PAIRS
from convgrad.words import counted, duration

# The contiguous axis of an operand: the channels of a position, the positions of a row, or none (STRIDED).
# Kernels are specialised on this axis only: extents and other strides are run-time arguments.
CHANNELS, SPATIAL, STRIDED = "channels", "spatial", "strided"
# The contiguous axis of weights: output channels, input channels (K), taps, or none (STRIDED).
CHANNELS_OUT, CHANNELS_IN, TAPS = "output channels", "input channels", "taps"
PACKED = {CHANNELS: "packed by channels", SPATIAL: "packed by positions", STRIDED: "packed one by one"}
MAX_STRIDE = 4  # largest stride of positions, in elements, that packing transposes in registers
F32_BYTES = 4
Operands = tuple[str, str]  # the names of the tensors that are A and B of the matrix product


def positions_axis(step: int, size: int) -> tuple[str, int]:
    """Return the axis and the stride of positions ``step`` bytes apart: SPATIAL up to MAX_STRIDE elements, or STRIDED.

    >>> [positions_axis(step, 4) for step in (4, 8, 20)]
    [('spatial', 1), ('spatial', 2), ('strided', 1)]
    """
    return (SPATIAL, step // size) if step in range(size, (MAX_STRIDE + 1) * size, size) else (STRIDED, 1)


@dataclass(frozen=True)
class Operand:
    """How a kernel reads A or B: its contiguous axis, and whether it is packed or read in place."""

    contiguous: str
    stride: int = 1  # positions in memory from a position to the next, if contiguous is SPATIAL
    in_place: bool = False

    def __str__(self) -> str:
        return "in place" if self.in_place else PACKED[self.contiguous]


@dataclass(frozen=True)
class Rejected:
    """A candidate or a kernel that was not chosen, and the reason."""

    strategy: str
    reason: str  # why the candidate is unsupported, or the predicted time of a slower kernel
    slower: bool = False

    def __str__(self) -> str:
        return f"{'slower' if self.slower else 'not'} {self.strategy}: {self.reason}"


class Spec(Protocol):
    """The common fields and methods of the specifications of kernels."""

    @property
    def isa(self) -> Isa:
        """The instruction set."""

    @property
    def body(self) -> str:
        """The name of the loop nest whose generator writes the kernel's code."""

    def __hash__(self) -> int:
        """Return the hash by which compiled kernels are cached."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The fields of every plan. Subclasses add the sizes of their loops."""

    strategy: str
    spec: Any
    operands: Operands
    parts: tuple[int, ...] = ()  # the number of parts of each dimension; a task is one part of each dimension
    threads: int
    rounding_depth: int
    time_ms: float  # predicted
    measured_ms: float = 0.0  # 0 if the plan was not measured
    rejected: tuple[Rejected, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks. Each thread claims one task at a time."""
        return prod(self.parts)

    @property
    def in_pairs(self) -> bool:
        """Whether multiply-adds take bf16 pairs, if exponents allow it."""
        return getattr(self.spec, "k_per_add", 1) == 2

    @property
    def summary(self) -> str:
        """The strategy, the kernel and the contiguous axes, as one line of text."""
        raise NotImplementedError

    @property
    def cut(self) -> str:
        """The division of the work among tasks, as one line of text."""
        raise NotImplementedError

    def __str__(self) -> str:
        measured = f" predicted, {duration(self.measured_ms)} measured" if self.measured_ms else ""
        lines = [
            self.summary,
            f"  {counted(self.tasks, 'task')} on {counted(self.threads, 'thread')}: {self.cut}",
            f"  rounding depth {self.rounding_depth}, about {duration(self.time_ms)}{measured}",
        ]
        if self.in_pairs:
            how = "tiles" if getattr(self.spec, "amx_tiles", False) else "bf16 pairs"
            lines.append(f"  {how} {WHERE_PAIRS}; else single terms, slower, with the same bits")
        lines += [f"  {other}" for other in self.rejected]
        return "\n".join(lines)
