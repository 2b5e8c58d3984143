"""The figures of the page on GPUs are those of the committed runs."""

from __future__ import annotations

import csv
from statistics import geometric_mean

from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results"
PASSES = {"FWD_D": "forward", "BWD_D": "data gradient", "BWD_W": "weight gradient"}
PAGE = (DOCS / "gpu.md").read_text(encoding="utf-8")


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def speed_rows() -> list[str]:
    """Return the rows of the table of speeds: means and extremes of ratios."""
    rows, lines = rows_of("cuda_layers.csv"), []
    for direction, words in PASSES.items():
        cells = [words]
        for layout in ("NXC", "NCX"):
            some = [row for row in rows if (row["pass"], row["layout"]) == (direction, layout)]
            ratios = [float(row["ratio"]) for row in some]
            cells.append(f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def test_speeds() -> None:
    for line in speed_rows():
        assert line in PAGE, line


def test_compared_bits() -> None:
    rows = rows_of("cuda_bits.csv")
    problems, wrong, left = (sum(int(row[name]) for row in rows) for name in ("problems", "wrong", "not_computed"))
    assert wrong == 0
    assert f"compared {problems:,} results on a GPU with those on a CPU" in " ".join(PAGE.split())
    assert f"Another {left} problems are not supported" in " ".join(PAGE.split())


def test_worst_layer_with_many_channels() -> None:
    """Named with its factor; only the stem, which has three channels, is slower."""
    rows = sorted((float(row["ratio"]), row["layer"], row["pass"]) for row in rows_of("cuda_layers.csv"))
    ratio, layer, direction = next(row for row in rows if row[1] != "stem")
    assert (layer, direction) == ("vgg16_4_2", "BWD_W")
    assert f"positions takes {1 / ratio:.1f} times as long as with cuDNN" in " ".join(PAGE.split())


def test_all_bits_of_the_measured_results_are_those_of_the_cpu() -> None:
    assert {row["same_bits"] for row in rows_of("cuda_layers.csv")} <= {"yes", ""}


def test_outputs_of_batch_norm_differ() -> None:
    rows = [row for row in rows_of("cuda_training.csv") if row["class"] == "BatchNorm2d"]
    assert "0" not in {row["different"] for row in rows if row["what"].startswith("output")}


def test_convolutions_alone_have_equal_bits() -> None:
    rows = rows_of("cuda_training.csv")
    alone = [row["different"] for row in rows if row["class"] == "Conv2d" and row["what"].startswith("alone")]
    assert set(alone) == {"0"}
    assert f"All {len(alone)} results and gradients of convolutions" in " ".join(PAGE.split())
