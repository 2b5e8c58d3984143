"""The public reports, done again: the verdict sees each fault as its table says."""

from __future__ import annotations

import pytest

from tests.support.places import DOCS
from tests.verify.reports import REPORTS, Report


@pytest.mark.long
@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.thread)
def test_a_report_is_judged(report: Report) -> None:
    verdict = report.judged()
    assert verdict.outcome == report.outcome, str(verdict)
    assert report.name in ("", *verdict.defects), str(verdict)


def test_the_page_has_every_report() -> None:
    page = (DOCS / "reports.md").read_text(encoding="utf-8")
    rows = {cells[0].strip(): cells for line in page.splitlines() if len(cells := line.strip("|").split("|")) == 6}
    for one in REPORTS:
        _, fault, outcome, name, _, left_open = (cell.strip() for cell in rows[one.thread])
        assert (fault, outcome, left_open) == (one.fault, one.outcome, one.open or "-")
        assert one.name in name
