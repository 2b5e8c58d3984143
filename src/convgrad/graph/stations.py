"""In which row of a drawing each op and tensor of a graph stands, and what passes through rows on its way down."""

from __future__ import annotations

from convgrad.graph.graph import Graph
from convgrad.graph.infer import producers_of

Node = tuple[str, int] | tuple[str, int, int]  # an op, a tensor, or a tensor on its way through a row


def rows_of(graph: Graph) -> dict[Node, int]:
    """Return the row of every op and tensor: below what it waits for; a given tensor just above its first reader."""
    produced = producers_of(graph.ops)
    rows: dict[Node, int] = {}
    for op in graph.inference.order:
        row = 1 + max((rows.get(("tensor", tensor.id), 0) for tensor in op.inputs), default=-1)
        rows["op", op.id] = row
        rows |= {("tensor", tensor.id): row + 1 for tensor in op.outputs}
    given: dict[Node, int] = {}
    for op in graph.inference.order:
        for tensor in (tensor for tensor in op.inputs if tensor.id not in produced):
            given["tensor", tensor.id] = min(rows["op", op.id] - 1, given.get(("tensor", tensor.id), len(rows)))
    return rows | given


def stations(graph: Graph) -> tuple[list[list[Node]], dict[tuple[Node, Node], float]]:
    """Return the rows with the stations of what is read further down, and the links, each to the next row.

    A tensor that is read in several rows goes down once, with a station in each row between. The longer a way, the more
    it matters that it is upright.
    """
    at = rows_of(graph)
    rows: list[list[Node]] = [[] for _ in range(1 + max(at.values()))]
    links: dict[tuple[Node, Node], float] = {}
    for op in graph.inference.order:
        for tensor in op.inputs:
            before: Node = ("tensor", tensor.id)
            if before not in rows[at["tensor", tensor.id]]:
                rows[at["tensor", tensor.id]].append(before)
            for row in range(at["tensor", tensor.id] + 1, at["op", op.id]):
                station: Node = ("way", tensor.id, row)
                if (before, station) not in links:
                    rows[row].append(station)
                    links[before, station] = 64.0 if before[0] == "way" else 2.0
                before = station
            links[before, ("op", op.id)] = 1.0
        rows[at["op", op.id]].append(("op", op.id))
        for tensor in op.outputs:
            rows[at["tensor", tensor.id]].append(("tensor", tensor.id))
            links[("op", op.id), ("tensor", tensor.id)] = 4.0
    return rows, links
