"""Functions that several commands use to read their arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from convgrad import notation
from convgrad.cli.console import complain
from convgrad.cli.exits import UsageError
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.notation import Line
from convgrad.spec.operators import find
from convgrad.verify.cases import hipdnn


def is_graph(word: str) -> bool:
    """Return whether an argument is the name of a graph file, that is, of a JSON file other than a hipDNN bundle."""
    return word.lower().endswith(".json") and not hipdnn.matches(Path(word))


LONGEST_INTEGER = 1000
LIMITS = tuple(field.name for field in fields(Limits))


def limits_of(texts: Sequence[str], names: Sequence[str] = LIMITS) -> Limits:
    """Return the default limits with the changes NAME=NUMBER; ``names`` are the limits that the command accepts.

    >>> limits_of(["ops=10"]).ops
    10
    """
    limits = DEFAULT_LIMITS
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or value.startswith("-") or not _is_integer(value):
            raise UsageError(f"a limit is NAME=NUMBER with a name of {', '.join(names)}; got {text!r:.200}")
        limits = replace(limits, **{name: int(value)})
    return limits


def read_line(text: str) -> Line:
    """Parse a problem line, and print a warning if the line leaves out pads."""
    line = notation.read(text, strict=True)
    if line.descriptor.note:
        complain(f"convgrad: warning: {line.descriptor.note}")
    return line


def attributes_of(operator: str, texts: Sequence[str]) -> dict[str, object]:
    """Parse NAME=VALUE: attributes of integer types become integers; all others stay strings, to be checked later."""
    types = {a.name: a.type for a in find(operator).attributes}
    parsed: dict[str, object] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"an attribute is NAME=VALUE; got {text!r:.200}")
        if name in parsed:
            raise UsageError(f"each attribute can be given once; got {name:.200} twice")
        parsed[name] = value
        items = re.split(r"\s*[,x\s]\s*", value.strip("[]() ")) if value.strip("[]() ") else []
        if types.get(name) == "s64[]" and all(_is_integer(item) for item in items):
            parsed[name] = [int(item) for item in items]
        elif types.get(name) == "s64" and _is_integer(value):
            parsed[name] = int(value)
        elif name not in types and items and all(map(_is_integer, items)):  # for the hint in the error about this name
            parsed[name] = [int(item) for item in items] if len(items) > 1 else int(items[0])
    return parsed


def _is_integer(text: str) -> bool:
    """Return whether a text is an integer that Python converts, which it refuses for thousands of digits."""
    return text.strip().removeprefix("-").isdecimal() and len(text) <= LONGEST_INTEGER


def shape_of(text: str) -> tuple[int, ...]:
    """Return the extents of a shape.

    >>> shape_of("8x56x56x64"), shape_of("(8, 56, 56, 64)")
    ((8, 56, 56, 64), (8, 56, 56, 64))
    """
    extents = text.strip("()[] ").replace(",", "x").split("x")
    if not all(_is_integer(extent) for extent in extents):
        hint = f"; an attribute is --attr {text}" if "=" in text else ""
        raise UsageError(f"a shape is extents with x between, such as 8x56x56x64; got {text!r:.200}{hint}")
    return tuple(int(extent) for extent in extents)


def typed(value: object) -> str:
    """Return the text of an option's value on the command line; a list has commas between its values.

    >>> typed([98, 98]), typed(3), typed(0.5), typed(8.0), typed(7.3456789), typed("1.0")
    ('98,98', '3', '0.5', '8', '7.3456789', '1.0')
    """
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
