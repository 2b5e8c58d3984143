"""The prose of the source: shares of sentences that a reader would have to read twice, by package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.syntax import TOKEN, nodes
from tests.support.places import SOURCES

PACKAGES = sorted(path.parent.name for path in SOURCES.glob("*/__init__.py"))
SUBJECT, WORD, LONG, SEMICOLONS = "a clause is the subject", "a vague word", "over 30 words", "two semicolons"
LIMITS = {SUBJECT: 0.005, WORD: 0.015, LONG: 0.02, SEMICOLONS: 0.01}  # shares of a package's sentences
MINIMUM = 3  # sentences of a kind that every package may have
LATER: set[str] = set()
SECTIONS = re.compile(r"\n\s*(?:>>>|Keyword Args:|Raises:)")
NO_COMMENT = re.compile(r"(type:|noqa|fmt:|pyright|[A-Z]+\d+\b|--)")


def faults(sentence: str) -> list[str]:
    """Kinds of faults that a sentence has.

    >>> faults("What is read lies behind it; so does this; and that.")
    ['a clause is the subject', 'a vague word', 'two semicolons']
    """
    found = {
        SUBJECT: re.match(r"(What|Whatever|Who|Whoever|Whose)\b(?!.*\?$)", sentence),
        WORD: re.search(r"\b(lies?|lay|stands?(?! for)|stood|told|beside|behind)\b", sentence),
        LONG: len(sentence.split()) > 30,
        SEMICOLONS: sentence.count(";") > 1,
    }
    return [kind for kind, fault in found.items() if fault]


def sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", SECTIONS.split(text)[0]):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\"]|[a-z_]+: )", " ".join(paragraph.split())):
            if len(sentence.split()) > 2:
                yield sentence


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, comments, and strings of errors that are raised, by line."""
    source = path.read_text(encoding="utf-8")
    for node in nodes(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "refuse"):
            parts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            yield node.lineno, " ".join(parts)
    for token in TOKEN.finditer(source):
        text = token[0].lstrip("#: ").strip()
        if token[0].startswith("#") and not NO_COMMENT.match(text):
            yield source.count("\n", 0, token.start()) + 1, text


@pytest.mark.parametrize(
    "package",
    [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason="to be rewritten")] * (name in LATER))
        for name in PACKAGES
    ],
)
def test_shares_of_faults(package: str) -> None:
    found: dict[str, list[str]] = {kind: [] for kind in LIMITS}
    count = 0
    for path in sorted((SOURCES / package).rglob("*.py")):
        for line, text in texts(path):
            for sentence in sentences(text):
                count += 1
                for kind in faults(sentence):
                    found[kind].append(f"{path.relative_to(SOURCES)}:{line}: {sentence}")
    for kind, where in found.items():
        assert len(where) <= max(MINIMUM, LIMITS[kind] * count), f"{package}, {kind}:\n" + "\n".join(where)


@pytest.mark.parametrize(
    ("sentence", "kind"),
    [
        ("What is read must be packed.", SUBJECT),
        ("The operand lies in memory.", WORD),
        ("It is one; it is two; it is three.", SEMICOLONS),
        (" ".join(["word"] * 31), LONG),
    ],
)
def test_the_check_can_fail(sentence: str, kind: str) -> None:
    assert faults(sentence) == [kind]


@pytest.mark.parametrize("sentence", ["What is a leaf?", "A pointer of 0 stands for a missing bias.", "One; two."])
def test_good_sentences_pass(sentence: str) -> None:
    assert faults(sentence) == []
