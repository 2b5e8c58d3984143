"""Names of cases: usable as file names on any system, and unique."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from convgrad.cases.case import Case

LONGEST = 150  # a file name may have 255 bytes, and an operand and an ending follow
_UNSAFE = re.compile(r"[^A-Za-z0-9_+=]+")


def safe(name: str) -> str:
    """Return a name of letters, digits, _ + = and -, which replaces anything else, but not at its ends.

    >>> safe("resnet_50:res2a_branch2b*3"), safe("../..")
    ('resnet_50-res2a_branch2b-3', 'case')
    """
    return _UNSAFE.sub("-", name).strip("-")[:LONGEST].strip("-") or "case"


def named_apart(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield cases under safe names; if one is taken, under the first free of NAME-2, NAME-3, ..., ignoring case.

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
