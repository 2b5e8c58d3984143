"""Prefetching: a thread reads the next piece into a second slot while the current piece is computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np

from convgrad import arrays, starting
from convgrad.array_types import Array
from convgrad.scale.source import OperandSource, Stopped
from convgrad.spec.subproblems import SubProblem

STACK_BYTES = 1 << 20  # enough for deep calls in the libraries of sources


class Slot:
    """The operands of one piece, and memory for them, which is allocated once and reused for later pieces."""

    def __init__(self, room_bytes: Iterable[int]) -> None:
        self._rooms = [arrays.aligned((size,), np.dtype(np.uint8)) if size else None for size in room_bytes]
        self.subproblem: SubProblem
        self.operands: list[Array] = []
        self.read_bytes = 0

    def fill(self, subproblem: SubProblem, sources: Iterable[OperandSource], stopped: Callable[[], bool]) -> Slot:
        """Read the operands of a sub-problem into the slot, and return the slot."""
        self.subproblem, self.read_bytes = subproblem, 0
        for source, region, room in zip(sources, subproblem.reads, self._rooms, strict=True):
            self.operands.append(source.read(region, room, stopped))
            self.read_bytes += source.bytes_of(region)
        return self


@dataclass
class Waited:
    """The seconds that the computation waited for operands."""

    seconds: float = 0.0


@dataclass
class _Prefetch:
    """The data that the reading thread and its caller share."""

    sources: tuple[OperandSource, ...]
    subproblems: Iterator[SubProblem]
    free: SimpleQueue[Slot | None] = field(default_factory=SimpleQueue)
    filled: SimpleQueue[Slot | BaseException | None] = field(default_factory=SimpleQueue)
    ended: bool = False
    thread: threading.Thread | None = None  # set by the thread itself, because its start may be interrupted

    def read(self) -> None:
        """Read the sub-problems in order, until the last one or until ``ended`` is set."""
        self.thread = threading.current_thread()
        try:
            for subproblem in self.subproblems:
                slot = self.free.get()
                if slot is None or self.ended:
                    return
                self.filled.put(slot.fill(subproblem, self.sources, lambda: self.ended))
            self.filled.put(None)
        except Stopped:
            pass
        except BaseException as error:  # raised again in the caller
            self.filled.put(error)

    def pieces(self, waited: Waited) -> Iterator[Slot]:
        """Yield filled slots in order. A slot is free again once the next one is requested."""
        while True:
            begin = time.perf_counter()
            slot = self.filled.get()
            waited.seconds += time.perf_counter() - begin
            if slot is None:
                return
            if isinstance(slot, BaseException):
                raise slot
            yield slot
            slot.operands.clear()
            self.free.put(slot)


@contextmanager
def prefetched(
    sources: tuple[OperandSource, ...], subproblems: Iterable[SubProblem], slots: list[Slot], waited: Waited
) -> Iterator[Iterator[Slot]]:
    """Yield an iterator over slots with the operands of the sub-problems. With two slots, a thread reads in advance.

    The thread ends with the context, even after an error. If it is reading from another library's source, the context
    waits for that read. If no thread can start, each piece is read when it is requested.
    """
    if len(slots) == 1:
        yield _one_by_one(sources, subproblems, slots[0], waited)
        return
    shared = _Prefetch(sources, iter(subproblems))
    for slot in slots:
        shared.free.put(slot)
    try:
        try:
            starting.start(shared.read, "convgrad-reader", STACK_BYTES)
            pieces = shared.pieces(waited)
        except RuntimeError:
            pieces = _one_by_one(sources, shared.subproblems, slots[0], waited)
        yield pieces
    finally:
        shared.ended = True
        shared.free.put(None)
        if shared.thread is not None:
            shared.thread.join()


def _one_by_one(
    sources: tuple[OperandSource, ...], subproblems: Iterable[SubProblem], slot: Slot, waited: Waited
) -> Iterator[Slot]:
    for subproblem in subproblems:
        begin = time.perf_counter()
        slot.fill(subproblem, sources, lambda: False)
        waited.seconds += time.perf_counter() - begin
        yield slot
        slot.operands.clear()
