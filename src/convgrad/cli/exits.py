"""The end of a command: the exit code of each error, and its message."""

from __future__ import annotations

import json
from contextlib import suppress

from convgrad.cli.console import complain, say
from convgrad.errors import ConvgradError, FileError, GraphError
from convgrad.words import printable

DONE, WRONG, COMMAND_LINE, FILE, INTERRUPTED = 0, 1, 2, 3, 130

EXIT_CODES = f"""\
exit codes:
  {DONE}    done, and every verdict is ok
  {WRONG}    a verdict is not ok
  {COMMAND_LINE}    the command line is wrong, or asks for what memory or the installation lacks
  {FILE}    a file, or standard output, cannot be read, parsed or written
  {INTERRUPTED}  interrupted"""


class UsageError(Exception):
    """The command line contradicts itself."""


# The first row that matches an error decides; its words replace an empty message. Any other error is a bug of ours.
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
    """Return the exit code and the message of an error; None if the error is a bug of ours."""
    found = next(((code, words) for kind, code, words in _ENDS if isinstance(error, kind)), None)
    return found and (found[0], str(error) or found[1])


def code_of(error: BaseException, as_json: bool = False) -> int | None:
    """Print the error in one line, and each of its notes in another; return the exit code, or None if it has none.

    If ``as_json``, the error is also the last object on standard output.
    """
    found = meaning(error)
    if found is None:
        return None
    code, words = found
    notes = getattr(error, "__notes__", [])
    complain("\n".join(printable(line, None) for line in (f"convgrad: {words}", *notes)))
    if as_json:
        reported = {"kind": type(error).__name__, "message": words, "exit_code": code, "notes": notes}
        with suppress(FileError):  # standard output may be the cause of the error
            say(json.dumps({"error": reported}))
    return code
