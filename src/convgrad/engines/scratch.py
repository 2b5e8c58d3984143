"""Scratch memory that is reused from call to call: of each thread, and of all threads of a call together."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

MAX_BYTES = 64 << 20  # that a thread keeps between calls
# The first cache line and the array that holds it: one value, because an interrupt may come between two assignments.
Held = tuple[int, NDArray[np.uint8]]


class Scratch(threading.local):
    """The scratch of a thread, which is reused: fresh memory costs page faults."""

    held: Held | None = None

    def address(self, size: int, threads: int = 1) -> Held:
        """Return the address of ``size`` bytes on a cache line for all ``threads``, and the array that holds them."""
        held = self.held
        if held is None or held[1].size < size + 64:
            self.held = held = None  # the old memory is freed before the new is allocated
            memory = np.empty(size + 64, np.uint8)
            start = memory.ctypes.data
            held = self.held = (start + -start % 64, memory)
        if held[1].size > threads * MAX_BYTES:
            self.held = None
        return held


class Shared(threading.local):
    """The memory that all threads of a call share. The calling thread keeps it, and a running call takes it away."""

    memory: NDArray[np.int64] | None = None

    def take(self, count: int) -> NDArray[np.int64]:
        """Return memory of ``count`` integers that no other call uses."""
        memory, self.memory = self.memory, None
        if memory is not None and memory.size >= count:
            return memory
        del memory
        return np.empty(count, np.int64)

    def give_back(self, memory: NDArray[np.int64]) -> None:
        """Keep the memory for the next call."""
        if memory.nbytes <= MAX_BYTES:
            self.memory = memory


own = Scratch()
shared = Shared()
