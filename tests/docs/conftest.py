"""Where blocks of pages run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.places import EXAMPLES


@pytest.fixture
def beside_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory with the examples in it, as pages name them."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
