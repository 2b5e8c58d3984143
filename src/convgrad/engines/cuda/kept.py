"""Prepared calls that are kept for later calls, with limits on their number and on their tables in devices' memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from convgrad.starting import forked_with

TABLES_BYTES = 4 << 30  # the largest size of all kept tables: of 128 weight gradients with 1024x1024 positions


class WithTable(Protocol):
    """A prepared call that has a table in a device's memory."""

    @property
    def table_bytes(self) -> int:
        """The size of the call's table."""


Call = TypeVar("Call", bound=WithTable)


class KeptCalls(Generic[Call]):
    """Prepared calls by key. The least recently used ones are removed, but never the last one."""

    def __init__(self, capacity: int) -> None:
        self.calls: dict[object, Call] = {}
        self._capacity, self._lock = capacity, forked_with()

    def get(self, key: object, prepare: Callable[[], Call]) -> Call:
        """Return the call of a key, which is prepared if it is not kept."""
        with self._lock:
            known = self.calls.pop(key, None)
            if known is not None:
                self.calls[key] = known  # the latest at the end
                return known
        call, removed = prepare(), list[Call]()  # the end of ``removed`` waits for devices, so it is outside the lock
        with self._lock:
            call = self.calls.setdefault(key, call)  # another thread may have been faster
            while len(self.calls) > 1 and self._exceeds():
                removed.append(self.calls.pop(next(iter(self.calls))))
        return call

    def _exceeds(self) -> bool:
        return len(self.calls) > self._capacity or sum(call.table_bytes for call in self.calls.values()) > TABLES_BYTES
