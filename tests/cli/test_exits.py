"""What an error means to whoever called: every class has an exit code, and all that is printed goes one way.

Under ``--json`` an error is JSON too: the last object on standard output, beside the words on standard error.
"""

from __future__ import annotations

import ast
import importlib
import io
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from convgrad import cli, errors
from convgrad.cli import main
from convgrad.cli.console import complain, say
from convgrad.cli.exits import EXIT_CODES, UsageError, code_of
from convgrad.cli.progress import ProgressLine

COMMANDS = Path(cli.__file__).parent
OURS = sorted(errors.ConvgradError.__subclasses__(), key=lambda kind: kind.__name__)
FILES = {errors.FileError, errors.GraphError}


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    error = kind("src \x1b[2Jmust\nfit")
    error.add_note("reproduce: convgrad \x1b[2J")
    assert str(error) == "src ?[2Jmust?fit"  # in a caller's log, too
    assert code_of(error) == (3 if kind in FILES else 2)
    assert capsys.readouterr().err == "convgrad: src ?[2Jmust?fit\nreproduce: convgrad ?[2J\n"


def test_what_is_said_is_printable_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    for speak in (say, complain):
        speak("src \x1b[2J\r\udcff\n  \u202eweights")
    assert capsys.readouterr() == ("src ?[2J??\n  ?weights\n",) * 2


def test_what_standard_output_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(kept, encoding="ascii"))
    say("größe.npy")
    assert kept.getvalue() == b"gr??e.npy\n"


RUN = ("run", "Convolution", "--shapes", "1x5x3", "3x3x4", "--attr")
NUMBERS: dict[str, tuple[str, ...]] = {
    "a shape": ("run", "Convolution", "--shapes", "1x{}x3", "3x3x4"),
    "a shape of verify": ("verify", "Convolution", "--shapes", "1x{}x3", "3x3x4"),
    "a list": (*RUN, "strides={}"),
    "an integer": (*RUN, "groups={}"),
    "an unknown attribute": (*RUN, "stride={}"),
    "a limit": ("explain", "a.json", "--limit", "ops={}"),
}


@pytest.mark.parametrize("digits", [20, 900, 5000])
@pytest.mark.parametrize("command", NUMBERS.values(), ids=NUMBERS)
def test_a_number_of_any_length_is_an_argument_or_a_mistake(command: tuple[str, ...], digits: int) -> None:
    """Python itself refuses to convert thousands of digits, by an error that is none of ours."""
    assert main([word.format("9" * digits) for word in command]) in (2, 3)


OTHERS = [
    (UsageError("what"), 2, "what"),
    (MemoryError(), 2, "out of memory"),
    (MemoryError("unable to allocate 9 GiB"), 2, "unable to allocate 9 GiB"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (PermissionError(13, "Permission denied", "a.csv"), 3, "[Errno 13] Permission denied: 'a.csv'"),
]


@pytest.mark.parametrize(("error", "code", "words"), OTHERS)
def test_other_errors(error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(error) == code
    assert capsys.readouterr().err == f"convgrad: {words}\n"


def raising(error: BaseException) -> Callable[[object], int]:
    def command(options: object) -> int:
        raise error

    return command


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_ends_by_the_table(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of any class leave any command by one way, and what is nobody's mistake but ours is not hidden."""
    module = importlib.import_module(f"convgrad.cli.{command}")
    words = {
        "run": ["BiasAdd", "a.npy"],
        "explain": ["graph.json"],
        "probe": ["convgrad:run"],
        "conformance": ["convgrad"],
    }
    what = words.get(command, [])
    for error in (errors.FileError("a"), errors.InvalidShapeError("a"), MemoryError(), KeyboardInterrupt()):
        monkeypatch.setattr(module, "main", raising(error))
        assert main([command, *what]) == code_of(error)
    monkeypatch.setattr(module, "main", raising(KeyError("ours")))
    with pytest.raises(KeyError):
        main([command, *what])


def test_the_codes_are_in_every_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], *([command] for command in cli.COMMANDS)):
        with pytest.raises(SystemExit) as done:
            main([*words, "--help"])
        assert done.value.code == 0
        assert EXIT_CODES in capsys.readouterr().out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_has_two_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", command])
    shown = capsys.readouterr().out
    made = importlib.import_module(f"convgrad.cli.parsers.{command}").parser()
    examples = "\n".join(made.examples).replace("\\\n", "").splitlines()
    assert len(examples) == 2
    for example in examples:
        words = shlex.split(example.partition(" | ")[0])
        assert words[:2] == ["convgrad", command]
        made.parse_intermixed_args(words[2:])
    assert all(f"  {line}\n" in shown for line in made.examples)
    assert f"  {command:12}{cli.COMMANDS[command]}\n" in cli.parser().format_help()


def test_commands_print_through_the_console() -> None:
    """So no line is printed that a terminal should not be sent, and none that nobody learns was lost."""
    printing = {
        path.name
        for path in COMMANDS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing == {"console.py", "progress.py"}


def test_progress_on_a_terminal_that_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        tried, encoding = False, "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            Gone.tried = True
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdout", Gone())
    monkeypatch.setattr("convgrad.cli.progress.FIRST_AFTER_S", 0)
    with ProgressLine("a"):
        while not Gone.tried:
            pass


def test_progress_on_a_terminal_that_cannot_show_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``LC_ALL=C`` gives; a file name is the label of a graph."""
    kept = io.BytesIO()
    terminal = io.TextIOWrapper(kept, encoding="ascii")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr("convgrad.cli.progress.FIRST_AFTER_S", 0)
    end = time.monotonic() + 10
    with ProgressLine("größe.json:"):
        while b"gr??e.json:" not in kept.getvalue() and time.monotonic() < end:
            time.sleep(0.001)
    assert b"gr??e.json:" in kept.getvalue()


# -- as JSON -----------------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[list[str], str, int]] = {
    "no command": (["--json"], "UsageError", 2),
    "unknown command": (["judge", "--json"], "UsageError", 2),
    "a line that is none": (["run", "BWD_W f32 NXC nonsense", "--json"], "NotationError", 2),
    "no strides": (["run", "--json", "Convolution", "--shapes", "1x4x3", "1x2x3"], "InvalidAttributeError", 2),
    "no such file": (["explain", "no/such.json", "--json"], "GraphError", 3),
    "no such suite": (["bench", "--suite", "vgg", "--json"], "UnsupportedError", 2),
    "no function": (["probe", "--json", "nonsense"], "NotationError", 2),
    "no case": (["verify", "--json"], "UsageError", 2),
}

MEANT = {"version": "Did you mean --version?", "runn": "Did you mean run?"}


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


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_misspelled_option_of_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--json", "--nonsense"]) == 2
    error = told(capsys)
    assert (error["kind"], error["notes"]) == ("UsageError", [f"try convgrad {command} --help"])


def test_an_interruption_is_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convgrad.cli.info.main", raising(KeyboardInterrupt()))
    assert main(["info", "--json"]) == 130
    assert told(capsys) == {"kind": "KeyboardInterrupt", "message": "interrupted", "exit_code": 130, "notes": []}


def test_what_reproduces_it_is_a_note(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Unless the error is about a file."""
    assert main(["run", "BWD_W f32 NXC ic2iw4oc2ow4kw1", "--dtype", "f64", "--json"]) == 2
    (note,) = told(capsys)["notes"]  # type: ignore[misc]
    assert note.startswith("reproduce: convgrad run 'BWD_W")
    assert main(["run", "Convolution", str(tmp_path / "none.npy"), "--json"]) == 3
    assert told(capsys)["notes"] == []


def test_the_option_may_be_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "BWD_W f32 NXC nonsense", "--js"]) == 2
    assert told(capsys)["kind"] == "NotationError"


@pytest.mark.parametrize("word", MEANT)
def test_a_word_that_is_an_option_is_told_so(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word, "--json"]) == 2
    assert str(told(capsys)["message"]).endswith(MEANT[word])
