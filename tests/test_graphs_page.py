"""docs/graphs.md: its graph is the one in examples, its table, drawing and picture are what explain makes."""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest

from convgrad import pictures
from convgrad.graph import draw, explain, to_json
from pages import DOCS

PAGE = (DOCS / "graphs.md").read_text(encoding="utf-8")
GRAPH = DOCS.parent / "examples" / "layer_step.json"


@pytest.fixture
def built() -> dict[str, Any]:
    first = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(compile(first, "graphs.md", "exec"), names)
    return names


def test_the_graph_of_the_page_is_the_one_in_examples(built: dict[str, Any]) -> None:
    assert to_json(built["graph"]) + "\n" == GRAPH.read_text(encoding="utf-8")


def test_the_page_shows_what_explain_prints(built: dict[str, Any]) -> None:
    printed = "\n".join(line.rstrip() for line in explain(built["graph"]).splitlines())
    assert f"```text\n{printed}\n```" in PAGE


def test_the_picture_of_the_page_is_the_one_that_is_drawn(
    built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its size, but for a pixel, as letters are not drawn alike everywhere: another drawing has another."""
    pytest.importorskip("matplotlib")
    sizes: list[Any] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path, dpi, force: sizes.append(figure.get_size_inches() * dpi))
    draw(built["graph"], "layer_step.png")
    stored = struct.unpack(">II", (DOCS / "layer_step.png").read_bytes()[16:24])
    assert sizes[0] == pytest.approx(stored, abs=1)
