"""The public bound: its formula, what it depends on, and where nothing can be promised."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import convgrad
from convgrad import error_bound
from convgrad.formats import ACCUMULATIONS, F64, Format, round_to
from tests.support.tiers import tiers

CALL = {"strides": [1], "dilations": [1], "pads_begin": [1], "pads_end": [1], "weights_shape": [3, 2, 4]}
OPERATOR = "ConvolutionBackwardWeights"
SINGLE = {"strides": [1], "dilations": [1], "weights_shape": [1, 1, 1]}


def operands(scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    src, diff_dst = rng.standard_normal((2, 5, 2), np.float32), rng.standard_normal((2, 5, 4), np.float32)
    return src * np.float32(scale), diff_dst


def bound_of_one(x: list[float], y: list[float], **options: object) -> float:
    a, b = (np.array(values, np.float32).reshape(1, -1, 1) for values in (x, y))
    return float(error_bound(OPERATOR, a, b, **SINGLE, **options)[0, 0, 0])  # type: ignore[arg-type]


ROUNDING = [fmt for fmt in ACCUMULATIONS.values() if fmt is not F64]


@pytest.mark.parametrize("fmt", ROUNDING, ids=str)
def test_the_formula_in_every_accumulation(fmt: Format) -> None:
    """By fractions: 3 terms of sum 1/3 + 1/5 - 1/7 of floats, and one rounding to f32."""
    x, n, u = [1 / 3, 1 / 5, -1 / 7], 3, Fraction(fmt.unit)
    exact = [Fraction(float(np.float32(value))) for value in x]
    gamma = n * u / (1 - n * u)
    bound = gamma * sum(map(abs, exact)) + n * Fraction(fmt.tiny) / 2 * (1 + gamma)
    total = bound + (abs(sum(exact)) + bound) * Fraction(1, 2**24)
    found = bound_of_one(x, [1, 1, 1], accumulation=str(fmt))
    assert total <= Fraction(found) <= total * (1 + Fraction(1, 2**20))


@pytest.mark.parametrize("fmt", ROUNDING, ids=str)
def test_no_promise_where_a_sum_may_overflow(fmt: Format) -> None:
    """One term, so that the bound is that of a product rounded once: beside the largest number nothing is promised."""
    below, above = fmt.largest * (1 - 3 * fmt.unit), fmt.largest
    assert (
        np.isfinite(bound_of_one([below * 2.0**-10], [2.0**10], accumulation=str(fmt), dtype="f32")) or fmt.unit < 1e-7
    )
    assert np.isinf(bound_of_one([above * 2.0**-10], [2.0**10 * 1.001], accumulation=str(fmt), dtype="f32"))


def test_no_promise_elsewhere() -> None:
    assert np.isinf(bound_of_one([np.nan, 1], [1, 1]))
    assert np.isinf(bound_of_one([np.inf, 1], [1, 1]))
    assert np.isinf(bound_of_one([65504, 15.9], [1, 1], dtype="f16"))


@pytest.mark.parametrize("terms", [7, 8, 9, 15, 16, 17, 40])
def test_sums_of_any_length_have_a_bound(terms: int) -> None:
    """From h u = 1/2 on, N u (1 + u) is smaller than gamma_h: for 8 terms or more in f8_e4m3, of which u is 1/16."""
    x, u = Fraction(float(np.float32(0.3))) * terms, Fraction(1, 16)
    gamma = terms * u / (1 - terms * u) if terms < 16 else None
    factor = gamma if gamma is not None and gamma < 1 else (terms + 2) * u * (1 + u)
    bound = factor * x + terms * Fraction(1, 2**10) * (1 + factor)
    found = bound_of_one([0.3] * terms, [1.0] * terms, accumulation="f8_e4m3")
    total = bound + (x + bound) * Fraction(1, 2**24)
    assert total <= Fraction(found) <= total * (1 + Fraction(1, 2**20))


@pytest.mark.parametrize("fused", [True, False])
@tiers("count", [60], long=[300])
def test_no_sum_in_few_bits_is_beyond_the_bound(count: int, fused: bool) -> None:
    """Terms of every size in random trees, of products that are rounded or fused with an addition."""
    rng = np.random.default_rng(int(fused))
    fmt = ACCUMULATIONS["f8_e5m2"]
    for _ in range(count):
        terms = int(rng.integers(4, 60))
        x = np.ldexp(rng.choice([1.0, 1.25, 1.5, 1.75], terms), rng.integers(-6, 4, terms)) * rng.choice(
            [1, 1, 1, -1], terms
        )
        y = np.ldexp(rng.choice([1.0, 1.25, 1.5, 1.75], terms), rng.integers(-3, 3, terms))
        sums, products = [0.0], list(x * y)
        while products or len(sums) > 1:
            if products and (fused or rng.random() < 0.5):
                at = int(rng.integers(len(sums)))
                product = products.pop()
                product = product if fused else float(round_to(np.array(product), fmt))
                if rng.random() < 0.3:
                    sums.append(float(round_to(np.array(product), fmt)))
                else:
                    sums[at] = float(round_to(np.array(sums[at] + product), fmt))
            elif len(sums) > 1:
                one, other = sums.pop(), sums.pop()
                sums.insert(int(rng.integers(len(sums) + 1)), float(round_to(np.array(one + other), fmt)))
        bound = bound_of_one(list(x), list(y), accumulation="f8_e5m2")
        assert abs(sums[0] - float(x @ y)) <= bound


def test_underflow_counts() -> None:
    """Products of 2^-160 and 2^-151: a flush or any rounding of each is allowed, 2^-150 each and no more."""
    found = bound_of_one([2.0**-80, 2.0**-80], [2.0**-80, 2.0**-71])
    assert 2 * 2.0**-150 < found < 2 * 2.0**-150 + 2.0**-149
    assert bound_of_one([2.0**-80], [2.0**-60]) < 2.0**-149 * 1.01


def test_exact_sums_leave_the_rounding_of_the_output() -> None:
    assert bound_of_one([3, 5], [7, 1]) == 0
    assert bound_of_one([2**12 + 1.0], [2**11], dtype="bf16") == 2**11
    assert bound_of_one([3, 5], [7, 1.5]) > 0


def test_each_element_counts_its_own_terms() -> None:
    """Of sources that are equal, taps at the edge have fewer terms, and a smaller bound."""
    ones = np.full((1, 6, 1), 1 / 3, np.float32)
    call = {"strides": [1], "dilations": [1], "pads_begin": [2], "pads_end": [2], "weights_shape": [5, 1, 1]}
    found = error_bound(OPERATOR, ones, ones, **call)[:, 0, 0]
    assert found.tolist() == found[::-1].tolist()
    assert found[0] < found[1] < found[2]


def test_products_of_zero_are_not_counted() -> None:
    """Half of the terms are 0, as after ReLU: the bound is that of the other half alone."""
    x, y = [1 / 3, 0.0, 1 / 5, 0.0, -1 / 7], [1.0, 1 / 9, 1.0, 1 / 11, 1.0]
    assert bound_of_one(x, y) == pytest.approx(bound_of_one(x[::2], y[::2]), rel=1e-15)
    assert bound_of_one(x, y, height=5) == bound_of_one(x, y)


def test_a_height_or_blocks_in_place_of_any_order() -> None:
    src, diff_dst = operands()
    any_order, five, blocks = (
        error_bound(OPERATOR, src, diff_dst, height=height, **CALL) for height in (None, 5, (4, 3, 3))
    )
    assert (five < any_order).all()
    assert np.allclose(blocks, error_bound(OPERATOR, src, diff_dst, height=6, **CALL), rtol=1e-6, atol=0)
    with pytest.raises(convgrad.InvalidAttributeError, match="accumulation must be one of f32, bf16"):
        error_bound(OPERATOR, src, diff_dst, accumulation="f12", **CALL)


@pytest.mark.parametrize("output", ["f32", "bf16", "f16"])
def test_results_lie_within_in_the_layout_of_the_caller(output: str) -> None:
    src, diff_dst = operands()
    exact = convgrad.run(OPERATOR, src.astype(np.float64), diff_dst.astype(np.float64), **CALL)
    got = convgrad.run(OPERATOR, src, diff_dst, dtype=output, **CALL).astype(np.float64)
    bound = error_bound(OPERATOR, src, diff_dst, dtype=output, **CALL)
    assert bound.shape == got.shape
    assert (np.abs(got - exact) <= bound).all()
    assert (np.abs(got - exact) > bound / 1e4).any()


def test_of_f64() -> None:
    src, diff_dst = (array.astype(np.float64) for array in operands())
    bound = error_bound(OPERATOR, src, diff_dst, **CALL)
    assert ((bound > 0) & (bound < 1e-13)).all()
