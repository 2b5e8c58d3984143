"""What programs of this folder make is what they make now: pages, tables of pages, pictures, notebooks, messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from convgrad.formats import FORMATS
from convgrad.spec.operators import OPERATORS, Operator
from tests.docs import (
    class_chart,
    figures,
    first_errors,
    logo,
    panels_picture,
    parameters_page,
    roofline_picture,
    same_bits_picture,
    steps_chart,
    tree_picture,
    verdict_picture,
)
from tests.docs.notebooks import NOTEBOOKS, notebook, source
from tests.docs.page_pictures import PICTURES
from tests.docs.pages import AXES, FEATURES, PAGES, applies, coverage
from tests.docs.shape_pages import MADE, TABLES, made
from tests.support.places import BENCHMARKS, DOCS, EXAMPLES
from tests.support.tiers import tiers

GRADIENT, SHAPES, SUPPORT = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("gradient.md", "shapes.md", "support.md")
)


def as_notebook(name: str) -> str:
    return notebook(source(name))


# By program: the files that it writes, and what makes each.
WRITTEN: dict[str, dict[Path, Callable[[], str]]] = {
    "pages": {DOCS / name: make for name, make in PAGES.items()},
    "shape_pages": {DOCS / "shapes.md": lambda: made(SHAPES)},
    "figures": {page: partial(figures.made, page) for page in figures.PAGES},
    "page_pictures": {DOCS / "pictures" / name: make for name, make in PICTURES.items()},
    "parameters_page": {parameters_page.PAGE: parameters_page.page},
    "notebooks": {EXAMPLES / f"{name}.ipynb": partial(as_notebook, name) for name in NOTEBOOKS},
    "steps_chart": {steps_chart.PICTURE: steps_chart.chart},
    "tree_picture": {tree_picture.PICTURE: tree_picture.drawing},
    "verdict_picture": {verdict_picture.PICTURE: verdict_picture.drawing},
    "class_chart": {class_chart.PICTURE: class_chart.drawing},
    "roofline_picture": {roofline_picture.PICTURE: roofline_picture.drawing},
    "logo": {path: partial(logo.mark, path == logo.ICON) for path in (logo.LOGO, logo.ICON)},
    "same_bits_picture": {same_bits_picture.PICTURE: same_bits_picture.drawing},
    "panels_picture": {panels_picture.PICTURE: panels_picture.drawing},
}


@pytest.mark.parametrize(
    ("program", "path"),
    [pytest.param(program, path, id=path.name) for program, paths in WRITTEN.items() for path in paths],
)
def test_files_are_up_to_date(program: str, path: Path) -> None:
    assert path.read_text(encoding="utf-8") == WRITTEN[program][path](), f"run python -m tests.docs.{program}"


# -- coverage ----------------------------------------------------------------------------------------------------------


def combinations(op: Operator) -> dict[str, tuple[int, int]]:
    """Return how many combinations the page claims for each feature of an operator."""
    weights = op.attribute("strides") is not None
    count = len(FORMATS) * 2 * (2 if weights else 1) * len(AXES)
    return dict.fromkeys((feature for feature in FEATURES if applies(op, feature)), (count, count))


def test_support_page_counts_combinations() -> None:
    words = " ".join(SUPPORT.split())
    assert f"They cover {len(FEATURES)} features" in words
    assert (
        f"they combine {len(FORMATS)} types, 2 data formats, 2 weights formats and {AXES[0]} to {AXES[-1]} spatial"
        in words
    )
    counts = {count for op in OPERATORS for count, _ in combinations(op).values()}
    assert f"axes: {max(counts)} combinations, or {min(counts)} for operators without weights." in words


@tiers("op", OPERATORS, every=23)
def test_every_thirteenth_combination_is_exact(op: Operator) -> None:
    found = coverage(op, 13)
    assert list(found) == list(combinations(op))
    assert all(green == some > 0 for green, some in found.values())


@pytest.mark.long
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}-{'-'.join(op.generations)}")
def test_every_combination_is_exact(op: Operator) -> None:
    assert coverage(op) == combinations(op)


# -- the page of errors ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    return first_errors.names()


@pytest.mark.parametrize(("what", "message"), first_errors.rows())
def test_messages_are_those_of_the_page(what: str, message: str, defined: dict[str, Any]) -> None:
    """But for quotes, which argparse sets by its version; ``python -m tests.docs.first_errors`` writes the page."""
    assert first_errors.said(what, defined).replace("'", "") == message.replace("'", "")


def test_the_page_has_messages() -> None:
    assert len(first_errors.rows()) > 50


# -- pictures and tables of shapes -------------------------------------------------------------------------------------


def test_every_figure_is_on_a_page() -> None:
    assert {name for page in figures.PAGES for name in figures.names(page)} == {*figures.TEXTS}


def test_the_network_of_the_hashes_is_on_the_page() -> None:
    program = (BENCHMARKS / "one_hash.py").read_text(encoding="utf-8")
    start = program.index("def train(")
    text, (ours,) = (
        (DOCS / "same_hash.md").read_text(encoding="utf-8"),
        {row["same_bits"] for row in figures.rows_of(*figures.HASHES)},
    )
    assert program[start : program.index("\n\n\n", start)] in text
    assert ours in text


def test_sums_are_right() -> None:
    """Terms in pictures are the page's numbers, results are convgrad's."""
    drawn = "\n".join((DOCS / "pictures" / name).read_text(encoding="utf-8") for name in PICTURES)
    sums = re.findall(r">([^<=]+) = (\S+)</text>", drawn.replace("−", "-").replace("·", "*"))
    sums = [(terms, result) for terms, result in sums if re.search(r"[*+] ?\d", terms)]
    assert len(sums) == 5
    told = re.findall(r"(?<![\w\[])([-\d][-+*\d ]*[-+*][-+*\d ]*?) += (-?\d+)", GRADIENT)
    assert len(told) >= 4
    assert all(eval(terms) == int(result) for terms, result in sums + told)


def test_each_picture_is_on_a_page_and_told_in_words() -> None:
    pages = [page for page in DOCS.rglob("*.md") if page.name != "index.md"]
    texts = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = re.findall(r"^ *!\[([^]]+)\]\((?:\.\./)?pictures/(\S+)\)$", texts, re.MULTILINE)
    drawn = {path.name for path in (DOCS / "pictures").glob("*.svg")}
    assert {name for _, name in shown} == drawn
    assert all(len(words) > 40 for words, _ in shown)


def rows(table: str) -> Iterator[list[int]]:
    """Yield each row's numbers; what is not allowed is left out."""
    found = next(found[0] for found in MADE.finditer(SHAPES) if found[2] == table)
    return ([int(n) for n in re.findall(r"\d+", line)] for line in found.splitlines() if re.match(r"\| \d", line))


def test_tables_of_shapes_follow_the_formulas_beside_them() -> None:
    assert [found[2] for found in MADE.finditer(SHAPES)] == list(TABLES)
    for i, k, s, d, begin, end, o, unread, *those in rows("convolution"):
        e, pads = d * (k - 1) + 1, begin + end
        assert o == (i + pads - e) // s + 1
        assert unread == max(0, (i + pads - e) % s - end)
        assert (those[0], those[-1]) == (s * (o - 1) + e - pads, s * o + e - pads - 1)
    for i, k, s, d, o, *pads, valid in rows("same"):
        e = d * (k - 1) + 1
        total = max((o - 1) * s + e - i, 0)
        assert o == -(-i // s)
        assert pads == [total // 2, total - total // 2, total - total // 2, total // 2]
        assert valid == (i - e) // s + 1
    for small, k, s, d, begin, end, large, *more, same in rows("transposed"):
        e = d * (k - 1) + 1
        assert large == s * (small - 1) + e - begin - end
        assert more == [large + 1] * (max(s, d) > 1)
        assert same == s * (small - 1) + e - max(e - s, 0)


# -- notebooks ---------------------------------------------------------------------------------------------------------


def test_each_notebook_has_its_page() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == {*NOTEBOOKS}
    for name in NOTEBOOKS:
        text = (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8")
        assert f"](../examples/{name}.ipynb)" in text
        kinds = [cell["cell_type"] for cell in json.loads(text)["cells"]]
        assert kinds.count("code") >= 4
        assert len(kinds) < 16


def text_of(cell: Any) -> str:
    """Return what a cell prints, in however many messages, on whichever stream; what is no text is an error."""
    return "".join(output["text"] for output in cell.get("outputs", []))


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_kernel_prints_what_stands_there(name: str) -> None:
    if name == "same_hash":
        pytest.importorskip("torch")
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    nbformat.validate(stored)
    ran = nbclient.NotebookClient(nbformat.from_dict(stored), resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    for said, done in zip(stored.cells, ran.cells, strict=True):
        assert text_of(done) == text_of(said)
