"""Shells complete commands, options, names of operators, suites and collections, and files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convgrad import cli
from convgrad.cli.parsers.completion import SHELLS

# What bash does when Tab is pressed behind these words, by the function that the script made its own.
TAB = """
source ./script
pressed() {
  COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  "$(complete -p convgrad | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
  echo "${COMPREPLY[*]}"
}
"""
PRESSED = {
    "convgrad ve": "verify",
    "convgrad run ConvolutionBackwardW": "ConvolutionBackwardWeights",
    "convgrad run ./gra": "./graph.json",
    "convgrad run Convolution ./gra": "./graph.json",
    "convgrad run Convolution --fi": "--fill",
    "convgrad run Convolution --fill nor": "normal",
    "convgrad run Convolution --dtype bf": "bf16",
    "convgrad verify --collection h": "hard",
    "convgrad verify --got fol": "folder",
    "convgrad bench --suite resn": "resnet50",
    "convgrad bench --against j": "jax",
    "convgrad completion z": "zsh",
}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script").write_text(script("bash", capsys))
    (tmp_path / "graph.json").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "tab").write_text(TAB + "".join(f"pressed {words}\n" for words in PRESSED))
    done = subprocess.run(["bash", "tab"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert dict(zip(PRESSED, done.stdout.splitlines(), strict=True)) == PRESSED


def test_every_shell_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        text = script(shell, capsys)
        assert all(name in text for name in (*cli.COMMANDS, "checkpoint", "resnet50")), shell


def test_without_shtab_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert cli.main(["completion", "bash"]) == 2
    assert "pip install 'convgrad[completion]'" in capsys.readouterr().err
