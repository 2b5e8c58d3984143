"""The sources of problems to time: suites that are part of the package, files of problem lines, the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import product
from pathlib import Path

from convgrad import notation
from convgrad.disk import why
from convgrad.errors import ConvgradError, FileError, NotationError, UnsupportedError
from convgrad.spec.problem import Problem
from convgrad.spec.work import nominal_flops

_SUITES = resources.files("convgrad.cli.bench") / "suites"
ENDING = ".txt"


@dataclass(frozen=True)
class TimedCase:
    """One problem to time: its suite, its line as text, and the line as a value."""

    suite: str
    text: str
    line: notation.Line

    @property
    def name(self) -> str:
        """The name at the end of the line, without the suite's name; the descriptor if the line has no name."""
        return self.line.descriptor.name.removeprefix(f"{self.suite}:") or self.text.split()[-1]

    @property
    def problem(self) -> Problem:
        """The problem of the line."""
        return notation.problem(self.text)


def names() -> tuple[str, ...]:
    """Return the names of the suites that are part of the package.

    >>> names()[:4]
    ('dense', 'depthwise', 'dilated', 'grouped')
    """
    return tuple(sorted(p.name.removesuffix(ENDING) for p in _SUITES.iterdir() if p.name.endswith(ENDING)))


def suite(name: str) -> list[str]:
    """Return the problem lines of a suite.

    >>> suite("resnet50")[0]
    'BWD_W f32 NXC mb8ic3ih224oc64oh112kh7sh2ph3nresnet50:stem'
    """
    if name not in names():
        raise UnsupportedError(f"there is no suite {name}; the suites are {', '.join(names())}")
    return _lines((_SUITES / f"{name}{ENDING}").read_text(encoding="utf-8"))


def cases(
    origin: str,
    lines: Iterable[str],
    directions: Sequence[str] = (),
    types: Sequence[str] = (),
    layouts: Sequence[str] = (),
) -> list[TimedCase]:
    """Return the cases of some lines: each line once for every combination of the given directions, types and layouts.

    If ``directions``, ``types`` or ``layouts`` is empty, the line's own value is used. A line that cannot be timed is
    an error, for example a line with two operators, or with a shape that its operator does not take.

    >>> [c.text for c in cases("", ["BWD_W f32 NXC mb1ic8iw9oc8ow9kw3pw1"], types=["bf16"], layouts=["NCX", "NXC:OIX"])]
    ['BWD_W bf16 NCX mb1ic8iw9oc8ow9kw3pw1', 'BWD_W bf16 NXC:OIX mb1ic8iw9oc8ow9kw3pw1']
    """
    timed_cases = []
    for line in lines:
        words = line.split(None, 3 + notation.read(line).transposed)
        *start, direction, type_name, layout, descriptor = words
        choices = (directions or [direction], types or [type_name], layouts or [layout])
        for chosen in product(*choices):
            text = " ".join([*start, *chosen, descriptor])
            if not nominal_flops(notation.problem(text).geometry):
                raise UnsupportedError(f"a problem to time needs products; {text} has none")
            timed_cases.append(TimedCase(origin, text, notation.read(text)))
    return timed_cases


def shapes_file(path: Path) -> list[str]:
    """Return the problem lines of a file. A comment extends from # to the end of a line and is removed."""
    try:
        lines = _lines(path.read_text(encoding="utf-8-sig"))
        for line in lines:
            notation.read(line)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read: {why(error)}") from error
    except NotationError as error:
        raise FileError(f"{path}: {error}") from error
    if not lines:
        raise FileError(f"{path}: has no problem line; one is like {suite('resnet50')[0]!r}")
    return lines


def cases_of_file(
    path: Path, directions: Sequence[str] = (), types: Sequence[str] = (), layouts: Sequence[str] = ()
) -> list[TimedCase]:
    """Return the cases of a file of problem lines.

    If a line of the file is wrong, the error names the file. If ``directions``, ``types`` or ``layouts`` are given, an
    error may be due to these arguments, so it does not name the file.
    """
    lines = shapes_file(path)
    try:
        return cases(path.stem, lines, directions, types, layouts)
    except ConvgradError as error:
        if directions or types or layouts:
            raise
        raise FileError(f"{path}: {error}") from error


def _lines(text: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
