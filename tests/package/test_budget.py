"""The size of each room in tokens: a room that grows needs another that shrinks, or a higher TOTAL, which says why."""

from __future__ import annotations

import ast

import pytest

from tests.package.syntax import TOKEN, statements
from tests.support.places import SOURCES

TOTAL = 486_943  # tokens of all rooms; 56 since tiles have a cache of their own in plans
BUDGETS = {  # tokens by room: a folder without the folders in it
    ".": 8_048, "arrays": 3_418, "arrays/libraries": 2_659, "cli": 20_360, "cli/bench": 8_113, "cli/parsers": 2_634,
    "dask": 5_359, "engines": 8_715, "engines/cuda": 8_960, "engines/llvm": 30_999, "engines/llvm/elementwise": 10_557,
    "engines/llvm/gemm": 13_250, "engines/llvm/kn2row": 4_836, "engines/llvm/split_k": 17_163,
    "engines/llvm/stencils": 7_354, "engines/llvm/winograd": 10_765, "files": 4_989, "functional": 17_574,
    "graph": 14_271, "jax": 10_003, "plan": 10_611, "plan/cuda": 6_419, "plan/gemm": 9_688, "plan/kn2row": 4_550,
    "plan/split_k": 16_703, "plan/stencils": 4_624, "plan/winograd": 4_485, "scale": 11_061, "spec": 21_943,
    "spec/elementwise": 12_570, "spec/winograd": 8_917, "torch": 22_056, "torch/training": 43_110, "verify": 30_569,
    "verify/cases": 27_589, "verify/diagnose": 16_547, "verify/judge": 7_572, "verify/judge/statistics": 5_138,
    "verify/probe": 7_854, "verify/testing": 4_910,
}  # fmt: skip
SLACK = 200  # tokens by which a room may be smaller than its budget


def skipped(text: str) -> set[int]:
    """Return the lines of a module's docstrings and imports."""
    found: set[int] = set()
    for node in statements(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node) is not None:
                found |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
            case ast.Import() | ast.ImportFrom():
                found |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    return found


def tokens(text: str) -> int:
    """Return the number of tokens of a module, without comments, docstrings, imports, layout and commas."""
    lines = skipped(text)
    kept = "\n".join("" if line in lines else words for line, words in enumerate(text.split("\n"), 1))
    return sum(token[0] not in "#," for token in TOKEN.findall(kept))


def tokens_of(room: str) -> int:
    return sum(tokens(path.read_text(encoding="utf-8")) for path in (SOURCES / room).glob("*.py"))


def rooms() -> set[str]:
    return {str(path.parent.relative_to(SOURCES)) for path in SOURCES.rglob("*.py")}


@pytest.mark.parametrize(("room", "budget"), BUDGETS.items())
def test_a_room_keeps_its_budget(room: str, budget: int) -> None:
    size = tokens_of(room)
    assert size <= budget, f"lower another budget by {size - budget}"
    assert size > budget - SLACK, f"lower the budget to {size}"


def test_every_room_has_a_budget() -> None:
    assert rooms() == set(BUDGETS)
    assert sum(BUDGETS.values()) <= TOTAL


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ('"""Words."""\n', 0),
        ("from a import b, c\n", 0),
        ("a = f(1)  # why\n", 6),
        ('def f():\n    """W."""\n    return "s"\n', 7),
    ],
)
def test_tokens_are_counted(text: str, count: int) -> None:
    assert tokens(text) == count
