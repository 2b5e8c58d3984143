"""Verdicts: right answers pass, every kind of wrong one is caught."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.engines import numpy as engine
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.notation import problem
from convgrad.spec import exact_result
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.verify.bound import bounded_by
from convgrad.verify.check import as_result, check
from convgrad.verify.compare import compare, sum_bound
from convgrad.verify.declared import declared
from convgrad.verify.fill import Kind, fill
from convgrad.verify.verdict import Evidence, Verdict

SHAPE = (2, 9, 4)


def verdict_on(result: np.ndarray, answer: exact_result.Answer, one: Problem, height: int | None = None):
    """The bound's verdict on a result in the caller's layout, of whatever type."""
    array, fmt = as_result(result, one)
    how = declared(one.operator, one.operand_format, height=height)
    return bounded_by(array.transpose(one.output_order), answer, replace(one, output_format=fmt), how)


def setup(type_name: str) -> tuple[Problem, exact_result.Answer]:
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal(SHAPE).astype(FORMATS[type_name].dtype) for _ in range(2))
    attributes = {"strides": [1], "dilations": [1], "pads_begin": [1], "pads_end": [1], "weights_shape": [3, 4, 4]}
    prepared = prepare("ConvolutionBackwardWeights", (src, diff_dst), attributes)
    return prepared.problem, exact_result.evaluate(prepared.problem, prepared.operands)


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


# An exact value whose sum is finite in f32, the sum of its magnitudes, and what may be got for it in f16, whose largest
# number is 65504 and whose infinity begins at 65520; magnitudes of 1e7 leave a bound of 2.4 at height 4.
INF, NAN = float("inf"), float("nan")
GOT = (3.0, 65472.0, 65504.0, INF, -INF, NAN, -3.0, -65504.0)
JUDGED = {
    "finite": (3.0, 4.0, {3.0}),
    "finite, an end of the bound overflows": (65519.0, 1e7, {65504.0, INF}),
    "rounds to infinity, an end of the bound does not": (65521.0, 1e7, {65504.0, INF}),
    "rounds to infinity": (70000.0, 7e4, {INF}),
    "infinite": (INF, 4.0, {INF}),
    "infinite beside large terms": (INF, 1e7, {INF}),
    "NaN": (NAN, 4.0, {NAN}),
    "NaN beside large terms": (NAN, 1e7, {NAN}),
}


@pytest.mark.every(5)
@pytest.mark.parametrize("got", GOT, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("case", JUDGED)
def test_what_is_right_where_something_is_not_finite(case: str, sign: int, got: float) -> None:
    value, magnitude, right = JUDGED[case]
    one, _ = setup("f16")
    result = np.full((1, 1, 1), sign * got, np.float16)
    verdict = compare(result, answer_of(sign * value, magnitude), one, 4)
    is_right = np.isnan(got) if np.isnan(value) else got in right
    assert (verdict.ok, verdict.beyond, verdict.undecided) == (is_right, not is_right, 0)
    assert verdict.nonfinite == (not abs(value) < 65520)
    assert (verdict.share <= 1) == is_right
    assert (verdict.share == 0) == (verdict.equal == 1)
    if np.isfinite(value) != np.isfinite(got) and not is_right:
        assert verdict.share == INF
    assert str(verdict).startswith("ok" if is_right else "WRONG: 1 of 1 elements")


@pytest.mark.every(10)
@pytest.mark.parametrize("got", GOT, ids=str)
@pytest.mark.parametrize("value", [3.0, 70000.0, INF, NAN])
@pytest.mark.parametrize("type_name", FORMATS)
def test_nothing_is_right_where_sums_may_overflow(type_name: str, value: float, got: float) -> None:
    one, _ = setup(type_name)
    fmt = one.output_format
    with np.errstate(over="ignore"):
        result = np.full((1, 1, 1), got).astype(fmt.dtype)
    verdict = compare(result, answer_of(value, fmt.accumulator.largest), one, 4)
    assert (verdict.ok, verdict.beyond, verdict.undecided, verdict.share) == (False, 0, 1, 0)
    assert str(verdict).startswith("UNDECIDED: 1 of 1")
    assert compare(result, answer_of(value, fmt.accumulator.largest * (1 - 1e-5)), one, 4).undecided == 0


def answer_of(value: float, magnitude: float) -> exact_result.Answer:
    """The exact answer of one element, of four terms."""
    one = (1, 1, 1)
    return exact_result.Answer(np.full(one, value), np.full(one, magnitude), np.full(one, 4), integral=False)


def test_beyond_the_largest_number_of_f8_e4m3_is_nan() -> None:
    """The format has no infinities: NaN is right where the bound reaches what would round to one."""
    one, _ = setup("f8_e4m3")
    for value, nan_is_right in ((463.9999, True), (1000.0, True), (-1000.0, True), (460.0, False)):
        result = np.full((1, 1, 1), np.nan).astype(one.output_format.dtype)
        assert compare(result, answer_of(value, abs(value)), one, 4).ok == nan_is_right, value


def test_nothing_to_compare() -> None:
    attributes = {"strides": [1], "dilations": [1]}
    prepared = prepare("Convolution", (np.ones((0, 5, 1)), np.ones((3, 1, 1))), attributes)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    verdict = compare(answer.rounded(prepared.problem), answer, prepared.problem, 3)
    assert verdict.ok
    assert verdict.elements == 0
    assert str(verdict) == "ok: the result is empty, with nothing to compare but its shape"


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


def filled(line: str, kind: Kind) -> tuple[Problem, exact_result.Answer]:
    one = problem(line)
    shapes = [one.geometry.src_shape, one.geometry.dst_shape]  # type: ignore[union-attr]
    return one, exact_result.evaluate(one, fill(replace(one, layouts=("NCX",) * 3), shapes, kind, 0))


@pytest.mark.every(3)
@pytest.mark.parametrize("kind", ["integers", "normal"])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_results_of_long_sums_are_found(wrong: str, kind: Kind) -> None:
    """200,000 terms a sum: the engine's own height is small enough to tell right from plainly wrong."""
    one, answer = filled(LONG_SUMS, kind)
    right = answer.rounded(one)
    height = engine.NUMPY.height(one)
    assert height < 2048 + 300
    assert compare(right, answer, one, height).share == 0
    verdict = compare(np.ascontiguousarray(WRONG[wrong](right)), answer, one, height)
    assert verdict.beyond > 72, verdict


def test_integers_leave_no_room_at_all() -> None:
    one, answer = filled("BWD_W f32 NXC mb8ic16ih56oc16oh56kh3ph1", "integers")
    right = answer.rounded(one)
    wrong = right.copy()
    wrong[1, 2, 0, 0] += 1
    assert compare(right, answer, one, 10**6).equal == right.size
    assert compare(wrong, answer, one, 10**6).beyond == 1


@pytest.mark.parametrize(("largest", "exact"), [(2.0**24, True), (2.0**24 + 2, False)])
def test_integers_beyond_the_accumulator_have_room(largest: float, exact: bool) -> None:
    """f32 holds every integer up to 2**24, but not 2**24 + 1."""
    x = np.array([[[largest / 2], [largest / 2]]], np.float32)
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]}
    prepared = prepare("ConvolutionBackwardWeights", (x, np.ones_like(x)), attributes)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    assert answer.magnitude.item() == largest
    assert (sum_bound(answer, FORMATS["f32"], 2).item() == 0) == exact


def test_a_depth_too_large_for_gamma_has_the_bound_of_any_order() -> None:
    """A wide bound tells little: elements that it would let be 0 are counted."""
    one, answer = setup("f32")
    verdict = compare(answer.rounded(one), answer, one, 2**24)
    assert verdict.ok
    assert (verdict.undecided, verdict.blind) == (0, 0)
    verdict = compare(answer.rounded(one), answer, one, 2**23 - 1)
    assert verdict.blind > 24
    assert f"a 0 would pass at {verdict.blind}" in str(verdict)


def test_minus_zero_is_not_equal() -> None:
    prepared = prepare("BiasAddBackward", (np.zeros((1, 2), np.float32),), {})
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    assert compare(np.array([0.0, -0.0], np.float32), answer, prepared.problem, 1).equal == 1


def test_f64_underflow_and_overflow() -> None:
    t = 2.0**-537
    x, y = np.array([[[t], [1.5 * t]]]), np.array([[[t], [t]]])
    attributes = {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]}
    prepared = prepare("ConvolutionBackwardWeights", (x, y), attributes)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    assert compare(np.full((1, 1, 1), 2 * 2.0**-1074), answer, prepared.problem, 2).ok
    big = np.array([[[1.5e308], [1.5e308], [-1.5e308]]])
    prepared = prepare("ConvolutionBackwardWeights", (big, np.ones_like(big)), attributes)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    assert compare(np.full((1, 1, 1), 1.5e308), answer, prepared.problem, 3).undecided == 1


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


CALL = {"strides": [1], "dilations": [1], "weights_shape": [3, 4, 4]}
GIVEN = tuple(np.ones((2, n, 4), np.float32) for n in (9, 7))
RESULT = np.ones((3, 4, 4), np.float32)
REFUSED: dict[str, tuple[dict[str, Any], type[convgrad.ConvgradError], str]] = {
    "old": (
        {"old": RESULT.astype(np.float16)},
        convgrad.InvalidDataTypeError,
        "old must be of the result's type, f32; got f16 [T5]",
    ),
    "shape of old": (
        {"old": RESULT[:1]},
        convgrad.InvalidShapeError,
        "old must be f32 3x4x4; got f32 1x4x4 [D2]",
    ),
    **{
        f"height {height}": (
            {"height": height},
            convgrad.InvalidAttributeError,
            f"height must be a non-negative integer, the most roundings a term of a sum went through, "
            f"or the blocks of its order; got {height!r}",
        )
        for height in (-1, 2.5, True, "8")
    },
    **{
        f"blocks {blocks}": (
            {"height": blocks},
            convgrad.InvalidAttributeError,
            f"the blocks of an order must be positive integers, {2**53} at most; got {blocks}",
        )
        for blocks in ([8, 0], [2**53 + 1, 1], [2**63 - 1, 1], [10**30])
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistaken_options_are_refused(case: str) -> None:
    options, error, message = REFUSED[case]
    with pytest.raises(error, match=re.escape(message)):
        check("ConvolutionBackwardWeights", RESULT, *GIVEN, **CALL, **options)


NO_RESULT = {
    "shape": (np.ones((3, 4), np.float32), "result must be f32 3x4x4; got f32 3x4 [D2]"),
    "type": (np.ones((3, 4, 4), np.int8), "result must be an array of f32, bf16, f16"),
    "wider": (np.ones((3, 4, 4)), "rounded to f32 or to fewer bits; got f64 [T4]"),
}


@pytest.mark.parametrize("case", NO_RESULT)
def test_what_no_result_can_be_is_wrong(case: str) -> None:
    result, message = NO_RESULT[case]
    old = {"old": RESULT} if case == "type" else {}  # to which the result was to be added
    for given, options in ((result, {}), (lambda operator, *inputs, **attributes: result, {}), (result, old)):
        verdict = check("ConvolutionBackwardWeights", given, *GIVEN, **options, **CALL)
        assert (verdict.outcome, verdict.defects) == ("wrong", ("wrong shape or type",))
        assert message in str(verdict)


def test_a_function_that_raises_is_wrong() -> None:
    def fails(operator: str, *inputs: object, **attributes: object) -> object:
        raise RuntimeError(f"no kernel for {operator}")

    verdict = check("ConvolutionBackwardWeights", fails, *GIVEN, **CALL)
    assert (verdict.outcome, verdict.defects) == ("wrong", ("raised an error",))
    assert str(verdict).startswith("WRONG: it raised RuntimeError: no kernel for ConvolutionBackwardWeights")
    assert check("ConvolutionBackwardWeights", convgrad.run, *GIVEN, **CALL).ok


@pytest.mark.parametrize("type_name", ["f32", "bf16", "f16"])
def test_a_result_is_judged_by_its_own_type(type_name: str) -> None:
    """Rounded once to its type a result is right; rounded to a narrower one on the way it is not."""
    one, answer = setup("f32")
    assert verdict_on(from_canonical_result(answer, one, type_name), answer, one, 0).share < 1
    narrower = {"f32": "f16", "bf16": None, "f16": "bf16"}[type_name]
    if narrower:
        twice = from_canonical_result(answer, one, narrower).astype(FORMATS[type_name].dtype)
        assert verdict_on(twice, answer, one, 0).beyond > 24


def test_a_result_of_any_byte_order() -> None:
    one, answer = setup("f32")
    right = from_canonical_result(answer, one, "f32")
    assert verdict_on(right.astype(">f4"), answer, one) == verdict_on(right, answer, one)


def from_canonical_result(answer: exact_result.Answer, one: Problem, type_name: str) -> np.ndarray:
    """The answer rounded once to a type, in the caller's layout, which has the two channel axes last."""
    return answer.rounded(replace(one, output_format=FORMATS[type_name])).transpose(2, 1, 0)


def test_a_height_is_the_callers_word_for_the_order() -> None:
    """A result at half of the bound of its own n terms passes as one of any order, not as one of fewer roundings."""
    one, answer = setup("f32")
    n = answer.terms.max()
    off = (answer.value + answer.terms / 2 * 2.0**-24 * answer.magnitude).astype(np.float32).transpose(2, 1, 0)
    assert verdict_on(off, answer, one).ok
    assert verdict_on(off, answer, one, int(n)).ok
    far = (answer.value + 3 * n * 2.0**-24 * answer.magnitude).astype(np.float32).transpose(2, 1, 0)
    assert verdict_on(far, answer, one, int(4 * n)).beyond == far.size  # no term goes through more than there are
    assert verdict_on(far, answer, one).beyond == far.size
    assert verdict_on(off, answer, one, n // 4).beyond == off.size
    assert verdict_on(off, answer, one, 10**400).ok


@pytest.mark.parametrize("accumulate", [False, True])
def test_adding_bias_and_old_is_a_rounding_each(accumulate: bool) -> None:
    """By default a height is the number of products, and one each for bias and old."""
    rng = np.random.default_rng(0)
    src, weights, bias = (rng.standard_normal(s, np.float32) for s in ((1, 4, 2), (1, 2, 3), (3,)))
    old = {"old": rng.standard_normal((1, 4, 3), np.float32)} if accumulate else {}
    call = {"strides": [1], "dilations": [1]}
    result = np.zeros((1, 4, 3), np.float32)
    verdict = check("Convolution", result, src, weights, bias, **old, **call)
    assert verdict == check("Convolution", result, src, weights, bias, **old, **call, height=3 + accumulate)
    assert verdict != check("Convolution", result, src, weights, bias, **old, **call, height=2 + accumulate)


@pytest.mark.parametrize("outcome", ["ok", "wrong", "undecided", "degraded"])
@pytest.mark.parametrize("reason", ["", "x" * 400])
def test_the_first_line_is_short(outcome: str, reason: str) -> None:
    """It has at most 120 characters for results of eight digits of elements; what is cut follows in full."""
    many = 10**8 - 1
    counts = {"wrong": {"beyond": many}, "undecided": {"undecided": many}}.get(outcome, {})
    evidence = (Evidence("a" * 60, 123.456, 1.5, "b" * 60),) * (outcome == "degraded")
    figures = {"elements": many, "equal": many, "nonfinite": many, "blind": many, "share": 1.23e-10}
    verdict = Verdict(**figures, **counts, outcome=outcome, reason=reason, evidence=evidence)  # type: ignore[arg-type]
    assert len(verdict.brief) <= 120
    assert verdict.brief.startswith(outcome if outcome == "ok" else outcome.upper())
    assert (f"in full   {reason}" in verdict.details) == bool(reason)


def test_bound_as_large_as_the_result_is_blind() -> None:
    """A zero is then as right as the result."""
    one = problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw1pw0")
    answer = exact_result.evaluate(one, [np.ones((1, 1, 3)), np.ones((1, 1, 1))])
    got = answer.value.astype(np.float32)
    assert compare(got, answer, one, 1, bound=np.ones((1, 1, 3))).blind == 3
    assert compare(got, answer, one, 1, bound=np.full((1, 1, 3), 0.5)).blind == 0
