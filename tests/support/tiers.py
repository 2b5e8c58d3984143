"""Which cases of a table the quick tier runs; the long tier runs the others.

A case is in the quick tier unless it has the mark ``long``. There are two ways to get that mark:

- ``every(n)`` marks a test with many cases. Cases 0, n, 2n, ... in the order of collection stay quick. Several marks of
  one test multiply, and cases that are long by themselves do not count. If n shares no factor with an axis's length and
  the table has at least n cases per value, then each value of the axis is met in the quick tier.
- ``tiers(..., long=CASES)`` has cases that are always long, for example those of a larger size.

If you give pytest the node id of one case that ``every`` leaves out, it is case 0 of what is collected, so it runs.

A run of the quick tier does not even collect long cases, because there are three times as many of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., Any])


def tiers(
    names: str, *axes: Iterable[Any], every: int = 1, long: Iterable[Any] = (), ids: Sequence[str] | None = None
) -> Callable[[Test], Test]:
    """Parametrize a test by all combinations of axes, or by one list of tuples. One in ``every`` of the cases is quick.

    The cases of ``long`` follow; a tuple has the arguments of a case.
    """
    cases = list(axes[0] if len(axes) == 1 else product(*axes))
    cases += [pytest.param(*(case if "," in names else (case,)), marks=pytest.mark.long) for case in long]

    def marked(test: Test) -> Test:
        sampled = pytest.mark.every(every)(test) if every > 1 else test
        return pytest.mark.parametrize(names, cases, ids=ids)(sampled)

    return marked


def collects_quick_alone(config: pytest.Config) -> bool:
    """Return whether long cases are not collected: none is wanted, and no node id names a case."""
    return config.option.markexpr == "not long" and not any("[" in argument for argument in config.args)


def leave_long(metafunc: pytest.Metafunc) -> None:
    """Take from a test the cases that are long or that ``every`` leaves out; one stays if all are long."""
    calls = metafunc._calls
    marks = list(metafunc.definition.iter_markers())
    quick = [call for call in calls if all(mark.name != "long" for mark in (*marks, *call.marks))]
    every = prod(mark.args[0] for mark in marks if mark.name == "every")
    metafunc._calls = quick[::every] or calls[:1]


def leave_samples(items: Iterable[pytest.Item]) -> None:
    """Mark as long the cases that ``every`` leaves out."""
    seen = Counter[str]()
    for item in items:
        every = prod(mark.args[0] for mark in item.iter_markers("every"))
        if every > 1 and not item.get_closest_marker("long"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % every:
                item.add_marker(pytest.mark.long)
            seen[test] += 1
