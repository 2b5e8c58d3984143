"""How a sum over the batch is cut into runs of leaves and joined: which sums of a run are known before its neighbours.

A **leaf** of the tree over the batch is a block's pack of m images, or one larger image (``spec/order.py``); the last
pack may hold fewer. A **run** is some neighbouring leaves. A node of the tree is the sum of 16 neighbours of the level
below, added left to right from the first. So of a run these sums are known, and no others, from left to right:

- nodes whose parents begin before the run, each by itself, as parents are summed from their first child on;
- of each level at most one chain, the first children of a parent that goes on behind the run.

Both are ``Nodes``. Where the next run begins its nodes go on with the chains, in that order. Where the batch ends a
chain is its parent, the last of its level.

A call on the images of ``Nodes`` gives their sum, but for +0 in the place of -0, as +0 ends every call. A sum that has
a term which is not zero does not see the sign of a zero, and the +0 that ends the whole takes the sign of any other.
What is no number stays none, and leaves as the canonical quiet NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.order import FAN_IN, images_a_block

T = TypeVar("T")


class Nodes(NamedTuple):
    """Some neighbouring nodes of a level, leaves being level 0, and their sum: several only from a first child on."""

    level: int
    first: int
    number: int

    @property
    def leaves(self) -> range:
        """The leaves beneath, where the batch has so many."""
        each: int = FAN_IN**self.level
        return range(self.first * each, (self.first + self.number) * each)

    def and_next(self, right: Nodes) -> Nodes | None:
        """Return what these and their right neighbours are once they are added; None where they are not, or not yet.

        >>> Nodes(0, 16, 2).and_next(Nodes(0, 18, 1)), Nodes(0, 16, 15).and_next(Nodes(0, 31, 1))
        (Nodes(level=0, first=16, number=3), Nodes(level=1, first=1, number=1))
        >>> Nodes(0, 17, 1).and_next(Nodes(0, 18, 1))  # their parent begins with 16
        """
        if self.first % FAN_IN or right != (self.level, self.first + self.number, 1) or not right.first % FAN_IN:
            return None
        if self.number + 1 == FAN_IN:
            return Nodes(self.level + 1, self.first // FAN_IN, 1)
        return Nodes(self.level, self.first, self.number + 1)


def nodes_of(first: int, end: int) -> tuple[Nodes, ...]:
    """Return the sums that are known of the leaves from ``first`` to before ``end``, from left to right.

    >>> [tuple(nodes) for nodes in nodes_of(14, 36)]
    [(0, 14, 1), (0, 15, 1), (1, 1, 1), (0, 32, 4)]
    >>> [tuple(nodes) for nodes in nodes_of(0, 36)]
    [(1, 0, 2), (0, 32, 4)]
    """
    left: list[Nodes] = []
    right: list[Nodes] = []
    level = 0
    while first < end:
        whole = min(-(-first // FAN_IN) * FAN_IN, end)
        left += [Nodes(level, node, 1) for node in range(first, whole)]
        rest = max(whole, end // FAN_IN * FAN_IN)
        if rest < end:
            right.append(Nodes(level, rest, end - rest))
        first, end, level = whole // FAN_IN, rest // FAN_IN, level + 1
    return (*left, *reversed(right))


def climb(known: Iterable[tuple[Nodes, T]], add: Callable[[T, T], T]) -> list[tuple[Nodes, T]]:
    """Return the sums that those of neighbouring runs make: each goes to its parent where that has begun.

    >>> climb([(nodes, str(nodes.first)) for nodes in (*nodes_of(14, 18), *nodes_of(18, 20))], "{} + {}".format)[2:]
    [(Nodes(level=0, first=16, number=4), '16 + 18 + 19')]
    """
    made: list[tuple[Nodes, T]] = []
    for nodes, value in known:
        put(made, nodes, value, add)
    return made


def put(made: list[tuple[Nodes, T]], nodes: Nodes, value: T, add: Callable[[T, T], T]) -> None:
    """Put a sum behind those of a run that it follows: where its parent has begun it is added there, and so on up."""
    while made and (more := made[-1][0].and_next(nodes)):
        nodes, value = more, add(made.pop()[1], value)
    made.append((nodes, value))


def total(known: Sequence[tuple[Nodes, T]], add: Callable[[T, T], T]) -> T:
    """Return the sum of all sums of a run that begins with the first leaf, where the batch ends with it.

    >>> total([(nodes, str(nodes.first)) for nodes in nodes_of(0, 36)], "{} + {}".format)
    '0 + 32'
    """
    *before, (_, last) = known
    for _, value in reversed(before):
        last = add(value, last)
    return last


def most_sums(runs: Iterable[Iterable[Nodes]]) -> int:
    """Return how many sums there are at most while the nodes of neighbouring runs are computed in turn.

    Each is computed onto what has begun: in place, but for sums of the runs before, which stay until a run ends.

    >>> most_sums([nodes_of(14, 36)]), most_sums([nodes_of(0, 14), nodes_of(14, 36)])
    (4, 3)
    >>> most_sums(nodes_of(leaf, leaf + 1) for leaf in range(4096))
    5
    """
    made: list[tuple[Nodes, bool]] = []  # and whether a sum is of the present run
    most = new = 0

    def count(more: int) -> None:
        nonlocal most, new
        new += more
        most = max(most, before + new)

    def add(one: bool, _: bool) -> bool:
        count(not one)
        count(-1)
        return True

    for run in runs:
        made, before, new = [(nodes, False) for nodes, _ in made], len(made), 0
        for nodes in run:
            begun = made[-1][0].and_next(nodes) if made else None
            count(not (begun and made.pop()[1]))
            put(made, begun or nodes, True, add)
    return most


def leaf_images(geometry: Conv | Channels) -> int:
    """Return the images of a leaf: a batch may be cut at their multiples.

    >>> leaf_images(Channels(100, 8, (7, 7))), leaf_images(Channels(100, 8, (56, 56)))
    (5, 1)
    """
    return images_a_block(geometry.extents if isinstance(geometry, Channels) else [a.dst for a in geometry.axes])


def chunk_images(geometry: Conv | Channels) -> int:
    """Return the images of a child of the whole batch's sum: accumulated chunk by chunk in f32 it has the same bits.

    >>> chunk_images(Channels(64, 8, (7, 7))), chunk_images(Channels(64, 8, (56, 56)))  # 13 leaves, 64 leaves
    (5, 16)
    """
    each = leaf_images(geometry)
    while each * FAN_IN < geometry.batch:
        each *= FAN_IN
    return each
