"""Where the nodes of a drawing in rows go: orders of the rows with few crossings, then places that keep links upright.

Links join nodes of neighbouring rows; a longer one runs through a node of no width in every row between.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Neighbours = Mapping[Node, Mapping[Node, float]]

SWEEPS = 16
PASSES, MOST_STEPS = 300, 200_000


def layered(
    rows: Sequence[Sequence[Node]], links: Mapping[tuple[Node, Node], float], widths: Mapping[Node, float], apart: float
) -> dict[Node, float]:
    """Return the middle of every node: nodes of a row are ``apart`` beside their widths, the leftmost edge is at 0.

    A link, from an upper node to one of the next row, has a weight: how much it matters that it is upright.

    >>> layered([["a", "b"], ["c"]], {("a", "c"): 1, ("b", "c"): 1}, {"a": 2, "b": 2, "c": 1}, 1)
    {'a': 1.0, 'b': 4.0, 'c': 2.5}
    """
    above: dict[Node, dict[Node, float]] = {node: {} for row in rows for node in row}
    below: dict[Node, dict[Node, float]] = {node: {} for node in above}
    for (upper, lower), weight in links.items():
        above[lower][upper] = below[upper][lower] = weight
    return _places(_ordered(rows, above, below), above, below, widths, apart)


# -- order -----------------------------------------------------------------------------------------------------------


def _ordered(rows: Sequence[Sequence[Node]], above: Neighbours[Node], below: Neighbours[Node]) -> list[list[Node]]:
    """Return the rows with the fewest crossings found: each node goes where its neighbours are, down and up in turn."""
    now = [list(row) for row in rows]
    best, least = now, crossings(now, below)
    for sweep in range(SWEEPS if least else 0):
        numbers = range(1, len(now)) if sweep % 2 == 0 else range(len(now) - 2, -1, -1)
        step, sides = (-1, above) if sweep % 2 == 0 else (1, below)
        now = [list(row) for row in now]
        for number in numbers:
            at = {node: place for place, node in enumerate(now[number + step])}
            means = {
                node: sum(at[other] for other in sides[node]) / len(sides[node]) if sides[node] else place
                for place, node in enumerate(now[number])
            }
            now[number].sort(key=means.__getitem__)
        count = crossings(now, below)
        if count < least:
            best, least = now, count
    return best


def crossings(rows: Sequence[Sequence[Node]], below: Neighbours[Node]) -> int:
    """Return how many pairs of links cross."""
    count = 0
    for upper, lower in pairwise(rows):
        at = {node: place for place, node in enumerate(lower)}
        ends: list[int] = []
        for node in upper:
            mine = sorted(at[other] for other in below[node])
            count += sum(len(ends) - bisect(ends, end) for end in mine)
            for end in mine:
                insort(ends, end)
    return count


# -- places ----------------------------------------------------------------------------------------------------------


def _places(
    rows: Sequence[Sequence[Node]],
    above: Neighbours[Node],
    below: Neighbours[Node],
    widths: Mapping[Node, float],
    apart: float,
) -> dict[Node, float]:
    """Return places with a small sum of weight x distance^2 over links: row by row the least, down and up in turn."""
    places: dict[Node, float] = {}
    offsets: dict[Node, float] = {}  # how far right of the row's first a node is at least
    for row in rows:
        edge = 0.0
        for node in row:
            offsets[node] = edge + widths[node] / 2
            edge += widths[node] + apart
        places |= {node: offsets[node] - edge / 2 for node in row}
    for turn in range(min(PASSES, MOST_STEPS // len(places))):
        for row in rows if turn % 2 else reversed(rows):
            wanted, weights = [], []
            for node in row:
                near = [*above[node].items(), *below[node].items()]
                weight = sum(w for _, w in near)
                wanted.append(sum(places[other] * w for other, w in near) / weight if near else places[node])
                weights.append(weight or 1e-3)
            least = _rising([at - offsets[node] for at, node in zip(wanted, row, strict=True)], weights)
            places |= {node: at + offsets[node] for at, node in zip(least, row, strict=True)}
    edge = min(place - widths[node] / 2 for node, place in places.items())
    return {node: place - edge for node, place in places.items()}


def _rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the numbers, none below the one before, that are nearest to those wanted: runs that fall become means."""
    runs: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(wanted, weights, strict=True):
        mean, total, length = value, weight, 1
        while runs and runs[-1][0] >= mean:
            before, more, count = runs.pop()
            mean, total, length = (mean * total + before * more) / (total + more), total + more, length + count
        runs.append((mean, total, length))
    return [mean for mean, _, length in runs for _ in range(length)]
