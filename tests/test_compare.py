"""Verdicts: right answers pass, every kind of wrong one is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import convgrad
from convgrad.engines import numpy as engine
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.spec import oracle
from convgrad.spec.order import height_of
from convgrad.verify.compare import compare, compare_recorded
from convgrad.verify.exact import check
from convgrad.verify.fill import fill

SHAPE = (2, 9, 4)


def setup(type_name: str, scale: float = 1.0, dtype: str | None = None):
    rng = np.random.default_rng(0)
    fmt = FORMATS[type_name]
    src, diff_dst = ((scale * rng.standard_normal(SHAPE)).astype(fmt.dtype) for _ in range(2))
    attributes = {"strides": [1], "dilations": [1], "pads_begin": [1], "pads_end": [1], "weights_shape": [3, 4, 4]}
    prepared = prepare("ConvolutionBackwardWeights", (src, diff_dst), attributes, dtype)
    return prepared.problem, oracle.evaluate(prepared.problem, prepared.operands)


@pytest.mark.parametrize("type_name", FORMATS)
def test_the_rounded_answer_is_right(type_name: str) -> None:
    problem, answer = setup(type_name)
    verdict = compare(answer.rounded(problem), answer, problem, height_of(problem))
    assert verdict.ok
    assert verdict.equal == verdict.elements == 48
    assert verdict.share < 1


@pytest.mark.parametrize("type_name", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("side", [-1, 1])
def test_the_ends_of_the_bound(type_name: str, side: int) -> None:
    """Just inside the bound passes, a few units in the last place outside it does not."""
    problem, answer = setup(type_name)
    fmt, height = problem.output_format, height_of(problem)
    verdict = compare(answer.rounded(problem), answer, problem, height)
    bound = np.float64(height * 2.0**-24) * answer.magnitude
    inside = replace(answer, value=answer.value + side * bound * 0.99).rounded(problem)
    assert compare(inside, answer, problem, height).ok
    wrong = answer.rounded(problem)
    far = answer.value[1, 2, 0] + side * (3 * bound[1, 2, 0] + 4 * fmt.unit * abs(answer.value[1, 2, 0]))
    wrong[1, 2, 0] = far
    verdict = compare(wrong, answer, problem, height)
    assert not verdict.ok
    assert verdict.beyond == 1
    assert verdict.share > 1
    assert verdict.worst == (0, 2, 1)  # in the caller's layout, XIO
    assert "1 of 48 elements beyond the bound" in str(verdict)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_element_is_wrong(value: float) -> None:
    problem, answer = setup("f32")
    wrong = answer.rounded(problem)
    wrong[0, 0, 0] = value
    verdict = compare(wrong, answer, problem, height_of(problem))
    assert verdict.beyond == 1
    assert verdict.share > 1


def test_what_non_finite_operands_reach_must_match() -> None:
    problem, answer = setup("f32")
    answer.value[0, 0, 0], answer.value[0, 0, 1] = np.nan, np.inf
    right = answer.rounded(problem)
    assert compare(right, answer, problem, height_of(problem)).ok
    for index, value in (((0, 0, 0), 1.0), ((0, 0, 1), -np.inf), ((0, 0, 1), np.nan)):
        wrong = right.copy()
        wrong[index] = value
        assert compare(wrong, answer, problem, height_of(problem)).beyond == 1


def test_overflow_of_f16_must_be_infinity_where_the_whole_interval_overflows() -> None:
    problem, answer = setup("f16", scale=300.0)
    right = answer.rounded(problem)
    assert np.isinf(right).any()
    assert compare(right, answer, problem, height_of(problem)).ok
    saturated = np.where(np.isinf(right), np.copysign(np.float16(65504), right), right)
    assert not compare(saturated, answer, problem, height_of(problem)).ok


def test_no_claim_where_f32_sums_may_overflow() -> None:
    problem, answer = setup("f32", scale=1e19)
    got = np.full_like(answer.rounded(problem), np.nan)
    verdict = compare(got, answer, problem, height_of(problem))
    assert 0 < verdict.undecided == verdict.elements - verdict.beyond
    assert not verdict.ok


def test_recorded_results_are_exact_up_to_their_rounding() -> None:
    problem, answer = setup("bf16")
    recorded = answer.rounded(problem)
    assert compare_recorded(recorded, recorded, answer, problem, height_of(problem)).share == 0
    other = recorded.copy()
    other[0, 0, 0] = np.float32(other[0, 0, 0]) * 1.05
    assert not compare_recorded(other, recorded, answer, problem, height_of(problem)).ok


def test_nothing_to_compare() -> None:
    attributes = {"strides": [1], "dilations": [1]}
    prepared = prepare("Convolution", (np.ones((0, 5, 1)), np.ones((3, 1, 1))), attributes)
    answer = oracle.evaluate(prepared.problem, prepared.operands)
    verdict = compare(answer.rounded(prepared.problem), answer, prepared.problem, 3)
    assert verdict.ok
    assert str(verdict) == "ok: nothing to compare"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_non_finite_operand_decides_what_it_reaches_and_no_more(value: float) -> None:
    src, diff_dst = np.ones((1, 5, 2), np.float32), np.ones((1, 3, 2), np.float32)
    src[0, 4, 1] = value  # the last tap of channel 1 alone sees it
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [3, 2, 2]}
    right = convgrad.run("ConvolutionBackwardWeights", src, diff_dst, **attributes)
    assert np.argwhere(~np.isfinite(right)).tolist() == [[2, 1, 0], [2, 1, 1]]
    assert check("ConvolutionBackwardWeights", right, src, diff_dst, **attributes).ok
    for index, wrong in (((2, 1, 0), 3.0), ((2, 1, 0), np.inf if np.isnan(value) else -value), ((0, 0, 0), value)):
        damaged = right.copy()
        damaged[index] = wrong
        assert check("ConvolutionBackwardWeights", damaged, src, diff_dst, **attributes).beyond == 1
    src[0, 3, 1] = 3e38  # beside it a finite sum that may overflow in f32: no claim there
    diff_dst[0, 1] = 3e38
    assert check("ConvolutionBackwardWeights", right, src, diff_dst, **attributes).undecided > 0


# -- what must never pass ------------------------------------------------------------------------------------------

WRONG = {
    "zeros": np.zeros_like,
    "negated": lambda right: -right,
    "taps reversed": lambda right: right[..., ::-1, ::-1],
    "channels exchanged": lambda right: right.swapaxes(0, 1),
}
LONG_SUMS = "BWD_W f32 NXC mb64ic4ih56oc4oh56kh3ph1"


@pytest.mark.parametrize("kind", ["integers", "normal"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_results_of_long_sums_are_found(wrong: str, kind: str) -> None:
    """200,000 terms a sum: the engine's own height is small enough to tell right from plainly wrong."""
    one = problem(LONG_SUMS)
    operands = fill(replace(one, layouts=("NCX",) * 3), [one.geometry.src_shape, one.geometry.dst_shape], kind, 0)  # type: ignore[arg-type,union-attr]
    answer = oracle.evaluate(one, operands)
    right = answer.rounded(one)
    height = engine.height(one)
    assert height < 2048 + 300
    assert compare(right, answer, one, height).share == 0
    verdict = compare(np.ascontiguousarray(WRONG[wrong](right)), answer, one, height)
    assert verdict.beyond > 72, verdict


def test_integers_leave_no_room_at_all() -> None:
    one = problem("BWD_W f32 NXC mb8ic16ih56oc16oh56kh3ph1")
    shapes = [one.geometry.src_shape, one.geometry.dst_shape]  # type: ignore[union-attr]
    answer = oracle.evaluate(one, fill(replace(one, layouts=("NCX",) * 3), shapes, "integers", 0))
    right = answer.rounded(one)
    wrong = right.copy()
    wrong[1, 2, 0, 0] += 1
    assert compare(right, answer, one, 10**6).equal == right.size
    assert compare(wrong, answer, one, 10**6).beyond == 1


def test_a_bound_too_long_to_hold_decides_nothing() -> None:
    one_problem, answer = setup("f32")
    verdict = compare(answer.rounded(one_problem), answer, one_problem, 2**24)
    assert not verdict.ok
    assert verdict.undecided == verdict.elements
    assert str(verdict).startswith("UNDECIDED: 48 of 48")


def test_blind_elements_are_counted() -> None:
    one_problem, answer = setup("f32")
    verdict = compare(answer.rounded(one_problem), answer, one_problem, 2**23)
    assert verdict.blind > 24
    assert f"a 0 would pass at {verdict.blind}" in str(verdict)


def test_minus_zero_is_not_equal() -> None:
    prepared = prepare("BiasAddBackward", (np.zeros((1, 2), np.float32),), {})
    answer = oracle.evaluate(prepared.problem, prepared.operands)
    assert compare(np.array([0.0, -0.0], np.float32), answer, prepared.problem, 1).equal == 1


def test_f64_underflow_and_overflow() -> None:
    t = 2.0**-537
    x, y = np.array([[[t], [1.5 * t]]]), np.array([[[t], [t]]])
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]}
    prepared = prepare("ConvolutionBackwardWeights", (x, y), attributes)
    answer = oracle.evaluate(prepared.problem, prepared.operands)
    assert compare(np.full((1, 1, 1), 2 * 2.0**-1074), answer, prepared.problem, 2).ok
    big = np.array([[[1.5e308], [1.5e308], [-1.5e308]]])
    prepared = prepare("ConvolutionBackwardWeights", (big, np.ones_like(big)), attributes)
    answer = oracle.evaluate(prepared.problem, prepared.operands)
    assert compare(np.full((1, 1, 1), 1.5e308), answer, prepared.problem, 3).undecided == 1


def test_a_recorded_infinity_of_f16_is_judged_by_the_exact_value() -> None:
    x, y = np.array([[[65520.0 / 256]]], np.float16), np.array([[[256.0]]], np.float16)
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]}
    prepared = prepare("ConvolutionBackwardWeights", (x, y), attributes)
    answer = oracle.evaluate(prepared.problem, prepared.operands)
    recorded = answer.rounded(prepared.problem)
    if np.isinf(recorded).all():
        assert compare_recorded(recorded, recorded, answer, prepared.problem, 1).ok


def test_a_recording_in_a_wider_format() -> None:
    one_problem, answer = setup("bf16")
    got = answer.rounded(one_problem)
    assert compare_recorded(got, answer.value, answer, one_problem, height_of(one_problem)).ok
    assert compare_recorded(got, answer.value.astype(np.float32), answer, one_problem, height_of(one_problem)).ok
    assert not compare_recorded(got, 1.1 * answer.value, answer, one_problem, height_of(one_problem)).ok


def test_check_in_the_callers_layout() -> None:
    rng = np.random.default_rng(0)
    src, diff_dst = rng.standard_normal((2, 9, 4), np.float32), rng.standard_normal((2, 7, 5), np.float32)
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [3, 4, 5]}
    right = convgrad.run("ConvolutionBackwardWeights", src, diff_dst, **attributes)
    assert check("ConvolutionBackwardWeights", right, src, diff_dst, **attributes).ok
    right[2, 3, 4] += 1
    verdict = check("ConvolutionBackwardWeights", right, src, diff_dst, **attributes)
    assert verdict.beyond == 1
    assert verdict.worst == (2, 3, 4)
    old = np.ones_like(right)
    out = old.copy()
    convgrad.run("ConvolutionBackwardWeights", src, diff_dst, out=out, accumulate=True, **attributes)
    assert check("ConvolutionBackwardWeights", out, src, diff_dst, old=old, **attributes).ok
    with pytest.raises(convgrad.InvalidShapeError, match=r"the result must be f32 .*\[D2\]"):
        check("ConvolutionBackwardWeights", out[0], src, diff_dst, **attributes)
