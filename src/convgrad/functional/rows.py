"""The unfinished sums of some rows of one image, for images that do not fit in memory.

A row has all positions of dst with the same index on the first spatial axis. Weight and bias gradients are sums over
the positions of dst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convgrad.array_types import Array
from convgrad.functional.partials import Partials, as_partials, sum_of
from convgrad.functional.sums import Computed, Sum, add, added, grown
from convgrad.spec.image_cuts import blocks_of, nodes_with_ranges
from convgrad.spec.layouts import axis_order
from convgrad.spec.pieces import Nodes, combine, nodes_of, total
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.subproblems import Ranges, Region, SubProblem, positions, subproblem_of, whole


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """The unfinished sums of some rows of an image. Add neighbouring Rows to get the sums of all rows.

    ``sums`` are f32 arrays of the output's shape, one for each item that ``spec.pieces.nodes_of`` returns for
    the blocks of the rows.
    """

    problem: Problem
    image: int
    rows: range
    sums: tuple[Array, ...]

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(array.nbytes for array in self.sums)

    def known(self) -> list[tuple[Nodes, Sum]]:
        """Return the sums in the order of the image's tree, each with the tree's nodes that it contains."""
        blocks = blocks_of(positions(self.problem), self.rows)
        nodes = nodes_of(blocks.start, blocks.stop)
        return [(node, (array,)) for node, array in zip(nodes, self.sums, strict=True)]

    def check_next(self, right: Rows) -> None:
        """Raise ValueError unless ``right`` are the next rows of the same image."""
        if right.problem != self.problem:
            raise ValueError(f"rows must be of one problem to be added; got {self.problem} and {right.problem}")
        if (right.image, right.rows.start) != (self.image, self.rows.stop):
            raise ValueError(f"rows must follow one another to be added; got {self} and {right}")

    def __add__(self, right: Rows) -> Rows:
        """Return the sums of these rows and the next rows, ``right``."""
        self.check_next(right)
        combined = combine([*self.known(), *right.known()], add)
        rows = range(self.rows.start, right.rows.stop)
        return replace(self, rows=rows, sums=tuple(added(terms) for _, terms in combined))

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the image."""
        return self.rows == range(positions(self.problem)[0])

    def partials(self) -> Partials:
        """Return the sum of the image, a leaf of the batch's tree. Raise ValueError if rows are missing."""
        if not self.is_whole:
            raise ValueError(f"an image's sum needs all rows of the image, {positions(self.problem)[0]}; got {self}")
        return as_partials(self.problem, self.image, 1, (added(total(self.known(), add)),))

    def __str__(self) -> str:
        return f"image {self.image}, rows {self.rows.start} to before {self.rows.stop}"

    def __repr__(self) -> str:
        return f"<Rows: {self}>"


def rows_of(
    subproblem: SubProblem,
    whole_problem: Problem,
    regions: Sequence[Array],
    threads: int | None = None,
    before: Rows | None = None,
) -> Rows:
    """Return the sums of a sub-problem that consists of whole rows of one image.

    ``whole_problem`` contains the sub-problem, and ``regions`` are the regions that the sub-problem reads, in the
    caller's memory format. If ``before`` is given, return the sums of its rows and of the new rows. The new sums are
    added to copies of the sums of ``before``, which needs fewer arrays than adding two Rows.

    Raises ValueError if the sub-problem is not whole rows of one image, if the rows begin or end within a block, or if
    they do not follow ``before``.
    """
    extents, rows = positions(whole_problem), subproblem.ranges[0]
    if len(subproblem.images) != 1 or subproblem.ranges[1:] != whole(whole_problem)[1:]:
        raise ValueError(
            f"rows must be whole rows of one image; got images {subproblem.images} and ranges {subproblem.ranges}"
        )
    grown_rows = Rows(of_images(whole_problem, 1), subproblem.images.start, rows, ())
    if before is not None:
        before.check_next(grown_rows)

    def computed(ranges: Ranges) -> Computed:
        part = subproblem_of(whole_problem, subproblem.images, ranges)
        views = [
            array[_within(region, outer)].transpose(axis_order(layout, array.ndim))
            for array, region, outer, layout in zip(
                regions, part.reads, subproblem.reads, whole_problem.layouts, strict=False
            )
        ]
        return lambda total: sum_of(part.problem, views, threads, total)

    more = ((nodes, computed(ranges)) for nodes, ranges in nodes_with_ranges(extents, blocks_of(extents, rows)))
    known = [] if before is None else before.known()
    first = rows if before is None else before.rows
    return replace(grown_rows, rows=range(first.start, rows.stop), sums=grown(known, more))


def _within(region: Region, outer: Region) -> Region:
    """Return a region of an array relative to the ``outer`` region of the same array."""
    return tuple(
        slice(inner.start - from_.start, inner.stop - from_.start) for inner, from_ in zip(region, outer, strict=True)
    )


def subproblem_of_rows(problem: Problem, image: int, rows: range) -> SubProblem:
    """Return the sub-problem of some rows of an image.

    >>> from convgrad.notation import problem
    >>> subproblem_of_rows(problem("BWD_W f32 NXC mb8ic4iw300oc6ow300kw3pw1"), 3, range(0, 256)).reads[0][:2]
    (slice(3, 4, None), slice(0, 257, None))
    """
    return subproblem_of(problem, range(image, image + 1), (rows, *whole(problem)[1:]))
