"""JSON for all notations: a file as plain values, each with its path in the file, which its errors name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from convgrad.errors import ConvgradError, FileError
from convgrad.graph.limits import Limits
from convgrad.verify.cases.place import Place, text_of
from convgrad.words import printable

T = TypeVar("T")
S64 = range(-(2**63), 2**63)
_LONGEST = len(str(S64[0]))


class _RefusedError(ValueError):
    """The error of JSON that Python accepts but these notations do not, such as a repeated key."""


@dataclass(frozen=True)
class JsonValue:
    """A value of a JSON file, with its path in the file, such as $.nodes[0]."""

    file: Path
    path: str
    value: object

    def refuse(self, sentence: str) -> ConvgradError:
        """Return a FileError that names the file and the value's path."""
        return FileError(f"{self.file}: {self.path}: {sentence}")

    def __getitem__(self, key: str) -> JsonValue:
        """Return the value of a key of this object, or raise FileError."""
        if not isinstance(self.value, dict) or key not in self.value:
            what = "has no such key" if isinstance(self.value, dict) else f"is {_kind(self.value)}"
            raise self.refuse(f"must be an object with the key {key}; it {what}")
        return JsonValue(self.file, f"{self.path}.{key}", self.value[key])

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def items(self) -> list[JsonValue]:
        """Return the items of this list, or raise FileError."""
        if not isinstance(self.value, list):
            raise self.refuse(f"must be a list; it is {_kind(self.value)}")
        return [JsonValue(self.file, f"{self.path}[{at}]", item) for at, item in enumerate(self.value)]

    def text(self) -> str:
        """Return this string, or raise FileError."""
        if not isinstance(self.value, str):
            raise self.refuse(f"must be a string; it is {_kind(self.value)}")
        return self.value

    def integer(self, minimum: int = S64[0]) -> int:
        """Return this 64-bit integer, or raise FileError if it is another value or below ``minimum``."""
        if type(self.value) is not int or self.value not in S64 or self.value < minimum:
            shown = self.value if type(self.value) is int and self.value in S64 else _kind(self.value)
            raise self.refuse(
                f"must be an integer of 64 bits{f', at least {minimum}' * (minimum > S64[0])}; it is {shown}"
            )
        return self.value

    def integers(self, minimum: int = S64[0]) -> tuple[int, ...]:
        """Return this list of integers, or raise FileError."""
        return tuple(item.integer(minimum) for item in self.items())

    def one_of(self, table: dict[str, T]) -> T:
        """Return the table's entry whose key is this string, or raise FileError."""
        if self.text() not in table:
            raise self.refuse(f"must be one of {', '.join(table)}; it is {printable(self.text())!r:.200}")
        return table[self.text()]


def read_json(path: Path, limits: Limits) -> JsonValue:
    """Return the value of a JSON file. Raise FileError if a number is not finite or an object repeats a key."""
    text = text_of(path, limits)
    if len(text) > limits.op_bytes:
        raise FileError(f"{path}: must have at most {limits.op_bytes} characters (op_bytes); got {len(text)}")
    return JsonValue(path, "$", parsed(text, str(path)))


def parsed(text: str, where: str) -> object:
    """Return the value of a JSON text, or raise FileError, which begins with ``where``, often with line and column.

    >>> parsed('{"op": 1, "op": 2}', "a.json")
    Traceback (most recent call last):
        ...
    convgrad.errors.FileError: a.json: keys of an object must differ; 'op' stands twice
    """
    text = text.removeprefix("\ufeff")  # the byte order mark of some editors
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_int=_integer)
    except json.JSONDecodeError as error:
        raise Place(where, error.lineno, error.colno).refuse(f"must be JSON; {error.msg}") from None
    except _RefusedError as error:
        raise FileError(f"{where}: {error}") from None
    except RecursionError:
        raise FileError(f"{where}: must nest no deeper than Python's own recursion limit") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise _RefusedError(f"keys of an object must differ; {printable(key)!r:.200} stands twice")
        members[key] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"numbers must be finite, as JSON's are; got {name}")


def _integer(text: str) -> int | float:
    """Return an integer, or infinity if the text has too many digits. No field accepts infinity."""
    return int(text) if len(text) <= _LONGEST else float("inf")


def _kind(value: object) -> str:
    """Return a description of a value for error messages, such as "a list"."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f"the string {printable(value)!r:.200}"
    return "an integer beyond 64 bits" if type(value) is int else json.dumps(value)
