"""Ways to make a call, in which any two choices of two axes meet; and few cases of a table that meet all of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeVar

Way = Mapping[str, Any]
Case = TypeVar("Case")


def pairs_of(way: Way) -> set[tuple[Any, ...]]:
    """Return the pairs of choices of a way."""
    return set(combinations(way.items(), 2))


def covering(choices: Mapping[str, Sequence[Any]]) -> Iterator[Way]:
    """Yield ways in which any two choices of two axes meet."""
    rng = random.Random(0)
    left = {
        ((one, a), (other, b)) for one, other in combinations(choices, 2) for a in choices[one] for b in choices[other]
    }
    while left:
        drawn = [{name: rng.choice(some) for name, some in choices.items()} for _ in range(100)]
        best = max(drawn, key=lambda way: len(pairs_of(way) & left))
        left -= pairs_of(best)
        yield best


def few_of(
    cases: Iterable[Case],
    met_by: Callable[[Case], set[tuple[Any, ...]]],
    shared_by: Callable[[Case], Any] = lambda case: None,
) -> list[Case]:
    """Return few of many cases that meet all that the many meet; they share what is expected, as far as they can."""
    covered = {case: met_by(case) for case in cases}
    left, found, known = set[tuple[Any, ...]]().union(*covered.values()), list[Case](), set[Any]()
    while left:
        best = max(covered, key=lambda case: len(covered[case] & left) - (shared_by(case) not in known))
        left -= covered.pop(best)
        found.append(best)
        known.add(shared_by(best))
    return found
