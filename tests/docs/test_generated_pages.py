"""The generated pages are what the code makes; the coverage table is all green."""

from __future__ import annotations

import re

import pytest

from convgrad.cli import parser
from convgrad.spec.operators import OPERATORS, Operator
from tests.docs.pages import FEATURES, PAGES, coverage
from tests.support.places import DOCS
from tests.support.tiers import tiers

COVERAGE = [
    [cell.strip() for cell in line.split("|")]
    for line in (DOCS / "coverage.md").read_text(encoding="utf-8").splitlines()
]
COVERAGE = [row for row in COVERAGE if len(row) > 3]
SLOW = [pytest.mark.long]


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW * (name == "coverage.md")) for name in PAGES])
def test_generated_pages_are_up_to_date(name: str) -> None:
    made = PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run python -m tests.docs.pages"


def test_coverage_is_all_green() -> None:
    cells = re.findall(r"(\d+)/(\d+)", (DOCS / "coverage.md").read_text(encoding="utf-8"))
    assert len(cells) > 150
    assert all(green == total for green, total in cells)


@tiers("op", OPERATORS, every=11)
def test_the_coverage_page_says_what_is_so(op: Operator) -> None:
    """Of each cell that the page has, every seventh combination; all of them in the long tier, where it is made."""
    row = next(r for r in COVERAGE if r[1] == op.name and r[2] == ", ".join(op.generations))
    said = {feature: cell for feature, cell in zip(FEATURES, row[3:-1], strict=True) if cell != "-"}
    found = coverage(op, 7)
    assert list(found) == list(said)
    assert all(green == some > 0 for green, some in found.values())


def test_the_command_line_is_documented() -> None:
    help_text = parser().format_help()
    assert "exit codes" in help_text
