"""The chart of training steps, drawn from their CSV: python -m tests.docs.steps_chart."""

from __future__ import annotations

import csv
from xml.sax.saxutils import escape

from tests.support.places import BENCHMARKS, DOCS

RESULTS = BENCHMARKS / "results" / "torch_steps.csv"
PICTURE = DOCS / "pictures" / "steps.svg"
BARS = {"convgrad_ratio": ("convgrad", "plain"), "max_error_64_ratio": ("convgrad, max_error=64", "fast")}
LEFT, UNIT, BAR, GAP, TOP = (
    120,
    190,
    13,
    12,
    58,
)  # pixels: of names, of a ratio of 1, of a bar, between networks, of the head
LABEL = 40  # pixels: the width of a label
STYLE = """
  text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2328 }
  .plain { fill: #2f6fb5 } .fast { fill: #d98a1f } .one { stroke: #59636e; stroke-dasharray: 4 3 }
  .ground { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .plain { fill: #6cb0f5 } .fast { fill: #f2b45c } .one { stroke: #9198a1 }
    .ground { fill: #16181c }
  }
"""


def chart() -> str:
    """Return the picture: how many times as fast as PyTorch's each network's training step is, in contiguous format."""
    with RESULTS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["format"] == "contiguous"]
    width, step = LEFT + int(2.3 * UNIT) + 50, len(BARS) * BAR + GAP
    height, run = TOP + step * len(rows) + 10, rows[0]
    where = f"{run['torch'].split('+')[0]} ({run['processor']}, {run['threads']} threads)"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>Speed of a training step compared with PyTorch {escape(where)}</title><style>{STYLE}</style>",
        f'<rect class="ground" width="{width}" height="{height}"/>',
        text(LEFT + UNIT, TOP - 8, "PyTorch = 1", "middle"),
    ]
    for at, (name, kind) in enumerate(BARS.values()):
        lines += [bar(LEFT + 170 * at, 8, 12, kind), text(LEFT + 170 * at + 18, 18, name)]
    one = LEFT + UNIT
    for at, row in enumerate(rows):
        y = TOP + at * step
        lines.append(text(LEFT - 8, y + BAR + 4, row["network"], "end"))
        for number, (column, (_, kind)) in enumerate(BARS.items()):
            ratio, top = float(row[column]), y + number * BAR
            end = LEFT + ratio * UNIT
            beyond = one if end < one < end + LABEL else end  # a label is right of the line that it would cross
            lines += [bar(LEFT, top, ratio * UNIT, kind), text(beyond + 6, top + BAR - 3, f"{ratio:.2f}")]
    return (
        "\n".join([*lines, f'<line class="one" x1="{one}" y1="{TOP - 4}" x2="{one}" y2="{height - 10}"/>', "</svg>"])
        + "\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    """Return a line of text; its anchor is at (x, y)."""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'


def bar(x: float, y: float, width: float, kind: str) -> str:
    """Return a bar of a kind in BARS; its upper left corner is (x, y)."""
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BAR - 2}"/>'


if __name__ == "__main__":
    PICTURE.write_text(chart(), encoding="utf-8")
