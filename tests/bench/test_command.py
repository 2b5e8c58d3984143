"""``convgrad bench`` as a command: rows, failures, interruptions."""

from __future__ import annotations

import csv
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from convgrad.cli import main
from convgrad.cli.bench import _warn_of_phases
from convgrad.cli.bench.report import COLUMNS
from tests.bench.problems import COMMAND, TINY, needs_torch
from tests.support.children import HANG_S
from tests.support.tiers import tiers

TWO = [TINY, "BWD_D f32 NCX mb1ic3ih8oc4oh4kh3sh2ph1"]


def command(*arguments: str, expect: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [COMMAND, "bench", *arguments], capture_output=True, text=True, cwd=cwd, timeout=HANG_S, check=False
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_problems_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.txt").write_text("\n".join(TWO))
    arguments = ["--shapes", "two.txt", "--type", "f32,bf16", "--repeat", "1", "-o", "two.csv"]
    text = command(*arguments, cwd=tmp_path).stdout
    assert "multiply-add peak" in text
    assert "two BWD_W bf16 NXC: 1 problem" in text
    rows = rows_of(tmp_path / "two.csv")
    assert tuple(rows[0]) == COLUMNS
    assert [r["type"] for r in rows] == ["f32", "bf16", "f32", "bf16"]
    assert {r["right"] for r in rows} == {"yes"}
    assert all(float(r[c]) > 0 for r in rows for c in ("convgrad_ms", "gflops", "share_of_floor", "memory_gbs"))
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 3
    assert "give --force" in capsys.readouterr().err


@pytest.mark.long
@needs_torch
def test_against_torch(tmp_path: Path) -> None:
    text = command(*TWO, "--against", "torch", "--threads", "1", "--repeat", "2", "-o", "t.csv", cwd=tmp_path).stdout
    assert "times as fast as torch" in text
    for figures in rows_of(tmp_path / "t.csv"):
        assert figures["torch_layout"] in ("nchw", "nhwc")
        assert float(figures["torch_ratio"]) > 0
        assert figures["torch_version"]
        assert figures["threads"] == "1"


FAILURES = {
    "nothing": ([], 2, "suites: all, dense"),
    "suite": (["--suite", "vgg"], 2, "there is no suite vgg"),
    "line": (["BWD_W f32 NXC ic3oc3"], 2, "at least one spatial axis"),
    "type": ([TINY, "--type", "f8"], 2, "expected one of f32, bf16, f16, f64, f8_e4m3, f8_e5m2"),
    "no images": (["FWD_D f32 NXC mb0ic3ih5oc3kh3"], 2, "a problem to time needs products"),
    "peer": ([TINY, "--against", "mkl"], 2, "peers must be among torch, jax"),
    "threads": ([TINY, "--threads", "0"], 2, "a positive integer is wanted"),
    "threads beyond the cores": ([TINY, "--threads", "100000"], 2, "the cores that this process may run on"),
    "directory": ([TINY, "-o", "/nonexistent/a.csv"], 3, "no such directory"),
}


@tiers("name", list(FAILURES), every=14)
def test_failures_are_sentences(name: str) -> None:
    arguments, code, message = FAILURES[name]
    assert message in command(*arguments, expect=code).stderr


@pytest.mark.long
def test_an_interruption_leaves_the_rows_done(tmp_path: Path) -> None:
    path, long_one = tmp_path / "rows.csv", "FWD_D f32 NXC mb1ic64iw40000oc64ow40000kw127pw63"
    master, slave = pty.openpty()
    arguments = [COMMAND, "bench", TINY, long_one, "--repeat", "3", "-o", str(path)]
    process = subprocess.Popen(arguments, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    shown = b""
    while b"2/2 mb1ic64iw40000" not in shown:
        shown += os.read(master, 1000)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_S)
    os.close(master)
    assert process.returncode == 130, errors
    assert b"interrupted" in errors
    assert [r["problem"] for r in rows_of(path)] == [TINY]


@pytest.mark.parametrize(("peaks", "warned"), [((100, 95, 120), ""), ((100, 60, 150), "in 2 problems; measure again")])
def test_a_change_of_speed_is_noticed(
    peaks: tuple[float, ...], warned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _warn_of_phases([{"type": "f32", "peak_gflops": peak, "fma_gflops": 100.0} for peak in peaks])
    assert (warned in capsys.readouterr().err) if warned else capsys.readouterr().err == ""
