"""The unfinished sums of some rows of one image, as a value: of a leaf of the batch that fits nowhere whole.

Rows are those of the first axis of the swept tensor: of a weight or bias gradient, of what is summed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from convgrad.functional.partials import Partials, as_partials, sum_of
from convgrad.functional.sums import Sum, add, added
from convgrad.spec.boxes import blocks_of, boxes
from convgrad.spec.layouts import axis_order
from convgrad.spec.pieces import Nodes, climb, nodes_of, total
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.slabs import Region, Slab, positions, slab_of, whole

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Unfinished sums of rows of image ``image``; neighbours add, and all rows of an image are its ``partials``.

    ``sums`` are f32 arrays of the output's shape, of the nodes that ``spec.pieces.nodes_of`` names of the rows' blocks.
    """

    problem: Problem
    image: int
    rows: range
    sums: tuple[Array, ...]

    def __sizeof__(self) -> int:
        return super().__sizeof__() + sum(array.nbytes for array in self.sums)

    def known(self) -> list[tuple[Nodes, Sum]]:
        """Return the sums, and which nodes of the image's tree they are of, from left to right."""
        blocks = blocks_of(positions(self.problem), self.rows)
        nodes = nodes_of(blocks.start, blocks.stop)
        return [(one, (array,)) for one, array in zip(nodes, self.sums, strict=True)]

    def __add__(self, right: Rows) -> Rows:
        """Return the sums of both, where ``right`` are the rows that follow."""
        if right.problem != self.problem or (right.image, right.rows.start) != (self.image, self.rows.stop):
            raise ValueError(f"rows must follow one another; got {self} and {right}")
        made = climb([*self.known(), *right.known()], add)
        return replace(self, rows=range(self.rows.start, right.rows.stop), sums=tuple(added(one) for _, one in made))

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows of the image."""
        return self.rows == range(positions(self.problem)[0])

    def partials(self) -> Partials:
        """Return the sums of the image, a leaf of the batch's tree, of which these are all rows."""
        if not self.is_whole:
            raise ValueError(f"an image's sum is that of all its rows; got {self}")
        return as_partials(self.problem, self.image, 1, (added(total(self.known(), add)),))

    def __str__(self) -> str:
        return f"image {self.image}, rows {self.rows.start} to before {self.rows.stop}"

    def __repr__(self) -> str:
        return f"<Rows: {self}>"


def rows_of(slab: Slab, whole_problem: Problem, given: Sequence[Array], threads: int | None = None) -> Rows:
    """Return the sums of a slab of one image, all of whose rows are wide, from the regions that it reads.

    ``given`` are these regions as the caller has them. The problem is that of which the slab is one.
    """
    extents, rows = positions(whole_problem), slab.box[0]
    known: list[tuple[Nodes, Sum]] = []
    for nodes, box in boxes(extents, blocks_of(extents, rows)):
        part = slab_of(whole_problem, slab.images, box)
        views = [
            array[_within(region, outer)].transpose(axis_order(layout, array.ndim))
            for array, region, outer, layout in zip(given, part.reads, slab.reads, whole_problem.layouts, strict=False)
        ]
        known.append((nodes, (sum_of(part.problem, views, threads),)))
    made = climb(known, add)
    image = of_images(whole_problem, 1)
    return Rows(image, slab.images.start, rows, tuple(added(one) for _, one in made))


def _within(region: Region, outer: Region) -> Region:
    """Return a region of an array as one of that array's region."""
    return tuple(
        slice(one.start - from_.start, one.stop - from_.start) for one, from_ in zip(region, outer, strict=True)
    )


def slab_of_rows(problem: Problem, image: int, rows: range) -> Slab:
    """Return the slab of some rows of an image.

    >>> from convgrad.notation import problem
    >>> slab_of_rows(problem("BWD_W f32 NXC mb8ic4iw300oc6ow300kw3pw1"), 3, range(0, 256)).reads[0][:2]
    (slice(3, 4, None), slice(0, 257, None))
    """
    return slab_of(problem, range(image, image + 1), (rows, *whole(problem)[1:]))
