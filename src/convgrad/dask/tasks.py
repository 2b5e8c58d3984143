"""The tasks that workers run: they assemble regions from blocks, compute sums or results, and add sums.

A task is a callable object, and its parameters are its fields. So Dask does not interpret the parameters as tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from operator import add

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.dask.blocks import Chunks, assembled
from convgrad.functional.call import canonical, solve
from convgrad.functional.join import join
from convgrad.functional.partials import Partials, check_order, partials_of
from convgrad.functional.rows import Rows, rows_of, subproblem_of_rows
from convgrad.spec.layouts import shape_words
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.rules import refuse
from convgrad.spec.subproblems import Ranges, Region, subproblem_of


@dataclass(frozen=True)
class OnSubProblem:
    """A task on some images and a region. ``operands`` has the extents of each operand's blocks, per axis."""

    problem: Problem
    images: range
    ranges: Ranges
    operands: tuple[Chunks, ...]
    threads: int

    def arrays(self, blocks: Sequence[object]) -> list[Array]:
        """Return the operands, assembled from checked blocks, in the caller's order of axes."""
        check_order(self.problem)
        left, names = iter(blocks), find(self.problem.operator).array_names
        operands = []
        for name, extents in zip(names, self.operands, strict=False):
            parts = [_checked(next(left), shape, self.problem, name) for shape in product(*extents)]
            operands.append(assembled(extents, parts))
        return operands


def _checked(block: object, shape: tuple[int, ...], problem: Problem, name: str) -> Array:
    """Return a block as an array in native byte order.

    Raise by rule D7 or T6 if the block's shape or type is not what its dask array declares.
    """
    array, fmt = arrays.take(block, problem.operator, name)
    if array.shape != shape:  # D7
        must = f"a block of {name} must be {shape_words(shape)}, as its array's chunks say"
        refuse("D7", problem.operator, f"{must}; got {shape_words(array.shape)}")
    if fmt is not problem.operand_format:  # T6
        must = f"a block of {name} must be {problem.operand_format}, as its array's dtype says"
        refuse("T6", problem.operator, f"{must}; got {fmt}")
    return arrays.native(array, fmt)


@dataclass(frozen=True)
class CopyTask:
    """A task that copies a part of an operand's block, because a view would keep the whole block in memory."""

    problem: Problem
    name: str
    shape: tuple[int, ...]
    within: Region

    def __call__(self, block: object) -> Array:
        """Return a copy of the part of a block."""
        return _checked(block, self.shape, self.problem, self.name)[self.within].copy()


@dataclass(frozen=True)
class Write(OnSubProblem):
    """A task that computes a region of a forward or data gradient."""

    def __call__(self, *blocks: Array) -> Array:
        """Return the region of the result."""
        part = subproblem_of(self.problem, self.images, self.ranges).problem
        return solve(part, self.arrays(blocks), threads=self.threads)


@dataclass(frozen=True)
class Sum(OnSubProblem):
    """A task that computes the partial sums of some images."""

    def __call__(self, *blocks: Array) -> Partials:
        """Return the partial sums of the images."""
        part = of_images(self.problem, len(self.images))
        operands = canonical(part, dict(zip(part.operands, self.arrays(blocks), strict=True)))
        return partials_of(part, operands, self.images.start, self.threads)


@dataclass(frozen=True)
class SumRows(OnSubProblem):
    """A task that computes the partial sums of some rows of each of some images."""

    def __call__(self, *blocks: Array) -> tuple[Rows, ...]:
        """Return the partial sums of the rows, one entry per image."""
        operands, sums = self.arrays(blocks), []
        for n, image in enumerate(self.images):
            subproblem = subproblem_of_rows(self.problem, image, self.ranges[0])
            sums.append(rows_of(subproblem, self.problem, [array[n : n + 1] for array in operands], self.threads))
        return tuple(sums)


def add_rows(*parts: tuple[Rows, ...]) -> tuple[Rows, ...]:
    """Return the sums of adjacent ranges of rows, added, with one entry per image."""
    return tuple(reduce(add, rows) for rows in zip(*parts, strict=True))


def whole_images(*parts: tuple[Rows, ...]) -> Partials:
    """Return the sums of whole images from the sums of all their rows."""
    return add_parts(*(rows.partials() for rows in add_rows(*parts)))


def add_parts(*parts: Partials) -> Partials:
    """Return the sums of adjacent ranges of images, added."""
    return reduce(add, parts)


@dataclass(frozen=True)
class JoinTask:
    """A task that combines all sums into the gradient. ``dtype`` is the type of the gradient."""

    dtype: str

    def __call__(self, *parts: Partials) -> Array:
        """Return the gradient."""
        gradient: Array = join(parts, dtype=self.dtype)
        return gradient
