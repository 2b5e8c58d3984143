"""The table of docs/performance.md is what the committed runs say."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from statistics import geometric_mean, median

from tests.support.places import BENCHMARKS, DOCS


def summary(*names: str) -> str:
    paths = [name if name[:2] == "--" else BENCHMARKS / "results" / name for name in names]
    command = [sys.executable, BENCHMARKS / "summary.py", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def of_bf16() -> str:
    return summary("--by-suite", *(f"pairs_{name}.csv" for name in ("weights", "data", "classes")))


def ratios(table: str, layout: str) -> list[float]:
    """Return the means to PyTorch of a table by suite."""
    cells = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if f" {layout} " in line]
    return [float(line[4]) for line in cells]


def test_the_table_is_of_the_committed_runs() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    table = summary(*(f"wgrad_f32_run{run}.csv" for run in (1, 2, 3)), "wgrad_16bit.csv")
    assert table in page
    assert "| f16 NXC | 52 | 12.83 |" in table
    many = summary("--by-suite", *(f"data_f32_run{run}.csv" for run in (1, 2, 3)))
    few = summary("--by-suite", *(f"few_f32_{run}.csv" for run in ("run1", "run2", "run3", "ncx")))
    lagging = summary("--by-suite", *(f"lagging_f32_run{run}.csv" for run in (1, 2, 3)))
    assert all(one in page for one in (many, few, lagging))
    last, first = ratios(many, "NXC"), ratios(many, "NCX")
    words = f"f32 with channels last {min(last)} to {max(last)}, with channels first {min(first)} to {max(first)}; "
    lines = [line.split("|") for line in of_bf16().splitlines() if "bf16" in line and re.search("resnet50|dense", line)]
    means = {
        weights: [float(line[4]) for line in lines if ("BWD_W" in line[1]) == weights] for weights in (True, False)
    }
    words += f"weight gradients of bf16 {min(means[True])} to {max(means[True])}, "
    words += (
        f"its forwards and data gradients {min(means[False])} to {max(means[False])}; weight gradients of f16 12.83."
    )
    assert words in " ".join(page.split())
    assert of_bf16() in page
    thin = [ratio for one in (few, lagging) for layout in ("NXC", "NCX") for ratio in ratios(one, layout)]
    assert f"Suites of few channels lie at {min(thin)} to {max(thin)}." in page
    assert summary("--by-class", "wgrad_f32_classes.csv") in page
    one_thread = summary("wgrad_f32_1thread.csv")
    assert "| f32 NXC | 52 | 1.49 | 0.93 (vgg16_4_2) |" in one_thread


def test_the_panels_of_a_training_are_those_of_the_committed_run() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    with (BENCHMARKS / "results" / "pairs_digits.csv").open(newline="") as file:
        rows = [
            f"| {row['what']} | {row['of']} | {row['pairs']} | {row['single']} | {row['single_percent']} % |"
            for row in csv.DictReader(file)
        ]
    assert len(rows) == 12
    assert "\n".join(rows) in page


def test_layers_in_pairs_are_those_of_the_committed_run() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    with (BENCHMARKS / "results" / "pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs, single = ([float(row[f"{name}_of_f32"]) for row in rows] for name in ("pairs", "single"))
    assert f"in pairs {min(pairs):.2f} to {max(pairs):.2f} times as fast" in page
    assert (
        f"taken in pairs {min(single):.2f} to {max(single):.2f} times, {geometric_mean(single):.1f} in the mean" in page
    )


def test_tiles_are_those_of_the_committed_runs() -> None:
    page = (DOCS / "tiles.md").read_text(encoding="utf-8")
    for most in (1, 8, 64):
        for names in ([f"tiles_{most}_run{run}.csv" for run in (1, 2)], [f"tiles_{most}_ncx.csv"]):
            lines = summary("--by-suite", *names).splitlines()[2:]
            assert len(lines) == 3
            assert all(f"| {most} {line}" in page for line in lines)


def test_the_errors_of_tiles_are_as_the_page_says() -> None:
    with (BENCHMARKS / "results" / "tiles_errors.csv").open(newline="") as file:
        rows = {(row["role"], row["layer"], row["way"]): float(row["largest"]) for row in csv.DictReader(file)}
    for role in ("weight gradient", "forward", "data gradient"):
        layers = {layer for of, layer, _ in rows if of == role}
        for way, least, most in (("2x2", 0.7, 1.4), ("4x4", 4, 7)):
            there = [layer for layer in layers if (role, layer, way) in rows]
            assert len(there) > 8
            assert (
                least < geometric_mean(rows[role, layer, way] / rows[role, layer, "direct"] for layer in there) < most
            )


def test_the_training_is_that_of_the_committed_run() -> None:
    page = (DOCS / "tiles.md").read_text(encoding="utf-8")
    with (BENCHMARKS / "results" / "tiles_training.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for network in ("digits", "resnet"):
        for most in ("1", "8", "64"):
            same = [row for row in rows if (row["network"], row["max_error"]) == (network, most)]
            loss, ms = sum(float(row["loss"]) for row in same[-20:]) / 20, median(float(row["ms"]) for row in same)
            held_out = 100 * float(same[-1]["held_out"])
            cells = f"| {network} | {most} | {same[-1]['tiles']} | {loss:.3f} | {held_out:.1f} % | {ms:.1f} |"
            assert cells in page
