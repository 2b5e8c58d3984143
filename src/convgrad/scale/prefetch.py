"""Pieces read ahead: while one is computed, a thread reads the next into the other of two slots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.engines import starting
from convgrad.scale.source import Source, Stopped
from convgrad.spec.slabs import Slab

Array = NDArray[Any]
STACK_BYTES = 1 << 20  # a source may be any library's, which may call much


class Slot:
    """Memory for what one piece reads, made once, and what is in it: used again for piece after piece."""

    def __init__(self, room_bytes: Iterable[int]) -> None:
        self._rooms = [arrays.aligned((size,), np.dtype(np.uint8)) if size else None for size in room_bytes]
        self.slab: Slab
        self.given: list[Array] = []
        self.read_bytes = 0

    def fill(self, slab: Slab, sources: Iterable[Source], stopped: Callable[[], bool]) -> Slot:
        """Read what a slab does."""
        self.slab, self.read_bytes = slab, 0
        for source, region, room in zip(sources, slab.reads, self._rooms, strict=True):
            self.given.append(source.read(region, room, stopped))
            self.read_bytes += source.bytes_of(region)
        return self


@dataclass
class Waited:
    """The seconds that computing waited for reading."""

    seconds: float = 0.0


@dataclass
class _Ahead:
    """What the reading thread and its caller share."""

    sources: tuple[Source, ...]
    slabs: Iterator[Slab]
    free: SimpleQueue[Slot | None] = field(default_factory=SimpleQueue)
    filled: SimpleQueue[Slot | BaseException | None] = field(default_factory=SimpleQueue)
    ended: bool = False
    thread: threading.Thread | None = None  # as it says itself: whoever starts it may be interrupted there

    def read(self) -> None:
        """Read slab after slab, until there are no more or somebody says so."""
        self.thread = threading.current_thread()
        try:
            for slab in self.slabs:
                slot = self.free.get()
                if slot is None or self.ended:
                    return
                self.filled.put(slot.fill(slab, self.sources, lambda: self.ended))
            self.filled.put(None)
        except Stopped:
            pass
        except BaseException as error:  # raised where the piece is waited for
            self.filled.put(error)

    def pieces(self, waited: Waited) -> Iterator[Slot]:
        """Yield what was read: a slot is free again when the next is asked for."""
        while True:
            begin = time.perf_counter()
            slot = self.filled.get()
            waited.seconds += time.perf_counter() - begin
            if slot is None:
                return
            if isinstance(slot, BaseException):
                raise slot
            yield slot
            slot.given.clear()
            self.free.put(slot)


@contextmanager
def ahead(
    sources: tuple[Source, ...], slabs: Iterable[Slab], slots: list[Slot], waited: Waited
) -> Iterator[Iterator[Slot]]:
    """Read slabs one after another: with two slots by a thread, ahead of whoever asks, which is over at the end.

    The thread ends with the context, whatever ends that; of a source that is no array in memory, when it has answered.
    Where the system has no thread, or the interpreter is ending, a piece is read when it is asked for.
    """
    if len(slots) == 1:
        yield _one_by_one(sources, slabs, slots[0], waited)
        return
    shared = _Ahead(sources, iter(slabs))
    for slot in slots:
        shared.free.put(slot)
    try:
        try:
            starting.start(shared.read, "convgrad-reader", STACK_BYTES)
            pieces = shared.pieces(waited)
        except RuntimeError:
            pieces = _one_by_one(sources, shared.slabs, slots[0], waited)
        yield pieces
    finally:
        shared.ended = True
        shared.free.put(None)
        if shared.thread is not None:
            shared.thread.join()


def _one_by_one(sources: tuple[Source, ...], slabs: Iterable[Slab], slot: Slot, waited: Waited) -> Iterator[Slot]:
    for slab in slabs:
        begin = time.perf_counter()
        slot.fill(slab, sources, lambda: False)
        waited.seconds += time.perf_counter() - begin
        yield slot
        slot.given.clear()
