"""The generated pages are what the code makes; the coverage table is all green."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convgrad.cli import parser
from pages import DOCS, PAGES

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_up_to_date(name: str) -> None:
    made = PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run python tests/pages.py"


def test_coverage_is_all_green() -> None:
    cells = re.findall(r"(\d+)/(\d+)", (DOCS / "coverage.md").read_text(encoding="utf-8"))
    assert len(cells) > 150
    assert all(green == total for green, total in cells)


def test_readme_has_its_two_commands_first() -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    first, second = [text for language, text in blocks if language == "sh"][:2]
    assert "convgrad run" in first
    assert "pytest" in second


def test_readme_python_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})


def test_the_command_line_is_documented() -> None:
    help_text = parser().format_help()
    assert "exit codes" in help_text
