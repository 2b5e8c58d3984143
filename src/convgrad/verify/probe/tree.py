"""The tree of a sum, built from the numbers of leaves under the joins (lowest common ancestors) of pairs of terms.

One term is queried with all other terms of its subtree. Terms with equal answers join the path from this term to the
root at the same node. They form a group that is queried in the same way. Terms are picked at random, so about n log n
pairs are enough for any tree (the method of FPRev, USENIX ATC 2025). If every subtree has contiguous terms, the usual
case, the n - 1 pairs of neighbours are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convgrad.cached import cached_property
from convgrad.verify.probe.asker import Impossible

Int = NDArray[np.int64]
Query = Callable[[Int], Int]  # from pairs of terms to the numbers of leaves under their joins

STALE = 64  # after this many terms that join at one node, all others are assumed to join there; random pairs confirm it


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of additions over the terms ``examined``, in order: some or all of the ``terms`` terms of a sum.

    Node 0 is the root. ``sizes`` has the number of leaves under each node, including unseen leaves. ``above`` has the
    parent of each node, and ``over`` the parent of each seen term. A node comes after its parent.
    """

    terms: int
    examined: Int
    sizes: Int
    above: Int
    over: Int

    @cached_property
    def unseen(self) -> Int:
        """The number of each node's leaves that are neither seen nor under one of its child nodes."""
        leaves = self.sizes - np.bincount(self.over, minlength=self.sizes.size)
        np.subtract.at(leaves, self.above[1:], self.sizes[1:])
        return leaves

    @cached_property
    def below(self) -> Int:
        """The number of children of each node: nodes and seen terms."""
        count = np.bincount(self.over, minlength=self.sizes.size)
        np.add.at(count, self.above[1:], 1)
        return count

    @property
    def inconsistent(self) -> Int:
        """The nodes whose children have more leaves than the node; or fewer, if all terms are seen."""
        return np.flatnonzero(self.unseen < 0 if self.examined.size < self.terms else self.unseen != 0)

    @property
    def height(self) -> int:
        """The rounding depth, including the product's rounding; with unseen leaves, the largest possible depth.

        A node that adds k children at once counts as k - 1 roundings, and each of its unseen leaves as one.
        """
        own = self.unseen + self.below - 1
        own[0] = max(own[0], 0)
        highest = np.zeros_like(own)
        for node in range(own.size - 1, 0, -1):
            highest[self.above[node]] = max(highest[self.above[node]], highest[node] + own[node])
        return int(highest[0] + own[0]) + 1

    def join(self, first: int, second: int) -> int:
        """Return the number of leaves under the lowest common ancestor of two terms, by indices in ``examined``."""
        a, b = int(self.over[first]), int(self.over[second])
        while a != b:
            if a > b:
                a = int(self.above[a])
            else:
                b = int(self.above[b])
        return int(self.sizes[a])


def grow(query: Query, terms: int, examined: Int, seed: int = 0) -> Tree:
    """Return the tree over the terms ``examined``, from ``query``; raise Impossible if answers contradict each other.

    >>> chain = lambda pairs: pairs.max(axis=1) + 1
    >>> tree = grow(chain, 5, np.arange(5))
    >>> tree.height, sorted(tree.sizes.tolist())
    (5, [2, 3, 4, 5])
    """
    rng = np.random.default_rng(seed)
    sizes, above = [terms], [-1]
    over = np.zeros(examined.size, np.int64)
    # Indices in ``examined``, their parent, and the number of rounds without a new node.
    todo = [(np.arange(examined.size), 0, 0)] if examined.size > 1 else []
    while todo:
        picks = [int(rng.integers(places.size)) for places, _, _ in todo]
        rests = [np.delete(places, pick) for (places, _, _), pick in zip(todo, picks, strict=True)]
        firsts = [places[pick] for (places, _, _), pick in zip(todo, picks, strict=True)]
        pairs = [
            np.stack([np.full(others.size, first), others], 1) for first, others in zip(firsts, rests, strict=True)
        ]
        answers = np.split(query(examined[np.concatenate(pairs)]), np.cumsum([others.size for others in rests])[:-1])
        later = []
        for (_, node, vain), first, others, joins in zip(todo, firsts, rests, answers, strict=True):
            if joins.max() > sizes[node]:
                raise Impossible(f"a subtree of {sizes[node]} leaves contains a join of {joins.max()} leaves")
            at = node
            for size in np.unique(joins)[::-1].tolist():
                group = others[joins == size]
                again = vain + 1 if size == sizes[node] else 0
                if not again:
                    above.append(at)
                    at = len(sizes)
                    sizes.append(size)
                if group.size > 1 and again < STALE:
                    later.append((group, at, again))
                else:
                    over[group] = at
            over[first] = at
        todo = later
    tree = Tree(terms, examined, np.array(sizes), np.array(above), over)
    short = tree.inconsistent
    if short.size:
        size = int(tree.sizes[short[0]])
        raise Impossible(f"a join of {size} leaves has {size - int(tree.unseen[short[0]])} leaves below it")
    return tree


def along(terms: int, examined: Int, joins: Int) -> Tree | None:
    """Return the tree with contiguous subtrees, from the joins of neighbours; None if these do not determine a tree.

    The join of two terms is assumed to be the largest join of neighbours between them. All leaves of a node of this
    assumed tree are under one node of the true tree. If both nodes have equally many leaves, they are the same node. If
    all terms are seen and each node has two children, the true tree has no other nodes. If a node has more than two
    children, the joins of neighbours do not show how these are added.

    >>> along(5, np.arange(5), np.array([2, 5, 2, 3])).height
    4
    """
    above: dict[int, int] = {}  # parents; a node is represented by a pair of neighbours
    node = list(range(joins.size))
    size = joins.tolist()
    path: list[int] = []
    for at in range(joins.size):
        while path and size[path[-1]] < size[at]:
            low = path.pop()
            above[low] = path[-1] if path and size[path[-1]] <= size[at] else at
        if path and size[path[-1]] == size[at]:
            node[at] = path[-1]
        else:
            path.append(at)
    above |= dict(zip(path[1:], path, strict=False))
    order = sorted(set(node), key=lambda at: -size[at])
    virtual = not order or size[order[0]] < terms  # add a root if seen terms join below it
    number = {at: place + virtual for place, at in enumerate(order)}
    sides = [[joins[at] if at >= 0 else terms + 1 for at in range(-1, joins.size)], [*size, terms + 1]]
    over = [at - 1 if sides[0][at] <= sides[1][at] else at for at in range(examined.size)]
    tree = Tree(
        terms,
        examined,
        np.array([terms] * virtual + [size[at] for at in order]),
        np.array([-1] * virtual + [number[above[at]] if at in above else virtual - 1 for at in order]),
        np.array([number[node[at]] if examined.size > 1 else 0 for at in over]),
    )
    whole = not tree.inconsistent.size and joins.max(initial=0) <= terms and tree.below.max() <= 2
    return tree if whole else None


def confirm(query: Query, tree: Tree, number: int, seed: int = 1) -> None:
    """Query random pairs of terms; raise Impossible if the join of a pair is not that of the tree.

    If some terms are unseen, each seen term is also queried with the next but one.
    """
    places = np.random.default_rng(seed).integers(tree.examined.size, size=(number, 2))
    if tree.examined.size < tree.terms:
        places = np.concatenate([places, np.arange(tree.examined.size - 2)[:, None] + [0, 2]])
    places = places[places[:, 0] != places[:, 1]]
    if not places.size:
        return
    wanted = [tree.join(first, second) for first, second in places.tolist()]
    wrong = np.flatnonzero(query(tree.examined[places]) != wanted)
    if wrong.size:
        first, second = tree.examined[places[wrong[0]]].tolist()
        raise Impossible(f"{wrong.size} of {len(wanted)} pairs contradict the tree, first terms {first} and {second}")
