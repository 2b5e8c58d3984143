"""docs/graphs.md: its graph is the one in examples, its table and drawing are what explain prints."""

from __future__ import annotations

import re
from typing import Any

import pytest

from convgrad.graph import explain, to_json
from tests.support.places import DOCS

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
