"""Tables of the pages on performance and on accuracy for speed are those of the committed runs."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import pytest

from tests.docs import class_chart
from tests.docs.class_chart import GLANCE, PASSES, RUNS
from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results"
PAGE, SERIES, SPEED, TILES = (
    (DOCS / name).read_text(encoding="utf-8")
    for name in ("performance.md", "design/measurements.md", "tiles.md", "design/winograd_measurements.md")
)


def summary(*names: str) -> str:
    paths = [name if name[:2] == "--" else RESULTS / name for name in names]
    command = [sys.executable, BENCHMARKS / "summary.py", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()))


def ratios(table: str, words: str) -> list[float]:
    """Return the means to PyTorch of a table by suite, of lines with some words."""
    return [float(line.split("|")[4]) for line in table.splitlines() if re.search(words, line)]


# -- performance.md, design/measurements.md ----------------------------------------------------------------------------


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
    assert all(one in SERIES for one in (table, many, few, lagging, bf16, classes))
    weights, others = (ratios(bf16, rf"^\| {kind}.* bf16 \| (resnet50|dense) ") for kind in ("BWD_W", "(?!BWD_W)"))
    thin = [ratio for one in (few, lagging) for ratio in ratios(one, " (NXC|NCX) ")]
    for words, found in {
        "many channels, f32, channels last": ratios(many, " NXC "),
        "many channels, f32, channels first": ratios(many, " NCX "),
        "few channels, f32, both layouts": thin,
        "many channels, bf16, weight gradients": weights,
        "many channels, bf16, forwards and data gradients": others,
    }.items():
        assert f"| {words} | {min(found)} to {max(found)} |" in PAGE
    assert "| many channels, f16, weight gradients | 12.83 |" in PAGE
    one = summary("wgrad_f32_1thread.csv")
    assert "| f32 NXC | 52 | 1.49 | 0.93 (vgg16_4_2) |" in one
    assert "run 1.49 times as fast as PyTorch. The slowest layer has 0.93 (`wgrad_f32_1thread.csv`)" in SERIES


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str, str], dict[str, float]]:
    """Ratios to PyTorch of layers by name, by class, pass and layout."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    program: Any = __import__("summary")
    keys = ("type", "suite", "direction", "layout")
    tables = {
        run: program.merged(program.read([Path(RESULTS / name) for name in names], ""), keys)
        for run, names in RUNS.items()
    }
    ratios = {}
    for name, (suite, data, weights) in GLANCE.items():
        for direction in PASSES:
            run = tables.get(weights if direction == "BWD_W" else data, {})
            for layout in ("NXC", "NCX"):
                rows = run.get(("f32", suite, direction, layout), {})
                ratios[name, direction, layout] = program.figure(rows, "torch_ratio")
    return ratios


def glance(found: dict[tuple[str, str, str], dict[str, float]]) -> Iterator[str]:
    """Lines of the table by class and pass."""
    for name in GLANCE:
        cells = [found[name, way, layout] for way in PASSES for layout in ("NXC", "NCX")]
        layers = max(map(len, cells))
        yield f"| {name} | {layers} | {' | '.join(f'{geometric_mean(c.values()):.2f}' if c else '-' for c in cells)} |"


def slow(found: dict[tuple[str, str, str], dict[str, float]], least: float = 0.5) -> Iterator[str]:
    """Lines of the slowest layer of a class, pass and layout that is half as fast as PyTorch or slower."""
    places = {"NXC": "last", "NCX": "first"}
    cases = [(min(one.values()), min(one, key=lambda n: one[n]), key) for key, one in found.items() if one]
    for ratio, layer, (name, way, layout) in sorted(cases):
        if ratio < least:
            yield f"| {ratio:.2f} | `{layer}` | {name} | {PASSES[way]} | {places[layout]} |"


def test_the_page_has_each_class_and_each_slow_case(found: dict[tuple[str, str, str], dict[str, float]]) -> None:
    assert "\n".join(glance(found)) in PAGE
    assert "\n".join(slow(found)) in PAGE
    assert any(slow(found))


def test_the_chart_has_the_ratios_of_the_table(found: dict[tuple[str, str, str], dict[str, float]]) -> None:
    assert class_chart.ratios() == found


def test_layers_in_pairs_are_those_of_the_committed_runs() -> None:
    names = ("what", "of", "pairs", "single", "single_percent")
    panels = ["| " + " | ".join(row[name] for name in names) + " % |" for row in rows_of("pairs_digits.csv")]
    assert len(panels) == 12
    assert "\n".join(panels) in SERIES
    series = " ".join(SERIES.split())
    pairs, single = ([float(row[f"{name}_of_f32"]) for row in rows_of("pairs.csv")] for name in ("pairs", "single"))
    assert f"Layers in pairs are {min(pairs):.2f} to {max(pairs):.2f} times as fast as in f32." in series
    words = f"{min(single):.2f} to {max(single):.2f} times as fast as f32, {geometric_mean(single):.1f} in the mean"
    assert f"no panel that can be taken in pairs, bf16 is {words}." in series


# -- tiles.md, design/winograd_measurements.md -------------------------------------------------------------------------


def test_tiles_are_those_of_the_committed_runs() -> None:
    means: dict[tuple[Any, ...], str] = {}
    for most in (1, 8, 64):
        for names in ([f"tiles_{most}_run{run}.csv" for run in (1, 2)], [f"tiles_{most}_ncx.csv"]):
            lines = summary("--by-suite", *names).splitlines()[2:]
            assert len(lines) == 3
            assert all(f"| {most} {line}" in TILES for line in lines)
            means |= {(most, *line[2:11].split()): line.split("|")[4].strip() for line in lines}
    for way, words in PASSES.items():
        cells = [means[most, way, layout] for layout in ("NXC", "NCX") for most in (1, 8, 64)]
        assert f"| {words} | {' | '.join(cells)} |" in SPEED


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
            assert f"| {network} | {most} | {loss:.3f} | {held_out:.1f} % | {ms:.1f} |" in SPEED
