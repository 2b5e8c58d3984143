"""The progress of a call in pieces: finished pieces, bytes read and seconds waited, as a value and as a text line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from convgrad.spec.rules import refuse

MB = 1e6


@dataclass(frozen=True)
class Progress:
    """The number of finished pieces, and the bytes read and seconds used so far.

    Args:
        done: The number of all finished pieces.
        pieces: The number of all pieces.
        images: The number of images of the finished pieces.
        read_bytes: The number of bytes that this call has read.
        elapsed_s: The time since the start of this call, in seconds.
        waiting_s: The part of ``elapsed_s`` in which the computation waited for operands.
        resumed: The number of pieces that were finished before this call. Default: 0.
    """

    done: int
    pieces: int
    images: int
    read_bytes: int
    elapsed_s: float
    waiting_s: float
    resumed: int = 0

    @property
    def share(self) -> float:
        """The share of the pieces that are finished, from 0 to 1."""
        return self.done / self.pieces if self.pieces else 1.0

    @property
    def bytes_per_s(self) -> float:
        """The bytes that this call reads per second."""
        return self.read_bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def left_s(self) -> float | None:
        """The estimated seconds until the end, from the mean time per piece; None before the first piece ends."""
        now = self.done - self.resumed
        return self.elapsed_s / now * (self.pieces - self.done) if now else None

    def __str__(self) -> str:
        """Return the line of progress.

        >>> print(Progress(done=5, pieces=8, images=640, read_bytes=2_000_000_000, elapsed_s=4.0, waiting_s=0.5))
        5 of 8 pieces, 500 MB/s, 2 s left
        """
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        return f"{self.done} of {self.pieces} pieces, {self.bytes_per_s / MB:.0f} MB/s{left}"


Report = Callable[[Progress], object]


@contextmanager
def reporting(operator: str, progress: Report | bool | None) -> Iterator[Report]:
    """Yield the function that is called with each Progress: the given callable, or a function that shows a line.

    The line is cleared at the end. Without ``progress``, the function does nothing.
    """
    if progress is True:
        stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        try:
            yield lambda now: _show(stream, f"{operator}: {now}")
        finally:
            _show(stream, "")
    elif callable(progress):
        yield progress
    elif progress is None or progress is False:
        yield lambda _: None
    else:  # K2
        refuse("K2", operator, f"progress must be True or a callable that accepts a Progress; got {progress!r:.200}")


def _show(stream: IO[str] | None, text: str) -> None:
    """Replace the line on a terminal. Do nothing if ``stream`` is None or the terminal was closed."""
    if stream is not None:
        with suppress(OSError):
            stream.write(f"\r\x1b[K{text}")
            stream.flush()
