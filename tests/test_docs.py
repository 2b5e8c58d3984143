"""The generated pages are what the code makes; the coverage table is all green."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import convgrad
from convgrad.cli import main, parser
from convgrad.spec.operators import OPERATORS, Operator
from pages import DOCS, FEATURES, PAGES, coverage
from tiers import tiers

COVERAGE = [
    [cell.strip() for cell in line.split("|")]
    for line in (DOCS / "coverage.md").read_text(encoding="utf-8").splitlines()
]
COVERAGE = [row for row in COVERAGE if len(row) > 3]
README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


SLOW = [pytest.mark.long]


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW * (name == "coverage.md")) for name in PAGES])
def test_generated_pages_are_up_to_date(name: str) -> None:
    made = PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run python tests/pages.py"


def test_coverage_is_all_green() -> None:
    cells = re.findall(r"(\d+)/(\d+)", (DOCS / "coverage.md").read_text(encoding="utf-8"))
    assert len(cells) > 150
    assert all(green == total for green, total in cells)


@tiers("op", OPERATORS, every=5)
def test_the_coverage_page_says_what_is_so(op: Operator) -> None:
    """Of each cell that the page has, every seventh combination; all of them in the long tier, where it is made."""
    row = next(r for r in COVERAGE if r[1] == op.name and r[2] == ", ".join(op.generations))
    said = {feature: cell for feature, cell in zip(FEATURES, row[3:-1], strict=True) if cell != "-"}
    found = coverage(op, 7)
    assert list(found) == list(said)
    assert all(green == some > 0 for green, some in found.values())


def test_readme_has_its_two_commands_first() -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    first, second = [text for language, text in blocks if language == "sh"][:2]
    assert "convgrad run" in first
    assert "pytest" in second


@pytest.mark.parametrize("block", [pytest.param(block, marks=SLOW * ("import jax" in block)) for block in BLOCKS])
def test_readme_python_runs(block: str) -> None:
    for library in re.findall(r"^import (torch|jax|dask)\b", block, re.MULTILINE):
        pytest.importorskip(library)
    exec(compile(block, str(README), "exec"), {})


def test_the_first_page_names_every_function() -> None:
    text = (DOCS / "start.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|`with convgrad\.|convgrad\.)(\w+)", text))
    assert {name for name in convgrad.__all__ if inspect.isfunction(getattr(convgrad, name))} <= named


def test_the_command_line_is_documented() -> None:
    help_text = parser().format_help()
    assert "exit codes" in help_text


def test_the_error_in_the_readme_is_the_one_raised() -> None:
    src, diff_dst = np.ones((1, 56, 56, 64), np.float32), np.ones((1, 28, 28, 64), np.float32)
    with pytest.raises(convgrad.InvalidShapeError) as caught:
        convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 64, 64), strides=2)
    assert f"InvalidShapeError: {caught.value}" in " ".join(README.read_text(encoding="utf-8").split())


def test_readme_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every convgrad command of the README, as it stands there, where the examples are: the first as a program."""
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8").replace("\\\n", " ")
    commands = [line for line in text.splitlines() if line.startswith("convgrad ")]
    assert len(commands) >= 4
    first, *others = [shlex.split(command.partition("#")[0])[1:] for command in commands]
    program = f"{sysconfig.get_path('scripts')}/convgrad"
    done = subprocess.run([program, *first], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (first, done.stderr)
    for words in others:
        assert main(words) == 0, words
