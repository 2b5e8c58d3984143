"""How far a call in pieces is: what was done, read and waited for, as a value, and as a line on a terminal."""

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
    """Pieces done of so many, and what that took; ``resumed`` are those of them that were done before the call.

    ``waiting_s`` is the time of ``elapsed_s`` in which nothing was computed, as its operands were still read.
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
        """The share of the pieces that are done."""
        return self.done / self.pieces if self.pieces else 1.0

    @property
    def bytes_per_s(self) -> float:
        """The bytes read in a second of this call."""
        return self.read_bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds that are left if pieces go on taking as long; None before one is done."""
        now = self.done - self.resumed
        return self.elapsed_s / now * (self.pieces - self.done) if now else None

    def __str__(self) -> str:
        """Return the line of progress.

        >>> print(Progress(done=5, pieces=8, images=640, read_bytes=2_000_000_000, elapsed_s=4.0, waiting_s=0.5))
        5 of 8 pieces, 500 MB/s, 2 s left
        """
        left = "" if self.left_s is None else f", {self.left_s:.0f} s left"
        return f"{self.done} of {self.pieces} pieces, {self.bytes_per_s / MB:.0f} MB/s{left}"


Told = Callable[[Progress], object]


@contextmanager
def told(operator: str, progress: Told | bool | None) -> Iterator[Told]:
    """Give who is told of progress: a callable itself; of True a line on a terminal, which is taken away at the end."""
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
        refuse(
            "K2", operator, f"progress must be True or a callable that takes how far the call is; got {progress!r:.200}"
        )


def _show(stream: IO[str] | None, text: str) -> None:
    """Write a line in place of the one before; a terminal that was closed is nobody to tell."""
    if stream is not None:
        with suppress(OSError):
            stream.write(f"\r\x1b[K{text}")
            stream.flush()
