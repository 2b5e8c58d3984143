"""Which of many cases the quick tier runs: the long tier runs the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def tiers(names: str, *axes: Sequence[Any], every: int) -> pytest.MarkDecorator:
    """Parametrize by all combinations, or by one list of tuples. Every so many are quick, the others in the long tier.

    So each value of each axis is met in the quick tier, where ``every`` shares no factor with an axis's length.
    """
    of_tuples = len(axes) == 1 and "," in names
    cases = [
        pytest.param(*case, marks=[pytest.mark.long] * bool(at % every))
        for at, case in enumerate(axes[0] if of_tuples else product(*axes))
    ]
    return pytest.mark.parametrize(names, cases)


def then_long(quick: Iterable[Any], long: Iterable[Any]) -> list[Any]:
    """Return cases of the quick tier, then those of the long tier; tuples are the arguments of a case."""
    return [*quick, *(pytest.param(*(c if isinstance(c, tuple) else (c,)), marks=pytest.mark.long) for c in long)]
