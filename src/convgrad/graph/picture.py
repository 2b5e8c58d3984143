"""A graph as a picture: tensors and ops as boxes in rows, arrows from what is read to what is made, and a legend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import Any

from convgrad import pictures
from convgrad.errors import GraphError
from convgrad.graph.graph import Graph
from convgrad.graph.layered import layered
from convgrad.graph.stations import Node, stations
from convgrad.words import printable

LARGEST_PICTURE = 200
LONGEST_WORDS = 40

# All lengths are inches.
APART, MARGIN, PADDING, LINE, POINTS = 0.25, 0.25, 0.07, 0.155, 8
SHORTEST_GAP, STEEPNESS, LONGEST_GAP = 0.36, 0.06, 0.9
TIP, ENTRIES_APART = 0.07, 0.2
DPI, MOST_PIXELS, LONGEST_SIDE_PIXELS = 130, 60_000_000, 30_000

# What a box is: of which fill and edge, how thick and dashed that is, and round or not, so that no colour is needed.
KINDS: Mapping[str, tuple[str, str, float, str, bool]] = {
    "tensor, given": ("#fdf3d8", "#8a6d1d", 0.8, "-", True),
    "tensor between": ("#ffffff", "#666666", 0.8, "-", True),
    "tensor, a result": ("#dcefd8", "#2f6b25", 2.0, "-", True),
    "op that convgrad runs": ("#cfe3f5", "#1f4e79", 0.8, "-", False),
    "op that it leaves out": ("#ececec", "#555555", 1.0, "--", False),
}
ARROWS = "arrows lead from a tensor to the ops that read it, and from an op to what it makes"


@dataclass(frozen=True)
class Box:
    """A node's box: the lines of its text and what it is."""

    lines: tuple[str, ...]
    kind: str

    @property
    def height(self) -> float:
        """The height, with what is free around the text."""
        return LINE * len(self.lines) + 2 * PADDING

    @cached_property
    def width(self) -> float:
        """The width of its longest line, with what is free around it."""
        return max(map(_text_width, self.lines)) + 2 * PADDING + 0.06


def draw(graph: Graph, path: str | Path, force: bool = True) -> None:
    """Write a picture of a finalized graph, of the kind that the name's ending says.

    Raises UnsupportedError where matplotlib is missing, FileError where the file cannot be written or, without
    ``force``, is there, GraphError where the graph is too large.
    """
    if max(len(graph.ops), len(graph.tensors) // 2) > LARGEST_PICTURE:
        sizes = f"the graph has {len(graph.ops)} and {len(graph.tensors)}"
        raise GraphError(f"a picture must have at most {LARGEST_PICTURE} ops and twice as many tensors; {sizes}")
    pictures.check_target(path, force)
    boxes, (rows, links) = _boxes(graph), stations(graph)
    widths = {node: boxes[node].width if node in boxes else 0.0 for row in rows for node in row}
    middles = layered(rows, links, widths, APART)
    legend = [Box((kind,), kind) for kind in KINDS]
    legend_width = max(sum(box.width + APART for box in legend) - APART, _text_width(ARROWS))
    graph_width = max(x + widths[node] / 2 for node, x in middles.items())
    width = max(graph_width, legend_width) + 2 * MARGIN
    middles = {node: x + (width - graph_width) / 2 for node, x in middles.items()}
    tops, bottoms = _heights(rows, links, boxes, middles, MARGIN + legend[0].height + 2.5 * LINE)
    height = bottoms[-1] + MARGIN

    figure = pictures.figure(layout="none", figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    left = (width - legend_width) / 2
    for box in legend:
        _draw_box(axes, box, left + box.width / 2, MARGIN + box.height / 2)
        left += box.width + APART
    axes.text(width / 2, MARGIN + legend[0].height + LINE, ARROWS, ha="center", va="center", fontsize=POINTS)
    spans = {node: (top, bottom) for row, top, bottom in zip(rows, tops, bottoms, strict=True) for node in row}
    for node, box in boxes.items():
        middle = sum(spans[node]) / 2
        spans[node] = middle - box.height / 2, middle + box.height / 2
        _draw_box(axes, box, middles[node], middle)
    _draw_arrows(axes, links, boxes, middles, spans)
    dpi = min(DPI, sqrt(MOST_PIXELS / (width * height)), LONGEST_SIDE_PIXELS / max(width, height))
    pictures.save(figure, path, int(dpi), force)


# -- drawing ---------------------------------------------------------------------------------------------------------


def _heights(
    rows: Sequence[Sequence[Node]],
    links: Iterable[tuple[Node, Node]],
    boxes: Mapping[Node, Box],
    middles: Mapping[Node, float],
    down: float,
) -> tuple[list[float], list[float]]:
    """Return the top and the bottom of every row, below ``down``: the further a gap's links go, the higher it is."""
    number = {node: n for n, row in enumerate(rows) for node in row}
    furthest = [0.0] * len(rows)
    for upper, lower in links:
        furthest[number[lower]] = max(furthest[number[lower]], abs(middles[upper] - middles[lower]))
    tops, bottoms = [], []
    for row, far in zip(rows, furthest, strict=True):
        tops.append(down + min(SHORTEST_GAP + STEEPNESS * far, LONGEST_GAP))
        down = tops[-1] + max(boxes[node].height for node in row if node in boxes)
        bottoms.append(down)
    return tops, bottoms


def _boxes(graph: Graph) -> dict[Node, Box]:
    """Return the boxes of all tensors and ops."""
    given, results, left_out = {*graph.inputs}, {*graph.outputs}, graph.inference.reasons
    boxes: dict[Node, Box] = {}
    for number, tensor in graph.tensors.items():
        label, _, rest = str(tensor).rpartition(": ")
        kind = "tensor, given" if number in given else "tensor, a result" if number in results else "tensor between"
        boxes["tensor", number] = Box(_lines(label, rest), kind)
    for op in graph.ops:
        kind = "op that it leaves out" if op.id in left_out else "op that convgrad runs"
        boxes["op", op.id] = Box(_lines(op.label, printable(op.kind)), kind)
    return boxes


def _lines(*texts: str) -> tuple[str, ...]:
    return tuple(text if len(text) <= LONGEST_WORDS else f"{text[: LONGEST_WORDS - 3]}..." for text in texts)


def _text_width(text: str) -> float:
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415 - an extra, needed for pictures only
    from matplotlib.textpath import text_to_path  # noqa: PLC0415

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=POINTS), ismath=False)
    return float(width) / 72


def _draw_box(axes: Any, box: Box, x: float, y: float) -> None:
    from matplotlib.patches import FancyBboxPatch  # noqa: PLC0415 - an extra, needed for pictures only

    fill, edge, thickness, dashes, is_round = KINDS[box.kind]
    style = "round,pad=0,rounding_size=0.1" if is_round else "square,pad=0"
    corner = (x - box.width / 2, y - box.height / 2)
    look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": thickness, "linestyle": dashes}
    axes.add_patch(FancyBboxPatch(corner, box.width, box.height, boxstyle=style, zorder=2, **look))
    for n, line in enumerate(box.lines):
        middle = y + LINE * (n - (len(box.lines) - 1) / 2)
        look = {"ha": "center", "va": "center_baseline", "fontsize": POINTS, "zorder": 3, "parse_math": False}
        axes.text(x, middle, line, **look)


def _draw_arrows(
    axes: Any,
    links: Iterable[tuple[Node, Node]],
    boxes: Mapping[Node, Box],
    middles: Mapping[Node, float],
    spans: Mapping[Node, tuple[float, float]],
) -> None:
    """Draw the links between the rows, where no box is, with a tip at each box that they reach."""
    from matplotlib.collections import PolyCollection  # noqa: PLC0415 - an extra, needed for pictures only
    from matplotlib.patches import PathPatch  # noqa: PLC0415
    from matplotlib.path import Path as Outline  # noqa: PLC0415

    points, codes, tips = [], [], []
    upright = [Outline.MOVETO, Outline.LINETO]
    curve = [Outline.MOVETO, Outline.CURVE4, Outline.CURVE4, Outline.CURVE4]
    for node, (top, bottom) in spans.items():
        if node not in boxes:
            points += [(middles[node], top), (middles[node], bottom)]
            codes += upright
    leaves, enters = _ends(links, boxes, middles)
    for link in links:
        (x, y), (to_x, to_y) = (leaves[link], spans[link[0]][1]), (enters[link], spans[link[1]][0])
        if link[1] in boxes:
            tips.append([(to_x, to_y), (to_x - TIP / 2, to_y - TIP), (to_x + TIP / 2, to_y - TIP)])
            to_y -= TIP
        half = (y + to_y) / 2
        points += [(x, y), (x, half), (to_x, half), (to_x, to_y)]
        codes += curve
    axes.add_patch(PathPatch(Outline(points, codes), fill=False, edgecolor="#444444", linewidth=0.9, zorder=1))
    axes.add_collection(PolyCollection(tips, facecolor="#444444", zorder=3))


def _ends(
    links: Iterable[tuple[Node, Node]], boxes: Mapping[Node, Box], middles: Mapping[Node, float]
) -> tuple[dict[tuple[Node, Node], float], dict[tuple[Node, Node], float]]:
    """Return where every link leaves and enters: side by side at an op, in the order of their other ends."""
    found = []
    for side, other in ((0, 1), (1, 0)):
        at: dict[Node, list[tuple[Node, Node]]] = {}
        for link in sorted(links, key=lambda link: middles[link[other]]):
            at.setdefault(link[side], []).append(link)
        places: dict[tuple[Node, Node], float] = {}
        for node, mine in at.items():
            apart = min(ENTRIES_APART, boxes[node].width / (len(mine) + 1)) if node[0] == "op" else 0.0
            places |= {link: middles[node] + apart * (n - (len(mine) - 1) / 2) for n, link in enumerate(mine)}
        found.append(places)
    return found[0], found[1]
