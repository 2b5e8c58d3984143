"""A progress line for long work: it is rewritten in place on a terminal, and printed again and again elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from convgrad.cli.console import complain, fit, say
from convgrad.words import printable

FIRST_AFTER_S = 0.5
EVERY_S = 0.2
PIPED_EVERY_S = 10.0  # the interval between the lines of a heartbeat


class ProgressLine:
    """A line with a label and the time since its start; ``progress(share)`` adds the finished share of the work.

    If the line cannot be shown, because standard output is not a terminal or ``silent`` is true, a ``heartbeat`` prints
    it on standard error every 10 seconds.
    """

    def __init__(self, label: str, silent: bool = False, heartbeat: bool = False) -> None:
        self._label, self._share, self._started = printable(label), 0.0, time.monotonic()
        self._shown = False
        self._line = threading.Lock()
        self._done = threading.Event()
        terminal = sys.stdout is not None and sys.stdout.isatty() and not silent
        self._thread = threading.Thread(target=self._show if terminal else self._beat, daemon=True)
        self._active = terminal or heartbeat

    def __call__(self, share: float) -> None:
        """Set the finished share of the work, from 0 to 1."""
        self._share = share

    def part(self, number: int, of: int, then: str = "") -> Callable[[float], None]:
        """Return a function that sets the finished share of task ``number``, from 0, of ``of`` equally long tasks.

        ``then`` is the label after the share is 1, for the rest of a task whose share is not known.
        """

        def part(share: float) -> None:
            self((number + share) / of)
            if then and share >= 1:
                self.relabel(then)

        return part

    def relabel(self, label: str) -> None:
        """Change the label."""
        self._label = printable(label)

    def say(self, text: str) -> None:
        """Print lines on standard output above the progress line."""
        with self._line:
            self._clear()
            say(text)

    def __enter__(self) -> ProgressLine:
        if self._active:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Remove the line, and stop the thread that prints it."""
        self._done.set()
        if self._active:
            self._thread.join()
            self._clear()

    def _clear(self) -> None:
        if self._shown:
            with suppress(OSError):
                print("\r\x1b[K", end="", flush=True)

    def _show(self) -> None:
        wait = FIRST_AFTER_S
        with suppress(OSError):  # a closed terminal is reported by the next ``say``
            while not self._done.wait(wait):
                wait, self._shown = EVERY_S, True
                with self._line:
                    print(f"\r\x1b[K{fit(self._words(), sys.stdout.encoding)}", end="", flush=True)

    def _beat(self) -> None:
        while not self._done.wait(PIPED_EVERY_S):
            complain(f"convgrad: {self._words()}")

    def _words(self) -> str:
        share = f" {self._share:4.0%}" if self._share else ""
        return f"{self._label}{share}  {time.monotonic() - self._started:.0f} s"
