"""The table of docs/performance.md is what the committed runs say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def summary(*names: str) -> str:
    paths = [name if name[:2] == "--" else ROOT / "benchmarks" / "results" / name for name in names]
    command = [sys.executable, ROOT / "benchmarks" / "summary.py", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_table_is_of_the_committed_runs() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    table = summary(*(f"wgrad_f32_run{run}.csv" for run in (1, 2, 3)), "wgrad_16bit.csv")
    assert table in page
    assert summary("--by-class", "wgrad_f32_classes.csv") in page
    assert summary("--by-suite", *(f"data_f32_run{run}.csv" for run in (1, 2, 3))) in page
    assert summary("--by-suite", *(f"few_f32_{run}.csv" for run in ("run1", "run2", "run3", "ncx"))) in page
    assert summary("--by-suite", *(f"lagging_f32_run{run}.csv" for run in (1, 2, 3))) in page
    one_thread = summary("wgrad_f32_1thread.csv")
    assert "| f32 NXC | 52 | 1.49 | 0.93 (vgg16_4_2) |" in one_thread
