"""Random legal problems of every operator against the oracle: bits on integers, the bound on normal numbers.

Beside them those of campaigns/classes.py: depthwise, small groups, thin layers, long rows, on generated kernels.
"""

import numpy as np
import pytest

from campaigns.classes import BIASED, CHUNK, SHARED, Tally, run_chunk
from convgrad.verify.fill import Kind
from tests.engines.runs import refuse_numpy
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_bounded, assert_exact, random_case

QUICK_SEEDS = 4
LONG_SEEDS = 50
QUICK = [("f8_e4m3", "f8_e5m2")]  # types of operands and results
QUICK_CHUNKS = [SHARED.index((*types, isa)) for types in QUICK for isa in HOST[:1]]
NORMAL, INTEGERS = range(100, 180), range(200, 275)  # chunks of the long tier

needs_kernels = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


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
    _integers(seed, 30)


@pytest.mark.parametrize("seed", range(QUICK_SEEDS))
def test_normal_numbers_keep_the_bound(seed: int) -> None:
    _normal(seed, 50)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_5000_on_integers(seed: int) -> None:
    _integers(seed, 100)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_20000_on_normal_numbers(seed: int) -> None:
    _normal(seed, 400)


# -- special classes, by the generated engine --------------------------------------------------------------------------


def _special(chunk: int, kind: Kind, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_numpy(monkeypatch)
    tally = Tally()
    run_chunk(chunk, kind, count, tally)
    assert not tally.wrong, f"{len(tally.wrong)} of {count} problems are wrong; {tally.wrong[0]}"
    assert tally.classes.keys() == BIASED.keys()
    assert tally.roles.keys() == {"dst", "src", "weights"}


@needs_kernels
@pytest.mark.parametrize("chunk", QUICK_CHUNKS)
def test_special_classes(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _special(chunk, "integers", len(BIASED), monkeypatch)


@needs_kernels
@pytest.mark.long
@pytest.mark.parametrize("chunk", NORMAL)
def test_20000_of_special_classes_on_normal_numbers(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _special(chunk, "normal", CHUNK, monkeypatch)


@needs_kernels
@pytest.mark.long
@pytest.mark.parametrize("chunk", INTEGERS)
def test_5000_of_special_classes_on_integers(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _special(chunk, "integers", CHUNK, monkeypatch)


@needs_kernels
@pytest.mark.parametrize("chunks", [NORMAL, INTEGERS], ids=["normal", "integers"])
def test_the_long_tier_has_all_types_and_instruction_sets(chunks: range) -> None:
    assert {SHARED[chunk % len(SHARED)] for chunk in chunks} == set(SHARED)
