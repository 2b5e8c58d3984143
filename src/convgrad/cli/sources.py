"""The cases that ``run`` and ``explain`` read: all that ``verify`` reads, by the same readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from convgrad import files
from convgrad.cli.console import complain, complain_of
from convgrad.cli.exits import DONE, FILE, WRONG, meaning
from convgrad.cli.verify_cases import UnreadSources, cases_of
from convgrad.cli.verify_options import VerifyOptions
from convgrad.errors import ConvgradError
from convgrad.graph.limits import Limits
from convgrad.spec.operators import OPERATORS, VERSION
from convgrad.verify import cases
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.lines import is_problem

_OPERATORS = {name for row in OPERATORS for name in (row.name, row.name.removesuffix(VERSION))}


def is_source(word: str) -> bool:
    """Return whether an argument is a source of cases: a file or folder, or a problem that is no problem line."""
    words = word.split()
    if not words or word in _OPERATORS or (len(words) > 1 and "\n" not in word and is_problem(words[0])):
        return False
    arrays = word.lower().endswith(tuple(files.KINDS))
    return cases.has_cases(Path(word)) if arrays else cases.is_source(word) or "." in word or "/" in word


def read_cases(word: str, limits: Limits) -> tuple[list[Case], UnreadSources]:
    """Return the cases of a source, and the errors; print what is not read. Raise the first error without a case."""
    unread = UnreadSources()
    cases = cases_of(VerifyOptions(cases=[word]), limits, unread)
    complain_of(list(map(str, unread.refused)), "more that cannot be read")
    passed_over = [f"passed over {error}" for error in (*unread.passed_over, *unread.empty)]
    complain_of(passed_over, "more that are passed over")
    return cases, unread


def use_cases(cases: Sequence[Case], unread: UnreadSources, use: Callable[[Case], bool]) -> tuple[int, int]:
    """Call ``use`` on every case, and return the exit code and the number of cases for which it returned True.

    An error is printed, so that the other cases are used; a single case raises its error.
    """
    used, code = 0, DONE
    for case in cases:
        try:
            if use(case):
                used += 1
            else:
                code = code or WRONG
        except (ConvgradError, MemoryError, OSError) as error:
            ended = meaning(error)
            if len(cases) == 1 or ended is None:
                raise
            complain(f"convgrad: {case.name}: {ended[1]}")
            code = code or ended[0]
    return code or (FILE if unread.refused else DONE), used
