"""Pictures in files: the kinds there are, and matplotlib, an extra that draws without a screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convgrad.disk import check_new, written
from convgrad.errors import FileError, UnsupportedError

KINDS = (".png", ".svg", ".pdf")


def check_target(place: str | Path, force: bool) -> None:
    """Refuse, before any work, a picture that could not be drawn or written."""
    path = Path(place)
    if path.suffix.lower() not in KINDS:
        raise FileError(f"{path}: a picture's name must end in {', '.join(KINDS)}; got {path.suffix or 'no ending'}")
    check_new(path, force)
    figure()


def figure(**options: Any) -> Any:
    """Return an empty figure, or say what to install."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, needed for pictures only
    except ImportError as error:
        raise UnsupportedError("pictures need the matplotlib package: pip install 'convgrad[plot]'") from error
    return Figure(**{"layout": "constrained"} | options)


def save(drawn: Any, place: str | Path, dpi: int, force: bool) -> None:
    """Write a figure, of the kind that the name's ending says."""
    path = Path(place)
    check_target(path, force)
    with written(path, force) as file:
        drawn.savefig(file, format=path.suffix[1:].lower(), dpi=dpi)
