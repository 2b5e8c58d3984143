"""Words from outside, made fit to be printed: a terminal obeys some characters, and a file may hold any."""

from __future__ import annotations


def printable(text: str, length: int | None = 80) -> str:
    r"""Return the start of a text, or all of it, with what a terminal should not be sent replaced.

    >>> printable("\x1b[2Jsrc")
    '?[2Jsrc'
    """
    start = text[:length]
    return start if start.isprintable() else "".join(c if c.isprintable() else "?" for c in start)
