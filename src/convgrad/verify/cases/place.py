"""The place of a word in a text (file, line and column), and errors that name a place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from convgrad.disk import read_bytes
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.graph.limits import Limits
from convgrad.words import printable

COMMENT = "#"
_MLIR_ATTRIBUTE = re.compile(r"#[\w.]+<")  # such as #stablehlo<precision DEFAULT>, which is not a comment
CONTINUED = "\\"
TYPED = "the problem"  # replaces the file name in places of a problem that is typed on the command line


@dataclass(frozen=True)
class Place:
    """A place in a text. Lines and columns count from 1. ``typed`` is true for a text from the command line."""

    file: str
    line: int = 1
    column: int = 1
    typed: bool = False

    def refuse(self, sentence: str) -> ConvgradError:
        """Return an error that begins with the place: a FileError, or a NotationError for a typed problem.

        >>> str(Place("cases.txt", 3, 7).refuse("must be so"))
        'cases.txt:3:7: must be so'
        """
        return (NotationError if self.typed else FileError)(f"{self}: {sentence}")

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the place to a NotationError that has none."""
        try:
            yield
        except NotationError as error:
            raise self.refuse(str(error)) from error

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Word:
    """A word of a text, with its place."""

    text: str
    place: Place

    def __str__(self) -> str:
        """Return the word in quotation marks, without unprintable characters."""
        return repr(printable(self.text))


@dataclass(frozen=True)
class TextLine:
    """A line without its comment: its text and its words. Lines that a backslash continues are joined by a blank.

    ``pieces`` are the words of each physical line, for benchdnn, which joins lines without a blank.
    """

    text: str
    pieces: tuple[tuple[Word, ...], ...]

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of all pieces."""
        return tuple(word for piece in self.pieces for word in piece)


def lines_of(text: str, place: Place) -> Iterator[TextLine]:
    r"""Yield the lines of a text that have words outside comments. A word that begins with # begins a comment.

    >>> [line.text for line in lines_of("a b # c\n\nMIOpenDriver conv \\\n  -n 8", Place("x"))]
    ['a b', 'MIOpenDriver conv   -n 8']
    """
    texts: list[str] = []
    pieces: list[tuple[Word, ...]] = []
    for number, physical in enumerate(text.split("\n"), place.line):
        words = _words(physical, replace(place, line=number))
        end = words[-1].place.column - 1 + len(words[-1].text) if words else 0
        continued = bool(words) and words[-1].text.endswith(CONTINUED)
        if continued:
            last, end = words.pop(), end - 1
            if last.text != CONTINUED:
                words.append(replace(last, text=last.text[:-1]))
        if words:
            texts.append(physical[:end].rstrip())
            pieces.append(tuple(words))
        if not continued and pieces:
            yield TextLine(" ".join(texts), tuple(pieces))
            texts, pieces = [], []
    if pieces:
        yield TextLine(" ".join(texts), tuple(pieces))


def _words(physical: str, place: Place) -> list[Word]:
    words: list[Word] = []
    at = 0
    for text in physical.split():
        at = physical.index(text, at)
        if text.startswith(COMMENT) and not _MLIR_ATTRIBUTE.match(text):
            break
        words.append(Word(text, replace(place, column=at + 1)))
        at += len(text)
    return words


def text_of(path: Path, limits: Limits) -> str:
    """Return the text of a file of at most ``limits.file_bytes`` bytes, or raise FileError."""
    data = read_bytes(path, limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise FileError(f"{path}: must have at most {limits.file_bytes} bytes (file_bytes); it has more")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise Place(str(path), line, column).refuse("must be text in UTF-8; here it is not") from None
