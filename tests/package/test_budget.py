"""The size of each room in tokens: a room that grows needs another that shrinks, or a higher TOTAL, which says why."""

from __future__ import annotations

import ast
import tokenize
from io import StringIO

import pytest

from tests.support.places import SOURCES

TOTAL = 442_473  # tokens of all rooms
BUDGETS = {  # tokens by room: a folder without the folders in it
    ".": 10_656, "bench": 8_007, "cases": 29_253, "cli": 21_764, "cli/parsers": 2_970, "dask": 5_742,
    "engines": 9_292, "engines/cuda": 9_207, "engines/llvm": 30_317, "engines/llvm/gemm": 10_720,
    "engines/llvm/kn2row": 5_346, "engines/llvm/split_k": 11_016, "engines/llvm/stencils": 7_943,
    "engines/llvm/winograd": 15_344, "files": 5_258, "functional": 17_136, "graph": 15_051, "jax": 10_620,
    "libraries": 2_921, "plan": 10_544, "plan/cuda": 6_763, "plan/gemm": 8_736, "plan/kn2row": 4_591,
    "plan/split_k": 14_117, "plan/stencils": 4_762, "plan/winograd": 2_247, "scale": 11_837, "spec": 23_753,
    "spec/winograd": 9_997, "testing": 4_717, "torch": 23_605, "torch/training": 17_239, "verify": 31_234,
    "verify/diagnose": 17_952, "verify/judge": 8_024, "verify/judge/statistics": 5_529, "verify/probe": 8_263,
}  # fmt: skip
SLACK = 200  # tokens by which a room may be smaller than its budget
NOT_COUNTED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def skipped(text: str) -> set[int]:
    """Return the lines of a module's docstrings and imports."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node) is not None:
                found |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
            case ast.Import() | ast.ImportFrom():
                found |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    return found


def tokens(text: str) -> int:
    """Return the number of tokens of a module, without comments, docstrings, imports and layout."""
    lines = skipped(text)
    return sum(
        token.type not in NOT_COUNTED and token.start[0] not in lines
        for token in tokenize.generate_tokens(StringIO(text).readline)
    )


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
