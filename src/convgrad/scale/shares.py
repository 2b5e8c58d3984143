"""Which worker has which pieces of a problem, and how the sums of pieces are joined: what moves, and who adds it.

A batch is cut into **pieces** of as many leaves each. Workers take neighbouring pieces, as many each. Of a weight or
bias gradient the sums that a piece knows (``spec/pieces.py``) are joined in a tree: 16 neighbours are added where the
leftmost lies, so the sums of the others move there, and on to the level above. Forwards and data gradients are written
where they are computed; they may be cut along their first axis too, and read the rows between two pieces twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import NamedTuple

from convgrad.functional.partials import SUMMED
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images, nodes_of
from convgrad.spec.problem import Problem
from convgrad.spec.slabs import Region, positions, slab_of, whole
from convgrad.spec.work import needed_flops

TIMES = (1, 2, 4, 8)  # as many neighbours make a piece: 16 is a multiple of each
MOST_PIECES = 16  # of a worker, where its memory holds so large ones


class Piece(NamedTuple):
    """Some leaves of a batch, or some rows of each of them, and what they take."""

    leaves: range
    read_bytes: int
    multiply_adds: int


class Join(NamedTuple):
    """Neighbours that are added, by their places in the level below; the worker who does it, and what moves there."""

    leaves: range
    parts: range
    worker: int
    arrays: int  # that are added
    moved: int  # of them, from other workers


def known(leaves: range) -> int:
    """Return how many sums are known of some leaves.

    >>> known(range(256, 512)), known(range(250, 500)), known(range(0, 300))
    (1, 8, 3)
    """
    return len(nodes_of(leaves.start, leaves.stop))


def leaves_of(problem: Problem) -> int:
    """Return how many leaves a batch has; where nothing is summed over it, an image is one."""
    return -(-problem.geometry.batch // images_a_leaf(problem))


def images_a_leaf(problem: Problem) -> int:
    """Return the images of the smallest piece."""
    return leaf_images(problem.geometry) if problem.solves_for in SUMMED else 1


def sizes(problem: Problem, workers: int, piece_bytes: float = inf) -> list[int]:
    """Return the leaves that a piece may have, so that all pieces begin with a node, and workers have few each.

    Pieces of 16^j leaves know one sum, those of two, four or eight times as many as many sums.

    >>> from convgrad.notation import problem
    >>> sizes(problem("BWD_W f32 NXC mb1000000ic64ih56oc64oh56kh3ph1"), 1000, 1e9)  # of 1.6 MB an image
    [64, 128, 256, 512]
    """
    leaves, leaf_bytes = leaves_of(problem), images_a_leaf(problem) * _an_image(problem, None)[0][0]
    found, each = [1], 1
    while each < leaves:
        found += [times * each for times in TIMES if times * each < leaves]
        each *= FAN_IN
    fit = [one for one in [*found[1:], leaves] if one * leaf_bytes <= piece_bytes] or [1]
    return [one for one in fit if leaves <= one * MOST_PIECES * workers] or [fit[-1]]


def cut(problem: Problem, piece_leaves: int, rows: int | None = None) -> tuple[Piece, ...]:
    """Return the pieces of a problem, each of so many leaves, and of so many rows of the first axis where asked for.

    Weights and biases that are read are not counted here.

    >>> from convgrad.notation import problem
    >>> [piece.read_bytes for piece in cut(problem("FWD_D f32 NXC mb2ic1iw9oc1ow9kw3pw1"), 1, rows=6)]
    [28, 16, 28, 16]
    """
    if rows and problem.solves_for in SUMMED:
        raise ValueError(f"pieces of a sum over the batch are whole images here; got rows={rows}")
    each, batch, one, found = images_a_leaf(problem), problem.geometry.batch, _an_image(problem, rows), []
    for first in range(0, leaves_of(problem), piece_leaves):
        leaves = range(first, min(first + piece_leaves, leaves_of(problem)))
        images = min(leaves.stop * each, batch) - leaves.start * each
        found += [Piece(leaves, images * read, images * terms) for read, terms in one]
    return tuple(found)


def _an_image(problem: Problem, rows: int | None) -> list[tuple[int, int]]:
    """Return the bytes read and the multiply-adds of an image, or of each so many rows of it."""
    height, found = positions(problem)[0], []
    for first in range(0, height, rows or height):
        box = (range(first, min(first + (rows or height), height)), *whole(problem)[1:])
        slab = slab_of(problem, range(1), box)
        data = [r for r, tensor in zip(slab.reads, problem.operands, strict=True) if tensor not in ("weights", "bias")]
        found.append((_bytes(data, problem), needed_flops(slab.problem.geometry) // 2))
    return found


def _bytes(regions: Sequence[Region], problem: Problem) -> int:
    elements: int = sum(prod(one.stop - one.start for one in region) for region in regions)
    return elements * problem.operand_format.dtype.itemsize


def owner(piece: int, pieces: int, workers: int) -> int:
    """Return the worker of a piece: each has neighbouring ones, as many as the others, or one more.

    >>> [owner(piece, 5, 2) for piece in range(5)]
    [0, 0, 0, 1, 1]
    """
    return piece * workers // pieces


def tree(pieces: Sequence[Piece], workers: int, fan_in: int = FAN_IN) -> tuple[tuple[Join, ...], ...]:
    """Return the levels of a join, from the pieces up: some neighbours are added where the leftmost of them lies.

    >>> [[join.moved for join in level] for level in tree([Piece(range(n, n + 1), 1, 1) for n in range(18)], 18)]
    [[15, 1], [1]]
    """
    below = [(piece.leaves, owner(n, len(pieces), workers)) for n, piece in enumerate(pieces)]
    levels: list[tuple[Join, ...]] = []
    while len(below) > 1 or not levels:
        level = []
        for first in range(0, len(below), fan_in):
            parts = range(first, min(first + fan_in, len(below)))
            arrays = [known(below[n][0]) for n in parts]
            worker = below[first][1]
            moved = sum(number for n, number in zip(parts, arrays, strict=True) if below[n][1] != worker)
            leaves = range(below[first][0].start, below[parts[-1]][0].stop)
            level.append(Join(leaves, parts, worker, sum(arrays), moved))
        levels.append(tuple(level))
        below = [(join.leaves, join.worker) for join in level]
    return tuple(levels)
