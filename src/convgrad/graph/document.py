"""The decoder of JSON texts: it decodes the ops of a graph one at a time, and everything around the ops at once."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from convgrad.errors import GraphError
from convgrad.graph.limits import Limits
from convgrad.graph.outline import outline
from convgrad.words import printable

MIN_S64 = -(2**63)
_LONGEST_INTEGER = len(str(MIN_S64))
_LONGEST_FLOAT = 400


class DocumentRefusal(Exception):
    """An error with the path to the wrong value. Each caller prepends its key, and the outermost raises GraphError."""

    def __init__(self, sentence: str, path: str = "") -> None:
        self.sentence, self.path = sentence, path

    def within(self, key: str) -> DocumentRefusal:
        """Return the error with a key or an index in front of the path."""
        return DocumentRefusal(self.sentence, key + self.path)


class Numeral:
    """A number that stays text: it is too large or too long for a graph, or JSON does not have it, such as NaN."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def is_json(self) -> bool:
        """Whether the number is valid JSON, that is, neither NaN nor an infinity."""
        return self.text[-1].isdecimal()


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as a list of keys with values, in the order of the text; keys can repeat."""


class _LookAgain(Exception):
    """The signal that a text has a repeated key or a Numeral and must be decoded again by the careful decoder."""


Spared = Callable[[Mapping[str, object]], bool]


def read_document(text: str | bytes, limits: Limits, spared: Spared) -> tuple[Any, Iterator[Any] | None]:
    """Return the document, and an iterator that decodes its ops one at a time, or None if no ops were found.

    If there is an iterator, the document has an empty list under ``graph``. Objects become dicts without repeated keys.
    Floats are finite, and integers have at most 20 characters; only the attributes of ``spared`` ops can have Numerals.
    Both this function and the iterator raise GraphError, with the path of the wrong value.
    """
    if len(text) > limits.file_bytes:
        raise GraphError(f"$: the text must be at most {limits.file_bytes} bytes (file_bytes); it is longer")
    errors = "surrogatepass" if isinstance(text, str) else "strict"
    data = (text.encode(errors=errors) if isinstance(text, str) else text).removeprefix(codecs.BOM_UTF8)
    places = outline(data, limits)
    around = len(data) - (places.end - places.begin)
    if around > limits.op_bytes:
        raise GraphError(f"$: all but the ops must be at most {limits.op_bytes} bytes (op_bytes); got {around}")
    head, tail = _Part(data, 0, places.begin, errors), _Part(data, places.end, len(data), errors)
    frame = _values((head, tail), "$")
    if not places.ops:
        return frame, None
    parts = (_Part(data, first, last, errors) for first, last in places.ops)
    return frame, (_values((part,), f"$.graph[{number}]", spared) for number, part in enumerate(parts))


@dataclass(frozen=True)
class _Part:
    """The bytes of a text from ``first`` to ``last``; ``errors`` is the error handler of their UTF-8 decoder."""

    data: bytes
    first: int
    last: int
    errors: str

    def text(self) -> str:
        """Return the decoded part, or raise GraphError if it is not UTF-8."""
        try:
            return self.data[self.first : self.last].decode("utf-8", self.errors)
        except UnicodeDecodeError as error:
            raise GraphError(f"$: must be UTF-8; {error.reason} at byte {self.first + error.start}") from error

    def refuse(self, error: json.JSONDecodeError, position: int) -> NoReturn:
        """Raise GraphError for a JSON error at a position of the part, with the position in the whole text."""
        before = self.data[: self.first].decode("utf-8", "replace")
        whole = json.JSONDecodeError(error.msg, before + self.text(), len(before) + position)
        hint = ". convgrad.graph.read takes a path" if self.data.endswith(b".json") else ""
        raise GraphError(f"$: must be JSON; {whole}{hint}") from error


def _values(parts: tuple[_Part, ...], path: str, spared: Spared | None = None) -> Any:
    """Return the value of the JSON text that the parts form together, or raise GraphError."""
    texts = [part.text() for part in parts]
    try:
        try:
            return _QUICK.decode("".join(texts))
        except _LookAgain:
            value = _CAREFUL.decode("".join(texts))
        keeps = spared is not None and isinstance(value, _Pairs) and spared(dict(value))
        return _plain(value, "attrs" if keeps else None)
    except DocumentRefusal as refusal:
        raise GraphError(f"{path}{refusal.path}: {refusal.sentence}") from None
    except json.JSONDecodeError as error:
        position, number = error.pos, 0
        while number < len(parts) - 1 and position >= len(texts[number]):
            position, number = position - len(texts[number]), number + 1
        parts[number].refuse(error, position)
    except RecursionError as error:
        raise GraphError("$: must nest no deeper than Python's own recursion limit") from error


def _plain(value: object, kept: str | None = None, keeps: bool = False) -> Any:
    """Return a value with objects as dicts; raise Refusal if a key repeats or a number is not allowed.

    Numerals that are valid JSON are allowed if ``keeps`` is true, or below the key ``kept`` of the outermost object.
    """
    if isinstance(value, _Pairs):
        members: dict[str, object] = {}
        for key, item in value:
            if key in members:
                raise DocumentRefusal(f"keys must differ; {words(key)} stands twice")
            try:
                members[key] = _plain(item, None, keeps or key == kept)
            except DocumentRefusal as refusal:
                raise refusal.within(f".{printable(key)}") from None
        return members
    if isinstance(value, list):
        items: list[object] = []
        try:
            items.extend(_plain(item, None, keeps) for item in value)
        except DocumentRefusal as refusal:
            raise refusal.within(f"[{len(items)}]") from None
        return items
    if isinstance(value, Numeral) and not (keeps and value.is_json):
        raise DocumentRefusal(f"must be a finite number of at most 64 bits; got {value.text:.40}")
    return value


def words(value: object) -> str:
    """Return the first 60 characters of a value as JSON, for a message."""
    return f"{as_json(value):.60}"


def as_json(value: Any) -> str:
    """Return a value of a document as JSON, with the original text of Numerals."""
    if isinstance(value, Numeral):
        return value.text
    try:
        return json.dumps(value)
    except TypeError:  # the value contains a Numeral
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(key)}: {as_json(item)}" for key, item in value.items()) + "}"
        return "[" + ", ".join(map(as_json, value)) + "]"


# -- hooks of the decoders for objects and numbers ---------------------------------------------------------------------


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise _LookAgain
    return members


def _integer(text: str) -> int | Numeral:
    return int(text) if len(text) <= _LONGEST_INTEGER else Numeral(text)


def _float(text: str) -> float | Numeral:
    number = float(text) if len(text) <= _LONGEST_FLOAT else math.inf
    return number if math.isfinite(number) else Numeral(text)


def _short_integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise _LookAgain
    return int(text)


def _finite_float(text: str) -> float:
    number = _float(text)
    if isinstance(number, Numeral):
        raise _LookAgain
    return number


def _no_number(text: str) -> NoReturn:
    raise _LookAgain


_QUICK = json.JSONDecoder(
    object_pairs_hook=_distinct, parse_int=_short_integer, parse_float=_finite_float, parse_constant=_no_number
)
_CAREFUL = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=_integer, parse_float=_float, parse_constant=Numeral)
