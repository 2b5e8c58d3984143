"""The notebooks in examples/, made from pages of docs/: a page's code and what it says this prints are cells.

``python -m tests.docs.notebooks`` writes them; a test compares the files. Pages are executed as all are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from tests.support.places import DOCS, EXAMPLES

NOTEBOOKS = ("first_gradient", "first_verdict", "same_hash")
SECTIONS = {
    "first_gradient": ("gradient", "## Learn a filter by its gradient\n")
}  # notebooks that are a section of a page
CODE = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?=[\w/]+\.(?:md|svg))")  # a page or a picture, which lie in docs/


def source(name: str) -> str:
    """Return the page, or the section of a page, that a notebook is made from."""
    page, title = SECTIONS.get(name, (name, ""))
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    if not title:
        return text
    section = text.partition(title)[2].partition("\n## ")[0]
    return f"{title.removeprefix('#')}{section}\n"


def lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def cells(page: str) -> Iterator[dict[str, Any]]:
    """Yield a page's cells: what stands between blocks of code, and these with what they print."""
    told, code, printed = 0, 1, 2
    parts = CODE.split(page)
    for at in range(0, len(parts), 3):
        if parts[at + told].strip():
            yield {"cell_type": "markdown", "source": lines(LINK.sub("](../docs/", parts[at + told]))}
        if at + code < len(parts):
            text = parts[at + printed]
            shown = {"name": "stdout", "output_type": "stream", "text": (text or "").splitlines(keepends=True)}
            yield {"cell_type": "code", "source": lines(parts[at + code]), "outputs": [shown] if text else []}


def notebook(page: str) -> str:
    """Return a page as a notebook's JSON."""
    made, ran = [], 0
    for at, cell in enumerate(cells(page)):
        ran += cell["cell_type"] == "code"
        count = {"execution_count": ran} if cell["cell_type"] == "code" else {}
        made.append({"id": f"cell-{at}", "metadata": {}} | cell | count)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name in NOTEBOOKS:
        (EXAMPLES / f"{name}.ipynb").write_text(notebook(source(name)), encoding="utf-8")
        print(f"wrote examples/{name}.ipynb", file=sys.stderr)
