"""Defects of loops: only the last terms of a sum count, or sums are rounded between rows or images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from campaigns.verdict import Tally, judge_all, problems
from tests.verify.planted_loops import LOOPS, mixed, overwritten
from tests.verify.plants import TYPES, plant
from tests.verify.test_diagnose import PLANTS, damaged
from tests.verify.verdict_power import LINES, rows_of


@pytest.mark.parametrize(
    ("role", "loops", "words"),
    [
        ("weights", "rows", "only the last row of each image counts"),
        ("weights", "positions", "only the last position of each image counts"),
        ("dst", "taps", "only the last tap of each channel counts"),
        ("src", "channels", "only the last channel counts"),
    ],
)
def test_last_terms_in_words(role: str, loops: str, words: str) -> None:
    verdict = PLANTS[role].call(overwritten(PLANTS[role], loops))
    assert (verdict.found[0].name, verdict.found[0].detail) == ("overwritten instead of summed", words)


@pytest.mark.parametrize(
    ("loops", "role"), [("columns", "weights"), ("positions", "weights"), ("taps", "dst"), ("taps", "src")]
)
def test_last_terms_on_padding(loops: str, role: str) -> None:
    """A loop that multiplies padding leaves 0 where the last term is padding."""
    (defect,) = PLANTS[role].call(overwritten(PLANTS[role], loops, skips_padding=False)).found
    assert defect.name == "overwritten instead of summed"
    assert defect.detail.partition(";")[0].endswith("counts, padding included")


def test_both_of_two_images_fit_two_names() -> None:
    one = PLANTS["weights"]
    (defect,) = one.call(one.unread(0)).found
    assert (defect.name, defect.detail) == (
        "first image missing",
        "not summed; also fits: overwritten instead of summed",
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("loops", LOOPS)
def test_mixed_accumulation_is_named(loops: str, dtype: str) -> None:
    one = plant("weights", 2_000, dtype)
    (defect,) = one.call(mixed(one, loops)).found
    assert defect.name == "partial sums rounded to bf16"
    assert defect.detail.startswith(f"{LOOPS[loops]}, the same bits at ")


@pytest.mark.every(2)
@pytest.mark.parametrize("order", ["images reversed", "rows reversed"])
def test_another_order_of_bf16_sums_is_not_named_by_its_loops(order: str) -> None:
    one = plant("weights", 2_000, "bf16")
    turned = replace(one, x=one.x[::-1], y=one.y[::-1])
    verdict = one.call(mixed(turned, order.partition(" ")[0]))
    assert verdict.outcome == "wrong"
    assert "the same bits" not in str(verdict.found)


def test_damage_of_a_bf16_result_is_not_mixed_accumulation() -> None:
    """Where elements are right, a replay has their bits, but this is no evidence."""
    one = plant("weights", 2_000, "bf16")
    one = replace(one, x=one.x[:1], y=one.y[:1])
    assert one.call(damaged(one.sums(), "some", np.random.default_rng(4))).defects == ()


@pytest.mark.long
def test_right_bf16_results_have_no_mixed_accumulation() -> None:
    """Also if all elements that are not the rounded exact sum are taken for wrong."""
    tally = Tally(names=True)
    for at, (what, prepared) in enumerate(problems(5, 2, "BWD_W bf16 NXC mb4ic6ih5oc8oh5kh1", ["normal", "relu"])):
        judge_all(what, prepared, at, tally)
    assert tally.tried > 20
    assert (tally.named, tally.alarms) == ([], [])


@pytest.mark.every(2)
@pytest.mark.parametrize(("terms", "defect"), [(200, "bf16 partials, 2"), (2_000, "tf32 accumulation of blocks")])
def test_other_partial_sums_are_not_those_of_a_loop(terms: int, defect: str) -> None:
    """A replay must also have the bits of the wrong elements that it does not explain."""
    cells = rows_of([LINES[terms]], [defect])[defect].values()
    assert not any("!" in cell for cell in cells)
