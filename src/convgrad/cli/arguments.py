"""What several commands make of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from convgrad.cli.exits import UsageError
from convgrad.graph.limits import DEFAULT_LIMITS, Limits


def is_graph(word: str) -> bool:
    """Tell whether an argument names a graph file."""
    return word.lower().endswith(".json")


LIMITS = tuple(field.name for field in fields(Limits))


def limits_of(texts: Sequence[str], names: Sequence[str] = LIMITS) -> Limits:
    """Return the limits with those given as NAME=NUMBER replaced; ``names`` are those that count here.

    >>> limits_of(["ops=10"]).ops
    10
    """
    limits = DEFAULT_LIMITS
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or not value.isdecimal():
            raise UsageError(f"a limit is NAME=NUMBER with a name of {', '.join(names)}; got {text!r}")
        limits = replace(limits, **{name: int(value)})
    return limits
