"""The parts that all plans have, the names of contiguous axes, and the reasons against other plans."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from convgrad.plan.machine import Isa
from convgrad.plan.pairs import WHERE_PAIRS
from convgrad.words import counted

# The axis along which an operand is contiguous in memory: the channels of a position, the positions of a row, or none.
# Extents and other strides are run-time arguments.
CHANNELS, SPATIAL, STRIDED = "channels", "spatial", "strided"
# Of weights: the channels of the result, those that are summed, or taps; or none.
CHANNELS_OUT, CHANNELS_IN, TAPS = "output channels", "input channels", "taps"
PACKED = {CHANNELS: "packed by channels", SPATIAL: "packed by positions", STRIDED: "packed one by one"}
F32_BYTES = 4
Operands = tuple[str, str]  # the tensors that rows and lanes are from


@dataclass(frozen=True)
class Rejected:
    """A strategy, or a kernel, that was not taken, and why."""

    strategy: str
    reason: str


class Spec(Protocol):
    """All that any compiled kernel is specialised on: its body tells which nest makes code of it."""

    @property
    def isa(self) -> Isa:
        """The instruction set."""

    @property
    def body(self) -> str:
        """What tasks are made of."""

    def __hash__(self) -> int:
        """Kernels are kept by their specification."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What any plan says beside how its work is cut."""

    strategy: str
    spec: Any
    operands: Operands
    parts: tuple[int, ...] = ()  # of what the work is divided by: a task is one of each
    threads: int
    rounding_depth: int
    time_ms: float
    rejected: tuple[Rejected, ...] = ()

    @property
    def tasks(self) -> int:
        """Parts of the work, as many of which run at a time as there are threads."""
        return prod(self.parts)

    @property
    def in_pairs(self) -> bool:
        """Whether a multiply-add takes two terms where the data lets it."""
        return getattr(self.spec, "step", 1) == 2

    @property
    def summary(self) -> str:
        """Strategy, kernel and layouts in one line."""
        raise NotImplementedError

    @property
    def cut(self) -> str:
        """How the work is cut, in one line."""
        raise NotImplementedError

    def __str__(self) -> str:
        lines = [
            self.summary,
            f"  {counted(self.tasks, 'task')} on {counted(self.threads, 'thread')}: {self.cut}",
            f"  error height {self.rounding_depth}, about {self.time_ms:.3g} ms",
        ]
        if self.in_pairs:
            lines.append(f"  terms in pairs {WHERE_PAIRS}; else one by one, longer, to the same bits")
        lines += [f"  not {other.strategy}: {other.reason}" for other in self.rejected]
        return "\n".join(lines)
