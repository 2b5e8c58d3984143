"""The verdicts that a page shows are those that `convgrad verify` prints."""

from __future__ import annotations

import doctest
import shlex
import sys
from pathlib import Path

import pytest

from convgrad.cli import main
from tests.docs.page_blocks import ANY, Block, blocks
from tests.support.places import DOCS

BLOCKS = list(blocks(DOCS / "read_a_verdict.md"))
SESSIONS = [block for block in BLOCKS if block.text.startswith("$ convgrad ")]


def run_session(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command of the page in a folder with the page's module."""
    (module,) = [block.text for block in BLOCKS if block.text.startswith("# mine.py\n")]
    (tmp_path / "mine.py").write_text(module, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    main(shlex.split(command)[2:])


@pytest.mark.parametrize("session", SESSIONS, ids=str)
def test_printed_verdict(
    session: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, shown = session.text.split("\n", 1)
    run_session(command, tmp_path, monkeypatch)
    said = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(shown, said, ANY), said  # lines may be wrapped, or left out by dots


def test_each_outcome_is_shown() -> None:
    shown = "".join(session.text for session in SESSIONS)
    assert all(f"{word}: " in shown for word in ("  ok", "...WRONG", "...DEGRADED", "...UNDECIDED"))


@pytest.mark.parametrize(("words", "outcome"), [("--accumulation f16", "ok"), ("--fill integers", "WRONG")])
def test_f16_results_declared_or_on_integers(
    words: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page says which verdict follows from each option."""
    (halved,) = [session.text.split("\n")[0] for session in SESSIONS if "mine:halved" in session.text]
    assert f"`{words}`" in (DOCS / "read_a_verdict.md").read_text(encoding="utf-8")
    run_session(f"{halved} {words}", tmp_path, monkeypatch)
    assert f"  {outcome}: " in capsys.readouterr().out
