"""How a command ends: the exit code that each error means, and what is said of it."""

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


# The first row that an error is of, and what to say where it says nothing; any other error is a mistake of ours.
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
    """Return the exit code that an error means and its words; None of an error that is a mistake of ours."""
    found = next(((code, words) for kind, code, words in _ENDS if isinstance(error, kind)), None)
    return found and (found[0], str(error) or found[1])


def code_of(error: BaseException, as_json: bool = False) -> int | None:
    """Say what was wrong in one line, and each note of the error in another; return the exit code, if it has one.

    Who reads JSON from standard output has the error there too, as the last object.
    """
    found = meaning(error)
    if found is None:
        return None
    code, words = found
    notes = getattr(error, "__notes__", [])
    complain("\n".join(printable(line, None) for line in (f"convgrad: {words}", *notes)))
    if as_json:
        told = {"kind": type(error).__name__, "message": words, "exit_code": code, "notes": notes}
        with suppress(FileError):  # standard output may be what was wrong
            say(json.dumps({"error": told}))
    return code
