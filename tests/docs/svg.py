"""SVG as text: cells with numbers, words, lines and arrows, the same text wherever it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH = 400  # of every picture, in its own units: a phone shows nearly as many
CELL = 44
INK, QUIET, LINE = "#1a1a1a", "#555555", "#8a8a8a"
PLAIN, EMPTY, RESULT = "#ffffff", "#f4f4f4", "#ffffff"
TAPS = ("#c6dff6", "#fde0a8", "#cdebc6")  # what a tap is filled with, in every picture
DARK = ("#1f5f99", "#8f5300", "#2c6b27")  # its lines and words: legible on white
AT_NIGHT = {  # each colour in a dark variant of a picture
    PLAIN: "#16181c",
    EMPTY: "#2a2e35",
    INK: "#f0f2f5",
    QUIET: "#b8bfc8",
    LINE: "#858d97",
    **dict(zip(TAPS, ("#1d4a75", "#6b4a08", "#2a5727"), strict=True)),
    **dict(zip(DARK, ("#7dbaf5", "#f0b357", "#86cf7e"), strict=True)),
}


def number(value: float) -> str:
    """Write a number as people do: a true minus, no .0."""
    return f"{value:g}".replace("-", "−")


def words(
    x: float, y: float, text: str, anchor: str = "middle", size: int = 15, ink: str = INK, bold: bool = False
) -> str:
    """Return a line of text whose middle height is y."""
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x:g}" y="{y + size * 0.35:g}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="{ink}"{weight}>{escape(text)}</text>'


def cell(
    x: float,
    y: float,
    text: str,
    fill: str = PLAIN,
    width: float = CELL,
    thick: bool = False,
    dashed: bool = False,
    size: int = 16,
) -> str:
    """Return a box with a text in its middle; its upper left corner is (x, y)."""
    edge = f'stroke="{INK if thick else LINE}" stroke-width="{2 if thick else 1}"' + ' stroke-dasharray="4 3"' * dashed
    box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{CELL}" fill="{fill}" {edge}/>'
    return box + (words(x + width / 2, y + CELL / 2, text, size=size, bold=thick) if text else "")


def row(
    x: float,
    y: float,
    texts: Sequence[str],
    fills: Sequence[str] | None = None,
    width: float = CELL,
    thick: bool = False,
    size: int = 16,
) -> str:
    """Return cells side by side."""
    fills = fills or [PLAIN] * len(texts)
    pairs = zip(texts, fills, strict=True)
    return "\n".join(
        cell(x + at * width, y, text, fill, width, thick, size=size) for at, (text, fill) in enumerate(pairs)
    )


def line(x: float, y: float, to_x: float, to_y: float, ink: str = LINE, width: float = 2, arrow: bool = False) -> str:
    """Return a straight line, with a head at its end if it is an arrow."""
    ends = f'x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"'
    if not arrow:
        return f'<line {ends} stroke="{ink}" stroke-width="{width:g}"/>'
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    along = (to_x - x) / length, (to_y - y) / length
    back = to_x - 9 * along[0], to_y - 9 * along[1]
    sides = [(back[0] - turn * 4.5 * along[1], back[1] + turn * 4.5 * along[0]) for turn in (1, -1)]
    corners = " ".join(f"{at_x:.1f},{at_y:.1f}" for at_x, at_y in [(to_x, to_y), *sides])
    shaft = f'x1="{x:g}" y1="{y:g}" x2="{back[0]:.1f}" y2="{back[1]:.1f}"'
    return f'<line {shaft} stroke="{ink}" stroke-width="{width:g}"/><polygon points="{corners}" fill="{ink}"/>'


def night(body: str, colours: Mapping[str, str] = AT_NIGHT) -> str:
    """Return the style that replaces the colours of a body where the reader prefers dark pages."""
    rules = [
        f'[{kind}="{day}"] {{ {kind}: {dark} }}'
        for day, dark in colours.items()
        for kind in ("fill", "stroke")
        if f'{kind}="{day}"' in body
    ]
    return "\n".join(["<style>@media (prefers-color-scheme: dark) {", *rules, "}</style>"])


def picture(title: str, height: float, parts: Iterable[str], colours: Mapping[str, str] = AT_NIGHT) -> str:
    """Return a whole SVG file on white, with its subject as its title and with a dark variant."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH * 5 // 4}"'
    head += ' role="img" font-family="system-ui, Helvetica, Arial, sans-serif">'
    ground = f'<rect width="{WIDTH}" height="{height:g}" fill="{PLAIN}"/>'
    body = "\n".join([ground, *parts])
    return "\n".join([head, f"<title>{escape(title)}</title>", night(body, colours), body, "</svg>"]) + "\n"
