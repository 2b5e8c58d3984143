"""Files of lines: the first word of each line decides its notation.

A line whose first word fits no other notation is read as benchdnn's. benchdnn's options apply to the lines after them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from convgrad import notation
from convgrad.disk import opened
from convgrad.errors import ConvgradError
from convgrad.formats import F32, F64
from convgrad.graph.limits import Limits
from convgrad.verify.cases import hlo, miopen
from convgrad.verify.cases.benchdnn import Reader, is_descriptor
from convgrad.verify.cases.case import Case, Reading
from convgrad.verify.cases.descriptors import cases_of
from convgrad.verify.cases.hlo_text import LONGEST
from convgrad.verify.cases.place import TYPED, Place, TextLine, Word, lines_of, text_of

LONGEST_STATEMENT = 200  # the largest number of lines of a statement
START_BYTES = 1 << 13  # bytes at the start of a file that are searched for a zero, which no text has


@dataclass(frozen=True)
class LineDialect:
    """A notation with one problem per line, recognised by its first word.

    ``read_line`` takes the line without its comment, and the place of its first word. If ``read_line`` raises a
    NotationError without a place, the place of the word that the error quotes is added.
    """

    name: str
    begins: Callable[[str], bool]
    read_line: Callable[[str, Place], list[Case]]


def is_problem(word: str) -> bool:
    """Return whether a word begins a problem line. The word may be a misspelled direction."""
    return word == "deconv" or word[:3].upper() in ("FWD", "BWD")


def _read_problem(text: str, place: Place) -> list[Case]:
    """Read a line [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] descriptor."""
    line = notation.read(text, strict=True)
    return cases_of(line, place, line.format, F64 if line.format is F64 else F32, line.format.name)


LINE_DIALECTS: tuple[LineDialect, ...] = (
    LineDialect("a problem line", is_problem, _read_problem),
    LineDialect("a line of MIOpenDriver or iree-boo-driver", miopen.begins, miopen.read_line),
    LineDialect("a convolution of HLO or StableHLO", hlo.begins, hlo.read_line),
)


def read(path: Path, limits: Limits) -> Iterator[Reading]:
    """Yield the cases of a file of lines, and a FileError with its place for each wrong word or line."""
    place = Place(str(path))
    reader = Reader(limits, path.parent, (path.resolve(),))
    yield from _cases(text_of(path, limits), place, reader)


def is_foreign(path: Path, limits: Limits) -> bool:
    """Return whether a file is binary, or has no line that could be a problem, a descriptor or a file of them."""
    return _is_foreign(path, limits, (), set())


def _is_foreign(path: Path, limits: Limits, within: tuple[Path, ...], foreign: set[Path]) -> bool:
    """Return whether a file is foreign. ``within`` has the files that include it, ``foreign`` those found foreign."""
    try:
        with opened(path) as file:
            if b"\0" in file.read(START_BYTES):
                return True
        real = Path(os.path.realpath(path))
        if real in within or len(within) > limits.nesting:
            return False
        if real not in foreign:
            lines = lines_of(text_of(path, limits), Place(str(path)))
            if any(_may_have_cases(line, path, limits, (*within, real), foreign) for line in lines):
                return False
            foreign.add(real)
        return True
    except ConvgradError:  # the reader reports it, where the file itself or the file that includes it is read
        return len(within) > 1


def _may_have_cases(line: TextLine, path: Path, limits: Limits, within: tuple[Path, ...], foreign: set[Path]) -> bool:
    words = [word.text for word in line.words]
    if any(dialect.begins(words[0]) for dialect in LINE_DIALECTS) or any(map(is_descriptor, words)):
        return True
    included = [word.partition("=")[2] for word in words if word.startswith("--batch")]
    return any(not _is_foreign(path.parent / name, limits, within, foreign) for name in included)


def read_typed(text: str, limits: Limits) -> Iterator[Reading]:
    """Yield the cases of a problem on the command line, and a NotationError for each wrong word."""
    yield from _cases(text, Place(TYPED, typed=True), Reader(limits, Path()))


def is_typed(text: str) -> bool:
    """Return whether a text looks like a problem. Call this only for a text that is not the name of a file.

    >>> is_typed("--dir=BWD_W --batch=cases.txt"), is_typed("mb1ic3ih8oc4kh3"), is_typed("cases.txt")
    (True, True, False)
    """
    words = text.split()
    return len(words) > 1 or text.startswith("--") or is_descriptor(text)


def _combined(lines: Iterator[TextLine]) -> Iterator[TextLine]:
    """Yield lines, with all lines of a convolution of MLIR as one, up to a line that begins another problem."""
    line = next(lines, None)
    while line is not None:
        following = next(lines, None)
        first, count = line.words[0].place.column - 1, 0
        while following and count < LONGEST_STATEMENT and not _begins(following):
            if len(line.text) - first > LONGEST or not hlo.continues(line.text[first:]):
                break
            between = "\n" * (following.words[0].place.line - line.words[-1].place.line)
            line = TextLine(line.text + between + following.text, line.pieces + following.pieces)
            following, count = next(lines, None), count + 1
        yield line
        line = following


def _begins(line: TextLine) -> bool:
    """Return whether a line cannot continue the line before it."""
    word, *others = (word.text for word in line.words)
    if word.startswith("%") and others[:1] != ["="]:  # an operand
        return False
    return word.startswith("--") or is_descriptor(word) or any(dialect.begins(word) for dialect in LINE_DIALECTS)


def _cases(text: str, place: Place, reader: Reader) -> Iterator[Reading]:
    for line in _combined(lines_of(text, place)):
        first = line.words[0]
        dialect = next((d for d in LINE_DIALECTS if d.begins(first.text)), None)
        if dialect is None:
            yield from reader.read_line(line)
            continue
        try:
            yield from dialect.read_line(line.text[first.place.column - 1 :], first.place)
        except ConvgradError as error:
            placed = str(error).startswith(f"{place.file}:")
            yield error if placed else _quoted(line, str(error)).place.refuse(str(error))


def _quoted(line: TextLine, sentence: str) -> Word:
    """Return the last word of a line that an error quotes, or the line's first word if the error quotes none."""
    return next((word for word in reversed(line.words) if f"{word.text!r:.100}" in sentence), line.words[0])
