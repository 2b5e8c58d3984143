"""The parts of a sum over the batch: neighbouring leaves, the sums that they determine, and the combination of sums.

A **leaf** of the batch's reduction tree is a pack of images that form one block, or one larger image
(``spec/order.py``). The last pack may have fewer images. A **part** is a range of neighbouring leaves. A node of the
tree is the sum of 16 neighbours of the level below, added from left to right. So a part determines exactly these sums,
from left to right:

- single nodes whose parents begin before the part, because a parent is summed from its first child on
- at most one chain per level: the first children of a parent that continues after the part.

Both kinds of sums are ``Nodes``. The nodes of the next part continue the chains, in this order. At the end of the
batch, the sum of a chain is the sum of its parent, which is the last node of its level.

A call on the images of ``Nodes`` returns their sum, but with +0 instead of -0, because every call ends by adding +0.
This does not change the final result. A sum with a nonzero term does not depend on the sign of a zero. Any other sum is
+0 in the end, because +0 is added to the whole sum. NaN stays NaN, and the result has the canonical quiet NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.order import FAN_IN, images_a_block

T = TypeVar("T")


class Nodes(NamedTuple):
    """One node, or the first children of one parent, whose values are added. Leaves have level 0.

    ``first`` is the number of the first node within its level, and ``number`` is the number of nodes.
    """

    level: int
    first: int
    number: int

    @property
    def leaves(self) -> range:
        """The leaves under these nodes. The last of these leaves may be beyond the end of the batch."""
        leaf_count: int = FAN_IN**self.level
        return range(self.first * leaf_count, (self.first + self.number) * leaf_count)

    def and_next(self, right: Nodes) -> Nodes | None:
        """Return the nodes whose sum is that of these nodes and ``right``; None if the two must not be added yet.

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
    """Return the nodes whose sums the leaves from ``first`` to ``end`` - 1 determine, from left to right.

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
        begun = max(whole, end // FAN_IN * FAN_IN)
        if begun < end:
            right.append(Nodes(level, begun, end - begun))
        first, end, level = whole // FAN_IN, begun // FAN_IN, level + 1
    return (*left, *reversed(right))


def combine(known: Iterable[tuple[Nodes, T]], add: Callable[[T, T], T]) -> list[tuple[Nodes, T]]:
    """Return the combined sums of neighbouring parts. Each sum is added to the unfinished sum of its parent, if any.

    >>> combine([(nodes, str(nodes.first)) for nodes in (*nodes_of(14, 18), *nodes_of(18, 20))], "{} + {}".format)[2:]
    [(Nodes(level=0, first=16, number=4), '16 + 18 + 19')]
    """
    combined: list[tuple[Nodes, T]] = []
    for nodes, value in known:
        put(combined, nodes, value, add)
    return combined


def put(combined: list[tuple[Nodes, T]], nodes: Nodes, value: T, add: Callable[[T, T], T]) -> None:
    """Append a sum to ``combined``, the sums on its left, or add it to its parent's unfinished sum if that is there.

    If this completes the parent, add the parent's sum to the grandparent in the same way, and so on.
    """
    while combined and (more := combined[-1][0].and_next(nodes)):
        nodes, value = more, add(combined.pop()[1], value)
    combined.append((nodes, value))


def total(known: Sequence[tuple[Nodes, T]], add: Callable[[T, T], T]) -> T:
    """Return the sum over the whole batch, from the sums of a part that has all leaves.

    >>> total([(nodes, str(nodes.first)) for nodes in nodes_of(0, 36)], "{} + {}".format)
    '0 + 32'
    """
    *before, (_, last) = known
    for _, value in reversed(before):
        last = add(value, last)
    return last


def max_sums(parts: Iterable[Iterable[Nodes]]) -> int:
    """Return the largest number of sums in memory while the nodes of neighbouring parts are computed one after another.

    A node's sum is added to its parent in place. Sums of earlier parts are not overwritten until the part ends.

    >>> max_sums([nodes_of(14, 36)]), max_sums([nodes_of(0, 14), nodes_of(14, 36)])
    (4, 3)
    >>> max_sums(nodes_of(leaf, leaf + 1) for leaf in range(4096))
    5
    """
    in_memory: list[tuple[Nodes, bool]] = []  # nodes whose sums are in memory; is the sum of the current part?
    maximum = new = 0

    def count(more: int) -> None:
        nonlocal maximum, new
        new += more
        maximum = max(maximum, before + new)

    def add(current: bool, _: bool) -> bool:
        count(not current)
        count(-1)
        return True

    for part in parts:
        in_memory, before, new = [(nodes, False) for nodes, _ in in_memory], len(in_memory), 0
        for nodes in part:
            begun = in_memory[-1][0].and_next(nodes) if in_memory else None
            count(not (begun and in_memory.pop()[1]))
            put(in_memory, begun or nodes, True, add)
    return maximum


def leaf_images(geometry: Conv | Channels) -> int:
    """Return the number of images in a leaf. A batch may be cut at multiples of this number.

    >>> leaf_images(Channels(100, 8, (7, 7))), leaf_images(Channels(100, 8, (56, 56)))
    (5, 1)
    """
    return images_a_block(geometry.extents if isinstance(geometry, Channels) else [a.dst for a in geometry.axes])


def chunk_images(geometry: Conv | Channels) -> int:
    """Return the number of images in a child of the tree's root.

    Calls on chunks of this size that accumulate in f32 give the same bits as one call on the batch.

    >>> chunk_images(Channels(64, 8, (7, 7))), chunk_images(Channels(64, 8, (56, 56)))  # 13 leaves, 64 leaves
    (5, 16)
    """
    images = leaf_images(geometry)
    while images * FAN_IN < geometry.batch:
        images *= FAN_IN
    return images
