"""The roofline of forwards with few channels, from a committed run: python -m tests.docs.roofline_picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import atan, degrees, log10

from tests.docs.class_chart import RUN
from tests.docs.svg import AT_NIGHT, INK, LINE, WIDTH, line, picture, words
from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results" / RUN
PICTURE = DOCS / "pictures" / "roofline.svg"
SUITES = {  # by suite: its name on the page, and its colours by day and by night
    "depthwise": ("depthwise", "#b3412e", "#ff9a86"),
    "thin": ("1 to 4 channels", "#2f6fb5", "#6cb0f5"),
    "grouped": ("grouped", "#d98a1f", "#f2b45c"),
    "one_d": ("1-D", "#3f8f4f", "#7fce8a"),
    "three_d": ("3-D", "#7a4fa3", "#c9a5ee"),
}
LABELS = {  # by layer: where the label is from the point, and its anchor
    "to_mask_1x1": (9, 4, "start"),
    "3x3_s2_96_112": (9, 8, "start"),
    "long_row_1m": (9, 7, "start"),
    "resnext_8_s2_56": (9, 13, "start"),
    "31x31_64_28": (9, 10, "start"),
    "long_kernel_1024": (-2, 18, "end"),
}
LEFT, RIGHT, TOP, FOOT = 50, WIDTH - 14, 84, 386
LOW, HIGH = (0.3, 10), (2500, 800)  # of the axes: operations per byte, GFLOP/s


def across(intensity: float) -> float:
    return LEFT + (RIGHT - LEFT) * log10(intensity / LOW[0]) / log10(HIGH[0] / LOW[0])


def up(rate: float) -> float:
    return FOOT - (FOOT - TOP) * log10(rate / LOW[1]) / log10(HIGH[1] / LOW[1])


def axes() -> list[str]:
    parts = []
    for intensity in (1, 10, 100, 1000):
        parts += [line(across(intensity), TOP, across(intensity), FOOT, LINE, 0.4)]
        parts += [words(across(intensity), FOOT + 14, f"{intensity}", size=13)]
    for rate in (10, 30, 100, 300):
        parts += [line(LEFT, up(rate), RIGHT, up(rate), LINE, 0.4)]
        parts += [words(LEFT - 6, up(rate), f"{rate}", "end", size=13)]
    parts += [words((LEFT + RIGHT) / 2, FOOT + 36, "multiplications and additions per byte", size=13)]
    return [*parts, words(8, TOP - 14, "GFLOP/s", "start", size=13)]


def roofs(run: dict[str, str]) -> list[str]:
    """Draw the peak, and the speed of the third-level cache and of the memory below it."""
    peak = float(run["fma_gflops"])
    parts = [words(RIGHT, up(peak) - 12, f"peak: {peak:.0f} GFLOP/s", "end", size=13, bold=True)]
    speeds = float(run["L3_gbs"]), float(run["memory_gbs"])
    parts += [line(across(peak / speeds[0]), up(peak), RIGHT, up(peak), INK, 2)]
    for name, speed, place in (("L3", speeds[0], 0.7), ("memory", speeds[1], 0.55)):
        start = max(LOW[0], LOW[1] / speed)
        parts += [line(across(start), up(start * speed), across(peak / speed), up(peak), INK, 2)]
        slope = (up(peak) - up(start * speed)) / (across(peak / speed) - across(start))
        x, y = across(place), up(place * speed)
        parts += [turned(x - 5, y - 10, f"{name}: {speed:.0f} GB/s", slope)]
    return parts


def turned(x: float, y: float, text: str, slope: float) -> str:
    """Return a text along a line of this slope."""

    return f'<g transform="rotate({degrees(atan(slope)):.1f} {x:.1f} {y:.1f})">{words(x, y, text, size=13)}</g>'


def points(rows: Sequence[dict[str, str]]) -> list[str]:
    parts = []
    for row in rows:
        operations = float(row["needed_gflop"])
        x, y = across(1e3 * operations / float(row["mbytes"])), up(1e3 * operations / float(row["convgrad_ms"]))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{SUITES[row["suite"]][1]}" fill-opacity="0.85"/>']
        if row["name"] in LABELS:
            right, down, anchor = LABELS[row["name"]]
            parts += [words(round(x + right, 1), round(y + down, 1), row["name"], anchor, size=12)]
    return parts


def layers() -> list[dict[str, str]]:
    """Return the rows of the picture's layers."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = {
            row["name"]: row for row in csv.DictReader(file)
            if row["suite"] in SUITES and (row["layout"], row["direction"]) == ("NXC", "FWD_D")
        }  # fmt: skip
    return list(rows.values())


def drawing() -> str:
    """Return the picture: a point per layer, below the roofs that its run measured."""
    rows, parts = layers(), []
    for at, (name, fill, _) in enumerate(SUITES.values()):
        x, y = 8 + 130 * (at % 3), 16 + 22 * (at // 3)
        parts += [f'<circle cx="{x + 6}" cy="{y}" r="5" fill="{fill}"/>', words(x + 18, y, name, "start", size=13)]
    parts += [*axes(), *roofs(rows[0]), *points(rows)]
    colours = {**AT_NIGHT, **{day: dark for _, day, dark in SUITES.values()}}
    return picture("Roofline of forwards with few channels, with 1 and 3 axes or in groups", FOOT + 50, parts, colours)


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
