"""Which terms of a long sum to look at: some all over it, and those where parts of its tree end and others begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convgrad.verify.probe.tree import Ask

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

ALL = 4096  # terms of which each is looked at
FIRST = 256  # of longer sums, the terms looked at first
MOST = 4096  # of longer sums, the terms looked at in all


def sample(ask: Ask, terms: int, seed: int = 2) -> tuple[Int, Int]:
    """Return the terms to look at, in order, all of a short sum; and the joins of neighbours among them.

    Neighbours of the sample whose join has as many leaves more than their neighbours' as lie between them are taken to
    belong to one chain. Between others, the farthest joined first, a term is looked at where a chain beside them would
    begin or end, or in the middle, until there is none. Then what looks like a chain is looked into once, next to its
    end: blocks that end where the sample has terms grow as chains do.
    """
    if terms <= ALL:
        seen = np.arange(terms)
        return seen, ask(np.stack([seen[:-1], seen[1:]], 1))
    rng = np.random.default_rng(seed)
    edges = np.linspace(0, terms, FIRST + 1).astype(np.int64)  # unevenly apart, as blocks lie evenly
    seen = np.unique(np.concatenate([[0, terms - 1], rng.integers(edges[:-1], edges[1:])]))
    joins = ask(np.stack([seen[:-1], seen[1:]], 1))
    believed = True
    while seen.size < MOST:
        at = _strange(seen, joins)
        middle = _between(seen, joins, at)
        if not at.size:
            if not believed:
                break
            believed = False
            at = np.flatnonzero(np.diff(seen) > 1)
            middle = _doubtful(seen, joins, at)
        at, middle = at[: MOST - seen.size], middle[: MOST - seen.size]
        halves = ask(np.stack([np.concatenate([seen[at], middle]), np.concatenate([middle, seen[at + 1]])], 1))
        joins[at] = halves[: at.size]
        joins = np.insert(joins, at + 1, halves[at.size :])
        seen = np.insert(seen, at + 1, middle)
    return seen, joins


def _as_chains(seen: Int, joins: Int) -> tuple[Bool, Bool]:
    """Return which neighbours seem to have the next terms of a chain between them: one that grows, one that shrinks."""
    gaps = np.diff(seen)
    grown = np.diff(joins)
    grows = joins == gaps + 1
    grows[1:] |= np.abs(grown - gaps[1:]) <= 1  # one off where chains take their terms in pairs
    shrinks = np.append(np.abs(grown + gaps[:-1]) <= 1, False)
    return grows, shrinks


def _strange(seen: Int, joins: Int) -> Int:
    """Return which neighbours have terms between them that no chain accounts for, and join as late as those beside."""
    grows, shrinks = _as_chains(seen, joins)
    strange = np.where(~grows & ~shrinks & (np.diff(seen) > 1), joins, 0)
    beside = np.maximum(np.append(strange[1:], 0), np.append(0, strange[:-1]))
    return np.flatnonzero((strange > 0) & (strange >= beside))


def _doubtful(seen: Int, joins: Int, at: Int) -> Int:
    """Return a term between each of these neighbours whose join tells a whole block from the next terms of a chain."""
    low, high = seen[at], seen[at + 1]
    return np.where(_as_chains(seen, joins)[0][at], np.maximum(high - 3, low + 1), np.minimum(low + 3, high - 1))


def _between(seen: Int, joins: Int, at: Int) -> Int:
    """Return a term to look at between each of these neighbours."""
    low, high = seen[at], seen[at + 1]
    chosen = (low + high) // 2
    before, after = np.maximum(at - 1, 0), np.minimum(at + 1, joins.size - 1)
    ends = seen[before] + joins[before] - 1  # of a chain that begins with the term before
    begins = seen[after + 1] - joins[after] + 1  # of a chain that takes the terms before the one after
    ends = np.where(ends == low, low + 1, ends)
    begins = np.where(begins == high, high - 1, begins)
    for there in (ends, begins):
        chosen = np.where((low < there) & (there < high), there, chosen)
    return chosen
