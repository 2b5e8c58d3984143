"""Scratch memory that is reused from call to call: each thread's own, and that which all threads of a call share."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 64 << 20  # a thread keeps at most this much memory between calls
# The aligned address and its array. They are one value, because a signal may interrupt between two assignments.
Held = tuple[int, NDArray[np.uint8]]


class Scratch(threading.local):
    """The scratch of a thread. It is reused, because fresh memory costs page faults."""

    held: Held | None = None

    def address(self, size: int, threads: int = 1) -> Held:
        """Return the address of ``size`` bytes, aligned to 64 bytes, and the array that contains them.

        The thread keeps the memory for its next call, up to MAX_BYTES for each of ``threads`` threads that use it.
        """
        held = self.held
        if held is None or held[1].size < size + 64:
            self.held = held = None  # free the old memory before the new memory is allocated
            memory = np.empty(size + 64, np.uint8)
            start = memory.ctypes.data
            held = self.held = (start + -start % 64, memory)
        if held[1].size > threads * MAX_BYTES:
            self.held = None
        return held


class SharedScratch(threading.local):
    """The memory that all threads of a call share. The calling thread keeps it between calls."""

    memory: NDArray[np.int64] | None = None

    def take(self, count: int) -> NDArray[np.int64]:
        """Return an array of at least ``count`` integers that no other call uses."""
        memory, self.memory = self.memory, None
        if memory is not None and memory.size >= count:
            return memory
        del memory
        return np.empty(count, np.int64)

    def give_back(self, memory: NDArray[np.int64]) -> None:
        """Keep the memory for the next call, unless it is larger than MAX_BYTES."""
        if memory.nbytes <= MAX_BYTES:
            self.memory = memory


own = Scratch()
shared = SharedScratch()
