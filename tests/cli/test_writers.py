"""Whatever a command writes, it replaces nothing without --force: a row for each option of any command that writes."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from convgrad.cli import COMMANDS, main
from tests.support.places import BENCHMARKS, EXAMPLES

STEP = str(EXAMPLES / "digits_step.json")
LINE = "BWD_W f32 NXC mb1ic2iw5oc3ow5kw3pw1"
WRITES = ("output", "junit", "export", "table")
OLD = b"somebody's work"

# By command and option: the words of a command line, and the file it writes ({} is a folder).
WRITERS: dict[tuple[str, str], list[tuple[list[str], str]]] = {
    ("run", "output"): [
        ([LINE, "-o", "{}/one.npy"], "one.npy"),
        ([LINE, "-o", "{}/one.npz:dst"], "one.npz"),
        ([STEP, "-o", "{}/all.npz"], "all.npz"),
        (["BiasAddBackward", "{}/given.npy", "--memory", "1MB", "-o", "{}/one.npy"], "one.npy"),
    ],
    ("bench", "output"): [([LINE, "-o", "{}/rows.csv"], "rows.csv")],
    ("verify", "junit"): [([LINE, "--junit", "{}/report.xml"], "report.xml")],
    ("conformance", "table"): [(["convgrad", "--table", "{}/table.md"], "table.md")],
    ("verify", "export"): [([LINE, "--export", "{}"], "mb1ic2iw5oc3ow5kw3pw1.json")],
}
ROWS = [(command, *row) for (command, _), rows in WRITERS.items() for row in rows]


def test_every_option_that_writes_has_a_row() -> None:
    found = set()
    for command in COMMANDS:
        parser = importlib.import_module(f"convgrad.cli.parsers.{command}").parser()
        dests = {action.dest for action in parser._actions}
        found |= {(command, name) for name in WRITES if name in dests}
        assert ("force" in dests) == any(name in dests for name in WRITES), command
    assert found == set(WRITERS)


@pytest.mark.parametrize(("command", "words", "name"), ROWS, ids=[" ".join(row[1][-2:]) for row in ROWS])
def test_nothing_is_replaced(
    command: str, words: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "given.npy", np.ones((2, 5, 3), np.float32))
    path = tmp_path / name
    if "--export" in words:
        assert main([command, *(word.format(tmp_path) for word in words)]) == 0
        (path,) = tmp_path.glob("*.json")
        capsys.readouterr()
    path.write_bytes(OLD)
    assert main([command, *(word.format(tmp_path) for word in words)]) == 3
    assert "the file exists; give --force" in capsys.readouterr().err
    assert path.read_bytes() == OLD


@pytest.mark.parametrize(
    ("command", "words", "name"), [row for row in ROWS if row[0] == "verify" and "--export" not in row[1]], ids=str
)
def test_force_replaces_and_what_was_written_is_said(
    command: str, words: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(OLD)
    assert main([command, *(word.format(tmp_path) for word in words), "--force"]) == 0
    assert path.read_bytes() != OLD
    assert f"wrote {path}: {path.stat().st_size:,} bytes" in capsys.readouterr().err


def test_every_benchmark_that_writes_asks_first() -> None:
    """What writes rows has its command line parsed by what refuses files that are there."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (BENCHMARKS).glob("*.py")}
    writers = {name for name, text in texts.items() if "write_rows(" in text}
    assert len(writers) > 20
    assert writers == {name for name, text in texts.items() if "asked(parser" in text or name == "rows.py"}
    assert not [
        name for name, text in texts.items() if '.open("w"' in text or ("write_text(" in text and "/proc/" not in text)
    ]
