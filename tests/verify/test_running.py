"""One running sum in few bits: it is named in results of a few elements, and decides what is declared."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from convgrad.formats import ACCUMULATIONS, round_to
from convgrad.verify import Verdict, check
from convgrad.verify.certificate import certificate
from tests.support.tiers import tiers
from tests.verify.plants import Array, plant

BF16 = ml_dtypes.bfloat16
CALL: dict[str, Any] = {"strides": [1], "dilations": [1]}


def running(src: Array, diff_dst: Array, fmt: str, images_last: bool = False) -> Array:
    """The weight gradient of a layer with one tap by one sum per element, rounded to a format after each addition."""
    rows = [np.moveaxis(a, 0, 1) if images_last else a for a in (src, diff_dst)]
    x, y = (a.reshape(-1, a.shape[2]).astype(np.float64) for a in rows)
    total = np.zeros((1, x.shape[1], y.shape[1]))
    for a, b in zip(x, y, strict=True):
        total = round_to(total + np.outer(a, b), ACCUMULATIONS[fmt])
    return total


def judged(src: Array, diff_dst: Array, got: Array, **declared: Any) -> Verdict:
    call = {**CALL, "weights_shape": [1, src.shape[2], diff_dst.shape[2]]}
    return check("ConvolutionBackwardWeights", got, src, diff_dst, **call, **declared)


@tiers("terms, shape, dtype", [600, 1_600, 5_000], [(1, 1), (1, 2), (2, 2), (3, 5), (6, 7)], ["bf16", "f32"], every=13)
def test_ones_that_add_up_to_256(terms: int, shape: tuple[int, int], dtype: str) -> None:
    """From 256 on, adding 1 in bf16 changes nothing: also one element tells, where operands are of bf16."""
    src, diff_dst = (np.ones((1, terms, n), BF16) for n in shape)
    got = running(src, diff_dst, "bf16")
    assert (got == 256).all()
    verdict = judged(src, diff_dst, got.astype(ACCUMULATIONS[dtype].dtype))
    assert verdict.defects == ("sums accumulated in bf16",)
    assert "one running sum over images, then positions" in verdict.found[0].detail


@tiers("fmt, terms, images_last", ["bf16", "f16"], [64, 700, 3_000], [False, True], every=4)
def test_a_few_elements_of_f32(fmt: str, terms: int, images_last: bool) -> None:
    rng = np.random.default_rng(terms)
    src, diff_dst = (rng.standard_normal((2, terms // 2, n)).astype(np.float32) for n in (2, 3))
    verdict = judged(src, diff_dst, running(src, diff_dst, fmt, images_last).astype(np.float32))
    assert verdict.outcome == "wrong"
    assert verdict.defects == (f"sums accumulated in {fmt}",)
    assert ("positions, then images" if images_last else "images, then positions") in verdict.found[0].detail


def test_with_bias_and_old_value() -> None:
    rng = np.random.default_rng(0)
    src, weights, bias = (rng.standard_normal(s).astype(np.float32) for s in ((1, 2, 90), (1, 90, 3), (3,)))
    old = rng.standard_normal((1, 2, 3)).astype(np.float32)
    total = np.zeros((1, 2, 3)) + round_to((bias + old.astype(np.float64)).astype(np.float64), ACCUMULATIONS["bf16"])
    for channel in range(90):
        total = round_to(
            total + src[..., channel, None].astype(np.float64) * weights[0, channel], ACCUMULATIONS["bf16"]
        )
    verdict = check("Convolution", total.astype(np.float32), src, weights, bias, old=old, **CALL)
    assert verdict.defects == ("sums accumulated in bf16",)


def test_where_the_evidence_is_too_small_the_fact_is_said() -> None:
    src, diff_dst = np.random.default_rng(3).standard_normal((2, 1, 100, 2)).astype(BF16)
    verdict = judged(src, diff_dst, running(src, diff_dst, "bf16").astype(BF16))
    assert (verdict.outcome, verdict.defects) == ("wrong", ())
    assert verdict.where.endswith("all elements have the bits of one running sum in bf16")


@pytest.mark.long
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("whole", [False, True])
def test_chance_has_the_bits_of_no_running_sum(shape: tuple[int, int], whole: bool) -> None:
    rng = np.random.default_rng(shape)
    for _ in range(400):
        src, diff_dst = (rng.integers(-3, 4, (1, 40, n)).astype(np.float32) for n in shape)
        got = rng.integers(-200, 200, (1, *shape)) if whole else 9 * rng.standard_normal((1, *shape))
        assert "sums accumulated in bf16" not in judged(src, diff_dst, got.astype(np.float32)).defects


# -- declared ----------------------------------------------------------------------------------------------------------


@tiers("role, terms, fmt", ["weights", "dst", "src"], [200, 2_000], ["bf16", "f16"], every=5)
def test_accurate_results_are_ok_whatever_is_declared(role: str, terms: int, fmt: str) -> None:
    """Sums in f32 are inside the bound of sums in any narrower format, in f32 and rounded to bf16."""
    for dtype in ("f32", "bf16"):
        p = plant(role, terms, dtype)
        verdict = p.call(p.sums())
        assert verdict.ok
        operator, inputs, attributes = p.arguments()
        declared = check(operator, p.sums().astype(p.x.dtype), *inputs, **attributes, accumulation=fmt)
        assert declared.ok, str(declared)
        assert declared.undecided == 0


@tiers("terms", [300, 700, 1_500], every=2)
def test_running_sums_that_are_declared_are_ok(terms: int) -> None:
    rng = np.random.default_rng(terms)
    for channels in (2, 12):
        src, diff_dst = (rng.standard_normal((1, terms, channels)).astype(BF16) for _ in range(2))
        verdict = judged(src, diff_dst, running(src, diff_dst, "bf16").astype(BF16), accumulation="bf16")
        assert verdict.ok, str(verdict)


def test_long_sums_in_few_bits_are_decided_by_a_replay() -> None:
    """Additions lose whole terms at nearly all elements: only the bits of a running sum tell that it is right."""
    src, diff_dst = np.random.default_rng(0).standard_normal((2, 1, 6_000, 2)).astype(BF16)
    got = running(src, diff_dst, "bf16").astype(BF16)
    assert judged(src, diff_dst, got, accumulation="bf16").ok
    other = got.copy()
    other.view(np.uint16)[0, 0, 0] += 1
    verdict = judged(src, diff_dst, other, accumulation="bf16")
    assert verdict.outcome == "undecided"
    assert "of 4 elements the sum is so large for bf16 that additions lose whole terms" in verdict.reason


@pytest.mark.every(2)
@pytest.mark.parametrize("damage", ["NaN", "infinite", "huge", "zeros", "some zeros"])
def test_what_no_sum_in_few_bits_gives_is_not_ok(damage: str) -> None:
    p = plant("weights", 2_000, "bf16")
    got = p.sums().astype(BF16)
    some = np.s_[...] if damage == "zeros" else np.s_[0, 0, 0, 0]
    got[some] = {"NaN": np.nan, "infinite": np.inf, "huge": 1e9}.get(damage, 0)
    if damage == "some zeros":
        got.reshape(-1)[np.argsort(-np.abs(p.sums()), axis=None)[:3]] = 0
    operator, inputs, attributes = p.arguments()
    verdict = check(operator, got, *inputs, **attributes, accumulation="bf16")
    assert verdict.outcome == ("wrong" if damage in ("NaN", "infinite", "huge") else verdict.outcome)
    assert not verdict.ok


def test_a_certificate_of_a_long_sum_in_few_bits() -> None:
    """Its independent program computes the same bound, which is about n u times the magnitude."""
    from convgrad.functional.call import prepare  # noqa: PLC0415
    from convgrad.verify.bound import error_bound  # noqa: PLC0415
    from convgrad.verify.declared import declared_for  # noqa: PLC0415

    src, diff_dst = np.random.default_rng(0).standard_normal((2, 1, 600, 1)).astype(np.float32)
    call = {**CALL, "weights_shape": [1, 1, 1]}
    prepared = prepare("ConvolutionBackwardWeights", (src, diff_dst), call)
    got = np.array([[[1e9]]], np.float32)
    found = certificate(prepared, (0, 0, 0), got, declared_for(prepared.problem, "bf16"))
    assert found["conclusions"]["verdict"] == "beyond"
    bound = error_bound("ConvolutionBackwardWeights", src, diff_dst, accumulation="bf16", **call)[0, 0, 0]
    magnitude = np.abs(src.astype(float) * diff_dst).sum()
    assert 600 / 256 < bound / magnitude < 610 / 256
