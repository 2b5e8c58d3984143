"""Pictures in files: the kinds there are, and matplotlib, an extra that draws without a screen."""

from __future__ import annotations

from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from convgrad.disk import check_new, written
from convgrad.errors import FileError, UnsupportedError

KINDS = (".png", ".svg", ".pdf")
FEWEST_TICKS = 3


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


def plain_ticks(axis: Any, low: float, high: float) -> None:
    """Have the ticks of a logarithmic axis say plain numbers: 10, 100, or where it is shorter some between."""
    from matplotlib.ticker import FixedLocator, NullLocator  # noqa: PLC0415 - an extra, needed for pictures only

    axis.set_major_locator(FixedLocator(plain_numbers(low, high)))
    axis.set_major_formatter(lambda value, place: f"{value:,.15g}")
    axis.set_minor_locator(NullLocator())


def plain_numbers(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``: three of them at least, of the roundest kind that has as many.

    >>> plain_numbers(0.4, 2000), plain_numbers(0.4, 30), plain_numbers(7.9, 9.3)
    ([1.0, 10.0, 100.0, 1000.0], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0], [8.0, 8.5, 9.0])
    """
    ticks = []
    for heads in ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
        decades = range(floor(log10(low)), ceil(log10(high)) + 1)
        numbers = (float(f"{head}e{decade}") for decade in decades for head in heads)
        ticks = [number for number in numbers if low <= number <= high]
        if len(ticks) >= FEWEST_TICKS:
            return ticks
    step = 10.0 ** floor(log10(high - low))
    step = next(s for s in (step, step / 2, step / 5, step / 10) if floor(high / s) - ceil(low / s) + 1 >= FEWEST_TICKS)
    return [float(f"{number * step:.12g}") for number in range(ceil(low / step), floor(high / step) + 1)]
