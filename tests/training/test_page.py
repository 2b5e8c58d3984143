"""The page of operators is that of the table."""

from __future__ import annotations

from tests.docs.step_page import PAGE, page


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.docs.step_page"
