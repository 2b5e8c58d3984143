"""A graph as a picture: ops and tensors as boxes in rows, each below what it waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convgrad import pictures
from convgrad.errors import GraphError
from convgrad.graph.graph import Graph
from convgrad.graph.infer import producers_of
from convgrad.words import printable

LARGEST_PICTURE = 200
FAMILY, OUTSIDE, TENSOR = "#cfe3f5", "#e4e4e4", "#fdf3d8"


def draw(graph: Graph, path: str | Path, force: bool = True) -> None:
    """Write a picture of a finalized graph, of the kind that the name's ending says.

    Raises UnsupportedError where matplotlib is missing, FileError where the file cannot be written or, without
    ``force``, is there, GraphError where the graph is too large.
    """
    if max(len(graph.ops), len(graph.tensors) // 2) > LARGEST_PICTURE:
        sizes = f"the graph has {len(graph.ops)} and {len(graph.tensors)}"
        raise GraphError(f"a picture must have at most {LARGEST_PICTURE} ops and twice as many tensors; {sizes}")
    places = _places(graph)
    half = 0.6 + max(x for x, _ in places.values())
    down = 1 + max(y for _, y in places.values())
    figure = pictures.figure(figsize=(1 + 5 * half, 1 + 0.7 * down))
    axes = figure.subplots()
    axes.set(xlim=(-half, half), ylim=(down - 0.4, -0.6))
    axes.axis("off")
    for op in graph.ops:
        here = places["op", op.id]
        for x, y in (places["tensor", tensor.id] for tensor in (*op.inputs, *op.outputs)):
            axes.plot((x, here[0]), (y, here[1]), color="#999999", linewidth=1, zorder=0)
    for (kind, number), place in places.items():
        _box(axes, place, *_words(graph, kind, number))
    pictures.save(figure, path, 130, force)


def _places(graph: Graph) -> dict[tuple[str, int], tuple[float, int]]:
    """Return where every tensor and op goes: a row below the lowest that it waits for, rows centred."""
    producers = producers_of(graph.ops)
    rows: dict[tuple[str, int], int] = {}
    read: set[int] = set()
    for op in graph.inference.order:
        for tensor in op.inputs:
            if tensor.id not in producers:
                rows.setdefault(("tensor", tensor.id), 0)
        rows["op", op.id] = 1 + max((rows["tensor", tensor.id] for tensor in op.inputs), default=-1)
        for tensor in op.inputs:
            if tensor.id not in producers and tensor.id not in read:  # just above its first reader
                rows["tensor", tensor.id] = rows["op", op.id] - 1
                read.add(tensor.id)
        for tensor in op.outputs:
            rows["tensor", tensor.id] = rows["op", op.id] + 1
    places: dict[tuple[str, int], tuple[float, int]] = {}
    for row in range(1 + max(rows.values())):
        nodes = [node for node, at in rows.items() if at == row]
        places |= {node: (column - (len(nodes) - 1) / 2, row) for column, node in enumerate(nodes)}
    return places


def _words(graph: Graph, kind: str, number: int) -> tuple[str, str]:
    """Return the text and the colour of a box."""
    if kind == "tensor":
        return str(graph.tensors[number]), TENSOR
    op = next(op for op in graph.ops if op.id == number)
    return f"{op.label}\n{printable(op.kind)}", OUTSIDE if number in graph.inference.reasons else FAMILY


def _box(axes: Any, place: tuple[float, int], text: str, colour: str) -> None:
    box = {"boxstyle": "round", "facecolor": colour, "edgecolor": "#777777"}
    axes.text(*place, text.replace("$", r"\$"), ha="center", va="center", fontsize=8, bbox=box)
