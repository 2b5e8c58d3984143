"""The certified reference is the exact sum rounded once, whatever the data and the order of what adds in float64."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest

from campaigns.certified import DATA, ROUNDING, Tally, check_orders, check_reference, kind_of, main, rounded
from convgrad.formats import BF16, F16, F32, Format
from convgrad.functional.call import Prepared, prepare
from convgrad.spec import exact_result
from convgrad.verify import gather, reference, sums
from convgrad.verify.reference import certify
from convgrad.verify.terms import Terms
from convgrad.verify.wide import exact_sum
from tests.support.helpers import operands_of, random_case


@pytest.mark.every(2)
@pytest.mark.parametrize("chunk", [2, sums.CHUNK])
def test_values_and_errors_against_fractions(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With chunks of 2 what joins miss counts; pieces of 64 numbers are many; taps are met one by one or together."""
    monkeypatch.setattr(sums, "CHUNK", chunk)
    if chunk == 2:
        monkeypatch.setattr(gather, "NUMBERS", 64)
        monkeypatch.setattr(gather, "TERMS", 1)
    tally = Tally()
    with np.errstate(all="ignore"):
        for number in range(48):
            check_reference(np.random.default_rng([103, chunk, number]), kind_of(number), tally)
    assert tally.wrong == []
    assert tally.compared > 1000


@pytest.mark.parametrize("fmt", ROUNDING, ids=str)
def test_sums_in_any_order_keep_the_bound(fmt: Format) -> None:
    tally = Tally()
    with np.errstate(all="ignore"):
        for number, kind in enumerate(DATA):
            check_orders(np.random.default_rng([104, number]), kind, 100, fmt, tally)
    assert tally.wrong == []
    assert tally.compared > 100
    assert tally.largest > 0.5  # of bounds that are not met, but nearly


@pytest.mark.long
@pytest.mark.parametrize("what", ["references", "orders"])
def test_many(what: str) -> None:
    assert main([what, "--problems", "3000", "--sums", "300000", "--seed", "7"]) == 0


def dot(x: list[float], y: list[float], dtype: type = np.float32) -> Prepared:
    """Return the call whose result is the one sum of x[k] y[k]."""
    a, b = (np.array(values, dtype).reshape(1, -1, 1) for values in (x, y))
    return prepare("ConvolutionBackwardWeights", (a, b, (1, 1, 1)), {"strides": [1], "dilations": [1]})


# A sum of products, and what it is in f32, bf16 and f16: ties, and sums beside them by less than float64 tells.
ONE = 1 + 2.0**-23
DECIDED = {
    "a tie to even": ([1, 2.0**-24], [1, 1], (1, 1, 1)),
    "a tie to odd": ([ONE, 2.0**-24], [1, 1], (1 + 2.0**-22, 1, 1)),
    "above it": ([1, 2.0**-24, 2.0**-70], [1, 1, 2.0**-30], (ONE, 1, 1)),
    "below it": ([ONE, 2.0**-24, -(2.0**-70)], [1, 1, 2.0**-30], (ONE, 1, 1)),
    "of bf16, rounded to f32 on the way": ([1, 2.0**-8, 2.0**-40], [1, 1, 1], (1 + 2.0**-8, 1 + 2.0**-7, 1 + 2.0**-8)),
    "of f16, above it": ([1, 2.0**-11, 2.0**-70], [1, 1, 1], (1 + 2.0**-11, 1, 1 + 2.0**-10)),
    "all cancels but the last": ([1e30, -1e30, 2.0**-126], [1e8, 1e8, 2.0**-10], (2.0**-136, 0, 0)),
    "half of the smallest": ([2.0**-100, 2.0**-149], [2.0**-50, 2.0**-149], (2.0**-149, 0, 0)),
    "0 by cancelling": ([3, -1, 0.1, -0.1], [1, 3, 7, 7], (0, 0, 0)),
    "-0 by underflow": ([-(2.0**-149)], [2.0**-149], (-0.0, -0.0, -0.0)),
    "overflow of f16": ([65504, 16], [1, 1], (65520, 65536, inf)),
    "under it": ([65504, 16, -(2.0**-60)], [1, 1, 1], (65520, 65536, 65504)),
    "overflow of f32": ([2.0**127, 2.0**127], [1, 1], (inf, inf, inf)),
}


@pytest.mark.parametrize("case", DECIDED)
def test_roundings_that_float64_does_not_tell(case: str) -> None:
    x, y, expected = DECIDED[case]
    prepared = dot(x, y)
    found = certify(prepared.problem, prepared.operands)
    got = [found.rounded(fmt)[0, 0, 0] for fmt in (F32, BF16, F16)]
    assert [str(float(value)) for value in got] == [str(float(np.float64(value))) for value in expected]


@pytest.mark.parametrize("seed", range(6))
def test_nan_and_infinities_reach_what_the_oracle_says(seed: int) -> None:
    rng = np.random.default_rng([105, seed])
    case = random_case(rng, axes=1 + seed % 2)
    operands = operands_of(case, "normal", seed)
    for operand in operands:
        if isinstance(operand, np.ndarray) and operand.dtype.kind != "i" and operand.size:
            operand.reshape(-1)[rng.integers(operand.size, size=2)] = rng.choice([nan, inf, -inf], 2)
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype)
    found = certify(prepared.problem, prepared.operands)
    answer = exact_result.evaluate(prepared.problem, prepared.operands)
    spoiled = ~np.isfinite(answer.value)
    assert np.array_equal(found.value[spoiled], answer.value[spoiled], equal_nan=True)
    assert np.isfinite(found.value[~spoiled]).all()
    assert np.allclose(found.magnitude, answer.magnitude, rtol=1e-12, atol=0)


# Sums in f64 that float64 adds wrong; what overflows or underflows on the way is a fraction.
F64_SUMS = {
    "cancelling": ([1e16, 1, -1e16, 2.0**-60], [1, 1, 1, 1]),
    "products of 106 bits": ([1 + 2.0**-52, -1, 2.0**-90], [1 + 2.0**-52, 1 + 2.0**-51, 1]),
    "products that underflow": ([2.0**-600, 2.0**-601, 2.0**-530], [2.0**-475, 2.0**-475, 2.0**-540]),
    "sums that overflow on the way": ([1.5e308, 1.5e308, -1.5e308], [1, 1, 1]),
    "products that do": ([1e200, -1e200, 3], [1e200, 1e200, 1]),
}


def f64_sum(case: str) -> tuple[Fraction, reference.Reference]:
    """Return a sum of f64, and its reference."""
    x, y = F64_SUMS[case]
    prepared = dot(x, y, np.float64)
    exact = sum((Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)), Fraction())
    return exact, certify(prepared.problem, prepared.operands)


@pytest.mark.parametrize("case", F64_SUMS)
def test_few_sums_of_f64_are_rounded_once(case: str) -> None:
    exact, found = f64_sum(case)
    assert found.value[0, 0, 0] == float(exact)
    assert abs(exact - Fraction(found.value[0, 0, 0])) <= Fraction(found.error[0, 0, 0])


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_of_f64_beyond_its_largest_number_are_infinite(sign: int) -> None:
    prepared = dot([1e308, 1e308], [sign, sign], np.float64)
    assert certify(prepared.problem, prepared.operands).value[0, 0, 0] == sign * inf


def test_many_sums_of_f64_have_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "F64_TERMS", 0)
    for case in ("cancelling", "products of 106 bits", "products that underflow"):
        exact, found = f64_sum(case)
        assert 0 < abs(exact - Fraction(found.value[0, 0, 0])) <= Fraction(found.error[0, 0, 0]), case
    assert f64_sum("sums that overflow on the way")[1].error == inf


def test_values_of_few_bits_are_exact_without_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiples of one power of two, however small: nothing is left to add exactly."""
    monkeypatch.setattr(reference, "exact_sum", None)
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.integers(-99, 100, (2, 30, 4)).astype(np.float32) * np.float32(2.0**-70) for _ in range(2))
    call = {"strides": [1], "dilations": [1], "weights_shape": [1, 4, 4]}
    prepared = prepare("ConvolutionBackwardWeights", (src, diff_dst), call)
    found = certify(prepared.problem, prepared.operands)
    assert not found.error.any()
    assert np.array_equal(
        found.value * 2.0**140, exact_result.evaluate(prepared.problem, prepared.operands).value * 2.0**140
    )


def test_what_chunks_miss_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 and 4096 times 2^-54: each alone is lost beside 1, and more than the error of a chunk is, all together."""
    monkeypatch.setattr(sums, "CHUNK", 1)
    prepared = dot([1, *[2.0**-54] * 4096], [1] * 4097)
    found = certify(prepared.problem, prepared.operands)
    assert found.value.item() == 1 + 2.0**-42
    assert 0 < found.error.item() < 2.0**-51


def test_what_is_not_zero_is_counted() -> None:
    prepared = dot([1, 0, 2, 3], [1, 5, 0, 7])
    found = certify(prepared.problem, prepared.operands)
    assert (found.terms.item(), found.nonzero.item(), found.squares.item(), found.integral) == (4, 2, 1 + 21**2, True)


def test_progress_ends_at_1() -> None:
    shares: list[float] = []
    prepared = prepare(
        "Convolution",
        (np.ones((3, 9, 2), np.float32), np.ones((3, 2, 2), np.float32)),
        {"strides": [1], "dilations": [1]},
    )
    certify(prepared.problem, prepared.operands, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_an_old_value_that_is_missing_is_refused() -> None:
    prepared = prepare("BiasAddBackward", (np.ones((2, 3), np.float32),), {}, accumulate=True)
    with pytest.raises(ValueError, match="needs the old value"):
        certify(prepared.problem, prepared.operands)


@pytest.mark.parametrize("fmt", [F32, BF16, F16], ids=str)
def test_integers_round_as_numpy_does(fmt: Format) -> None:
    """The measure of the other tests is itself held to the one rounding, where float64 has the sum."""
    rng = np.random.default_rng(1)
    values = np.ldexp(rng.integers(-(2**30), 2**30, 500).astype(float), rng.integers(-180, 100, 500))
    expected = reference.store(values, fmt).astype(float).tolist()
    assert [rounded(int(value), fmt) for value in map(Fraction, np.ldexp(values, 298).tolist())] == expected


def test_the_exact_sum_of_nothing() -> None:
    assert exact_sum(Terms(np.zeros((0, 3)), np.zeros((0, 3)))) == (0.0, 0.0)
