"""Output of commands on standard output and standard error, without control characters."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from convgrad.disk import why
from convgrad.errors import FileError
from convgrad.words import printable

LISTED = 20  # the number of messages that are printed; further ones are counted


def say(text: str) -> None:
    """Print lines on standard output, or raise FileError; control characters are replaced by question marks."""
    if sys.stdout is None:  # the parent process has closed standard output
        raise FileError("standard output cannot be written: it is closed")
    try:
        print(fit(text, sys.stdout.encoding), flush=True)
    except OSError as error:
        _drop_remaining_output()
        raise FileError(f"standard output cannot be written: {why(error)}") from error


def complain(text: str) -> None:
    """Print lines on standard error, or print nothing if standard error cannot be written."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(fit(text, sys.stderr.encoding), file=sys.stderr, flush=True)


def complain_of(messages: Sequence[str], more: str) -> None:
    """Print the first messages on standard error, then the number of the others and the words ``more``."""
    for message in messages[:LISTED]:
        complain(f"convgrad: {message}")
    if len(messages) > LISTED:
        complain(f"convgrad: and {len(messages) - LISTED} {more}")


def wrote(path: str | Path) -> None:
    """Print the name and the size of a written file on standard error."""
    complain(f"wrote {path}: {os.path.getsize(path):,} bytes")


def fit(text: str, encoding: str | None) -> str:
    """Return lines of text with question marks instead of all characters that the encoding or a terminal lacks."""
    encoding = encoding or "utf-8"
    lines = "\n".join(printable(line, None) for line in text.split("\n"))
    return lines.encode(encoding, "replace").decode(encoding)


def _drop_remaining_output() -> None:
    """Discard the buffer of standard output; otherwise Python would try to write it at exit, and print an error."""
    with suppress(OSError):  # standard output may be an object without a file descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
