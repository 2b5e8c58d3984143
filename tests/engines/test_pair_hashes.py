"""The digest of bf16 problems is one, however terms are taken; and it is not where pairs are taken of any data."""

from __future__ import annotations

import pytest

from convgrad.plan.pairs import MIN_EXPONENT_SUM
from tests.engines.pair_hashes import ALWAYS, all_problems, hash_of, main, ways
from tests.support.engine_helpers import HOST

pytestmark = pytest.mark.skipif(not HOST, reason="no generated kernels run here")
PROBLEMS = tuple(enumerate(all_problems()))
SHOWN = "BWD_W bf16 NXC mb2ic33ih9oc16oh9kh3ph1 to f32", "FWD_D bf16 NXC mb2ic32ih9oc17oh9kh3ph1 to f32"
DENORMAL = 9  # of the kinds, the one whose results are denormal


@pytest.mark.long  # test_pairs.py and test_forward_pairs.py have samples of each family
@pytest.mark.parametrize("number", [5, 201, 346])
def test_however_terms_are_taken_the_bits_are_the_same(number: int) -> None:
    """The program does all 400 on one to four threads; here one of each family."""
    at, words = PROBLEMS[number]
    assert hash_of(words, at, ways(), threads=(2,))[1] == []


@pytest.mark.every(2)
@pytest.mark.parametrize("words", SHOWN)
def test_a_limit_of_nothing_is_seen(words: str) -> None:
    """The instruction's own bits, where its results are denormal, are others."""
    found = {limit: hash_of(words, DENORMAL, ways(limit), (1,), (False,))[1] for limit in (MIN_EXPONENT_SUM, ALWAYS)}
    assert found[MIN_EXPONENT_SUM] == []
    assert "pairs flushed" in found[ALWAYS][0]


@pytest.mark.long
def test_the_program_says_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--every", "57"]) == 0
    assert main(["--every", "57", "--limit", "0"]) == 1
    assert "DIFFERS" in capsys.readouterr().out
    assert MIN_EXPONENT_SUM == 142
