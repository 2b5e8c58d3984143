"""What kernels cost, in terms of ``constants.py``: the terms that all share, and weight and bias gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple

from convgrad.plan import constants
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS, Operands


class Cut(NamedTuple):
    """How the work of a kernel is divided among tasks, and what a task has at a time.

    A task is one part of each: of the groups, of the output, of the batch or of the output blocks.
    """

    counts: tuple[int, ...]  # of what is divided: panels, units of the batch, output blocks
    parts: tuple[int, ...]
    threads: int
    loops: Mapping[str, Any]  # what a task has at a time, by the names that the plan has for it
    own_bytes: int = 0  # about what a thread takes in scratch: ``schedule.py`` counts it
    shared_bytes: int = 0  # of partial sums: written by all tasks, read by one
    largest: Sequence[int] = ()  # how many the largest task has of each, if that is told here

    @property
    def tasks(self) -> int:
        """One for each part of the output and of the batch."""
        return prod(self.parts)


# An element, by the axis along which its operand is contiguous: to pack it, and to pack it into compact bf16 pairs.
PACK_NS = {
    CHANNELS: constants.PACK_CHANNELS_NS, SPATIAL: constants.PACK_SPATIAL_NS, STRIDED: constants.PACK_STRIDED_NS,
    CHANNELS_OUT: constants.PACK_CHANNELS_NS, CHANNELS_IN: constants.PACK_SPATIAL_NS, TAPS: constants.PACK_TAPS_NS,
}  # fmt: skip
# An output, by which of B's, of A's and of the taps' are contiguous: the first, as engines/llvm/finish.py has it.
STORE_NS = {
    CHANNELS: constants.STORE_LANES_NS, SPATIAL: constants.STORE_ROWS_NS, TAPS: constants.STORE_TAPS_NS,
    STRIDED: constants.STORE_STRIDED_NS,
}  # fmt: skip


@dataclass(frozen=True)
class Costs:
    """What a kernel costs on a problem, in ns: its arithmetic, its output, packing all of A once, and all of B."""

    spec: Any
    operands: Operands
    compute_ns: float
    store_ns: float
    a_ns: float
    b_ns: float

    @property
    def alone_ns(self) -> float:
        """One thread's time if nothing is cut."""
        return self.compute_ns + self.store_ns + (self.a_ns + self.b_ns)


def cycle_ns(machine: Machine) -> float:
    """Return the time of a cycle, in which a core has two multiply-adds of vectors."""
    return 2 * machine.isa.lanes / machine.fma_per_ns


def traffic_ns(machine: Machine, size: float) -> float:
    """Return the time to read or write so many bytes where operands usually are."""
    return size / machine.bytes_per_ns


def on_threads_ns(alone_ns: float, share: float, cut: Cut, uneven: float) -> float:
    """Return the time of tasks on threads, of which the largest is such a share of all."""
    tasks = cut.tasks
    time = alone_ns * ceil(tasks / cut.threads) * share
    if min(cut.threads, tasks) > 1:
        time = time * (1 + uneven * cut.threads / tasks) + constants.WAKE_NS
    return time + constants.CALL_NS
