"""``convgrad conformance``: judge a function by a fixed list of small cases, and count the results by feature."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

from convgrad import __version__
from convgrad.cli.console import complain, say, wrote
from convgrad.cli.exits import DONE, WRONG, ended_as_by_ctrl_c
from convgrad.cli.parsers import verify as arguments_of_verify
from convgrad.cli.progress import ProgressLine
from convgrad.cli.verify import judge_all
from convgrad.cli.verify_candidates import candidate_of, name_of
from convgrad.cli.verify_options import VerifyOptions, checked
from convgrad.cli.verify_report import Judged, exit_code, explains_exit, summary
from convgrad.disk import check_new, written
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.verify.cases import collection
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.naming import named_apart
from convgrad.verify.cases.place import Place, lines_of, text_of
from convgrad.verify.verdict import NOT_SERVED, OK

NAME = "conformance"
PASSED, BAD, EXPECTED, SKIPPED = "passed", "failed", "expected failures", "skipped"
COLUMNS = (PASSED, BAD, EXPECTED, NOT_SERVED, SKIPPED)
PASSES: Mapping[str, str] = {
    "Convolution": "forward",
    "ConvolutionBackwardData": "data gradient",
    "ConvolutionBackwardWeights": "weight gradient",
    "BiasAddBackward": "bias gradient",
    "ConvTranspose": "transposed forward",
    "ConvTransposeBackwardData": "transposed data gradient",
    "ConvTransposeBackwardWeights": "transposed weight gradient",
}
Table = Mapping[str, Mapping[str, int]]  # the numbers of cases by group and column


@ended_as_by_ctrl_c()
def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    judging, function = as_verify(options), function_of(options)
    skips, xfails = marked(options.skips), marked(options.xfails)
    if options.table is not None:
        check_new(Path(options.table), options.force)
    all_cases = listed()
    cases = [case for case in all_cases if case.name not in skips]
    done, outcomes = list[Judged](), set[str]()
    with candidate_of(judging, DEFAULT_LIMITS) as candidate, ProgressLine("", heartbeat=True) as progress:
        started = time.perf_counter()
        say(f"{len(cases)} cases; judged: {name_of(judging)}")
        try:
            for judged in judge_all(judging, cases, DEFAULT_LIMITS, candidate, progress):
                done.append(judged)
                explains = explains_exit(judged, outcomes, options.strict)
                if options.verbose or explains or column_of(judged, xfails) == BAD:
                    progress.say(judged.lines())
                outcomes.add(judged.outcome)
        finally:  # an interrupted run prints its counts too
            progress.end()
            say(summary(done, len(cases), time.perf_counter() - started))
    passing = [judged.case.name for judged in done if judged.outcome == OK and judged.case.name in xfails]
    for name in passing:
        complain(f"convgrad: {name} is expected to fail, but passes; {options.xfails} says: {xfails[name]}")
    table = counted_by_group(all_cases, done, xfails)
    say("\n".join(["", *as_text(table), "", badge_words(table)]))
    if options.table is not None:
        with written(Path(options.table), options.force) as file:
            file.write(markdown(table, function).encode())
        wrote(options.table)
    others = [judged for judged in done if column_of(judged, xfails) != EXPECTED]
    code = exit_code(others, options.strict, len(others) < len(done))
    return code or (WRONG if passing and options.strict else DONE)


def function_of(options: argparse.Namespace) -> str:
    """Return the function to judge as MODULE:FUNCTION."""
    return options.function if ":" in options.function else f"{options.function}:run"


def as_verify(options: argparse.Namespace) -> VerifyOptions:
    """Return the options of this command as options of ``convgrad verify``, after the checks of that command."""
    values = vars(options) | {"collection": [NAME]}
    values["call"] = function_of(options)
    return checked(argparse.Namespace(**(vars(arguments_of_verify.parser().parse_args([])) | values)))


def listed() -> list[Case]:
    """Return the cases, under the names that ``convgrad verify --collection conformance`` has too."""
    return list(named_apart(collection.cases(NAME)))


def marked(path: str | None) -> dict[str, str]:
    """Return the reasons in a file of --skips or --xfails by the names of the cases that its patterns match.

    Raises FileError for a line without a reason, and for a pattern that matches no case.
    """
    reasons: dict[str, str] = {}
    names = [case.name for case in listed()]
    for line in lines_of(text_of(Path(path), DEFAULT_LIMITS), Place(path)) if path is not None else ():
        pattern, _, reason = line.text.strip().partition(" ")
        matching = [name for name in names if fnmatchcase(name, pattern)]
        if not reason.strip():
            raise line.words[0].place.refuse(f"a line must be a name or a pattern, and a reason; got {pattern!r:.200}")
        if not matching:
            raise line.words[0].place.refuse(f"a pattern must match a case, such as {names[0]}; got {pattern!r:.200}")
        reasons |= dict.fromkeys(matching, reason.strip())
    return reasons


def column_of(judged: Judged, xfails: Mapping[str, str]) -> str:
    """Return the column in which a case is counted."""
    if judged.outcome in (OK, NOT_SERVED):
        return PASSED if judged.outcome == OK else NOT_SERVED
    return EXPECTED if judged.case.name in xfails else BAD


def group_of(case: Case) -> str:
    """Return the group of a case: the pass and the feature.

    >>> group_of(listed()[0])
    'forward, plain'
    """
    return f"{PASSES[case.operator]}, {case.name.partition('-')[0].replace('_', ' ')}"


def counted_by_group(all_cases: Sequence[Case], done: Sequence[Judged], xfails: Mapping[str, str]) -> Table:
    """Return the number of cases by group and column; a case that was not judged is skipped."""
    columns = {judged.case.name: column_of(judged, xfails) for judged in done}
    order = sorted(all_cases, key=lambda case: list(PASSES).index(case.operator))  # is stable
    table: dict[str, Counter[str]] = {}
    for case in order:
        table.setdefault(group_of(case), Counter())[columns.get(case.name, SKIPPED)] += 1
    table["all"] = sum(table.values(), Counter[str]())
    return table


def as_text(table: Table) -> list[str]:
    """Return the lines of a table with aligned columns."""
    width = max(map(len, table))
    lines = [f"{'group':{width}}  {'  '.join(COLUMNS)}"]
    for group, counts in table.items():
        numbers = (f"{counts.get(column, 0):{len(column)}}" for column in COLUMNS)
        lines.append(f"{group:{width}}  {'  '.join(numbers)}")
    return lines


def badge_words(table: Table) -> str:
    """Return the words of the badge: how many of all cases passed.

    >>> badge_words({"all": {"passed": 212, "failed": 18}})
    'convgrad conformance: 212 of 230'
    """
    return f"convgrad conformance: {table['all'].get(PASSED, 0)} of {sum(table['all'].values())}"


def markdown(table: Table, function: str) -> str:
    """Return the badge, which is one line, and the table in Markdown."""
    label, _, value = badge_words(table).partition(": ")
    badge = f"![{label}: {value}](https://img.shields.io/badge/{quote(label)}-{quote(value)}-blue)"
    rows = [("group", *COLUMNS), ("---", *["---:"] * len(COLUMNS))]
    rows += [(group, *(str(counts.get(column, 0)) for column in COLUMNS)) for group, counts in table.items()]
    lines = [badge, "", f"`{function}`, judged by convgrad {__version__}", ""]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])
