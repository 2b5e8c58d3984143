"""Pictures of graphs: rows, orders and places as numbers; what is drawn lies where it should, none on another."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convgrad import pictures
from convgrad.errors import GraphError
from convgrad.graph import Graph, LogicalTensor, Op, draw
from convgrad.graph.layered import crossings, layered
from convgrad.graph.picture import ARROWS, KINDS
from convgrad.graph.reader import read
from convgrad.graph.stations import stations

STEP = Path(__file__).parents[1] / "examples" / "digits_step.json"


def test_crossings_are_counted() -> None:
    below = {"a": {"y": 1.0}, "b": {"x": 1.0, "y": 1.0}, "x": {}, "y": {}}
    assert crossings([["a", "b"], ["x", "y"]], below) == 1
    assert crossings([["b", "a"], ["x", "y"]], below) == 0


def test_a_shuffled_ladder_is_untangled() -> None:
    """Rows of four rails, each row in an order of its own: drawn upright, and nothing crosses."""
    rng = np.random.default_rng(0)
    rows = [[(int(rail), row) for rail in rng.permutation(4)] for row in range(6)]
    links = {((rail, row), (rail, row + 1)): 1.0 for rail in range(4) for row in range(5)}
    places = layered(rows, links, {node: 1.0 for row in rows for node in row}, 0.5)
    for rail in range(4):
        assert len({round(places[rail, row], 6) for row in range(6)}) == 1
    assert sorted(round(places[rail, 0], 6) for rail in range(4)) == [0.5, 2.0, 3.5, 5.0]


def test_nodes_of_a_row_stay_apart() -> None:
    rows = [["a"], ["b", "c", "d"], ["e"]]
    links = {("a", node): 1.0 for node in "bcd"} | {(node, "e"): 1.0 for node in "bcd"}
    widths = dict(zip("abcde", (1, 2, 3, 4, 5), strict=True))
    places = layered(rows, links, widths, 0.5)
    for left, right in pairwise(sorted("bcd", key=places.__getitem__)):
        assert places[right] - places[left] == pytest.approx((widths[left] + widths[right]) / 2 + 0.5)
    assert min(places[node] - widths[node] / 2 for node in widths) == pytest.approx(0, abs=1e-12)


def test_links_lead_down_a_row_and_say_the_graph() -> None:
    graph = read(STEP)
    rows, links = stations(graph)
    number = {node: n for n, row in enumerate(rows) for node in row}
    assert len(number) == sum(map(len, rows))  # each stands once
    assert all(number[lower] == number[upper] + 1 for upper, lower in links)
    read_by = {(start_of(links, upper), lower[1]) for upper, lower in links if lower[0] == "op"}
    assert read_by == {(tensor.id, op.id) for op in graph.ops for tensor in op.inputs}
    made = {(upper[1], lower[1]) for upper, lower in links if upper[0] == "op"}
    assert made == {(op.id, tensor.id) for op in graph.ops for tensor in op.outputs}


def start_of(links: Any, node: Any) -> int:
    """Return the tensor that a way comes from."""
    while node[0] == "way":
        (node,) = (upper for upper, lower in links if lower == node)
    return int(node[1])


def test_what_is_drawn_lies_where_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts lie in boxes, boxes beside each other, no arrow runs behind one; there is a legend."""
    pytest.importorskip("matplotlib")
    from matplotlib.collections import PolyCollection  # noqa: PLC0415
    from matplotlib.patches import FancyBboxPatch, PathPatch  # noqa: PLC0415

    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save", lambda figure, *rest: drawn.append(figure))
    graph = read(STEP)
    draw(graph, tmp_path / "step.png")
    (axes,) = drawn[0].axes
    drawn[0].canvas.draw()
    back = axes.transData.inverted()
    boxes = [patch.get_bbox() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(graph.ops) + len(graph.tensors) + len(KINDS)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    texts = {text.get_text(): text.get_window_extent().transformed(back) for text in axes.texts}
    assert {*KINDS, ARROWS, "diff_edges_weights", "ConvolutionBackwardWeights", "f32 16x8x8x1"} <= set(texts)
    for text, inside in texts.items():
        assert text == ARROWS or any(holds(box, inside) for box in boxes), text
    (arrows,) = (patch.get_path() for patch in axes.patches if isinstance(patch, PathPatch))
    ways = [
        np.array([point for p, _ in one.iter_bezier() for point in p(np.linspace(0, 1, 33))]) for one in apart(arrows)
    ]
    edge = 1e-9  # an arrow begins on the edge of a box
    for x, y in np.concatenate(ways):
        behind = [box for box in boxes if box.x0 < x < box.x1 and low(box) + edge < y < high(box) - edge]
        assert not behind, (x, y)
    (tips,) = (one for one in axes.collections if isinstance(one, PolyCollection))
    ends = [path.vertices[0] for path in tips.get_paths()]
    reads = sum(len({tensor.id for tensor in op.inputs}) + len(op.outputs) for op in graph.ops)
    assert len(ends) == reads == len({tuple(end) for end in ends})
    assert all(any(box.x0 < x < box.x1 and abs(low(box) - y) < edge for box in boxes) for x, y in ends)


def low(box: Any) -> float:
    return float(min(box.y0, box.y1))


def high(box: Any) -> float:
    return float(max(box.y0, box.y1))


def holds(box: Any, inside: Any) -> bool:
    return bool(box.x0 < inside.x0 < inside.x1 < box.x1 and low(box) < low(inside) and high(inside) < high(box))


def apart(path: Any) -> list[Any]:
    """Return the pieces of a path that begin with a move."""
    starts = [*np.flatnonzero(path.codes == path.MOVETO), len(path.codes)]
    return [type(path)(path.vertices[a:b], path.codes[a:b]) for a, b in pairwise(starts)]


def test_the_widest_graph_makes_a_picture_that_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "save", lambda figure, path, dpi, force: drawn.append(figure.get_size_inches() * dpi))
    graph = Graph()
    src = LogicalTensor(0, "f32", (1, 4), name="src")
    for number in range(200):
        graph.add_op(Op(number, "ReLU", (src,), (LogicalTensor(number + 1, "f32", (1, 4)),)))
    graph.finalize()
    draw(graph, tmp_path / "wide.png")
    assert max(drawn[0]) < 1 << 15
    graph = Graph([*graph.ops, Op(200, "ReLU", (src,), (LogicalTensor(201, "f32", (1, 4)),))])
    graph.finalize()
    with pytest.raises(GraphError, match="at most 200 ops"):
        draw(graph, tmp_path / "wide.png")
