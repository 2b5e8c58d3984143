"""Print what runs of ``convgrad bench`` say together: medians over runs, by type and layout, as a Markdown table.

python benchmarks/summary.py benchmarks/results/wgrad_f32_run*.csv
python benchmarks/summary.py --by-class benchmarks/results/wgrad_f32_classes.csv
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median

Row = dict[str, float]
FIGURES = ("torch_ratio", "share_of_peak", "share_of_floor", "convgrad_ms", "predicted_ms", "gflop")


def merged(paths: Sequence[Path]) -> dict[tuple[str, ...], dict[str, Row]]:
    """Return figures by (type, layout) and name, each the median over all runs that have it."""
    found: dict[tuple[str, ...], dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                found[row["type"], row["layout"]][row["name"]].append(row)
    return {
        key: {
            name: {f: median(float(row[f]) for row in rows) for f in FIGURES if all(row[f] for row in rows)}
            for name, rows in by_name.items()
        }
        for key, by_name in found.items()
    }


def line(key: Sequence[str], rows: dict[str, Row], f32: dict[str, Row] | None) -> str:
    """Return a line of the table; ``f32`` are the same layers in f32, where this is another type."""
    ratios = {name: row["torch_ratio"] for name, row in rows.items() if "torch_ratio" in row}
    slowest = min(ratios, key=lambda name: ratios[name])
    shares = [row["share_of_peak"] for row in rows.values()]
    within = [0.5 <= row["predicted_ms"] / row["convgrad_ms"] <= 2 for row in rows.values() if "predicted_ms" in row]
    own = "" if f32 is None else f"{geometric_mean(f32[n]['convgrad_ms'] / rows[n]['convgrad_ms'] for n in rows):.2f}"
    cells = (
        " ".join(key),
        str(len(rows)),
        f"{geometric_mean(ratios.values()):.2f}",
        f"{ratios[slowest]:.2f} ({slowest})",
        f"{geometric_mean(shares):.2f}",
        own,
        f"{sum(within)} of {len(within)}",
    )
    return f"| {' | '.join(cells)} |"


def by_class(paths: Sequence[Path]) -> list[str]:
    """Return a table of one class of layers a line: the suites, and the 1x1 layers of the first two."""
    rows = [row for path in paths for row in csv.DictReader(path.open(newline=""))]
    lines = [
        "| class | type, layout | layers | to PyTorch | slowest | of the floor | predicted within 2x |",
        "|---|---|---|---|---|---|---|",
    ]
    classes = {"1x1": lambda r: r["suite"] in ("resnet50", "dense") and re.search(r"kh1(sh|ph|n)", r["problem"])}
    for suite in dict.fromkeys(r["suite"] for r in rows):
        classes[suite] = lambda r, suite=suite: r["suite"] == suite
    for name, belongs in classes.items():
        for key in dict.fromkeys((r["type"], r["layout"]) for r in rows):
            chosen = [r for r in rows if (r["type"], r["layout"]) == key and belongs(r)]
            if not chosen:
                continue
            ratios = {r["name"]: float(r["torch_ratio"]) for r in chosen if r["torch_ratio"]}
            slowest = min(ratios, key=lambda n: ratios[n])
            within = sum(0.5 <= float(r["predicted_ms"]) / float(r["convgrad_ms"]) <= 2 for r in chosen)
            floor = geometric_mean(float(r["share_of_floor"]) for r in chosen)
            lines.append(
                f"| {name} | {' '.join(key)} | {len(chosen)} | {geometric_mean(ratios.values()):.2f} | "
                f"{ratios[slowest]:.2f} ({slowest}) | {floor:.2f} | {within} of {len(chosen)} |"
            )
    return lines


def main() -> None:
    if sys.argv[1] == "--by-class":
        print("\n".join(by_class([Path(path) for path in sys.argv[2:]])))
        return
    tables = merged([Path(path) for path in sys.argv[1:]])
    print("| type, layout | layers | to PyTorch | slowest | of peak | of own f32 | predicted within 2x |")
    print("|---|---|---|---|---|---|---|")
    for key, rows in sorted(tables.items()):
        print(line(key, rows, tables.get(("f32", key[1])) if key[0] != "f32" else None))


if __name__ == "__main__":
    main()
