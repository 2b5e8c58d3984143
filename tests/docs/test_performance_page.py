"""Tables of the pages on performance and on accuracy for speed are those of the committed runs."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from statistics import geometric_mean, median
from typing import Any

import pytest

from tests.docs import class_chart, roofline_picture
from tests.docs.class_chart import GLANCE, PASSES, RUN
from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results"
PAGE, SERIES, SPEED = (
    (DOCS / name).read_text(encoding="utf-8") for name in ("performance.md", "design/measurements.md", "tiles.md")
)
WORDS = " ".join(SERIES.split())
ZEN5, ONE_THREAD, XEON = "zen5_f32.csv", "zen5_f32_1thread.csv", "xeon_f32.csv"
BF16, XEON_BF16, F16 = "zen4_bf16.csv", "xeon_bf16.csv", "zen5_f16.csv"


def rows_of(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / name).read_text(encoding="utf-8").splitlines()))


# -- performance.md, design/measurements.md ----------------------------------------------------------------------------


def test_ranges_by_type_are_of_the_committed_runs(tables_of: Callable[..., Tables]) -> None:
    tables = tables_of(BF16)
    for words, passes in (("weight gradients", ["BWD_W"]), ("forward passes and data gradients", ["FWD_D", "BWD_D"])):
        keys = itertools.product(["bf16"], ["resnet50", "dense"], passes, ["NXC"])
        means = [cell(tables, *key).split(",")[0] for key in keys]
        assert f"| bf16, {words} | {min(means)} to {max(means)} |" in PAGE
    tables = tables_of(F16)
    means = [float(cell(tables, *key).split(",")[0]) for key in tables if key[3] == "NXC"]
    assert f"| f16, all passes | {min(means):.1f} to {max(means):.1f} |" in PAGE


def test_dense_layers_gain_by_bf16_as_the_page_says() -> None:
    of_f32, of_bf16 = (
        {(row["name"], row["direction"]): float(row["convgrad_ms"]) for row in rows_of(name)
         if (row["suite"], row["layout"]) == ("dense", "NXC")}
        for name in (RUN, BF16)
    )  # fmt: skip
    gains = {way: geometric_mean(of_f32[key] / of_bf16[key] for key in of_f32 if key[1] == way) for way in PASSES}
    words = " ".join(PAGE.split())
    assert f"are {gains['FWD_D']:.1f} times as fast in bf16 as in f32 on Zen 4, and" in words
    assert f"and weight gradients {gains['BWD_W']:.1f} times." in words


def test_bf16_with_amx_is_as_the_page_says(tables_of: Callable[..., Tables]) -> None:
    tables, words = tables_of(XEON_BF16), " ".join(PAGE.split())
    forward, data, weights = (cell(tables, "bf16", "dense", direction, "NXC").split(",")[0] for direction in PASSES)
    means = f"{forward} for forward passes, {data} for data gradients and {weights} for weight gradients"
    assert f"mean ratios of dense layers are {means}" in words
    for before, state in (("On one thread, the ratios", "fast"), ("They", "slow")):
        rows = [(row["direction"], float(row["ratio"])) for row in rows_of("shared_core.csv") if row["state"] == state]
        means = [f"{geometric_mean(ratio for name, ratio in rows if name == direction):.2f}" for direction in PASSES]
        assert f"{before} are {means[0]}, {means[1]} and {means[2]} while tiles are {state}." in words


def test_predictions_are_counted() -> None:
    for name in (ZEN5, XEON):
        shares = [float(row["predicted_ms"]) / float(row["convgrad_ms"]) for row in rows_of(name)]
        near = sum(1 / 1.5 <= share <= 1.5 for share in shares)
        assert f"In `{name}`, {near} of {len(shares)} predictions are" in WORDS


def test_shares_of_slower_rows() -> None:
    ratios = [float(row["torch_ratio"]) for row in rows_of(RUN)]
    slower, far = (sum(ratio < limit for ratio in ratios) / len(ratios) for limit in (1, 0.9))
    words = " ".join(PAGE.split())
    assert f"over {len(ratios):,} combinations of layer, pass and layout is {geometric_mean(ratios):.2f}." in words
    assert f"However, {slower:.0%}".replace("%", " %") + " of them are slower than PyTorch" in words
    assert f"and {far:.0%}".replace("%", " %") + " have a ratio below 0.9." in words


def test_times_of_small_calls() -> None:
    rows = [row for row in rows_of("small_calls.csv") if row["threads"] == "1"]
    times = {form: [float(row["us"]) for row in rows if row["form"] == form] for form in ("function", "compiled")}
    times["torch"] = [float(row["torch_us"]) for row in rows]
    named = {"a function,": "function", "a call that": "compiled", "PyTorch": "torch"}
    for start, kind in named.items():
        (cell,) = re.findall(rf"(?m)^\| {re.escape(start)}.*\| ([\d.]+ to [\d.]+) \|$", PAGE + "\n")
        assert cell == f"{min(times[kind]):.2f} to {max(times[kind]):.2f}", kind


def test_worst_and_best_training_steps() -> None:
    rows = [row for row in rows_of("torch_steps.csv") if row["format"] == "contiguous"]
    ratios = {row["network"]: float(row["convgrad_ratio"]) for row in rows}
    worst, best = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    faster = [float(row["max_error_64_ratio"]) for row in rows]
    words = f"from {ratios[worst]:.2f} ({worst}) to {ratios[best]:.2f} ({best}) by default"
    assert f"{words}, and from {min(faster):.2f} to {max(faster):.2f} with" in " ".join(PAGE.split())


def test_costs_of_arrays_parts_and_pauses() -> None:
    words = []
    for library in ("torch", "jax"):
        more = [float(row["more_us"]) for row in rows_of("tensors.csv") if row["library"] == library]
        words.append(f"{min(more):.1f} to {max(more):.1f}")
    assert f"PyTorch tensors add {words[0]} microseconds to a call, and JAX arrays {words[1]} (" in WORDS
    parts = {
        count: f"{median(float(row['ratio']) for row in rows_of('partials.csv') if row['pieces'] == count):.2f} times"
        for count in ("2", "16")
    }
    assert f"take {parts['2']} as long as a plain call for 2 parts, and {parts['16']} for 16" in WORDS
    idle = [row for row in rows_of("after_a_rest.csv") if row["busy"] == "0"]
    ratios = [[float(row["ratio"]) for row in idle if row["gap_ms"] == gap] for gap in ("0", "20")]
    at_once, after = (f"{min(each):.2f} to {max(each):.2f} times" for each in ratios)
    assert f"two threads take {at_once} as long as one, but {after} after pauses of 20 ms" in WORDS
    shares = []
    for name in ("after_a_rest_zen4.csv", "after_a_rest_zen4_calibrated.csv"):
        of_layer = [row for row in rows_of(name) if row["layer"] == "depthwise 4x56x56x144" and row["gap_ms"] != "0"]
        shares.append(100 * max(float(row["slow"]) for row in of_layer))
    assert f"These are up to {shares[0]:.0f} % of calls (`" in WORDS
    assert f"After `convgrad calibrate`, up to {shares[1]:.1f} % are slow (`" in WORDS


CLIFFS = ("cliffs_f32.csv", "cliffs_forward_f32.csv", "cliffs_data_gradient_f32.csv")


def steps_above(name: str, limit: float = 3.0) -> dict[tuple[str, str], str]:
    """Return the larger steps between neighbours of a sweep; sweeps of groups are judged by their first point."""
    rows = [row for row in rows_of(name) if not row["sweep"].startswith("groups_of")]
    found = {}
    for one, other in itertools.pairwise(rows):
        before, after = (float(row["ns_per_multiply_add"]) for row in (one, other))
        step = max(before / after, after / before)
        if one["sweep"] == other["sweep"] and step > limit:
            found[one["sweep"], f"{one['number']} to {other['number']}"] = f"{step:.1f}"
    return found


def test_cliffs_are_those_of_the_committed_runs() -> None:
    shown = re.findall(r"^\| `(\w+)` \| (\d+ to \d+) \| (.*?) \| (.*?) \| (.*?) \|", SERIES, re.MULTILINE)
    assert len(shown) > 5
    for column, name in enumerate(CLIFFS, 2):
        assert {row[:2]: row[column] for row in shown if row[column] != "-"} == steps_above(name), name


@pytest.mark.parametrize(
    ("file", "processor"),
    [
        ("torch_steps_xeon.csv", "Intel Xeon with AMX, older kernels"),
        ("torch_steps.csv", "AMD EPYC (Zen 5)"),
        ("torch_steps_zen4.csv", "AMD EPYC (Zen 4)"),
    ],
)
def test_training_steps_are_those_of_the_committed_runs(file: str, processor: str) -> None:
    columns = [f"{name}_ratio" for name in ("convgrad", "max_error_64")]
    lines: dict[str, list[str]] = {}
    own: dict[str, list[float]] = {}
    all_ratios: dict[str, list[list[float]]] = {}
    for row in rows_of(file):
        all_ratios.setdefault(row["format"], []).append([float(row[column]) for column in columns])
        lines.setdefault(row["network"], []).extend(f"{float(row[column]):.2f}" for column in columns)
        own.setdefault(row["format"], []).append(float(row["own_threads_ratio"]))
    assert len(lines) == (15 if "zen4" in file else 9)
    if file == "torch_steps.csv":  # only means of the others are on the pages
        assert "\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in lines.items()) in SERIES
    means = {memory_format: f"{geometric_mean(ratios):.2f}" for memory_format, ratios in own.items()}
    assert f"the means are {means['contiguous']} (contiguous) and {means['channels_last']} (channels_last)." in WORDS
    if "zen4" in file:
        low, second = sorted(rows_of(file), key=lambda row: float(row["convgrad_ratio"]))[:2]
        words = [f"{float(row['convgrad_ratio']):.2f} ({row['network']})" for row in (low, second)]
        assert f"the smallest ratios on PyTorch's threads are {' and '.join(words)}, both in {low['format']}" in WORDS
        assert low["format"] == second["format"]
    cells = [f"{geometric_mean(column):.2f}" for ratios in all_ratios.values() for column in zip(*ratios, strict=True)]
    assert list(all_ratios) == ["contiguous", "channels_last"]
    assert f"| {processor} | {' | '.join(cells)} |" in PAGE


Tables = dict[tuple[str, ...], dict[str, dict[str, float]]]


@pytest.fixture
def tables_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tables]:
    """Figures of the layers in CSV files, by type, suite, direction and layout."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    program: Any = __import__("summary")
    keys = ("type", "suite", "direction", "layout")
    return lambda *names: program.merged(program.read([RESULTS / name for name in names], ""), keys)


def cell(tables: Tables, *key: str) -> str:
    """Return the mean to PyTorch, then the smallest ratio with its layer."""
    ratios = {name: row["torch_ratio"] for name, row in tables.get(key, {}).items() if "torch_ratio" in row}
    slowest = min(ratios, key=lambda name: ratios[name], default="")
    return f"{geometric_mean(ratios.values()):.2f}, {ratios[slowest]:.2f} ({slowest})" if ratios else "-"


def pairs(cells: Iterable[str]) -> str:
    """Return the cells of a row, each of which has the ratios with channels last and first."""
    return " | ".join(map(", ".join, zip(*[iter(cells)] * 2, strict=True)))


RUNS = {
    "f32, Zen 4": RUN,
    "bf16, Zen 4": BF16,
    "f32, Zen 5": ZEN5,
    "f32, Zen 5, one thread": ONE_THREAD,
    "f16, Zen 5": F16,
    "f32, Xeon with AMX": XEON,
    "bf16, Xeon with AMX": XEON_BF16,
}


def ratios_of(tables: Tables) -> list[tuple[float, str, str, str, str]]:
    """Return ratio, layer, suite, pass and layout of each layer of a run."""
    return [
        (row["torch_ratio"], layer, suite, way, layout)
        for (_, suite, way, layout), rows in tables.items()
        for layer, row in rows.items()
        if "torch_ratio" in row
    ]


def run_rows(tables_of: Callable[..., Tables]) -> list[str]:
    """Return the rows of the table of all runs."""
    lines = []
    for words, name in RUNS.items():
        found = ratios_of(tables_of(name))
        means = [
            geometric_mean(row[0] for row in found if row[3:] == (way, layout))
            for way in PASSES for layout in ("NXC", "NCX")
        ]  # fmt: skip
        slower = sum(row[0] < 1 for row in found) / len(found)
        lines.append(f"| {words} | `{name}` | {pairs(f'{mean:.2f}' for mean in means)} | {100 * slower:.0f} % |")
    return lines


def slow_rows(tables_of: Callable[..., Tables], count: int = 5) -> list[str]:
    """Return the rows of the smallest ratios in bf16."""
    places = {"NXC": "last", "NCX": "first"}
    return [
        f"| {ratio:.2f} | `{layer}` | {suite} | {PASSES[way]} | {places[layout]} |"
        for ratio, layer, suite, way, layout in sorted(ratios_of(tables_of(BF16)))[:count]
    ]


def test_means_of_runs_are_those_of_the_committed_runs(tables_of: Callable[..., Tables]) -> None:
    assert "\n".join(run_rows(tables_of)) in SERIES
    assert "\n".join(slow_rows(tables_of)) in SERIES


def test_means_of_tiles_are_those_of_the_committed_runs(tables_of: Callable[..., Tables]) -> None:
    """The smallest ratio of the suite of 3x3 layers is on the page of measurements."""
    winograd = ("3x3", "tiles", "tiles", "f32"), ("other kernels", "tiles_other", "tiles_other", "f32"), (
        "3x3, bf16", "tiles_bf16", "tiles", "bf16",
    )  # fmt: skip
    direct: list[str] = []
    for title, name, suite, kind in winograd:
        default, tiles = (
            [one.split(",")[0] for one in cells_of(tables_of(f"{name}_{most}.csv"), kind, suite)] for most in (1, 64)
        )
        assert f"| {title} | {pairs(tiles)} |" in SPEED
        direct += default
    assert f"Without `max_error`, these ratios are {min(direct)} to {max(direct)}." in " ".join(SPEED.split())
    smallest = min(row[0] for row in ratios_of(tables_of("tiles_64.csv")))
    assert f"The smallest f32 ratio of a 3x3 layer with `max_error=64` is {smallest:.2f}." in WORDS


def cells_of(tables: Tables, kind: str, suite: str) -> list[str]:
    """Return the cells of a suite: of each pass with channels last, then with channels first."""
    return [cell(tables, kind, suite, way, layout) for way in PASSES for layout in ("NXC", "NCX")]


def test_two_threads_are_compared_with_one() -> None:
    two, one = (
        {
            row["problem"]: float(row["convgrad_ms"]) for row in rows_of(name)
            if row["suite"] in ("resnet50", "dense") and row["direction"] == "BWD_W" and row["layout"] == "NXC"
            and float(row["gflop"]) > 0.1
        }
        for name in (ZEN5, ONE_THREAD)
    )  # fmt: skip
    fast = sum(one[problem] >= 1.8 * two[problem] for problem in two)
    assert f"has {len(two)} f32 weight gradients of `resnet50` and `dense` with more than 50 million" in WORDS
    assert f"With two threads, {fast} of them are at least 1.8 times as fast as with one." in WORDS


@pytest.fixture
def found(tables_of: Callable[..., Tables]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Ratios to PyTorch of layers by name, by class, pass and layout."""
    tables = tables_of(RUN)
    return {
        (name, way, layout): {
            layer: row["torch_ratio"] for layer, row in tables[("f32", suite, way, layout)].items()
        }
        for name, suite in GLANCE.items() for way in PASSES for layout in ("NXC", "NCX")
    }  # fmt: skip


def glance(found: dict[tuple[str, str, str], dict[str, float]]) -> Iterator[str]:
    """Lines of the table by class and pass."""
    for name in GLANCE:
        cells = [found[name, way, layout] for way in PASSES for layout in ("NXC", "NCX")]
        yield f"| {name} | {pairs(f'{geometric_mean(c.values()):.2f}' if c else '-' for c in cells)} |"


def slow(found: dict[tuple[str, str, str], dict[str, float]], count: int = 5) -> Iterator[str]:
    """Lines of the smallest ratios among the slowest layers of each class, pass and layout."""
    places = {"NXC": "last", "NCX": "first"}
    cases = [(min(one.values()), min(one, key=lambda n: one[n]), key) for key, one in found.items() if one]
    for ratio, layer, (name, way, layout) in sorted(cases)[:count]:
        yield f"| {ratio:.2f} | `{layer}` | {name} | {PASSES[way]} | {places[layout]} |"


def test_the_page_has_each_class_and_each_slow_case(found: dict[tuple[str, str, str], dict[str, float]]) -> None:
    assert "\n".join(glance(found)) in PAGE
    assert "\n".join(slow(found)) in PAGE
    assert any(slow(found))


def test_the_words_of_the_chart_are_those_of_the_table(found: dict[tuple[str, str, str], dict[str, float]]) -> None:
    means = {key: geometric_mean(one.values()) for key, one in found.items() if one}
    best = max(means["depthwise", "BWD_W", layout] for layout in ("NXC", "NCX"))
    words = " ".join(PAGE.split())
    assert f"Weight gradients reach {best:.2f} for depthwise layers." in words
    assert f"The smallest ratio is {min(means.values()):.2f}." in words


def test_contiguous_tensors_are_compared_with_channels_first() -> None:
    """The table of the page, from PyTorch's time on contiguous tensors."""
    lines = re.findall(r"^\| ([\w ,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    assert len(lines) == 4
    for name, *cells in lines:
        for direction, cell in zip(PASSES, cells, strict=True):
            ratios = [
                float(row["torch_nchw_ms"]) / float(row["convgrad_ms"])
                for row in rows_of(RUN)
                if (row["suite"], row["direction"], row["layout"]) == (GLANCE[name], direction, "NCX")
            ]
            assert cell == f"{geometric_mean(ratios):.2f}", (name, direction)


def test_the_chart_has_the_ratios_of_the_table(found: dict[tuple[str, str, str], dict[str, float]]) -> None:
    assert class_chart.ratios() == found


def test_the_words_of_the_roofline_are_those_of_its_run() -> None:
    rows = roofline_picture.layers()
    peak = float(rows[0]["fma_gflops"])
    dense = [row for row in rows if 1e3 * float(row["needed_gflop"]) > 60 * float(row["mbytes"])]
    near = sum(1e3 * float(row["needed_gflop"]) > 0.75 * peak * float(row["convgrad_ms"]) for row in dense)
    assert near > len(dense) / 2
    assert f"A roofline of {len(rows)} forward passes." in PAGE
    assert f"exceed three quarters of the peak of {peak:.0f} GFLOP/s." in PAGE


def test_sizes_that_are_powers_of_two() -> None:
    rows = rows_of("strides.csv")
    for column, words in (("ratio", f" of {len(rows)} layers take more"), ("offset_ratio", " layers take more than")):
        ratios = [float(row[column]) for row in rows]
        assert f"{sum(ratio > 1.15 for ratio in ratios)}{words}" in WORDS
        assert f"at most {max(ratios):.2f} times" in WORDS


def test_layers_in_pairs_are_those_of_the_committed_runs() -> None:
    panels = {(row["what"], row["of"]): (int(row["pairs"]), int(row["single"])) for row in rows_of("pairs_digits.csv")}
    training = [count for (what, _), count in panels.items() if what.startswith("training")]
    assert {single for _, single in training} == {0}
    count = sum(pairs for pairs, _ in training)
    assert f"In 4 epochs of a small network, all {count} panels were computed in pairs (" in WORDS
    alike, converted = ([float(row[f"{name}_of_f32"]) for row in rows_of("pairs.csv")] for name in ("pairs", "single"))
    assert f"layers that use pairs are {min(alike):.2f} to {max(alike):.2f} times as fast as in f32" in WORDS
    words = f"{min(converted):.2f} to {max(converted):.2f} times as fast as f32"
    assert f"allows pairs, bf16 is {words}, with a mean of {geometric_mean(converted):.1f}." in WORDS


# -- tiles.md ----------------------------------------------------------------------------------------------------------


def test_errors_of_tiles_are_as_the_page_says() -> None:
    rows = {(row["role"], row["layer"], row["way"]): float(row["largest"]) for row in rows_of("tiles_errors.csv")}
    for role in ("weight gradient", "forward", "data gradient"):
        for wanted, least, most in (("2x2", 0.7, 1.4), ("4x4", 4, 7)):
            found = [rows[key] / rows[role, key[1], "direct"] for key in rows if key[::2] == (role, wanted)]
            assert len(found) > 8
            assert least < geometric_mean(found) < most


def test_the_training_is_that_of_the_committed_run() -> None:
    rows, times = rows_of("tiles_training.csv"), {}
    for network in ("digits", "resnet"):
        for most in ("1", "8", "64"):
            same = [row for row in rows if (row["network"], row["max_error"]) == (network, most)]
            loss, ms = sum(float(row["loss"]) for row in same[-20:]) / 20, median(float(row["ms"]) for row in same)
            assert f"{loss:.3f} for {network}" in " ".join(SPEED.split())
            times[network, most] = ms
    less = 100 * (1 - times["resnet", "64"] / times["resnet", "1"])
    assert f"a step of resnet takes {less:.0f} % less time" in " ".join(SPEED.split())
