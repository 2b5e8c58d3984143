"""The errors of a wrong weight gradient by tap and channel: python -m tests.docs.verdict_picture.

The function is the one that docs/read_a_verdict.md checks, and the operands are those of `convgrad verify`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import convgrad
from convgrad.verify import exact
from tests.docs.page_blocks import blocks
from tests.docs.svg import AT_NIGHT, QUIET, picture, words
from tests.support.places import DOCS

PICTURE = DOCS / "pictures" / "wrong_verdict.svg"
LAYER: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
SHAPE, IMAGE = (3, 3, 8, 16), (2, 28, 28)
LIMITS = (0.01, 1, 100, 200)  # of the largest error divided by its bound, from which the next colour starts
FILLS = ("#eef4fb", "#c6dff6", "#fbc48f", "#e8853c", "#b34a00")
NIGHT = ("#1b2733", "#1d4a75", "#8a4b12", "#c9701f", "#ffb066")
TEXTS = ("below 0.01", "0.01 to 1", "1 to 100", "100 to 200", "above 200")
X, Y, WIDE, HIGH = 78, 66, 19.5, 26


def page_functions() -> dict[str, Any]:
    """Return the names that the page's module defines."""
    (module,) = [b.text for b in blocks(DOCS / "read_a_verdict.md") if b.text.startswith("# mine.py\n")]
    names: dict[str, Any] = {}
    exec(module, names)
    return names


def errors() -> np.ndarray:
    """Return the largest error divided by its bound, by tap row, tap column and output channel."""
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal((*IMAGE, channels), np.float32) for channels in (8, 16))
    operator = "ConvolutionBackwardWeights"
    result = page_functions()["lost"](operator, src, diff_dst, SHAPE, **LAYER)
    right = exact(operator, src, diff_dst, SHAPE, **LAYER)
    bound = convgrad.error_bound(operator, src, diff_dst, SHAPE, **LAYER)
    return np.asarray((np.abs(result.astype(np.float64) - right) / bound).max(axis=2))


def drawing() -> str:
    """Return the picture: a row per tap, a column per output channel, a colour per size of the error."""
    found = errors()
    parts = [words(8, 16, "Largest error divided by its bound", "start", size=15, bold=True)]
    parts += [words(X, Y - 26, "output channel", "start", size=13, ink=QUIET)]
    parts += [words(8, Y - 10, "tap", "start", size=13, ink=QUIET)]
    parts += [words(X + (o + 0.5) * WIDE, Y - 10, str(o), size=12, ink=QUIET) for o in range(SHAPE[3])]
    for at, tap in enumerate(np.ndindex(*SHAPE[:2])):
        y = Y + at * HIGH + tap[0] * 6
        parts += [words(8, y + HIGH / 2, f"({tap[0]}, {tap[1]})", "start", size=13)]
        for channel in range(SHAPE[3]):
            fill = FILLS[sum(found[*tap, channel] >= limit for limit in LIMITS)]
            place = f'x="{X + channel * WIDE:g}" y="{y:g}" width="{WIDE - 1:g}" height="{HIGH - 1}"'
            parts += [f'<rect {place} fill="{fill}"/>']
    below = Y + 9 * HIGH + 34
    for at, (text, fill) in enumerate(zip(TEXTS, FILLS, strict=True)):
        inside = at < 2
        x, y = (8, below + 22 * (at + 1)) if inside else (208, below + 22 * (at - 1))
        parts += [f'<rect x="{x}" y="{y - 8}" width="16" height="16" fill="{fill}" stroke="#8a8a8a"/>']
        parts += [words(x + 24, y, text, "start", size=13)]
    parts += [words(8, below, "inside the bound", "start", size=13, bold=True)]
    parts += [words(208, below, "beyond it: wrong", "start", size=13, bold=True)]
    colours = {**AT_NIGHT, **dict(zip(FILLS, NIGHT, strict=True))}
    return picture("Errors of a wrong weight gradient by tap and output channel", below + 84, parts, colours)


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
