"""Parts of a large output, and samples: each part is a sub-problem with the exact sums and bounds of the whole.

A sample of a forward or of a data gradient has some of many small parts, drawn at random, and the first and the last
part. A sample of a weight gradient is one part. It pairs blocks of source channels with blocks of destination channels
at random, so that each channel and each tap is sampled: this is a problem with more groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, gcd, lgamma, log, prod
from typing import Any

import numpy as np

from convgrad.array_types import Array
from convgrad.spec.geometry import Conv
from convgrad.spec.problem import Problem, canonical_shape, intern
from convgrad.spec.subproblems import Ranges, Region, subproblem_of
from convgrad.spec.subproblems import positions as positions_of
from convgrad.verify.reference import Facts, Progress, Reference, certify, facts_of

PART = 1 << 20  # elements per part: a verdict then takes 0.3 GB of memory, and larger parts are no faster
DRAWN = 64  # number of parts of a sample of positions
MISSED = 0.05  # probability that a sample misses a defect of the stated size


@dataclass(frozen=True, eq=False)
class OutputPart:
    """A part of an output: elements of the canonical output at ``index``, and the sub-problem that computes them.

    In a sample of a weight gradient, the first two entries of ``index`` are arrays of channels.
    """

    index: tuple[Any, ...]
    problem: Problem
    operands: Sequence[Array]
    old: Array | None
    facts: Facts

    @property
    def scattered(self) -> bool:
        """Whether the part has blocks of channels that are not neighbours."""
        return not isinstance(self.index[0], slice)

    @property
    def origin(self) -> tuple[int, ...]:
        """The index of the part's first element in the whole canonical output."""
        return self.whole_index((0,) * len(self.index))

    def whole_index(self, index: Sequence[int]) -> tuple[int, ...]:
        """Return the index in the whole canonical output of the part's element at ``index``."""
        if self.scattered:
            channels, others, *_ = self.index
            return int(channels[index[0], 0]), int(others[tuple(index[:2])]), *index[2:]
        return tuple(at + run.start for at, run in zip(index, self.index, strict=True))

    @property
    def elements(self) -> int:
        """The number of output elements of the part."""
        return prod(canonical_shape(self.problem.geometry, self.problem.output))

    def certify(self, progress: Progress = lambda share: None) -> Reference:
        """Return the reference of the part, with the same values as in the reference of the whole output."""
        return certify(self.problem, self.operands, self.old, progress, self.facts)


@dataclass(frozen=True)
class SampleWish:
    """A wish to judge about ``elements`` elements of an output, which ``seed`` selects."""

    elements: int
    seed: int = 0


def parts_of(
    problem: Problem,
    operands: Sequence[Array],
    old: Array | None = None,
    maximum: int = PART,
    sample: SampleWish | None = None,
) -> Iterator[OutputPart]:
    """Yield the parts of an output, or those of a sample; operands are canonical.

    A part has at most ``maximum`` elements, but at least all channels of one position, or all weights of one
    destination channel. The output of a bias gradient, or of Winograd tiles, is one part and has no sample.
    """
    facts = facts_of(problem, operands, old)
    shape = canonical_shape(problem.geometry, problem.output)
    drawn = is_sampled(problem, sample)
    if drawn and sample is not None and problem.solves_for == "weights":
        yield _paired(problem, operands, old, facts, sample)
        return
    if not drawn and at_once(problem, maximum) == prod(shape):
        yield OutputPart(tuple(slice(0, extent) for extent in shape), problem, operands, old, facts)
        return
    if problem.solves_for == "weights":
        yield from _of_channels(problem, operands, old, facts, maximum)
        return
    extents = (problem.geometry.batch, *positions_of(problem))
    if drawn and sample is not None:
        maximum = min(maximum, sample.elements // DRAWN)
    ranges_of_all: Iterable[Ranges] = _ranges_of_parts(extents, max(1, maximum // shape[1]))
    if drawn and sample is not None:
        ranges_of_all = _drawn([*ranges_of_all], sample)
    for images, *ranges in ranges_of_all:
        subproblem = subproblem_of(problem, images, tuple(ranges))
        index = _canonical(subproblem.writes, problem.output_order)
        orders = problem.operand_orders
        some = [a[_canonical(read, order)] for a, read, order in zip(operands, subproblem.reads, orders, strict=True)]
        yield OutputPart(index, subproblem.problem, some, None if old is None else old[index], facts.at(index))


def is_sampled(problem: Problem, sample: SampleWish | None) -> bool:
    """Return whether a sample has fewer elements than the output.

    >>> from convgrad.notation import problem
    >>> [is_sampled(problem(f"BWD_W f32 NXC mb1ic{ic}iw9oc8ow9kw1"), SampleWish(1)) for ic in (8, 3)]
    [True, False]
    """
    elements = prod(canonical_shape(problem.geometry, problem.output))
    if sample is None or problem.algorithm or sample.elements >= elements or problem.solves_for == "bias":
        return False
    if problem.solves_for == "weights":
        return _divisor(problem, sample) > 1
    parts = len([*_ranges_of_parts((problem.geometry.batch, *positions_of(problem)), _positions(problem, sample))])
    return parts > DRAWN


def said_of(problem: Problem, sample: SampleWish, checked: int) -> str:
    """Return the sentence of a verdict on a sample: its size, its seed, and the defects that it may miss."""
    elements, is_weights = prod(canonical_shape(problem.geometry, problem.output)), problem.solves_for == "weights"
    missed = _missed_of_channels(_conv(problem)) if is_weights else _missed_of_parts(problem, sample)
    coverage = ", with each channel and tap" * is_weights
    drawn = f"checked {checked} of {elements} elements, drawn by seed {sample.seed}{coverage}"
    return f"{drawn}; a defect in fewer than {100 * missed:.2g} % of the elements may be missed"


def _missed_of_parts(problem: Problem, sample: SampleWish) -> float:
    """Return the share of elements with which a defect is in so many parts that a sample hits one of these."""
    extents = (problem.geometry.batch, *positions_of(problem))
    sizes = [prod(map(len, ranges)) for ranges in _ranges_of_parts(extents, _positions(problem, sample))]
    parts: float = 1 - MISSED ** (1 / (DRAWN - 2))
    return min(1.0, parts * max(sizes) * len(sizes) / sum(sizes))


def _missed_of_channels(conv: Conv) -> float:
    """Return the share of pairs of channels with which a defect is in so many pairs that a sample hits one of these.

    A sample is a random permutation of a group's source channels. By Bregman's theorem, at most (r!)^(n/r) of n!
    permutations hit none of the pairs if r of n are right in each row.
    """
    n = conv.src_channels // conv.groups
    rows = range(n, 0, -1)
    missing = (r for r in rows if conv.groups * (n * lgamma(r + 1) / r - lgamma(n + 1)) <= log(MISSED))
    return 1 - next(missing, 0) / n


def _positions(problem: Problem, sample: SampleWish) -> int:
    channels = canonical_shape(problem.geometry, problem.output)[1]
    return max(1, min(PART, sample.elements // DRAWN) // channels)


def _drawn(ranges_of_all: Sequence[Ranges], sample: SampleWish) -> list[Ranges]:
    """Return some of the parts of a grid in order: the first, the last, and others at random."""
    last = len(ranges_of_all) - 1
    others = 1 + np.random.default_rng(sample.seed).choice(last - 1, DRAWN - 2, replace=False)
    return [ranges_of_all[at] for at in (0, *sorted(others.tolist()), last)]


def _conv(problem: Problem) -> Conv:
    assert isinstance(problem.geometry, Conv)
    return problem.geometry


def _divisor(problem: Problem, sample: SampleWish) -> int:
    """Return the number of blocks into which a sample divides the channels of a group."""
    conv = _conv(problem)
    wanted = ceil(prod(canonical_shape(conv, "weights")) / max(1, sample.elements))
    common = gcd(conv.src_channels // conv.groups, conv.dst_channels // conv.groups)
    return next((n for n in range(1, common + 1) if common % n == 0 and n >= wanted), common)


def _paired(
    problem: Problem, operands: Sequence[Array], old: Array | None, facts: Facts, sample: SampleWish
) -> OutputPart:
    """Return the sample of a weight gradient as a problem of more groups, in which source channels are reordered."""
    conv, blocks = _conv(problem), _divisor(problem, sample)
    inner, outer = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    rng = np.random.default_rng(sample.seed)
    order = np.array([rng.permutation(inner).reshape(blocks, -1) for _ in range(conv.groups)])
    own = np.repeat(np.sort(order, axis=-1).reshape(conv.groups * blocks, -1), outer // blocks, axis=0)
    channels = (np.sort(order, axis=-1) + inner * np.arange(conv.groups).reshape(-1, 1, 1)).ravel()
    some = [a[:, channels] if tensor == "src" else a for tensor, a in zip(problem.operands, operands, strict=True)]
    index: Any = (np.arange(conv.dst_channels).reshape(-1, 1), own, *(slice(0, a.kernel) for a in conv.axes))
    part = intern(replace(problem, geometry=replace(conv, groups=conv.groups * blocks)))
    return OutputPart(index, part, some, None if old is None else old[index], facts.at(index))


def _of_channels(
    problem: Problem, operands: Sequence[Array], old: Array | None, facts: Facts, maximum: int
) -> Iterator[OutputPart]:
    """Yield the parts of a weight gradient: some groups, or some destination channels of a group."""
    conv = _conv(problem)
    inner, outer = conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    together = max(1, maximum // (inner * conv.taps))
    groups, step = max(1, together // outer), min(together, outer)
    for first in range(0, conv.groups, groups):
        count = min(groups, conv.groups - first)
        src = slice(first * inner, (first + count) * inner)
        for begin in range(first * outer, (first + count) * outer, step * count):
            dst = slice(begin, min(begin + step * count, (first + count) * outer))
            geometry = replace(conv, groups=count, src_channels=count * inner, dst_channels=dst.stop - begin)
            index = (dst, slice(0, inner), *(slice(0, a.kernel) for a in conv.axes))
            reads = {"src": src, "dst": dst}
            some = [a[:, reads[tensor]] for tensor, a in zip(problem.operands, operands, strict=True)]
            part = intern(replace(problem, geometry=geometry))
            yield OutputPart(index, part, some, None if old is None else old[index], facts.at(index))


def at_once(problem: Problem, maximum: int = PART) -> int:
    """Return an upper bound on the number of elements of a part.

    >>> from convgrad.notation import problem
    >>> at_once(problem("FWD_D f32 NXC mb1ic3ih99oc16oh99kh3ph1"), 1000)
    1000
    """
    shape = canonical_shape(problem.geometry, problem.output)
    if problem.solves_for == "bias" or problem.algorithm:
        return prod(shape)
    smallest = prod(shape[1:]) if problem.solves_for == "weights" else shape[1]
    return min(prod(shape), max(maximum, smallest))


def references(
    parts: Iterable[OutputPart], elements: int, progress: Progress = lambda share: None
) -> Iterator[tuple[OutputPart, Reference]]:
    """Yield each part with its reference; report the finished share of all ``elements`` to ``progress``."""
    done = 0

    def tell(share: float) -> None:
        progress(min(1.0, (done + share * part.elements) / max(1, elements)))

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
