"""Hashes of one weight gradient by setting and library, from their CSV: python -m tests.docs.same_bits_picture."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence

from tests.docs.svg import AT_NIGHT, PLAIN, QUIET, picture, words
from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results" / "same_bits.csv"
PICTURE = DOCS / "pictures" / "same_bits.svg"
LIBRARIES = {"convgrad": "convgrad", "torch": "PyTorch"}
FILLS = {  # of each hash, in the order of the file: on white, and in a dark variant
    "#9fd8cb": "#1d5a4e", "#f6c177": "#7a4a06", "#e8e3b0": "#565213", "#c7a6e0": "#5b3a78", "#f2a1a1": "#7d2f2f",
    "#a9c8f5": "#1f4a80", "#d9d9d9": "#4a4f57", "#f0b8dc": "#742f5b",
}  # fmt: skip
LEFT, WIDE, HIGH, HEAD, GAP = 166, 46, 25, 62, 14  # pixels: of names, of a cell, of a panel's head, between panels


def rows_of_file() -> list[dict[str, str]]:
    return list(csv.DictReader(RESULTS.read_text(encoding="utf-8").splitlines()))


def panel(library: str, rows: Sequence[Mapping[str, str]], fills: Mapping[str, str], top: float) -> list[str]:
    """Return a library's table: a row per instruction set, layout and cut, a column per number of threads."""
    found = [row for row in rows if row["library"] == library]
    threads = list(dict.fromkeys(row["threads"] for row in found))
    settings = list(dict.fromkeys((row["isa"], row["layout"], row["batch"]) for row in found))
    count = len({row["sha256"] for row in found})
    results = "one result" if count == 1 else f"{count} different results"
    parts = [words(8, top + 14, f"{LIBRARIES[library]}: {results}", "start", size=16, bold=True)]
    parts += [words(LEFT - 10, top + 44, "threads", "end", size=13, ink=QUIET)]
    parts += [words(LEFT + (at + 0.5) * WIDE, top + 44, name, size=13, ink=QUIET) for at, name in enumerate(threads)]
    for at, (isa, layout, cut) in enumerate(settings):
        name = f"{isa}, {layout}" if cut == "whole" else f"batch as {cut}"
        parts.append(words(LEFT - 10, top + HEAD + (at + 0.5) * HIGH, name, "end", size=12))
    for row in found:
        x = LEFT + threads.index(row["threads"]) * WIDE
        y = top + HEAD + settings.index((row["isa"], row["layout"], row["batch"])) * HIGH
        box = f'x="{x}" y="{y:g}" width="{WIDE}" height="{HIGH}"'
        parts.append(f'<rect {box} fill="{fills[row["sha256"]]}" stroke="{PLAIN}" stroke-width="2"/>')
        parts.append(words(x + WIDE / 2, y + HIGH / 2, row["sha256"][:4], size=13))
    return parts


def drawing() -> str:
    """Return the picture: one table above the other, so that a phone shows both."""
    rows = rows_of_file()
    fills = dict(zip(dict.fromkeys(row["sha256"] for row in rows), FILLS, strict=True))
    parts, top = [], 8.0
    for library in LIBRARIES:
        parts += panel(library, rows, fills, top)
        lines = {(row["isa"], row["layout"], row["batch"]) for row in rows if row["library"] == library}
        top += HEAD + len(lines) * HIGH + GAP
    return picture("Hashes of one weight gradient by setting and library", top, parts, {**AT_NIGHT, **FILLS})


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
