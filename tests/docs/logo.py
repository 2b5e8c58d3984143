"""The project's logo, a 3x3 filter with a gradient's arrow, and the icon of the site: python -m tests.docs.logo."""

from __future__ import annotations

from tests.support.places import DOCS

LOGO, ICON = DOCS / "_static" / "logo.svg", DOCS / "_static" / "icon.svg"
FILLS = ("#bcdcf7", "#86bdec", "#5297d3", "#2c71b3", "#184f86")  # of cells, along the diagonal
NIGHT = ("#d6eafc", "#a3d0f6", "#6fb1ec", "#4691d8", "#2f74ba")
ARROW, ARROW_NIGHT, EDGE, EDGE_NIGHT = "#e0701a", "#ff9a45", "#ffffff", "#131416"
SIZE, CELL, GAP = 96, 28, 3


def mark(icon: bool) -> str:
    """Return the mark: cells from light to dark, and an arrow back from the last to the first."""
    start = (SIZE - 3 * CELL - 2 * GAP) / 2
    cells = []
    for row in range(3):
        for column in range(3):
            x, y = start + column * (CELL + GAP), start + row * (CELL + GAP)
            box = f'x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" rx="5"'
            cells.append(f'<rect {box} class="c{row + column}"/>')
    thick = 11 if icon else 8
    arrow = "M 80 80 L 24 24 M 24 50 L 24 24 L 50 24"
    rules = [f".c{at} {{ fill: {fill} }}" for at, fill in enumerate(FILLS)]
    rules += [f".arrow {{ stroke: {ARROW} }} .edge {{ stroke: {EDGE} }}"]
    dark = [f".c{at} {{ fill: {fill} }}" for at, fill in enumerate(NIGHT)]
    dark += [f".arrow {{ stroke: {ARROW_NIGHT} }} .edge {{ stroke: {EDGE_NIGHT} }}"]
    style = "\n".join([*rules, "@media (prefers-color-scheme: dark) {", *dark, "}"])
    shape = f'd="{arrow}" fill="none" stroke-linecap="round" stroke-linejoin="round"'
    size = f'viewBox="0 0 {SIZE} {SIZE}" width="{SIZE}" height="{SIZE}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>convgrad</title><style>{style}</style>",
        *cells,
        f'<path {shape} class="edge" stroke-width="{thick + 6}"/>',
        f'<path {shape} class="arrow" stroke-width="{thick}"/>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in (LOGO, ICON):
        path.write_text(mark(path == ICON), encoding="utf-8")
