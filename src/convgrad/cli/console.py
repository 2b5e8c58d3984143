"""What commands print: fit for a terminal on standard output and standard error, or a FileError that says why not."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from convgrad.disk import why
from convgrad.errors import FileError
from convgrad.words import printable


def say(text: str) -> None:
    """Print lines on standard output, with what a terminal should not be sent replaced."""
    if sys.stdout is None:  # closed by who called us
        raise FileError("standard output cannot be written: it is closed")
    try:
        print(_fit(text, sys.stdout.encoding), flush=True)
    except OSError as error:
        _drop_the_rest()
        raise FileError(f"standard output cannot be written: {why(error)}") from error


def complain(text: str) -> None:
    """Print lines on standard error; where that cannot be written, nobody is left to be told."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(_fit(text, sys.stderr.encoding), file=sys.stderr, flush=True)


def wrote(path: str | Path) -> None:
    """Say on standard error which file was written, and how large it is."""
    complain(f"wrote {path}: {os.path.getsize(path):,} bytes")


def _fit(text: str, encoding: str | None) -> str:
    encoding = encoding or "utf-8"
    lines = "\n".join(printable(line, None) for line in text.split("\n"))
    return lines.encode(encoding, "replace").decode(encoding)


def _drop_the_rest() -> None:
    """Let what is left of standard output go nowhere, or the interpreter tries again when it ends, and complains."""
    with suppress(OSError):  # standard output need not be a file of the system
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
