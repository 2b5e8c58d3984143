"""The verdicts that a page shows are those that `convgrad verify` prints."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from convgrad.cli import main
from tests.docs.page_blocks import Block, blocks
from tests.support.places import DOCS

BLOCKS = list(blocks(DOCS / "read_a_verdict.md"))
SESSIONS = [block for block in BLOCKS if block.text.startswith("$ convgrad ")]


@pytest.mark.parametrize("session", SESSIONS, ids=str)
def test_printed_verdict(
    session: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (module,) = [block.text for block in BLOCKS if block.text.startswith("# mine.py\n")]
    (tmp_path / "mine.py").write_text(module, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    command, shown = session.text.split("\n", 1)
    main(shlex.split(command)[2:])
    assert capsys.readouterr().out.rstrip() == shown.rstrip()


def test_each_outcome_is_shown() -> None:
    shown = "".join(session.text for session in SESSIONS)
    assert all(f"  {word}: " in shown for word in ("ok", "WRONG", "DEGRADED", "UNDECIDED"))
