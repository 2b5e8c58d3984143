"""The public reports, done again: the verdict says of each fault what the page's table says."""

from __future__ import annotations

import pytest

from tests.verify.reports import REPORTS, agrees, cells, expected


@pytest.mark.long
@pytest.mark.parametrize("thread", REPORTS)
def test_a_report_is_judged(thread: str) -> None:
    _, *wanted = expected()[thread]
    found = cells(REPORTS[thread]())
    assert agrees(found, tuple(wanted)), (found, wanted)


def test_the_page_has_every_report() -> None:
    assert list(expected()) == list(REPORTS)
