"""The parts of the cost model that all kernels share. Constants are in ``constants.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, NamedTuple

from convgrad.plan import constants
from convgrad.plan.machine import Machine
from convgrad.plan.recipe import CHANNELS, CHANNELS_IN, CHANNELS_OUT, SPATIAL, STRIDED, TAPS, Operands


class Division(NamedTuple):
    """A division of a kernel's work among tasks and threads.

    A task is one part of each dimension, such as groups, panels of the output, and output blocks.
    """

    counts: tuple[int, ...]  # the extent of each divided dimension, such as the number of output blocks
    parts: tuple[int, ...]  # the number of parts of each dimension
    threads: int
    loops: Mapping[str, Any]  # the sizes of the loops in a task: fields of the plan, by name
    thread_bytes: int = 0  # the estimated scratch of one thread
    shared_bytes: int = 0  # the partial sums, which all tasks write and the last task reads
    largest: Sequence[int] = ()  # the extents of the largest task, or empty if unknown

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return prod(self.parts)


Timed = Iterator[tuple[float, Division]]  # the predicted time in ns of each cut, and the cut


def pack_ns(machine: Machine, axis: str) -> float:
    """Return the time to pack one element in ns, by the contiguous axis of its operand."""
    return {
        CHANNELS: machine.pack_channels_ns,
        CHANNELS_OUT: machine.pack_channels_ns,
        SPATIAL: machine.pack_spatial_ns,
        CHANNELS_IN: machine.pack_spatial_ns,
        TAPS: constants.PACK_TAPS_FACTOR * machine.pack_spatial_ns,
        STRIDED: constants.PACK_STRIDED_FACTOR * machine.pack_spatial_ns,
    }[axis]


def store_ns(machine: Machine, axis: str) -> float:
    """Return the time to store one output in ns, by its contiguous axis: columns of B, rows of A, or taps."""
    return {
        CHANNELS: machine.store_lanes_ns,
        SPATIAL: machine.store_rows_ns,
        TAPS: constants.STORE_TAPS_FACTOR * machine.store_rows_ns,
        STRIDED: constants.STORE_STRIDED_FACTOR * machine.store_rows_ns,
    }[axis]


def paired_ns(k_per_add: int) -> float:
    """Return the additional time to pack one value in ns, if ``k_per_add`` is 2, so that it is packed in bf16 pairs."""
    return constants.PACK_PAIR_NS if k_per_add == 2 else 0.0


@dataclass(frozen=True)
class Costs:
    """The predicted times of a kernel on one thread, in ns: arithmetic, stores, and reading or packing A and B once."""

    spec: Any
    operands: Operands
    compute_ns: float
    store_ns: float
    a_ns: float
    b_ns: float
    once_ns: float = 0.0  # packing all of A before the first task, if that is possible
    again_ns: float = 0.0  # reading A that is packed

    @property
    def alone_ns(self) -> float:
        """The predicted time of the kernel on one thread."""
        return self.compute_ns + self.store_ns + (self.a_ns + self.b_ns)


def on_threads_ns(machine: Machine, alone_ns: float, share: float, cut: Division, uneven: float) -> float:
    """Return the time of a call in ns. The largest task has ``share`` of work that takes one thread ``alone_ns``."""
    tasks = cut.tasks
    time = alone_ns * ceil(tasks / cut.threads) * share
    if min(cut.threads, tasks) > 1:
        time = time * (1 + uneven * cut.threads / tasks) + machine.wake_ns
    return time + machine.call_ns


def share(cut: Division, uneven: tuple[float, ...] = (1.0,)) -> float:
    """Return the largest task's share of the work. Parts of output blocks count as equal if they outnumber threads.

    ``uneven`` is the work of the largest unit of each dimension, compared with the mean.
    """
    share = 1.0
    for count, parts, factor in zip(cut.counts, cut.parts, uneven, strict=True):
        largest = -(-count // parts) / count * factor if parts > 1 else 1.0
        share *= largest
    return share if parts <= cut.threads else share / largest / parts


def claimed(count: int, threads: int) -> int:
    """Return the number of parts of ``count`` equal units of work: several per thread, because speeds differ."""
    return min(count, 1 if threads == 1 else 4 * threads)
