"""The size of each room in tokens: a room that grows needs another that shrinks, or a higher TOTAL, which says why."""

from __future__ import annotations

import ast
import tokenize
from io import StringIO

import pytest

from tests.support.places import SOURCES

TOTAL = 480_919  # tokens of all rooms
BUDGETS = {  # tokens by room: a folder without the folders in it
    ".": 12_665, "bench": 8_851, "cases": 31_333, "cli": 25_154, "cli/parsers": 3_282, "dask": 6_479,
    "engines": 10_055, "engines/cuda": 9_779, "engines/llvm": 32_571, "engines/llvm/gemm": 11_548,
    "engines/llvm/kn2row": 5_670, "engines/llvm/split_k": 11_836, "engines/llvm/stencils": 8_461,
    "engines/llvm/winograd": 16_312, "files": 5_896, "functional": 18_744, "graph": 16_367, "jax": 11_581,
    "libraries": 3_215, "plan": 12_537, "plan/cuda": 7_191, "plan/gemm": 9_102, "plan/kn2row": 5_019,
    "plan/split_k": 14_678, "plan/stencils": 5_138, "plan/winograd": 2_277, "scale": 13_209, "spec": 35_775,
    "testing": 5_421, "torch": 25_400, "torch/training": 18_279, "verify": 33_872, "verify/diagnose": 19_314,
    "verify/judge": 8_912, "verify/judge/statistics": 6_209, "verify/probe": 8_787,
}  # fmt: skip
SLACK = 200  # tokens by which a room may be smaller than its budget
NOT_COUNTED = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def docstrings(text: str) -> set[int]:
    """Return the first lines of the docstrings of a module."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if ast.get_docstring(node) is not None:
                found.add(node.body[0].lineno)
    return found


def tokens(text: str) -> int:
    """Return the number of tokens of a module, without comments, docstrings and layout."""
    skipped = docstrings(text)
    return sum(
        token.type not in NOT_COUNTED and not (token.type == tokenize.STRING and token.start[0] in skipped)
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
    [("", 0), ('"""Words."""\n', 0), ("a = f(1)  # why\n", 6), ('def f():\n    """W."""\n    return "s"\n', 7)],
)
def test_tokens_are_counted(text: str, count: int) -> None:
    assert tokens(text) == count
