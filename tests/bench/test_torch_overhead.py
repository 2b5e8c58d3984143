"""benchmarks/torch_overhead.py: what is measured is there."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import BENCHMARKS

BENCHMARK = BENCHMARKS / "torch_overhead.py"


@pytest.mark.long
def test_a_short_run_has_all_rows(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, BENCHMARK, "--threads", "1", "--calls", "2", "--rounds", "1", "-o", tmp_path / "out.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["form"], row["case"]) for row in rows}) == len(rows) == 6
    assert all(float(row[name]) > 0 for row in rows for name in ("ours_us", "torch_us", "kernels_us", "ratio"))
