"""Declared arithmetic: a depth or blocks are refused exactly if no sum of so many terms has them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.engines.numpy import NUMPY
from convgrad.formats import ACCUMULATIONS, F32, F64, Format, round_to
from convgrad.functional.call import Prepared, prepare
from convgrad.spec.exact_result import count_terms, max_terms
from convgrad.spec.operators import OPERATORS
from convgrad.spec.order import last_additions, order_of
from convgrad.spec.problem import canonical_shape
from convgrad.testing import assert_linear
from convgrad.verify import check, exact
from convgrad.verify.bound import error_bound
from convgrad.verify.declared import Declared, declared_for, min_height
from tests.support.helpers import operands_of, random_case

CALL: dict[str, Any] = {"strides": 1, "pads_begin": 1, "pads_end": 1, "weights_shape": [3, 4, 4]}
PADDED = CALL | {"strides": [1], "dilations": [1], "pads_begin": [1], "pads_end": [1]}
WEIGHTS = "ConvolutionBackwardWeights"
SRC, DIFF = (np.random.default_rng(s).standard_normal((2, 9, 4), np.float32) for s in range(2))
REFUSED = convgrad.InvalidAttributeError


def called(terms: int, bias: bool, accumulate: bool, fmt: Format = F32) -> Prepared:
    """A forward whose only sums have so many terms."""
    operands = [np.ones(shape, fmt.dtype) for shape in ((1, 1, terms), (1, terms, 1), (1,))[: 2 + bias]]
    return prepare("Convolution", tuple(operands), {"strides": [1], "dilations": [1]}, None, accumulate=accumulate)


@cache
def least(terms: int, others: int, exact: bool) -> int:
    """The least depth of all trees of additions and fused multiply-adds, by trying all."""
    if terms + others <= 1:
        return int(terms == 1 and not exact)
    pairs = [(n, o) for n in range(terms + 1) for o in range(others + 1) if 0 < n + o < terms + others]
    found = min(1 + max(least(n, o, exact), least(terms - n, others - o, exact)) for n, o in pairs)
    return min(found, 1 + least(terms - 1, others, exact)) if terms else found


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("accumulation", ["f32", "f64"])
def test_the_least_depth_is_that_of_the_best_tree(accumulation: str, bias: bool, accumulate: bool) -> None:
    """Products of f32 numbers are exact in f64, and are rounded in f32."""
    for terms in range(1, 20):
        call, kept = called(terms, bias, accumulate), ACCUMULATIONS[accumulation]
        assert min_height(call.problem, kept) == least(terms, bias + accumulate, kept is F64)


@pytest.mark.every(5)
@pytest.mark.parametrize("fmt", ["f32", "bf16", "f64", "f8_e4m3"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("terms", [1, 2, 3, 4, 5, 9, 16, 17, 100])
def test_depths_between_those_of_a_tree_and_of_a_chain(terms: int, accumulate: bool, fmt: str) -> None:
    problem = called(terms, True, accumulate, ACCUMULATIONS[fmt]).problem
    low, high = min_height(problem, problem.operand_format.accumulator), terms + 1 + accumulate
    for height in range(high + 3):
        if low <= height <= high:
            assert declared_for(problem, height=height).height == height
        else:
            words = f"at least {low}" if height < low else f"at most {high}"
            with pytest.raises(REFUSED, match=f"must be {words}.* of {terms} terms?.*; got {height}"):
                declared_for(problem, height=height)
    assert declared_for(problem, height=10**30, shared=True).height == 2**53
    if low:
        with pytest.raises(REFUSED, match=f"at least {low}"):
            declared_for(problem, height=low - 1, shared=True)


@pytest.mark.parametrize("blocks", [(1,), (9,), (17,), (9, 8), (16, 3), (18, 1), (2,) * 10, (100, 1)])
def test_blocks_have_all_terms_of_a_sum(blocks: tuple[int, ...]) -> None:
    """Two images of nine positions: 18 terms, and 16 at taps that one position has not."""
    if sum(blocks) == 18:
        assert declared_for(prepare(WEIGHTS, (SRC, DIFF), PADDED).problem, height=blocks).blocks == blocks
        return
    with pytest.raises(REFUSED, match=f"blocks.* must have 18 terms.*; got {sum(blocks)} in {len(blocks)} block"):
        check(WEIGHTS, np.zeros((3, 4, 4), np.float32), SRC, DIFF, height=blocks, **CALL)


NO_DEPTH = {str(one): one for one in (0, 1, 2, 5, -1, 19, 10**40, 2.0, 6.0, True, float("nan"), "6", [], [True] * 18)}


@pytest.mark.parametrize("given", NO_DEPTH)
@pytest.mark.parametrize("asked", ["check", "a function", "error_bound"])
def test_what_no_sum_has_is_refused_everywhere(asked: str, given: str) -> None:
    calls: list[str] = []

    def function(*inputs: object, **attributes: object) -> object:
        calls.append("called")
        return np.zeros((3, 4, 4), np.float32)

    first: dict[str, list[object]] = {"check": [np.zeros((3, 4, 4))], "a function": [function], "error_bound": []}
    asks: Any = check if first[asked] else error_bound
    with pytest.raises(REFUSED):
        asks(WEIGHTS, *first[asked], SRC, DIFF, **CALL, height=NO_DEPTH[given])
    assert not calls


def test_a_right_result_passes_at_the_least_depth() -> None:
    right = exact(WEIGHTS, SRC, DIFF, **CALL)
    for height in (6, 18):
        assert check(WEIGHTS, right, SRC, DIFF, height=height, **CALL).outcome != "wrong"
    with pytest.raises(REFUSED, match=r"at least 3, .* 4 terms .*; got 2"):
        assert_linear(np.full((1, 1), 4, np.float32), *np.ones((2, 1, 4), np.float32), height=2)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_what_our_engines_do_is_possible(op: Any) -> None:
    """For random calls, also the exact number of terms is the largest of all elements."""
    rng = np.random.default_rng(len(op.name))
    for _ in range(12):
        made = random_case(rng, op)
        call = prepare(op.name, operands_of(made, "normal", 0), made.attributes, made.dtype)
        problem = call.problem
        terms = count_terms(problem, canonical_shape(problem.geometry, problem.output))
        assert max_terms(problem) == terms.max(initial=0) or terms.size == 0
        chain = order_of(problem).terms + last_additions(problem)
        heights = [engines.height(problem), NUMPY.height(problem), min_height(problem, F64), chain]
        for height in heights:
            assert declared_for(problem, height=height, accumulation="f64") == Declared(F64, height)


@pytest.mark.parametrize("fmt", [ACCUMULATIONS[name] for name in ("bf16", "f16", "tf32")], ids=str)
def test_products_rounded_to_the_declared_format(fmt: Any) -> None:
    """Products with powers of 2 are rounded as their other factor is: a right result, as if operands were rounded."""
    rng = np.random.default_rng(0)
    src = rng.standard_normal((100, 1, 20), np.float32)
    weights = np.ldexp(rng.choice((-1.0, 1.0), (1, 20, 40)), rng.integers(-6, 6, (1, 20, 40))).astype(np.float32)
    sums = round_to(src.astype(np.float64)[:, 0, :, None] * weights[0], fmt)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = np.concatenate([round_to(sums[:, :half] + sums[:, half : 2 * half], fmt), sums[:, 2 * half :]], 1)
    verdict = check("Convolution", sums.astype(np.float32), src, weights, accumulation=fmt)
    assert verdict.ok, verdict
