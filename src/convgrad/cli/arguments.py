"""What several commands make of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from convgrad.graph.limits import DEFAULT_LIMITS, Limits


class UsageError(Exception):
    """The command line contradicts itself."""


def is_graph(word: str) -> bool:
    """Tell whether an argument names a graph file."""
    return word.lower().endswith(".json")


def limits_of(texts: Sequence[str]) -> Limits:
    """Return the limits with those given as NAME=NUMBER replaced.

    >>> limits_of(["ops=10"]).ops
    10
    """
    limits = DEFAULT_LIMITS
    names = [field.name for field in fields(Limits)]
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or not value.isdecimal():
            raise UsageError(f"a limit is NAME=NUMBER with a name of {', '.join(names)}; got {text!r}")
        limits = replace(limits, **{name: int(value)})
    return limits
