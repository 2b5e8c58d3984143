"""Parts of a large output: each part is a sub-problem, with the same exact sums and bounds as in the whole problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.subproblems import Ranges, Region, subproblem_of
from convgrad.spec.subproblems import positions as positions_of
from convgrad.verify.reference import Facts, Progress, Reference, certify, facts_of

Array = NDArray[Any]

PART = 1 << 20  # elements per part: a verdict then takes 0.3 GB of memory, and larger parts are no faster


@dataclass(frozen=True, eq=False)
class Part:
    """A part of an output: elements of the canonical output at ``index``, and the sub-problem that computes them."""

    index: Region
    problem: Problem
    operands: Sequence[Array]
    old: Array | None
    facts: Facts

    @property
    def origin(self) -> tuple[int, ...]:
        """The index of the part's first element in the whole canonical output."""
        return tuple(run.start for run in self.index)

    @property
    def elements(self) -> int:
        """The number of output elements of the part."""
        return prod(run.stop - run.start for run in self.index)

    def certify(self, progress: Progress = lambda share: None) -> Reference:
        """Return the reference of the part, with the same values as in the reference of the whole output."""
        return certify(self.problem, self.operands, self.old, progress, self.facts)


def parts_of(
    problem: Problem, operands: Sequence[Array], old: Array | None = None, maximum: int = PART
) -> Iterator[Part]:
    """Yield the parts of an output; operands are canonical.

    A part has at most ``maximum`` elements, or all channels of one position. The output of a weight or bias gradient,
    or of Winograd tiles, is one part.
    """
    facts = facts_of(problem, operands, old)
    shape = canonical_shape(problem.geometry, problem.output)
    if at_once(problem, maximum) == prod(shape):
        yield Part(tuple(slice(0, extent) for extent in shape), problem, operands, old, facts)
        return
    extents = (problem.geometry.batch, *positions_of(problem))
    for images, *ranges in _ranges_of_parts(extents, max(1, maximum // shape[1])):
        subproblem = subproblem_of(problem, images, tuple(ranges))
        index = _canonical(subproblem.writes, problem.output_order)
        orders = problem.operand_orders
        some = [a[_canonical(read, order)] for a, read, order in zip(operands, subproblem.reads, orders, strict=True)]
        yield Part(index, subproblem.problem, some, None if old is None else old[index], facts.of_images(index[0]))


def at_once(problem: Problem, maximum: int = PART) -> int:
    """Return an upper bound on the number of elements of a part.

    >>> from convgrad.notation import problem
    >>> at_once(problem("FWD_D f32 NXC mb1ic3ih99oc16oh99kh3ph1"), 1000)
    1000
    """
    shape = canonical_shape(problem.geometry, problem.output)
    if problem.solves_for in ("weights", "bias") or problem.algorithm:
        return prod(shape)
    return min(prod(shape), max(maximum, shape[1]))


def references(
    parts: Iterator[Part], elements: int, progress: Progress = lambda share: None
) -> Iterator[tuple[Part, Reference]]:
    """Yield each part with its reference; report the finished share of all ``elements`` to ``progress``."""
    done = 0

    def tell(share: float) -> None:
        progress((done + share * part.elements) / max(1, elements))

    for part in parts:
        yield part, part.certify(tell)
        done += part.elements


def _ranges_of_parts(extents: Sequence[int], maximum: int) -> Iterator[Ranges]:
    """Yield the parts of a grid of positions in order, as one range per axis.

    A part has at most ``maximum`` positions: some indices of the first axis, or a fraction of one index.
    """
    first, *others = extents
    step = maximum // prod(others)
    if step or not others:
        for begin in range(0, first, max(1, step)):
            yield (range(begin, min(begin + max(1, step), first)), *map(range, others))
        return
    for at in range(first):
        for ranges in _ranges_of_parts(others, maximum):
            yield (range(at, at + 1), *ranges)


def _canonical(region: Region, order: Sequence[int]) -> Region:
    return tuple(region[axis] for axis in order)
