"""The limits of calls that are kept for GPUs: the least recently used ones are removed first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from convgrad.engines.cuda import kept
from convgrad.engines.cuda.kept import KeptCalls

CAPACITY, TABLES_BYTES = 6, 100


class Prepared(NamedTuple):
    """A prepared call that has only a table."""

    key: int
    table_bytes: int


@pytest.mark.parametrize("seed", range(4))
def test_number_and_tables_are_limited(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept calls are the longest row of latest ones within both limits, or only the latest one."""
    monkeypatch.setattr(kept, "TABLES_BYTES", TABLES_BYTES)
    rng, calls, latest = np.random.default_rng(seed), KeptCalls[Prepared](CAPACITY), list[Prepared]()
    sizes = [int(size) for size in rng.choice([1, 10, 30, 60, 130], size=12)]
    for key in map(int, rng.integers(len(sizes), size=300)):
        was_kept = key in calls.calls
        made: list[Prepared] = []

        def prepare(key: int = key, made: list[Prepared] = made) -> Prepared:
            made.append(Prepared(key, sizes[key]))
            return made[0]

        call = calls.get(key, prepare)
        assert (call.key, bool(made)) == (key, not was_kept)
        latest = [*[other for other in latest if other.key != key], call]
        while len(latest) > 1 and (len(latest) > CAPACITY or sum(one.table_bytes for one in latest) > TABLES_BYTES):
            del latest[0]
        assert [*calls.calls.values()] == latest


def test_calls_that_fail_are_not_kept() -> None:
    calls = KeptCalls[Prepared](CAPACITY)
    with pytest.raises(ZeroDivisionError):
        calls.get(3, lambda: Prepared(3, 1 // 0))
    assert not calls.calls
