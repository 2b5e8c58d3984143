"""benchmarks/small_calls.py: every role in every way, and what is compared computes the same."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

from tests.support.places import BENCHMARKS

BENCHMARK = BENCHMARKS / "small_calls.py"


def test_a_short_run_has_all_rows(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARK, "--threads", "1", "--calls", "2", "--rounds", "1", "-o", tmp_path / "out.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["role"], row["form"], row["layout"]) for row in rows}) == len(rows) == 24
    assert all(float(row["us"]) > 0 for row in rows)
