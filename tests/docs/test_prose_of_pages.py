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
# Shares of sentences on pages for readers who do not know the project yet: reasons, examples, and the reader.
CONNECTED = {
    r"\b(because|so that|although|however|instead|whereas)\b": 0.08,
    r"\b(for example|such as)\b": 0.04,
    r"\b(you|your)\b": 0.12,
}
MEAN_WORDS = 11.5
FIRST_PAGES = [
    ROOT / "README.md",
    *(
        DOCS / f"{name}.md"
        for name in ("start", "same_hash", "first_verdict", "torch", "training_step", "why_different", "faq")
    ),
]
NO_PROSE = re.compile(r"(?ms)^```.*?^```$|^\|.*?$|^[#:(!].*?$|^ {4,}.*?$")


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
def test_few_sentences_have_faults(page: Path) -> None:
    each = list(sentences(page))
    found = [(sentence, kinds) for sentence in each if (kinds := faults(sentence))]
    assert len(found) <= max(MINIMUM, LIMIT * len(each)), found


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_first_pages_give_reasons_and_examples(page: Path) -> None:
    each = list(sentences(page))
    for words, least in CONNECTED.items():
        share = sum(bool(re.search(words, sentence, re.IGNORECASE)) for sentence in each) / len(each)
        assert share >= least, (words, share)
    assert sum(len(sentence.split()) for sentence in each) / len(each) >= MEAN_WORDS
