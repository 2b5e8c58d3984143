"""Print what runs of ``convgrad bench`` say together, as a Markdown table; runs of one problem count by their median.

python benchmarks/summary.py benchmarks/results/zen4_f32.csv
python benchmarks/summary.py --by-class benchmarks/results/zen4_f32.csv
python benchmarks/summary.py --by-suite --only "kh3.*" run1.csv run2.csv run3.csv
python benchmarks/summary.py --by-pass benchmarks/results/zen4_f32.csv
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median

Row = dict[str, float]
Tables = dict[tuple[str, ...], dict[str, Row]]
FIGURES = ("torch_ratio", "share_of_peak", "share_of_existing", "share_of_floor", "convgrad_ms", "predicted_ms")


def read(paths: Iterable[Path], only: str) -> list[dict[str, str]]:
    """Return the rows of all files whose problem a regular expression is found in, as they stand there.

    "share_of_existing" is added where the file has what it takes: the share of peak, counting existing taps only.
    """
    lines = [path.read_text().splitlines() for path in paths]
    found = [row for one in lines for row in csv.DictReader(one) if re.search(only, row["problem"])]
    for row in found:
        if row.get("needed_gflop"):
            share = float(row["share_of_peak"]) * float(row["needed_gflop"]) / float(row["gflop"])
            row["share_of_existing"] = str(share)
    return found


def merged(rows: Iterable[Mapping[str, str]], by: Sequence[str]) -> Tables:
    """Return figures by the columns named and by the layer's name, each the median over all rows, if all have it."""
    found: dict[tuple[str, ...], dict[str, list[Mapping[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[tuple(row[column] for column in by)][row["name"]].append(row)
    return {
        key: {
            name: {f: median(float(row[f]) for row in same) for f in FIGURES if all(row.get(f) for row in same)}
            for name, same in by_name.items()
        }
        for key, by_name in found.items()
    }


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table, without the columns that have nothing on any line."""
    columns = [column for column in zip(heads, *lines, strict=True) if any(column[1:])]
    rows = [f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True)]
    return [rows[0], "|" + "---|" * len(columns), *rows[1:]]


def mean_and_worst(shares: Mapping[str, float]) -> tuple[str, str]:
    """Return a geometric mean and the smallest with its name; nothing of none."""
    if not shares:
        return "", ""
    worst = min(shares, key=lambda name: shares[name])
    return f"{geometric_mean(shares.values()):.2f}", f"{shares[worst]:.2f} ({worst})"


def figure(rows: Mapping[str, Row], column: str) -> dict[str, float]:
    """Return a figure by name, of the rows that have it."""
    return {name: row[column] for name, row in rows.items() if column in row}


def of_f32(rows: Mapping[str, Row], f32: Mapping[str, Row]) -> dict[str, float]:
    """Return f32's time over that of rows of another type, by name."""
    return {name: f32[name]["convgrad_ms"] / row["convgrad_ms"] for name, row in rows.items() if name in f32}


def within(rows: Iterable[Mapping[str, float]]) -> str:
    """Return how many predicted times are within a factor of 2."""
    right = [0.5 <= row["predicted_ms"] / row["convgrad_ms"] <= 2 for row in rows if "predicted_ms" in row]
    return f"{sum(right)} of {len(right)}"


# -- the tables --------------------------------------------------------------------------------------------------------


def by_type(rows: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a table of one type and layout a line."""
    tables = merged(rows, ("type", "layout"))
    heads = ("type, layout", "layers", "to PyTorch", "slowest", "of peak", "of own f32", "predicted within 2x")
    lines = []
    for (type_name, layout), layers in sorted(tables.items()):
        own, _ = mean_and_worst({} if type_name == "f32" else of_f32(layers, tables.get(("f32", layout), {})))
        of_peak, _ = mean_and_worst(figure(layers, "share_of_peak"))
        ratios = mean_and_worst(figure(layers, "torch_ratio"))
        lines.append((f"{type_name} {layout}", str(len(layers)), *ratios, of_peak, own, within(layers.values())))
    return table(heads, lines)


def by_class(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a table of one class of layers a line: the suites, and the 1x1 layers of the first two."""
    heads = ("class", "type, layout", "layers", "to PyTorch", "slowest", "of the floor", "predicted within 2x")
    classes = {"1x1": lambda r: r["suite"] in ("resnet50", "dense") and re.search(r"kh1(sh|ph|n)", r["problem"])}
    for suite in dict.fromkeys(r["suite"] for r in rows):
        classes[suite] = lambda r, suite=suite: r["suite"] == suite
    lines = []
    for name, belongs in classes.items():
        for key, layers in merged(filter(belongs, rows), ("type", "layout")).items():
            floor, _ = mean_and_worst(figure(layers, "share_of_floor"))
            ratios = mean_and_worst(figure(layers, "torch_ratio"))
            lines.append((name, " ".join(key), str(len(layers)), *ratios, floor, within(layers.values())))
    return table(heads, lines)


def by_suite(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a table of one direction, layout, type and suite a line; multiply-adds are those of existing taps."""
    if not all("share_of_existing" in row for row in rows):
        sys.exit("--by-suite needs runs with the column needed_gflop; make them again")
    tables = merged(rows, ("direction", "layout", "type", "suite"))
    own = ("of own f32", "slowest")
    heads = ("direction, layout, type", "suite", "layers", "to PyTorch", "slowest", "of peak", "lowest", *own)
    lines = []
    for (direction, layout, type_name, suite), layers in sorted(tables.items(), key=lambda item: item[0][:3]):
        f32 = {} if type_name == "f32" else tables.get((direction, layout, "f32", suite), {})
        shares = (figure(layers, "torch_ratio"), figure(layers, "share_of_existing"), of_f32(layers, f32))
        cells = [cell for share in shares for cell in mean_and_worst(share)]
        lines.append((f"{direction} {layout} {type_name}", suite, str(len(layers)), *cells))
    return table(heads, lines)


def by_pass(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a table with one row per pass and suite: the slowest layer and the shares of the peak in both layouts.

    Runs without the column needed_gflop have shares of the floor instead.
    """
    counted = all("share_of_existing" in row for row in rows)
    share, of = ("share_of_existing", "of peak") if counted else ("share_of_floor", "of the floor")
    tables = merged(rows, ("direction", "suite", "layout"))
    heads = ("pass", "suite", *(head for layout in ("NXC", "NCX") for head in (f"{layout}, slowest", of, "lowest")))
    lines = []
    for direction, suite in sorted(dict.fromkeys(key[:2] for key in tables), key=lambda key: key[0]):
        cells = []
        for layout in ("NXC", "NCX"):
            layers = tables.get((direction, suite, layout), {})
            cells += [mean_and_worst(figure(layers, "torch_ratio"))[1], *mean_and_worst(figure(layers, share))]
        lines.append((direction, suite, *cells))
    return table(heads, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what runs of convgrad bench say together.")
    parser.add_argument("runs", type=Path, nargs="+", metavar="CSV")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose problem it is found in")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--by-class", dest="way", action="store_const", const=by_class, help="suites, and 1x1 layers")
    ways.add_argument("--by-suite", dest="way", action="store_const", const=by_suite, help="directions and suites")
    ways.add_argument("--by-pass", dest="way", action="store_const", const=by_pass, help="both layouts in one row")
    options = parser.parse_args()
    print("\n".join((options.way or by_type)(read(options.runs, options.only))))


if __name__ == "__main__":
    main()
