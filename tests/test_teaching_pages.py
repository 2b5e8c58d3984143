"""docs/gradient.md and docs/shapes.md: what stands there is what the code draws and makes."""

from __future__ import annotations

import re

import pytest

from gradient_pictures import PICTURES
from pages import DOCS

GRADIENT = (DOCS / "gradient.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_what_the_code_draws(name: str) -> None:
    drawn = (DOCS / "pictures" / name).read_text(encoding="utf-8")
    assert drawn == PICTURES[name](), "run python tests/gradient_pictures.py"


def test_sums_on_the_page_are_right() -> None:
    sums = re.findall(r"(?<![\w\[])([-\d][-+*\d ]*[-+*][-+*\d ]*?) += (-?\d+)", GRADIENT)
    assert len(sums) >= 4
    assert all(eval(terms) == int(result) for terms, result in sums)
