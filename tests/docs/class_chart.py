"""The chart of ratios to PyTorch by class and pass, from the committed run: python -m tests.docs.class_chart."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from math import log2
from statistics import geometric_mean, median

from tests.docs.svg import AT_NIGHT, INK, LINE, QUIET, line, picture, words
from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results"
PICTURE = DOCS / "pictures" / "classes.svg"
RUN = "zen4_f32.csv"
GLANCE = {  # the suite of each class
    "ResNet-50": "resnet50",
    "VGG, DenseNet, Inception": "dense",
    "1x1": "pointwise",
    "strided": "strided",
    "dilated": "dilated",
    "small images": "small_images",
    "transposed": "transposed",
    "1 to 4 channels on one side": "thin",
    "depthwise": "depthwise",
    "grouped": "grouped",
    "1-D": "one_d",
    "3-D": "three_d",
    "odd shapes": "off_path",
}
PASSES = {"FWD_D": "forward", "BWD_D": "data gradient", "BWD_W": "weight gradient"}
Ratios = Mapping[tuple[str, str, str], Mapping[str, float]]

SHORT = {"VGG, DenseNet, Inception": "VGG and others", "1 to 4 channels on one side": "1 to 4 channels"}
FILLS = {"FWD_D": "#2f6fb5", "BWD_D": "#d98a1f", "BWD_W": "#3f8f4f"}
NIGHT = ("#6cb0f5", "#f2b45c", "#7fce8a")
ONE, OCTAVE, TOP, BAR, GAP = 196, 76, 118, 9, 9  # pixels: of a ratio of 1, per factor of 2, of the head, of bars


@cache
def ratios() -> Ratios:
    """Return the ratio to PyTorch of each layer, by class, pass and layout: the median if there are several runs."""
    found: dict[tuple[str, str, str], dict[str, list[float]]] = {
        (name, way, layout): {} for name in GLANCE for way in PASSES for layout in ("NXC", "NCX")
    }
    names = {suite: name for name, suite in GLANCE.items()}
    for row in csv.DictReader((RESULTS / RUN).read_text(encoding="utf-8").splitlines()):
        layers = found[names[row["suite"]], row["direction"], row["layout"]]
        layers.setdefault(row["name"], []).append(float(row["torch_ratio"]))
    return {key: {name: median(each) for name, each in layers.items()} for key, layers in found.items()}


def at(ratio: float) -> float:
    """Return where a ratio is, from left to right."""
    return ONE + OCTAVE * log2(ratio)


def drawing() -> str:
    """Return the picture: bars from 1 for channels last, and a mark for channels first."""
    found, parts = ratios(), []
    height = len(PASSES) * BAR + GAP
    foot = TOP + len(GLANCE) * height - GAP + 4
    for place, (way, name) in enumerate(PASSES.items()):
        x = 8 + 122 * place
        parts += [f'<rect x="{x}" y="8" width="14" height="14" fill="{FILLS[way]}"/>']
        parts += [words(x + 20, 15, name, "start", size=13)]
    parts += [words(8, 40, "bar: channels last; line: channels first", "start", size=13)]
    parts += [words(ONE - 8, 68, "PyTorch faster", "end", size=13, ink=QUIET)]
    parts += [words(ONE + 8, 68, "convgrad faster", "start", size=13, ink=QUIET)]
    for ratio in (0.5, 1, 2, 4):
        parts += [words(at(ratio), 94, f"{ratio:g}", size=13)]
        parts += [line(at(ratio), 104, at(ratio), foot, INK if ratio == 1 else LINE, 1.5 if ratio == 1 else 0.5)]
    for number, name in enumerate(GLANCE):
        top = TOP + number * height
        parts += [words(8, top + 1.5 * BAR, SHORT.get(name, name), "start", size=13)]
        for place, way in enumerate(PASSES):
            y = top + place * BAR
            last, first = (found[name, way, layout] for layout in ("NXC", "NCX"))
            if last:
                ends = sorted((at(1), at(geometric_mean(last.values()))))
                box = f'x="{ends[0]:.1f}" y="{y}" width="{ends[1] - ends[0]:.1f}" height="{BAR - 1}"'
                parts += [f'<rect {box} fill="{FILLS[way]}"/>']
            if first:
                mark = at(geometric_mean(first.values()))
                parts += [line(mark, y - 0.5, mark, y + BAR - 0.5, INK, 2)]
    colours = {**AT_NIGHT, **dict(zip(FILLS.values(), NIGHT, strict=True))}
    return picture("Speed compared with PyTorch by class and pass", foot + 10, parts, colours)


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
