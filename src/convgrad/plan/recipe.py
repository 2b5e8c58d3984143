"""The values that all plans share: names of contiguous axes, the text of a plan, the reasons against others."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from convgrad.plan.machine import Isa
from convgrad.plan.pairs import WHERE_PAIRS
from convgrad.words import counted, duration

# The contiguous axis of an operand: the channels of a position, the positions of a row, or none. Extents and other
# strides are run-time arguments.
CHANNELS, SPATIAL, STRIDED = "channels", "spatial", "strided"
# The contiguous axis of weights: the channels of the result, the channels of K, or taps; or STRIDED.
CHANNELS_OUT, CHANNELS_IN, TAPS = "output channels", "input channels", "taps"
PACKED = {CHANNELS: "packed by channels", SPATIAL: "packed by positions", STRIDED: "packed one by one"}
F32_BYTES = 4
Operands = tuple[str, str]  # the tensors that A and B are made of


@dataclass(frozen=True)
class Rejected:
    """A candidate or a kernel that was not chosen, and the reason."""

    strategy: str
    reason: str  # against a candidate, or the predicted time of a kernel
    slower: bool = False

    def __str__(self) -> str:
        return f"{'slower' if self.slower else 'not'} {self.strategy}: {self.reason}"


class Spec(Protocol):
    """The specification that every kernel has. The body names the loop nest that generates its code."""

    @property
    def isa(self) -> Isa:
        """The instruction set."""

    @property
    def body(self) -> str:
        """The name of the loop nest of a task."""

    def __hash__(self) -> int:
        """Compiled kernels are cached by their specification."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The fields of every plan. Subclasses add how the work is divided."""

    strategy: str
    spec: Any
    operands: Operands
    parts: tuple[int, ...] = ()  # into how many parts each dimension is divided: a task is one part of each
    threads: int
    rounding_depth: int
    time_ms: float
    rejected: tuple[Rejected, ...] = ()

    @property
    def tasks(self) -> int:
        """The number of tasks, which threads claim one by one."""
        return prod(self.parts)

    @property
    def in_pairs(self) -> bool:
        """Whether multiply-adds take bf16 pairs where the data allows it."""
        return getattr(self.spec, "step", 1) == 2

    @property
    def summary(self) -> str:
        """Strategy, kernel and contiguous axes in one line."""
        raise NotImplementedError

    @property
    def cut(self) -> str:
        """How the work is divided, in one line."""
        raise NotImplementedError

    def __str__(self) -> str:
        lines = [
            self.summary,
            f"  {counted(self.tasks, 'task')} on {counted(self.threads, 'thread')}: {self.cut}",
            f"  rounding depth {self.rounding_depth}, about {duration(self.time_ms)}",
        ]
        if self.in_pairs:
            lines.append(f"  bf16 pairs {WHERE_PAIRS}; else single terms, slower, with the same bits")
        lines += [f"  {other}" for other in self.rejected]
        return "\n".join(lines)
