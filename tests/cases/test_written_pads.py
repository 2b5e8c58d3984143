"""Pads that a descriptor leaves to be deduced: accepted as by benchdnn, and named if a position meets them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from convgrad import cases
from convgrad.cli import main
from convgrad.descriptor import read_descriptor, write_descriptor

NOTE = "ih9 and oh99 leave a pad of 91 at the end of h, which the descriptor does not give"
LINE = "FWD_D f32 NXC mb1ic1ih9oc1oh99kh3ph1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ic1ih9oc1oh99kh3ph1", NOTE),
        ("ic1ih9oc1oh99kh3", "ih9 and oh99 leave a pad of 46 at the end of h"),
        ("ic1ih9iw9oc1oh9ow20kh3kw3ph1pw1", "iw9 and ow20 leave a pad of 12 at the end of w"),
        ("ic1ih9oc1oh11kh3ph1", "a pad of 3 at the end"),
        ("ic1ih9oc1oh10kh3ph1", ""),  # the last position still meets the last of src
        ("ic1ih9oc1oh99kh3ph46", ""),  # written
        ("ic1ih9oc1oh9kh3", ""),
        ("ic1ih224oc1oh112kh3sh2ph0", ""),
    ],
)
def test_notes_of_descriptors(text: str, words: str) -> None:
    found = read_descriptor(text)
    assert (words in found.note) if words else (found.note == "")
    assert found == read_descriptor(write_descriptor(found))


def test_cases_have_the_note(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"--dir=BWD_WB,FWD_D ic1ih9oc1oh99kh3ph1\n{LINE}\nBWD_D f32 NXC ic1ih9oc1kh3")
    assert [case.note for case in cases.read(tmp_path / "list")] == [NOTE] * 4 + [""]


@pytest.mark.parametrize("command", ["run", "explain", "verify"])
def test_commands_warn(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    assert main([command, LINE]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said == [f"convgrad: warning: {'the problem:1:1: ' * (command == 'verify')}{NOTE}"]


def test_verify_warns_once_per_descriptor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    (tmp_path / "list").write_text("--dir=BWD_WB ic1ih9oc1oh99kh3ph1\n" * 23)
    assert main(["verify", str(tmp_path / "list"), "--only", "*_bias*"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 21
    assert said[-1] == "convgrad: and 3 more such pads"
