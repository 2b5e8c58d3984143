"""Calls and their error messages, on docs/first_errors.md and in more_errors.md.

``python -m tests.docs.first_errors`` writes the messages of both files.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from convgrad import ConvgradError
from convgrad.cli import main
from tests.support.places import DOCS, ROOT

PAGE, MORE = DOCS / "first_errors.md", Path(__file__).with_name("more_errors.md")
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]*)` \|$", re.MULTILINE)
SETUP = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def rows() -> list[tuple[str, str]]:
    """Return the rows of both files: a Python call or a command, and its message."""
    return [row for path in (PAGE, MORE) for row in ROW.findall(path.read_text(encoding="utf-8"))]


def names() -> dict[str, Any]:
    """Return what the page's blocks of Python define, and what the calls of the other file need."""
    defined: dict[str, Any] = {"diff_images": np.ones((2, 4, 5, 6), np.float32)}
    importlib.import_module("convgrad.graph")
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
    for path in (PAGE, MORE):
        text = path.read_text(encoding="utf-8")
        path.write_text(ROW.sub(lambda row: f"| `{row[1]}` | `{said(row[1], defined)}` |", text), encoding="utf-8")
