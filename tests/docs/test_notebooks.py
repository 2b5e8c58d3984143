"""examples/*.ipynb: each is its page as a notebook, and a kernel prints in it what stands there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.docs.notebooks import NOTEBOOKS, notebook
from tests.support.places import DOCS, EXAMPLES


def test_every_notebook_has_its_page() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_its_page(name: str) -> None:
    stored = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
    assert stored == notebook((DOCS / f"{name}.md").read_text(encoding="utf-8")), "run python -m tests.docs.notebooks"
    assert f"](../examples/{name}.ipynb)" in stored
    kinds = [cell["cell_type"] for cell in json.loads(stored)["cells"]]
    assert kinds.count("code") >= 4
    assert len(kinds) < 12


def text_of(cell: Any) -> str:
    """Return what a cell prints, in however many messages, on whichever stream; what is no text is an error."""
    return "".join(output["text"] for output in cell.get("outputs", []))


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_kernel_prints_what_stands_there(name: str) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    ran = nbclient.NotebookClient(nbformat.from_dict(stored), resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    for said, done in zip(stored.cells, ran.cells, strict=True):
        assert text_of(done) == text_of(said)
