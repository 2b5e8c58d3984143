"""Error statistics by group of elements: a channel, a source channel with a tap, a tap, a row or a column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log, prod, sqrt

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.verify.judge.errors import Errors
from convgrad.verify.judge.names import ONE_GROUP
from convgrad.verify.judge.sample import ELEMENTS
from convgrad.verify.judge.statistics.bias import leaning
from convgrad.verify.judge.statistics.finding import LEVEL, Finding
from convgrad.verify.judge.statistics.size import largest_threshold, size_threshold
from convgrad.verify.terms import Index
from convgrad.verify.verdict import Defect, Evidence

FEWEST = 8
UPRIGHT = 3.0  # errors whose t is larger are called biased: all elements may share the cause
FOLLOWING = 99  # stands for all following axes

# For each output tensor: the groupings by name, and the axes of the canonical output whose indices identify a group.
_DATA = (("{} channel", (1,)), ("row of an image", (0, 2)), ("column", (-1,)))
_GROUPS: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]] = {
    "weights": (("destination channel", (0,)), ("source channel and tap", (1, FOLLOWING)), ("tap", (2, FOLLOWING))),
    "dst": tuple((name.format("destination"), axes) for name, axes in _DATA),
    "src": tuple((name.format("source"), axes) for name, axes in _DATA),
    "bias_add": tuple((name.format("destination"), axes) for name, axes in _DATA),
    "bias": (),
}


@dataclass(frozen=True)
class Grouping:
    """A way to group elements: a group has the elements with equal indices along the ``kept`` axes.

    ``summed`` has the other axes, and ``origin`` the first index along each kept axis.
    """

    name: str
    kept: tuple[int, ...]
    summed: tuple[int, ...]
    origin: Index

    def total(self, values: Array) -> Array:
        """Return the sum of the values of each group."""
        summed: Array = values.sum(axis=self.summed)
        return summed

    def place(self, group: Index) -> str:
        """Return the name and the indices of a group."""
        return f"{self.name} {', '.join(str(at + first) for at, first in zip(group, self.origin, strict=True))}"


def groupings(errors: Errors) -> Iterator[tuple[Grouping, F64Array]]:
    """Yield the groupings of an output into several groups, with the number of independent elements of each group."""
    rank = errors.value.ndim
    yielded = set()
    for name, axes in _GROUPS[errors.problem.solves_for]:
        if FOLLOWING in axes:
            kept = tuple(range(axes[0], rank))
        else:
            kept = tuple(sorted({axis % rank for axis in axes if axis < rank}))
        summed = tuple(axis for axis in range(rank) if axis not in kept)
        shape = tuple(errors.value.shape[axis] for axis in kept)
        if kept in yielded or not kept or not summed or prod(shape) < 2:
            continue
        yielded.add(kept)
        grouping = Grouping(name, kept, summed, tuple(errors.origin[axis] for axis in kept))
        counts = grouping.total(errors.alone).astype(np.float64)
        if counts.max(initial=0) >= FEWEST:
            yield grouping, counts


def sizes(errors: Errors) -> Finding:
    """Return for each grouping the largest root mean square R of a group's errors in standard deviations.

    A large R is computed again with the variance factors (kappas) of the group's own elements.
    """
    figures, evidence, named = {}, [], []
    squared = np.square(np.where(errors.alone, errors.z, 0.0))
    for grouping, counts in groupings(errors):
        members = np.maximum(counts, 1)
        size = np.where(counts >= FEWEST, np.sqrt(grouping.total(squared) / members), 0.0)
        excess = size / (1.3 * (1 + 14 / np.sqrt(np.maximum(members / errors.shared, 1))))
        worst = tuple(int(i) for i in np.unravel_index(int(excess.argmax()), excess.shape))
        value, threshold = float(size[worst]), size_threshold(members[worst] / errors.shared, 14.0)
        if threshold < value < 6 * threshold:
            value, threshold = _second_look(errors, grouping, worst)
        figures[f"R of a {grouping.name}"] = value
        if value > threshold:
            evidence.append(Evidence(f"R of a {grouping.name}", value, threshold, grouping.place(worst)))
            has_several = _several(errors, grouping, worst, threshold)
            if np.count_nonzero(excess > 1) == 1 and has_several and _others_are_fine(errors, grouping, worst):
                named.append(Defect(ONE_GROUP.format(grouping.name), grouping.place(worst)))
    return Finding(figures, tuple(evidence), tuple(named))


def _second_look(errors: Errors, grouping: Grouping, group: Index) -> tuple[float, float]:
    members = np.argwhere(errors.alone & _inside(errors, grouping, group))
    chosen = np.random.default_rng(0).permutation(len(members))[:ELEMENTS]
    at = [tuple(int(i) for i in members[member]) for member in chosen]
    z = np.array([errors.z[index] for index in at])
    return sqrt(float((np.square(z) / errors.own_share(at)).mean())), size_threshold(z.size / errors.shared, 14.0)


def _inside(errors: Errors, grouping: Grouping, group: Index) -> NDArray[np.bool_]:
    inside = np.zeros(errors.value.shape, np.bool_)
    index: list[int | slice] = [slice(None)] * errors.value.ndim
    for axis, at in zip(grouping.kept, group, strict=True):
        index[axis] = at
    inside[tuple(index)] = True
    return inside


def _several(errors: Errors, grouping: Grouping, group: Index, threshold: float) -> bool:
    """Return whether a group is wrong even without its worst element; otherwise only this element is wrong."""
    z = np.sort(np.abs(errors.z[errors.alone & _inside(errors, grouping, group)]))[:-1]
    return bool(z.size and np.square(z).mean() > threshold**2)


def _others_are_fine(errors: Errors, grouping: Grouping, group: Index) -> bool:
    """Return whether the errors outside a group are small and unbiased; otherwise more than the group is wrong."""
    others = errors.only(~_inside(errors, grouping, group))
    numbers = others.z[others.alone]
    small = np.square(numbers).mean() <= size_threshold(numbers.size) ** 2 if numbers.size else True
    return bool(
        small and np.abs(numbers).max(initial=0) <= largest_threshold(numbers.size) and leaning(others) <= UPRIGHT
    )


def leanings(errors: Errors) -> Finding:
    """Return for each grouping the largest bias and the largest mean of a group's errors, as statistics t."""
    figures, evidence, named = {}, [], []
    masked = np.where(errors.alone, errors.z, 0.0)
    allowance = np.where(errors.alone, errors.allowance, 0.0)
    for grouping, counts in groupings(errors):
        many = np.maximum(counts, 1)
        threshold = sqrt(2 * log(4 * counts.size / LEVEL)) + 1
        square = errors.shared * np.maximum(grouping.total(np.square(masked)), errors.observed * many)
        allowed = grouping.total(allowance)
        for name, signed in (("bias", masked * np.sign(errors.value)), ("mean", masked)):
            t = np.maximum(np.abs(grouping.total(signed)) - allowed, 0) / np.sqrt(square)
            t = np.where(counts >= FEWEST, t, 0.0)
            worst = tuple(int(i) for i in np.unravel_index(int(t.argmax()), t.shape))
            figures[f"{name} of a {grouping.name}"] = float(t[worst])
            if t[worst] > threshold:
                words = f"{name} of a {grouping.name}"
                evidence.append(Evidence(words, float(t[worst]), threshold, grouping.place(worst)))
                if np.count_nonzero(t > threshold) == 1 and _others_are_fine(errors, grouping, worst):
                    named.append(Defect(ONE_GROUP.format(grouping.name), grouping.place(worst)))
    return Finding(figures, tuple(evidence), tuple(named))
