"""Calls of drivers in a block, which are recorded so that they can run again on other tensors of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

Driver = Callable[[Sequence[int], object], None]  # of addresses, and of an object that keeps their memory


class Memory(NamedTuple):
    """Memory, the object that keeps it, and the numbers in f32 that it has, if they were given by the caller."""

    address: int
    size: int  # bytes
    owner: object
    numbers: tuple[float, ...] = ()


class Recording:
    """The calls of drivers in a block, each with its addresses, and the memory that the block allocates for them.

    ``constants`` is memory with numbers that are the same in all such blocks. The block also writes to ``written``
    addresses, which it was given.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Driver, tuple[int, ...]]] = []
        self.allocated: list[Memory] = []
        self.constants: list[Memory] = []
        self.written: set[int] = set()
        self.kept: list[object] = []  # the memory of all calls: if it were freed, a later address could be the same


_recording: ContextVar[Recording | None] = ContextVar("convgrad_recording", default=None)


@contextmanager
def recorded(recording: Recording | None) -> Iterator[None]:
    """Record the calls of a block, also inside another recording, which then has none of them."""
    token = _recording.set(recording)
    try:
        yield
    finally:
        _recording.reset(token)


def allocated(address: int, size: int, owner: object) -> None:
    """Record memory that is allocated for results."""
    if (recording := _recording.get()) is not None:
        recording.allocated.append(Memory(address, size, owner))


def constant(address: int, size: int, owner: object, numbers: tuple[float, ...] = ()) -> None:
    """Record memory with numbers that depend only on the kind of the call, or are ``numbers`` in f32."""
    if (recording := _recording.get()) is not None:
        recording.constants.append(Memory(address, size, owner, numbers))


def written(address: int) -> None:
    """Record the address of a given tensor that is written to."""
    if (recording := _recording.get()) is not None:
        recording.written.add(address)


def run(driver: Driver, addresses: Sequence[int], keep: object) -> None:
    """Run a driver on tensors at these addresses, whose memory ``keep`` keeps alive, and record the call."""
    if (recording := _recording.get()) is not None:
        recording.calls.append((driver, tuple(addresses)))
        recording.kept.append(keep)
    driver(addresses, keep)
