"""What docs/first_errors.md says that a mistake is answered with is what it is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.docs.first_errors import names, rows, said


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    return names()


@pytest.mark.parametrize(("what", "message"), rows())
def test_the_page_has_the_message(what: str, message: str, defined: dict[str, Any]) -> None:
    """But for quotes, which argparse sets by its version; ``python -m tests.docs.first_errors`` writes the page."""
    assert said(what, defined).replace("'", "") == message.replace("'", "")


def test_the_page_is_read() -> None:
    assert len(rows()) > 50
