"""benchmarks/summary.py on made-up runs: medians over runs, existing taps, bf16 beside its own f32."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from convgrad.cli.bench.report import COLUMNS
from tests.support.places import BENCHMARKS

SUMMARY = BENCHMARKS / "summary.py"
HEADS = [
    "| direction, layout, type | suite | layers | to PyTorch | slowest | of peak | lowest | of own f32 | slowest |",
    "|---|---|---|---|---|---|---|---|---|",
]
#           type, name, needed of 1 GFLOP, then of each run: to PyTorch, share of peak, ms
LAYERS = [
    ("f32", "a_3x3", 0.5, (("4", 0.2, 3.0), ("0.5", 0.8, 1.0), ("1", 0.4, 2.0))),  # medians 1, 0.4 * 0.5, 2
    ("f32", "b_1x1", 1.0, (("4", 0.8, 9.0), ("4", 0.8, 9.0), ("9", 0.8, 9.0))),
    ("bf16", "a_3x3", 0.5, (("", 0.6, 8.0), ("", 0.6, 2.5), ("", 0.6, 1.0))),  # PyTorch refuses
]


def written(directory: Path, leaving_out: str = "") -> list[str]:
    """Write a file a run; return their names."""
    columns = [column for column in COLUMNS if column != leaving_out]
    paths = [directory / f"run{number}.csv" for number in range(3)]
    for number, path in enumerate(paths):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            for type_name, name, needed, runs in LAYERS:
                ratio, share, ms = runs[number]
                row = {"suite": "made_up", "name": name, "problem": f"BWD_D {type_name} NCX kh{name[-1]}n{name}"}
                row |= {"direction": "BWD_D", "type": type_name, "layout": "NCX", "gflop": 1.0, "needed_gflop": needed}
                row |= {"torch_ratio": ratio, "share_of_peak": share, "convgrad_ms": ms}
                writer.writerow(row)
    return [str(path) for path in paths]


def summary(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SUMMARY, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("only", "f32"), [
    ("", "2 | 2.00 | 1.00 (a_3x3) | 0.40 | 0.20 (a_3x3)"),
    ("kh3", "1 | 1.00 | 1.00 (a_3x3) | 0.20 | 0.20 (a_3x3)"),
])  # fmt: skip
def test_by_suite(tmp_path: Path, only: str, f32: str) -> None:
    found = summary("--by-suite", "--only", only, *written(tmp_path))
    assert found.stdout.splitlines() == [
        *HEADS,
        "| BWD_D NCX bf16 | made_up | 1 |  |  | 0.30 | 0.30 (a_3x3) | 0.80 | 0.80 (a_3x3) |",
        f"| BWD_D NCX f32 | made_up | {f32} |  |  |",
    ]


def test_by_pass(tmp_path: Path) -> None:
    found = summary("--by-pass", "--only", " f32 ", *written(tmp_path))
    assert found.stdout.splitlines() == [
        "| pass | suite | NCX, slowest | of peak | lowest |",
        "|---|---|---|---|---|",
        "| BWD_D | made_up | 1.00 (a_3x3) | 0.40 | 0.20 (a_3x3) |",
    ]


def test_runs_without_existing_taps_are_refused(tmp_path: Path) -> None:
    found = summary("--by-suite", *written(tmp_path, leaving_out="needed_gflop"))
    assert (found.returncode, found.stdout) == (1, "")
    assert "needs runs with the column needed_gflop" in found.stderr
