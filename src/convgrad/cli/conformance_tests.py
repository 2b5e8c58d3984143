"""The cases of ``convgrad conformance`` as pytest tests; ``convgrad.conformance`` publishes them."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterator

import pytest

from convgrad.cli.conformance import as_verify, listed, marked
from convgrad.cli.parsers import conformance as arguments
from convgrad.cli.verify import judge
from convgrad.cli.verify_candidates import candidate_of
from convgrad.cli.verify_report import Judged
from convgrad.graph.limits import DEFAULT_LIMITS
from convgrad.verify.cases.case import Case
from convgrad.verify.verdict import NOT_SERVED, OK


def _options() -> argparse.Namespace:
    function = os.environ.get("CONVGRAD_CONFORMANCE_MODULE")
    if not function:
        raise pytest.UsageError("set CONVGRAD_CONFORMANCE_MODULE to the function to judge, MODULE[:FUNCTION]")
    words = shlex.split(os.environ.get("CONVGRAD_CONFORMANCE_OPTIONS", ""))
    return arguments.parser().parse_args([function, *words])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test per case, with the marks of the files of --skips and --xfails."""
    options = _options()
    skips, xfails = marked(options.skips), marked(options.xfails)
    parameters = []
    for case in listed():
        marks = [pytest.mark.skip(reason=skips[case.name])] if case.name in skips else []
        if case.name in xfails:
            marks.append(pytest.mark.xfail(reason=xfails[case.name], strict=options.strict))
        parameters.append(pytest.param(case, marks=marks, id=case.name))
    metafunc.parametrize("case", parameters)


@pytest.fixture(scope="module")
def judged() -> Iterator[Callable[[Case], Judged]]:
    """Return a function that judges a case."""
    options = as_verify(_options())
    with candidate_of(options, DEFAULT_LIMITS) as candidate:
        yield lambda case: judge(case, candidate, options, DEFAULT_LIMITS, lambda share: None)


def test_conformance(case: Case, judged: Callable[[Case], Judged]) -> None:
    """Fail with the verdict if it is not ok; skip a case that is not served, except with --strict."""
    outcome = judged(case)
    if outcome.outcome == NOT_SERVED and not _options().strict:
        pytest.skip(outcome.text[0])
    if outcome.outcome != OK:
        pytest.fail(outcome.lines(), pytrace=False)
