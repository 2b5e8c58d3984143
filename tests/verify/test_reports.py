"""The public reports, done again: the verdict says of each fault what the table of reports.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.places import DOCS
from tests.verify.reports import REPORTS, agrees, cells, expected


@pytest.mark.long
@pytest.mark.parametrize("thread", REPORTS)
def test_a_report_is_judged(thread: str) -> None:
    _, *wanted = expected()[thread]
    found = cells(REPORTS[thread]())
    assert agrees(found, tuple(wanted)), (found, wanted)


def test_the_table_has_every_report() -> None:
    assert list(expected()) == list(REPORTS)


def test_the_page_has_rows_of_the_table() -> None:
    table = Path(__file__).with_name("reports.md").read_text(encoding="utf-8").splitlines()
    shown = re.findall(r"(?m)^\| \S+/\S+#\d.*$", (DOCS / "findings.md").read_text(encoding="utf-8"))
    assert shown
    assert set(shown) <= set(table)
