"""Verdicts: right answers pass, every kind of wrong one is caught."""

from __future__ import annotations

import numpy as np
import pytest

from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec import oracle
from convgrad.spec.order import height_of
from convgrad.verify.compare import compare, compare_recorded

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
    inside = oracle.Answer(answer.value + side * bound * 0.99, answer.magnitude, answer.terms).rounded(problem)
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
    unclaimed = np.count_nonzero(answer.magnitude * (1 + 2.0**-18) > FORMATS["f32"].largest)
    assert 0 < unclaimed == verdict.elements - verdict.beyond


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
