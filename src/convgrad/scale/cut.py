"""Ways to cut a problem into sub-problems: by images, or by rows if an image is too large.

Rows are positions on the first axis of the swept tensor, which ``spec/subproblems.py`` defines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm
from typing import overload

from convgrad.functional.partials import SUMMED
from convgrad.functional.rows import subproblem_of_rows
from convgrad.spec.image_cuts import row_step
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images
from convgrad.spec.problem import Problem
from convgrad.spec.subproblems import SubProblem, positions, subproblem_of, whole
from convgrad.words import counted

ONCE = ("weights", "bias")  # operands that are read once and stay in memory
# The bytes of a piece's operands with which a cache still has these when the piece is computed (benchmarks/scale.py).
GOOD_BYTES = 16 << 20
# The maximum bytes of operands for a larger piece, which is a node of the tree, and for an image that is not cut.
MAX_BYTES = 32 << 20


def height(problem: Problem) -> int:
    """Return the number of rows of an image, or 1 if the problem has no spatial axes."""
    return positions(problem)[0] if positions(problem) else 1


@dataclass(frozen=True)
class EvenRanges(Sequence[range]):
    """The ranges that divide an extent into parts of equal size, computed on access. The last part may be smaller."""

    extent: int
    size: int

    def __len__(self) -> int:
        return len(range(0, self.extent, self.size))

    @overload
    def __getitem__(self, at: int) -> range: ...

    @overload
    def __getitem__(self, at: slice) -> list[range]: ...

    def __getitem__(self, at: int | slice) -> range | list[range]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        begin = range(0, self.extent, self.size)[at]
        return range(begin, min(begin + self.size, self.extent))


@dataclass(frozen=True)
class Cut:
    """A size of pieces: a number of images, or of rows of one image. The last piece may be smaller."""

    images: int
    rows: int | None = None

    def batches(self, problem: Problem) -> EvenRanges:
        """Return the ranges of images, one per piece, in order."""
        return EvenRanges(problem.geometry.batch, self.images)

    def bands(self, problem: Problem) -> EvenRanges:
        """Return the ranges of rows that an image is cut into, in order."""
        return EvenRanges(height(problem), self.rows or max(1, height(problem)))

    def subproblem(self, problem: Problem, images: range, rows: range) -> SubProblem:
        """Return the sub-problem of a range of images and a range of rows."""
        if self.rows is not None:
            return subproblem_of_rows(problem, images.start, rows)
        return subproblem_of(problem, images, whole(problem))

    def subproblems(self, problem: Problem) -> Iterator[SubProblem]:
        """Yield the sub-problem of each piece in order."""
        if self.pieces(problem):
            bands = self.bands(problem)
            for images in self.batches(problem):
                for rows in bands:
                    yield self.subproblem(problem, images, rows)

    def pieces(self, problem: Problem) -> int:
        """Return the number of pieces; 0 if there are no images or no positions."""
        if 0 in positions(problem):
            return 0
        return len(self.batches(problem)) * len(self.bands(problem))

    def __str__(self) -> str:
        if self.rows is None:
            return counted(self.images, "image")
        return f"{self.rows} row{'s' * (self.rows != 1)} of an image"


def cuts(problem: Problem, image_bytes: int, image_chunk: int, row_chunk: int) -> Iterator[tuple[Cut, str]]:
    """Yield possible cuts, each with the reason for its size. Better cuts come first, and the smallest comes last.

    ``image_bytes`` are the bytes of an image's operands. ``image_chunk`` and ``row_chunk`` are the extents of the
    operands' chunks, or 1 if there are none.
    """
    sums, batch = problem.solves_for in SUMMED, problem.geometry.batch
    leaf = leaf_images(problem.geometry) if sums else 1
    rows, step = height(problem), row_step(positions(problem)) if sums else 1
    by_rows = step if leaf == 1 and positions(problem) else None
    if by_rows is None or image_bytes <= MAX_BYTES:  # one large piece cannot be read during a computation
        for size, why in _sizes(batch, leaf, image_chunk, image_bytes, sums, "images"):
            yield Cut(size), why
    if by_rows is not None:
        for size, why in _sizes(rows, by_rows, row_chunk, -(-image_bytes // max(1, rows)), sums, "rows"):
            yield Cut(1, size), why


def _sizes(
    extent: int, minimum: int, chunk: int, each_bytes: int, sums: bool, things: str
) -> Iterator[tuple[int, str]]:
    """Yield sizes of pieces, each with its reason. A size is a multiple of a unit: a node of the tree, or also a chunk.

    The best unit comes first. The first size of a unit is the largest multiple that fits in a cache.
    """
    nodes = [minimum]
    while sums and nodes[-1] < extent:
        nodes.append(nodes[-1] * FAN_IN)
    best_first = [(lcm(node, chunk), node, chunk) for node in reversed(nodes) if chunk > 1]
    best_first += [(node, node, 1) for node in reversed(nodes)]
    for size, node, chunks in best_first:
        if node == minimum or min(size, extent) * each_bytes <= MAX_BYTES:
            maximum = max(1, min(GOOD_BYTES // max(1, each_bytes), extent) // size)
            powers = (1 << level for level in reversed(range((maximum - 1).bit_length())))
            for number in (maximum, *powers):
                why = _why(node, minimum, chunks, sums, things) + "; as many of them as suit a cache" * (
                    number == maximum > 1
                )
                yield max(1, min(number * size, extent)), why


def _why(node: int, minimum: int, chunk: int, sums: bool, things: str) -> str:
    """Return a text that names the units of which a piece is a multiple.

    >>> _why(80, 5, 32, True, "images"), _why(4, 4, 1, True, "rows"), _why(1, 1, 1, False, "images")
    ('80 images are a node of the tree, 32 a chunk', '4 rows are a block', 'images are by themselves')
    """
    named = "a node of the tree" if node > minimum else "a leaf of the tree" if things == "images" else "a block"
    words = [f"{node} {things} are {named}" if node > 1 else f"1 {things[:-1]} is {named}"] * sums
    words += [f"{chunk} a chunk" if sums else f"{chunk} {things} are a chunk"] * (chunk > 1)
    return ", ".join(words) or f"{things} are by themselves"


def remaining(problem: Problem, subproblems: Iterable[SubProblem], images: int, rows: int) -> Iterator[SubProblem]:
    """Yield the unfinished sub-problems in order. ``images`` images, and ``rows`` rows of the next image, are finished.

    ``rows`` is less than the rows of an image. If a sub-problem is partly finished, its unfinished part is yielded.

    >>> from convgrad.notation import problem
    >>> from convgrad.spec.subproblems import whole
    >>> of = problem("BWD_D f32 NXC mb8ic4iw9oc6ow9kw3pw1")
    >>> cut = [subproblem_of(of, range(0, 4), whole(of)), subproblem_of(of, range(4, 8), whole(of))]
    >>> [(subproblem.images, subproblem.ranges) for subproblem in remaining(of, cut, 5, 6)]
    [(range(5, 6), (range(6, 9),)), (range(6, 8), (range(0, 9),))]
    """
    for subproblem in subproblems:
        begun = images in subproblem.images and rows > 0
        if begun and max(rows, subproblem.ranges[0].start) < subproblem.ranges[0].stop:
            ranges = (range(max(rows, subproblem.ranges[0].start), subproblem.ranges[0].stop), *subproblem.ranges[1:])
            yield subproblem_of(problem, range(images, images + 1), ranges)
        first = max(subproblem.images.start, images + begun)
        if first < subproblem.images.stop:
            here = range(first, subproblem.images.stop)
            yield subproblem if here == subproblem.images else subproblem_of(problem, here, subproblem.ranges)
