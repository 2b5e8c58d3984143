"""The places of wrong elements in the operator's words: taps, channels, groups, images, rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.geometry import Channels
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem

Mask = NDArray[np.bool_]
_POSITIONS = {1: ("position",), 2: ("row", "column"), 3: ("plane", "row", "column")}
LISTED = 4


@dataclass(frozen=True)
class AxisWords:
    """The name of an axis of a canonical result, and its number of groups."""

    singular: str
    after: str = ""  # text after the index
    groups: int = 1

    @property
    def plural(self) -> str:
        """The plural of the name."""
        return f"{self.singular}s"


def axis_words(problem: Problem) -> tuple[AxisWords, ...]:
    """Return the names of the canonical axes of a problem's result.

    >>> from convgrad.notation import problem
    >>> [w.singular + w.after for w in axis_words(problem("BWD_W f32 NXC mb1ic2ih4oc2oh4kh3ph1"))]
    ['output channel', 'input channel', 'tap on axis 0', 'tap on axis 1']
    """
    geometry = problem.geometry
    groups = 1 if isinstance(geometry, Channels) else geometry.groups
    if problem.output == "bias":
        return (AxisWords("channel"),)
    rank = len(geometry.extents) if isinstance(geometry, Channels) else len(geometry.axes)
    if problem.output == "weights":
        first, second = ("input", "output") if find(problem.operator).transposed else ("output", "input")
        taps = tuple(AxisWords("tap", f" on axis {axis}" if rank > 1 else "") for axis in range(rank))
        return (AxisWords(f"{first} channel", groups=groups), AxisWords(f"{second} channel"), *taps)
    named = _POSITIONS.get(rank)
    positions = tuple(AxisWords("position", f" on axis {a}") for a in range(rank))
    if named:
        positions = tuple(AxisWords(word) for word in named)
    return (AxisWords("image"), AxisWords("channel", groups=groups), *positions)


def spatial_words(rank: int) -> tuple[str, ...]:
    """Return the names of positions along each spatial axis."""
    return _POSITIONS.get(rank, ("position",) * rank)


def place(beyond: Mask, terms: NDArray[np.int64], problem: Problem) -> str:
    """Return a sentence that locates the wrong elements of a canonical result, or "" if none is wrong.

    The sentence is the first true one of this list:

    - all elements are wrong;
    - exactly the elements at some indices are wrong;
    - exactly the elements without terms, or next to padding, are wrong;
    - all wrong elements are at some indices;
    - all wrong elements are without terms, or next to padding;
    - a share of the elements is wrong, without a pattern.

    >>> from convgrad.notation import problem
    >>> small = problem("BWD_W f32 NXC mb1ic2ih4oc2oh4kh3ph1")
    >>> mask = np.zeros((2, 2, 3, 3), bool)
    >>> mask[:, :, 2] = True
    >>> place(mask, np.ones(mask.shape, int), small)
    'exactly all elements of tap 2 on axis 0 (the last of 3): 12 of 36'
    """
    count = int(np.count_nonzero(beyond))
    if count in (0, beyond.size):
        return "every element is wrong" if count else ""
    indices, names = _indices_with(beyond), axis_words(problem)
    parts = [indices_in_words(m, n, w) for m, n, w in zip(indices, beyond.shape, names, strict=True) if m.size < n]
    of = f"{count} of {beyond.size}"
    if parts and count == prod(m.size for m in indices):
        return f"{'only the element' if count == 1 else 'exactly all elements'} of {', '.join(parts)}: {of}"
    for some, words in _kinds(terms):
        if np.array_equal(beyond, some):
            return f"exactly the elements {words}: {of}"
    bounded = [part for part in parts if "indices" not in part]
    if bounded:
        return f"all {count} wrong elements are in {', '.join(bounded)}: {of}"
    for some, words in _kinds(terms):
        if some.any() and not (beyond & ~some).any():
            return f"all {count} wrong elements are among the {np.count_nonzero(some)} {words}: {of}"
    return f"{100 * count / beyond.size:.3g} % of the elements, no pattern: {of}"


def beside(beyond: Mask, error: NDArray[np.float64], problem: Problem) -> str:
    """Return a phrase with the number of elements at the wrong indices that err more than all other elements.

    Bounds are wide: most elements of a wrong tap may be inside their bounds and still err more than all other taps. The
    phrase is empty unless this number exceeds the number of elements beyond the bound.
    """
    names = axis_words(problem)
    bounded = [
        m if m.size < n and "indices" not in indices_in_words(m, n, w) else np.arange(n)
        for m, n, w in zip(_indices_with(beyond), beyond.shape, names, strict=True)
    ]
    there = np.zeros(beyond.shape, np.bool_)
    there[np.ix_(*bounded)] = True
    if there.all() or np.array_equal(there, beyond):
        return ""
    off = int(np.count_nonzero(error[there] > error[~there].max()))
    if off <= np.count_nonzero(beyond):
        return ""
    return f"of the {np.count_nonzero(there)} elements there {off} err more than any elsewhere"


def _indices_with(beyond: Mask) -> list[NDArray[np.intp]]:
    """Return for each axis the indices at which a mask has a true element."""
    axes = range(beyond.ndim)
    return [np.flatnonzero(beyond.any(tuple(a for a in axes if a != axis))) for axis in axes]


def _kinds(terms: NDArray[np.int64]) -> list[tuple[Mask, str]]:
    fewest, maximum = int(terms.min(initial=0)), int(terms.max(initial=0))
    if fewest == maximum:
        return []
    return [(terms == 0, "without terms"), (terms < maximum, "with fewer terms than others, next to padding")]


def indices_in_words(indices: NDArray[np.intp], extent: int, words: AxisWords) -> str:
    """Return indices along an axis in words: groups, one index, a range, an even step, a short list, or a count."""
    groups = _groups(indices, extent, words.groups)
    if groups:
        return groups
    first, last, n = int(indices[0]), int(indices[-1]), indices.size
    if n == 1:
        at = "the last" if first == extent - 1 and extent > 1 else "the first" if first == 0 else "one"
        return f"{words.singular} {first}{words.after} ({at} of {extent})"
    steps = np.unique(np.diff(indices))
    if steps.size == 1 and steps[0] == 1:
        at = "the last" if last == extent - 1 else "the first" if first == 0 else ""
        return f"{words.plural} {first}..{last}{words.after} ({f'{at} {n}' if at else n} of {extent})"
    if steps.size == 1 and n > 2:
        step = int(steps[0])
        whole = first < step and last + step >= extent
        ends = "" if whole else f" up to {last}"
        return f"every {_ordinal(step)} {words.singular}{words.after} from {first}{ends}"
    if n <= LISTED:
        return f"{words.plural} {', '.join(map(str, indices))}{words.after}"
    return f"{n} of {extent} indices of {words.singular}{words.after}"


def _groups(indices: NDArray[np.intp], extent: int, groups: int) -> str:
    if groups == 1:
        return ""
    group_size = extent // groups
    hit = np.unique(indices // group_size)
    if indices.size != hit.size * group_size or hit.size > LISTED:
        return ""
    return f"group{'s' * (hit.size > 1)} {_and(hit.tolist())} of {groups}"


def _and(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"
