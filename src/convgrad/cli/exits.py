"""The exit codes of commands, and the exit code and the message of each error."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from convgrad.cli.console import complain, say
from convgrad.errors import ConvgradError, FileError, GraphError
from convgrad.words import printable

DONE, WRONG, COMMAND_LINE, FILE, DIFFERS, INTERRUPTED = 0, 1, 2, 3, 4, 130

EXIT_CODES = f"""\
exit codes:
  {DONE}    done, and every verdict is ok
  {WRONG}    a verdict is not ok, or an op of a graph did not run
  {COMMAND_LINE}    the command line is wrong, or memory or an installed package is missing
  {FILE}    a file, or standard output, cannot be read, parsed or written
  {DIFFERS}    calls with equal operands gave different results, and all other verdicts are ok
  {INTERRUPTED}  interrupted"""


class UsageError(Exception):
    """The command line is incomplete or wrong."""


# The first row whose class matches an error has its exit code, and a text that replaces an empty message.
# An error that matches no row is a bug of convgrad.
_ENDS: tuple[tuple[type[BaseException], int, str], ...] = (
    (KeyboardInterrupt, INTERRUPTED, "interrupted"),
    (FileError, FILE, ""),
    (GraphError, FILE, ""),
    (OSError, FILE, ""),
    (UsageError, COMMAND_LINE, ""),
    (ConvgradError, COMMAND_LINE, ""),
    (MemoryError, COMMAND_LINE, "out of memory"),
)


def meaning(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message of an error, or None if the error is a bug of convgrad."""
    end = next(((code, words) for kind, code, words in _ENDS if isinstance(error, kind)), None)
    return end and (end[0], str(error) or end[1])


def is_about_a_file(error: BaseException) -> bool:
    """Return whether an error is about the contents of a file, which a command line does not reproduce."""
    end = meaning(error)
    return end is not None and end[0] == FILE


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Make SIGTERM, with which batch systems end a job, act like Ctrl-C: files are removed, and reports are written.

    Further SIGTERMs are ignored. Processes that a judged function forks end at once: the report is not theirs.
    """
    own = os.getpid()

    def stop(*_: object) -> None:
        if os.getpid() != own:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set a signal handler
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def code_of(error: BaseException, as_json: bool = False) -> int | None:
    """Print an error and its notes on standard error; return its exit code, or None for a bug of convgrad.

    The error and each note are printed on a line of their own. A bug is not printed.
    If ``as_json``, the error is also printed as a JSON object on standard output.
    """
    end = meaning(error)
    if end is None:
        return None
    code, words = end
    notes = getattr(error, "__notes__", [])
    complain("\n".join(printable(line, None) for line in (f"convgrad: {words}", *notes)))
    if as_json:
        reported = {"kind": type(error).__name__, "message": words, "exit_code": code, "notes": notes}
        with suppress(FileError):  # the error may be that standard output cannot be written
            say(json.dumps({"error": reported}))
    return code
