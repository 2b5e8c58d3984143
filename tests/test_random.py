"""Random legal problems of every operator against the oracle: bits on integers, the bound on normal numbers."""

import numpy as np
import pytest

from helpers import assert_bounded, assert_exact, random_case

QUICK_SEEDS = 4
LONG_SEEDS = 50


def _integers(seed: int, count: int) -> None:
    rng = np.random.default_rng([1, seed])
    for number in range(count):
        assert_exact(random_case(rng), number)


def _normal(seed: int, count: int) -> None:
    rng = np.random.default_rng([2, seed])
    for number in range(count):
        assert_bounded(random_case(rng), number)


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_integers_give_the_bits_of_the_oracle(seed: int) -> None:
    _integers(seed, 100)


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_normal_numbers_keep_the_bound(seed: int) -> None:
    _normal(seed, 250)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_5000_on_integers(seed: int) -> None:
    _integers(seed, 100)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_20000_on_normal_numbers(seed: int) -> None:
    _normal(seed, 400)
