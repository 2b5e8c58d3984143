"""The campaigns of Winograd's algorithm find nothing: kernels against the executed order, and errors against bounds."""

from __future__ import annotations

import json

import pytest

from campaigns.winograd import main as campaign_main
from convgrad.spec.winograd.bound import BOUNDS
from tests.support.engine_helpers import HOST

runs = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@runs
@pytest.mark.long
def test_campaigns_find_the_executed_bits_and_nothing_beyond_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign_main(["--executed", "--problems", "4"]) == campaign_main(["--problems", "24"]) == 0
    executed, bounded = map(json.loads, capsys.readouterr().out.splitlines())
    assert (executed["problems"], executed["wrong"]) == (4, 0)
    for bound in BOUNDS:
        assert bounded[bound]["beyond"] == 0
        assert bounded[bound]["largest"] > 1e-3  # of a bound that is not infinite


@runs
@pytest.mark.long
def test_a_campaign_of_long_sums_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign_main(["--long", "--problems", "20"]) == 0
    executed, bounded = map(json.loads, capsys.readouterr().out.splitlines())
    assert (executed["problems"], executed["wrong"], bounded["problems"]) == (20, 0, 20)
