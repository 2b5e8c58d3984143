"""Under ``--json`` an error is JSON too: the last object on standard output, beside the words on standard error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import convgrad.cli.info
from convgrad.cli import COMMANDS, main

ERRORS: dict[str, tuple[list[str], str, int]] = {
    "no command": (["--json"], "UsageError", 2),
    "unknown command": (["judge", "--json"], "UsageError", 2),
    "a line that is none": (["run", "BWD_W f32 NXC nonsense", "--json"], "NotationError", 2),
    "shapes that do not fit": (
        ["run", "--json", "Convolution", "--shapes", "1x4x3", "1x2x3"],
        "InvalidAttributeError",
        2,
    ),
    "no such file": (["explain", "no/such.json", "--json"], "GraphError", 3),
    "no such suite": (["bench", "--suite", "vgg", "--json"], "UnsupportedError", 2),
    "no function": (["probe", "--json", "nonsense"], "NotationError", 2),
    "no case": (["verify", "--json"], "UsageError", 2),
}

MEANT = {"version": "did you mean --version?", "runn": "did you mean run?"}


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    error: dict[str, object] = json.loads(line)["error"]
    assert set(error) == {"kind", "message", "exit_code", "notes"}
    assert err.startswith(f"convgrad: {error['message']}\n")
    return error


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_an_object(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, kind, code = ERRORS[name]
    assert main(arguments) == code
    error = told(capsys)
    assert (error["kind"], error["exit_code"]) == (kind, code)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelled_option_of_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--json", "--nonsense"]) == 2
    error = told(capsys)
    assert (error["kind"], error["notes"]) == ("UsageError", [f"try convgrad {command} --help"])


def test_an_interruption_is_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(convgrad.cli.info, "collect", interrupted)
    assert main(["info", "--json"]) == 130
    assert told(capsys) == {"kind": "KeyboardInterrupt", "message": "interrupted", "exit_code": 130, "notes": []}


def test_what_reproduces_it_is_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "Convolution", str(tmp_path / "none.npy"), "--json"]) == 3
    (note,) = told(capsys)["notes"]  # type: ignore[misc]
    assert note.startswith("reproduce: convgrad run Convolution")


def test_the_option_may_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "BWD_W f32 NXC nonsense", "--js"]) == 2
    assert told(capsys)["kind"] == "NotationError"


@pytest.mark.parametrize("word", MEANT)
def test_a_word_that_is_an_option_is_told_so(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--json"]) == 2
    assert str(told(capsys)["message"]).endswith(MEANT[word])
