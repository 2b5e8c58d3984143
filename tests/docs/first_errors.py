"""The calls of docs/first_errors.md, and what they say; ``python -m tests.docs.first_errors`` writes that anew."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from typing import Any

from convgrad import ConvgradError
from convgrad.cli import main
from tests.support.places import DOCS, ROOT

PAGE = DOCS / "first_errors.md"
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]*)` \|$", re.MULTILINE)
SETUP = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def rows() -> list[tuple[str, str]]:
    """Return the page's rows: a call of Python's or a command, and the message beside it."""
    return ROW.findall(PAGE.read_text(encoding="utf-8"))


def names() -> dict[str, Any]:
    """Return what the page's blocks of Python define."""
    defined: dict[str, Any] = {}
    for block in SETUP.findall(PAGE.read_text(encoding="utf-8")):
        exec(block, defined)
    return defined


def said(what: str, defined: dict[str, Any]) -> str:
    """Return what a call or a command says, in the root of the repository; of a command what is for standard error."""
    if what.startswith("convgrad "):
        with contextlib.chdir(ROOT), contextlib.redirect_stderr(io.StringIO()) as told:
            code = main(shlex.split(what)[1:])
        assert code in (2, 3), what
        return told.getvalue().splitlines()[0]
    try:
        eval(what, defined)
    except (ConvgradError, AttributeError) as error:
        return str(error)
    raise AssertionError(f"{what} is taken")


if __name__ == "__main__":
    defined = names()
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(ROW.sub(lambda row: f"| `{row[1]}` | `{said(row[1], defined)}` |", text), encoding="utf-8")
