"""The prose of the pages: shares of sentences that a reader would have to read twice, and of reasons and examples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES as MADE
from tests.package.test_prose import faults
from tests.support.places import DOCS, ROOT

LIMIT, MINIMUM = 0.05, 1  # the share of a page's sentences with a fault, and how many every page may have
PAGES = [ROOT / "README.md", ROOT / "SKILL.md", *sorted(DOCS.rglob("*.md"))]
NO_PROSE = re.compile(r"(?ms)^```.*?^```$|^\|.*?$|^[#:(!<].*?$|^ {4,}.*?$")

NOTES = {"architecture", "numerics", "changelog", "contributing", "security", "code_of_conduct"}  # not for users
USER_PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.glob("*.md")) if page.stem not in NOTES)]
KINDS = {
    "a reason": re.compile(r"\b(because|so that|although|however|instead)\b", re.IGNORECASE),
    "an example": re.compile(r"\b(for example|such as)\b", re.IGNORECASE),
    "the reader": re.compile(r"\b(you|your|yours)\b", re.IGNORECASE),
}
SHARES = {"a reason": 0.10, "an example": 0.055, "the reader": 0.14}  # of the sentences of all user pages, at least
OF_A_PAGE = {"a reason": 0.04, "an example": 0.02, "the reader": 0.06}  # of a page with enough sentences
ENOUGH, MEAN_WORDS = 20, (13, 17)
LISTS = {name.removesuffix(".md") for name in MADE} | {
    "glossary",
    "step_operators",
    "index",
    "parameters",
}  # of operators, options and terms


def sentences(page: Path) -> Iterator[str]:
    """Sentences of paragraphs and of items of lists; code, tables and titles are left out."""
    for paragraph in re.split(r"\n\s*\n|(?m:^\s*(?:[-*]|\d+\.) )", NO_PROSE.sub("", page.read_text(encoding="utf-8"))):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[*]|convgrad\b)", " ".join(paragraph.split())):
            if len(sentence.split()) > 2:
                yield sentence


def shares(each: Iterable[str]) -> dict[str, float]:
    """Return the share of sentences of each kind.

    >>> shares(["Pass a list, because the axes differ.", "You can pass a list."])
    {'a reason': 0.5, 'an example': 0.0, 'the reader': 0.5}
    """
    every = list(each)
    return {kind: sum(bool(words.search(sentence)) for sentence in every) / len(every) for kind, words in KINDS.items()}


def lacking(found: dict[str, float], least: dict[str, float]) -> dict[str, float]:
    return {kind: round(share, 3) for kind, share in found.items() if share < least[kind]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_prose_is_a_comment(page: Path) -> None:
    """The site leaves out a line that begins with a percent sign."""
    assert not re.findall(r"(?m)^\s*%.*", NO_PROSE.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_few_sentences_have_faults(page: Path) -> None:
    each = list(sentences(page))
    found = [(sentence, kinds) for sentence in each if (kinds := faults(sentence))]
    assert len(found) <= max(MINIMUM, LIMIT * len(each)), found


def test_user_pages_have_reasons_examples_and_readers() -> None:
    each = [sentence for page in USER_PAGES for sentence in sentences(page)]
    assert lacking(shares(each), SHARES) == {}
    mean = sum(len(sentence.split()) for sentence in each) / len(each)
    assert MEAN_WORDS[0] <= mean <= MEAN_WORDS[1]


@pytest.mark.parametrize(
    "page",
    [page for page in USER_PAGES if page.stem not in LISTS],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_each_user_page_has_reasons_examples_and_readers(page: Path) -> None:
    each = list(sentences(page))
    assert len(each) < ENOUGH or lacking(shares(each), OF_A_PAGE) == {}


def test_a_page_without_reasons_fails() -> None:
    assert lacking(shares(["It is a list."] * 3), OF_A_PAGE) == dict.fromkeys(OF_A_PAGE, 0.0)
