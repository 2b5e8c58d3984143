"""Tables of docs/performance.md and docs/tiles.md are what the committed runs say."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from statistics import geometric_mean, median

from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results"
PAGE, TILES = ((DOCS / name).read_text(encoding="utf-8") for name in ("performance.md", "tiles.md"))


def summary(*names: str) -> str:
    paths = [name if name[:2] == "--" else RESULTS / name for name in names]
    command = [sys.executable, BENCHMARKS / "summary.py", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()))


def ratios(table: str, words: str) -> list[float]:
    """Return the means to PyTorch of a table by suite, of lines with some words."""
    return [float(line.split("|")[4]) for line in table.splitlines() if re.search(words, line)]


def test_tables_are_of_the_committed_runs() -> None:
    table = summary(*(f"wgrad_f32_run{run}.csv" for run in (1, 2, 3)), "wgrad_16bit.csv")
    assert "| f16 NXC | 52 | 12.83 |" in table
    many, few, lagging, bf16 = (
        summary("--by-suite", *(f"{name}_{part}.csv" for part in parts.split()))
        for name, parts in {
            "data_f32": "run1 run2 run3",
            "few_f32": "run1 run2 run3 ncx",
            "lagging_f32": "run1 run2 run3",
            "pairs": "weights data classes",
        }.items()
    )
    classes = summary("--by-class", "wgrad_f32_classes.csv")
    assert all(one in PAGE for one in (table, many, few, lagging, bf16, classes))
    last, first = ratios(many, " NXC "), ratios(many, " NCX ")
    weights, others = (ratios(bf16, rf"^\| {kind}.* bf16 \| (resnet50|dense) ") for kind in ("BWD_W", "(?!BWD_W)"))
    words = f"f32 with channels last {min(last)} to {max(last)}, with channels first {min(first)} to {max(first)}; "
    words += f"weight gradients of bf16 {min(weights)} to {max(weights)}, "
    words += f"its forwards and data gradients {min(others)} to {max(others)}; weight gradients of f16 12.83."
    assert words in " ".join(PAGE.split())
    thin = [ratio for one in (few, lagging) for ratio in ratios(one, " (NXC|NCX) ")]
    assert f"Suites of few channels lie at {min(thin)} to {max(thin)}." in PAGE
    assert "| f32 NXC | 52 | 1.49 | 0.93 (vgg16_4_2) |" in summary("wgrad_f32_1thread.csv")


def test_layers_in_pairs_are_those_of_the_committed_runs() -> None:
    names = ("what", "of", "pairs", "single", "single_percent")
    panels = ["| " + " | ".join(row[name] for name in names) + " % |" for row in rows_of("pairs_digits.csv")]
    assert len(panels) == 12
    assert "\n".join(panels) in PAGE
    pairs, single = ([float(row[f"{name}_of_f32"]) for row in rows_of("pairs.csv")] for name in ("pairs", "single"))
    assert f"in pairs {min(pairs):.2f} to {max(pairs):.2f} times as fast" in PAGE
    words = f"{min(single):.2f} to {max(single):.2f} times, {geometric_mean(single):.1f} in the mean"
    assert f"taken in pairs {words}" in PAGE


def test_tiles_are_those_of_the_committed_runs() -> None:
    for most in (1, 8, 64):
        for names in ([f"tiles_{most}_run{run}.csv" for run in (1, 2)], [f"tiles_{most}_ncx.csv"]):
            lines = summary("--by-suite", *names).splitlines()[2:]
            assert len(lines) == 3
            assert all(f"| {most} {line}" in TILES for line in lines)


def test_errors_of_tiles_are_as_the_page_says() -> None:
    rows = {(row["role"], row["layer"], row["way"]): float(row["largest"]) for row in rows_of("tiles_errors.csv")}
    for role in ("weight gradient", "forward", "data gradient"):
        for wanted, least, most in (("2x2", 0.7, 1.4), ("4x4", 4, 7)):
            found = [rows[key] / rows[role, key[1], "direct"] for key in rows if key[::2] == (role, wanted)]
            assert len(found) > 8
            assert least < geometric_mean(found) < most


def test_the_training_is_that_of_the_committed_run() -> None:
    rows = rows_of("tiles_training.csv")
    for network in ("digits", "resnet"):
        for most in ("1", "8", "64"):
            same = [row for row in rows if (row["network"], row["max_error"]) == (network, most)]
            loss, ms = sum(float(row["loss"]) for row in same[-20:]) / 20, median(float(row["ms"]) for row in same)
            held_out = 100 * float(same[-1]["held_out"])
            cells = f"| {network} | {most} | {same[-1]['tiles']} | {loss:.3f} | {held_out:.1f} % | {ms:.1f} |"
            assert cells in TILES
