"""Mutated cases of every notation are read, or refused with its place; ``campaigns/cases.py`` has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.cases import GROWTH_KIB, check, fuzz, peak_kib
from tests.cases.sources import Base, bases

QUICK, LONG_SEEDS, LONG = 400, 10, 10_000


def assert_fuzz(seed: int, count: int) -> None:
    before = peak_kib()
    counts = fuzz(seed, count)
    assert peak_kib() - before < GROWTH_KIB
    for base in bases():
        outcomes = {name.partition(": ")[2]: n for name, n in counts.items() if name.startswith(f"{base.name}: ")}
        total = sum(outcomes.values())
        assert outcomes["refused"] > total // 20, (base.name, outcomes)
        assert outcomes["read"] > total // 20, (base.name, outcomes)


@pytest.mark.parametrize("base", bases(), ids=lambda base: base.name)
def test_what_is_mutated_is_read(base: Base, tmp_path: Path) -> None:
    assert check(base, tmp_path) == "read"


def test_mutants_are_read_or_refused() -> None:
    assert_fuzz(0, QUICK)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_100000_mutants_are_read_or_refused(seed: int) -> None:
    assert_fuzz(seed, LONG)
