"""The public reports, done again: the verdict sees each fault as its table says."""

from __future__ import annotations

import pytest

from reports import REPORTS, Report


@pytest.mark.long
@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.thread)
def test_a_report_is_judged(report: Report) -> None:
    verdict = report.judged()
    assert verdict.outcome == report.outcome, str(verdict)
    assert report.name in ("", *verdict.defects), str(verdict)
