"""docs/gradient.md and docs/shapes.md: what stands there is what the code draws and makes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.page_pictures import PICTURES
from tests.docs.shape_pages import MADE, TABLES, made
from tests.support.places import DOCS

GRADIENT, SHAPES = ((DOCS / name).read_text(encoding="utf-8") for name in ("gradient.md", "shapes.md"))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_what_the_code_draws(name: str) -> None:
    drawn = (DOCS / "pictures" / name).read_text(encoding="utf-8")
    assert drawn == PICTURES[name](), "run python -m tests.docs.page_pictures"


def test_sums_in_pictures_are_right() -> None:
    """Their terms are the page's numbers, their results are convgrad's."""
    drawn = "\n".join((DOCS / "pictures" / name).read_text(encoding="utf-8") for name in PICTURES)
    sums = re.findall(r">([^<=]+) = (\S+)</text>", drawn.replace("−", "-").replace("·", "*"))
    sums = [(terms, result) for terms, result in sums if re.search(r"[*+] ?\d", terms)]
    assert len(sums) == 5
    assert all(eval(terms) == int(result) for terms, result in sums)


def test_each_picture_is_on_a_page_and_told_in_words() -> None:
    shown = re.findall(r"^!\[([^]]+)\]\(pictures/(\S+)\)$", GRADIENT + SHAPES, re.MULTILINE)
    assert sorted(name for _, name in shown) == sorted(PICTURES)
    assert all(len(words) > 40 for words, _ in shown)


def test_sums_on_the_page_are_right() -> None:
    sums = re.findall(r"(?<![\w\[])([-\d][-+*\d ]*[-+*][-+*\d ]*?) += (-?\d+)", GRADIENT)
    assert len(sums) >= 4
    assert all(eval(terms) == int(result) for terms, result in sums)


def test_tables_of_shapes_are_made() -> None:
    assert [found[2] for found in MADE.finditer(SHAPES)] == list(TABLES)
    assert made(SHAPES) == SHAPES, "run python -m tests.docs.shape_pages"


def rows(table: str) -> Iterator[list[int]]:
    """Yield each row's numbers; what is not allowed is left out."""
    found = next(found[0] for found in MADE.finditer(SHAPES) if found[2] == table)
    return ([int(n) for n in re.findall(r"\d+", line)] for line in found.splitlines() if re.match(r"\| \d", line))


def test_tables_of_shapes_follow_the_formulas_beside_them() -> None:
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
