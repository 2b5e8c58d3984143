"""The line of the user's program that led to an operator."""

from __future__ import annotations

import sys
from pathlib import Path

_LIBRARIES = ("torch", "convgrad", "contextlib", "importlib")  # the modules whose frames are not the user's


def line_of_caller() -> str:
    """Return "FILE:LINE" of the innermost frame outside PyTorch and convgrad."""
    frame = sys._getframe(1)
    while frame is not None:
        file, module = frame.f_code.co_filename, frame.f_globals.get("__name__", "").partition(".")[0]
        if file.startswith("<doctest") or (module not in _LIBRARIES and not file.startswith("<frozen")):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "an unknown line"
