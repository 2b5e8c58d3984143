"""benchmarks/tensors.py: every library's arrays in every call."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import BENCHMARKS

pytest.importorskip("torch")
pytest.importorskip("jax")
BENCHMARK = BENCHMARKS / "tensors.py"


@pytest.mark.long
def test_a_short_run_has_all_rows(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARK, "--calls", "2", "--rounds", "1", "-o", tmp_path / "out.csv"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "out.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({(row["library"], row["type"], row["call"]) for row in rows}) == len(rows) == 21
    assert all(float(row["numpy_us"]) > 0 for row in rows)
