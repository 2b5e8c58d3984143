"""The command line run in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from convgrad.cli import main

Said = tuple[int, str, str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run the command line in an empty directory; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Said:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run
