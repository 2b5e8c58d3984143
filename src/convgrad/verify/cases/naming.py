"""Names of cases: they are unique and can be used as file names on any system."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from convgrad.verify.cases.case import Case
from convgrad.words import printable

LISTED = 8  # the kinds of ops that a message names
LONGEST = 150  # a file name may have 255 bytes, including an operand's name and an ending
_UNSAFE = re.compile(r"[^A-Za-z0-9_+=]+")


def safe(name: str) -> str:
    """Return a name with only letters, digits, _, +, = and -. Other characters become -, or are removed at the ends.

    >>> safe("resnet_50:res2a_branch2b*3"), safe("../..")
    ('resnet_50-res2a_branch2b-3', 'case')
    """
    return _UNSAFE.sub("-", name).strip("-")[:LONGEST].strip("-") or "case"


def counted_kinds(kinds: Sequence[str]) -> str:
    """Return each of the first kinds with its number, for a message.

    >>> counted_kinds(["Relu", "Add", "Relu"])
    '2 Relu and 1 Add'
    """
    counts = [f"{count} {printable(kind) or 'without a kind'}" for kind, count in Counter(kinds).most_common()]
    more = [f"{len(counts) - LISTED} more kinds"] if len(counts) > LISTED else []
    *first, last = [*counts[:LISTED], *more]
    return f"{', '.join(first)} and {last}" if first else last


def named_apart(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield cases with safe, unique names: if NAME is used, the next case has the name NAME-2, then NAME-3, ...

    Names that differ only in upper and lower case count as equal.

    The same cases in the same order always have the same names.
    """
    taken: set[str] = set()
    numbers: dict[str, int] = {}
    for case in cases:
        name = wanted = safe(case.name)
        while name.casefold() in taken:
            number = numbers[wanted.casefold()] = numbers.get(wanted.casefold(), 1) + 1
            end = f"-{number}"
            name = f"{wanted[: LONGEST - len(end)]}{end}"
        taken.add(name.casefold())
        yield replace(case, name=name)
