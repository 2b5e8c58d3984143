"""docs/start.md: what its small network prints is what stands there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.places import DOCS

PAGE = (DOCS / "start.md").read_text(encoding="utf-8")


def test_the_page_shows_what_the_network_prints(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:2]:
        exec(compile(block, "start.md", "exec"), names)
    printed = capsys.readouterr().out
    assert printed.count("\n") == len(names["given"]) == 4
    assert f"```text\n{printed}```" in PAGE
