"""docs/resume.md: its example runs as it stands there, its figures are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from convgrad.cli import main
from convgrad.scale.checkpoint import EVERY_S
from pages import DOCS

PAGE = (DOCS / "resume.md").read_text(encoding="utf-8")


def test_the_example_and_the_command_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, np.ndarray] = {}
    exec(compile(example, "resume.md", "exec"), found)
    (command,) = re.findall(r"^```\nconvgrad (.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert main(shlex.split(command.replace("\\\n", ""))) == 0
    assert np.load("diff_weights.npy").tobytes() == found["gradient"].tobytes()
    assert "pieces" in capsys.readouterr().out


def test_it_says_how_often_is_saved() -> None:
    for page in (PAGE, (DOCS / "scale.md").read_text(encoding="utf-8")):
        assert f"every {EVERY_S:.0f} seconds" in page
