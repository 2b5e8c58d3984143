"""Selection of a long sum's terms to examine: some spread over the sum, and those where parts of its tree may end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convgrad.verify.probe.tree import Query

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

ALL = 4096  # maximum number of terms of a sum whose terms are all examined
FIRST = 256  # number of terms of longer sums that are examined first
MAXIMUM = 4096  # maximum number of terms of longer sums that are examined in all


def sample(query: Query, terms: int, seed: int = 2) -> tuple[Int, Int]:
    """Return the terms to examine, in order, and the number of leaves under the join of each two neighbours.

    All terms of a short sum are examined.

    Neighbours are assumed to belong to one chain if their join is larger than the adjacent join by the distance between
    them. Between other neighbours, those with the largest joins first, a term is added where an adjacent chain would
    begin or end, or else in the middle. Terms are added until chains explain all neighbours. Then each assumed chain is
    checked once, near its end, because blocks that end at sampled terms grow like chains.
    """
    if terms <= ALL:
        examined = np.arange(terms)
        return examined, query(np.stack([examined[:-1], examined[1:]], 1))
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, terms, FIRST + 1).astype(np.int64)  # random distances, because blocks are regular
    examined = np.unique(np.concatenate([[0, terms - 1], rng.integers(edges[:-1], edges[1:])]))
    joins = query(np.stack([examined[:-1], examined[1:]], 1))
    believed = True
    while examined.size < MAXIMUM:
        at = _strange(examined, joins)
        middle = _between(examined, joins, at)
        if not at.size:
            if not believed:
                break
            believed = False
            at = np.flatnonzero(np.diff(examined) > 1)
            middle = _doubtful(examined, joins, at)
        at, middle = at[: MAXIMUM - examined.size], middle[: MAXIMUM - examined.size]
        halves = query(
            np.stack([np.concatenate([examined[at], middle]), np.concatenate([middle, examined[at + 1]])], 1)
        )
        joins[at] = halves[: at.size]
        joins = np.insert(joins, at + 1, halves[at.size :])
        examined = np.insert(examined, at + 1, middle)
    return examined, joins


def _as_chains(examined: Int, joins: Int) -> tuple[Bool, Bool]:
    """Return two masks of neighbours between which a chain seems to continue: with growing or with shrinking joins."""
    gaps = np.diff(examined)
    grown = np.diff(joins)
    grows = joins == gaps + 1
    grows[1:] |= np.abs(grown - gaps[1:]) <= 1  # the difference is 1 if chains take terms in pairs
    shrinks = np.append(np.abs(grown + gaps[:-1]) <= 1, False)
    return grows, shrinks


def _strange(examined: Int, joins: Int) -> Int:
    """Return the indices of gaps between neighbours that no chain explains, without those next to a larger join."""
    grows, shrinks = _as_chains(examined, joins)
    strange = np.where(~grows & ~shrinks & (np.diff(examined) > 1), joins, 0)
    beside = np.maximum(np.append(strange[1:], 0), np.append(0, strange[:-1]))
    return np.flatnonzero((strange > 0) & (strange >= beside))


def _doubtful(examined: Int, joins: Int, at: Int) -> Int:
    """Return a term to examine between each of these neighbours, which shows whether one chain has both neighbours."""
    low, high = examined[at], examined[at + 1]
    return np.where(_as_chains(examined, joins)[0][at], np.maximum(high - 3, low + 1), np.minimum(low + 3, high - 1))


def _between(examined: Int, joins: Int, at: Int) -> Int:
    """Return a term to examine between each of these neighbours."""
    low, high = examined[at], examined[at + 1]
    chosen = (low + high) // 2
    before, after = np.maximum(at - 1, 0), np.minimum(at + 1, joins.size - 1)
    ends = examined[before] + joins[before] - 1  # last term of a chain that begins with the term before
    begins = examined[after + 1] - joins[after] + 1  # first term of a chain that ends before the term after
    ends = np.where(ends == low, low + 1, ends)
    begins = np.where(begins == high, high - 1, begins)
    for there in (ends, begins):
        chosen = np.where((low < there) & (there < high), there, chosen)
    return chosen
