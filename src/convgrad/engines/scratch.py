"""Memory that threads keep from call to call: each its own workspace, and what all threads of a call share."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

KEPT_BYTES = 64 << 20  # the most a thread keeps between calls
Held = tuple[int, NDArray[np.uint8]]  # the first cache line, and what holds it: one value, as an interrupt between two
# would leave one without the other


class Scratch(threading.local):
    """Each thread's own workspace, kept from call to call: fresh memory costs page faults."""

    held: Held | None = None

    def address(self, size: int, threads: int = 1) -> Held:
        """Return the address of ``size`` bytes on a cache line, for so many threads, and what holds them."""
        held = self.held
        if held is None or held[1].size < size + 64:
            self.held = held = None  # the old memory goes before the new one comes
            memory = np.empty(size + 64, np.uint8)
            start = memory.ctypes.data
            held = self.held = (start + -start % 64, memory)
        if held[1].size > threads * KEPT_BYTES:
            self.held = None
        return held


class Shared(threading.local):
    """Memory that all threads of a call share, kept by the thread that calls: taken while a call is at it."""

    memory: NDArray[np.int64] | None = None

    def take(self, words: int) -> NDArray[np.int64]:
        """Return memory that nobody else has."""
        memory, self.memory = self.memory, None
        if memory is not None and memory.size >= words:
            return memory
        del memory
        return np.empty(words, np.int64)

    def give_back(self, memory: NDArray[np.int64]) -> None:
        """Keep it for the next call."""
        if memory.nbytes <= KEPT_BYTES:
            self.memory = memory


own = Scratch()
shared = Shared()
