"""Large results in parts: the exact sums, bounds and verdicts of the whole, and the memory of a part."""

from __future__ import annotations

import importlib
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from convgrad.cli import main
from convgrad.formats import BF16, F16, F32, Format
from convgrad.functional.call import Prepared, prepare
from convgrad.spec.operators import OPERATORS
from convgrad.verify.bound import error_bound
from convgrad.verify.check import verdicts_of
from convgrad.verify.declared import Declared, declared
from convgrad.verify.exact import exact_of
from convgrad.verify.parts import parts_of, references
from convgrad.verify.reference import certify
from convgrad.verify.verdict import DEGRADED, OK, UNDECIDED, WRONG, Verdict
from tests.support.helpers import Case, assert_same_bits, operands_of, random_case
from tests.support.tiers import tiers

Array = np.ndarray
claims = importlib.import_module("convgrad.verify.claim")
bounds = importlib.import_module("convgrad.verify.bound")

CUT = [op for op in OPERATORS if op.solves_for in ("dst", "src", "bias_add")]
ONES = {"strides": [1, 1], "dilations": [1, 1]}


def case_of(number: int, elements: int = 6) -> tuple[Case, Prepared]:
    """Return a random call of each operator that is cut, with at least so many results."""
    rng = np.random.default_rng(number)
    while True:
        case = random_case(rng, CUT[number % len(CUT)])
        kind = ("normal", "integers", "adversarial")[number % 3]
        if case.format.name == "f64" and kind == "adversarial":
            continue
        prepared = prepare(case.op.name, operands_of(case, kind, number), case.attributes, case.dtype)
        if np.prod(prepared.problem.output_shape) >= elements:
            return case, prepared


def how_of(prepared: Prepared) -> Declared:
    return declared(prepared.problem.operator, prepared.problem.operand_format)


def said(verdict: Verdict) -> list[object]:
    """Return what the bound says of a result, in the digits that are printed."""
    figures = (verdict.share, verdict.got, verdict.expected, verdict.bound)
    counts = (verdict.elements, verdict.equal, verdict.beyond, verdict.undecided, verdict.blind, verdict.nonfinite)
    return [verdict.outcome, *counts, verdict.worst, *(f"{figure:.9g}" for figure in figures)]


def forward(channels: int = 64, extent: int = 20, fmt: Format = F32) -> Prepared:
    """Return a forward of two images, 3x3, into three channels."""
    rng = np.random.default_rng(5)
    shapes = ((2, extent, extent, channels), (3, 3, channels, 3))
    return prepare("Convolution", tuple(rng.standard_normal(s).astype(fmt.dtype) for s in shapes), ONES)


@pytest.mark.parametrize("number", range(12))
def test_parts_have_the_sums_of_the_whole(number: int) -> None:
    case, prepared = case_of(number)
    whole = certify(prepared.problem, prepared.operands)
    most = max(1, whole.value.size // (2 + number % 5))
    for part, reference in references(parts_of(prepared.problem, prepared.operands, maximum=most), whole.value.size):
        assert part.elements <= max(most, prepared.problem.output_shape[-1] * whole.value.shape[1])
        for fmt in (F32, BF16, F16):
            assert_same_bits(reference.rounded(fmt), whole.rounded(fmt)[part.index], case)
        assert np.array_equal(reference.terms, whole.terms[part.index])
        assert np.array_equal(reference.nonzero, whole.nonzero[part.index])
        assert reference.integral == whole.integral
    assert_same_bits(exact_of(prepared, maximum=most), exact_of(prepared), case)


@tiers("number", range(12), every=6)
def test_parts_have_the_verdict_of_the_whole(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a right result, of one that is off at an element, and of a second one that is off as much."""
    monkeypatch.setattr(claims, "DIAGNOSED", 0)
    case, prepared = case_of(number)
    result, rng, how = prepared.execute(), np.random.default_rng(number), how_of(prepared)
    off = [result.copy() for _ in range(2)]
    for place in rng.permutation(result.size)[: 1 + number % 2]:
        off[0].reshape(-1)[place] += result.dtype.type(64)
        off[1].reshape(-1)[place] = inf
    given = [(each, how) for each in (result, *off)]
    most = max(1, result.size // (2 + number % 5))
    for one, other in zip(verdicts_of(given, prepared), verdicts_of(given, prepared, maximum=most), strict=True):
        assert said(other) == said(one), case
        assert one.mask is not None
        assert other.mask is not None
        assert np.array_equal(other.mask, one.mask)


@pytest.mark.parametrize("number", range(9))
def test_parts_have_the_bounds_of_the_whole(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = case_of(number)
    operands = operands_of(case, "normal", number)
    whole = error_bound(case.op.name, *operands, dtype=case.dtype, **case.attributes)
    monkeypatch.setattr(bounds, "PART", whole.size // 3)
    parts = error_bound(case.op.name, *operands, dtype=case.dtype, **case.attributes)
    assert [f"{one:.9g}" for one in parts.ravel()] == [f"{one:.9g}" for one in whole.ravel()]


def test_parts_of_what_is_not_finite_and_of_old_values() -> None:
    """NaN and infinities reach their own elements; integers are told of all operands, not of a part's."""
    src = np.ones((2, 9, 9, 2), np.float32)
    src[0, 2, 3, 0], src[1, 8, 8, 1], src[1, 0, 0, 0] = np.nan, np.inf, 0.1
    weights, attributes = np.ones((3, 3, 2, 4), np.float32), {**ONES, "pads_begin": [1, 1], "pads_end": [1, 1]}
    prepared = prepare("Convolution", (src, weights), attributes, accumulate=True)
    rng = np.random.default_rng(0)
    old = rng.standard_normal((2, 4, 9, 9)).astype(np.float32)
    whole = certify(prepared.problem, prepared.operands, old)
    for part, reference in references(parts_of(prepared.problem, prepared.operands, old, 60), old.size):
        assert_same_bits(reference.rounded(F32), whole.rounded(F32)[part.index], part.index)
        assert np.array_equal(reference.error, whole.error[part.index])
        assert not reference.integral


def test_what_is_not_cut() -> None:
    """Bias gradients, results by tiles, and a bound of all that tiles may reach."""
    rng = np.random.default_rng(0)
    src = rng.standard_normal((2, 16, 16, 32)).astype(np.float32)
    given = {**ONES, "pads_begin": [1, 1], "pads_end": [1, 1]}
    bias = prepare("BiasAddBackward", (src,), {})
    kernel = rng.standard_normal((3, 3, 32, 32)).astype(np.float32)
    direct = prepare("Convolution", (src, kernel), given)
    tiles = direct._replace(problem=replace(direct.problem, algorithm="2x2"))
    assert [len(list(parts_of(one.problem, one.operands, maximum=99))) for one in (bias, tiles)] == [1, 1]
    assert (
        len(list(parts_of(direct.problem, direct.operands, maximum=99))) == 2 * 16 * 6
    )  # three positions of 32 channels
    how = replace(how_of(direct), algorithm="winograd:2,3")
    result = direct.execute()
    assert said(verdicts_of([(result, how)], direct, maximum=999)[0]) == said(verdicts_of([(result, how)], direct)[0])


def test_places_are_those_of_the_whole() -> None:
    """One element, in the last part, and one row of it, are off inside a wide bound."""
    prepared = forward(256)
    how, right = how_of(prepared), prepared.execute()
    off = right.copy()
    off[1, 17, 4, 2] *= 1 + 2.0**-10
    one = verdicts_of([(off, how)], prepared, maximum=600)[0]
    assert (one.outcome, one.defects) == (DEGRADED, ("single elements off",))
    assert {"element (1, 17, 4, 2)"} == {each.where for each in one.evidence if each.statistic == claims.LARGEST}
    off = right.copy()
    off[1, 16] *= np.float32(1 + 2.0**-12)
    verdict = verdicts_of([(off, how)], prepared, maximum=600)[0]
    assert "row of an image 1, 16" in {each.where for each in verdict.evidence}


def test_a_large_result_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first wrong part gives the name of the defect; a result that is small enough is diagnosed as a whole."""
    prepared = forward()
    how, off = how_of(prepared), prepared.execute()
    off *= -1
    small = verdicts_of([(off, how)], prepared, maximum=600)[0]
    assert small == verdicts_of([(off, how)], prepared)[0]
    assert small.defects == ("sign",)
    monkeypatch.setattr(claims, "DIAGNOSED", 0)
    large = verdicts_of([(off, how)], prepared, maximum=600)[0]
    assert (large.outcome, large.defects, large.beyond) == (WRONG, ("sign",), small.beyond)
    assert large.where.startswith(small.where.partition("; ")[0])


def test_defects_of_all_parts_have_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "DIAGNOSED", 0)
    prepared = forward(256)
    src, weights = (np.ascontiguousarray(a) for a in prepared.taken.values())
    src = (src.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    rounded = prepare("Convolution", (src, weights), ONES).execute()
    verdict = verdicts_of([(rounded, how_of(prepared))], prepared, maximum=600)[0]
    assert verdict.outcome == DEGRADED
    assert len({each.statistic for each in verdict.evidence}) == len(verdict.evidence)
    assert set(verdict.defects) <= {"operands truncated to tf32"}


@pytest.mark.parametrize("diagnosed", [0, claims.DIAGNOSED])
def test_errors_of_one_part_count(diagnosed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they are too small for the statistics of the whole result, which has fewer wrong elements by share."""
    monkeypatch.setattr(claims, "DIAGNOSED", diagnosed)
    rng = np.random.default_rng(5)
    operands = tuple(rng.standard_normal(shape, np.float32) for shape in ((16, 32, 32, 8), (3, 3, 8, 4)))
    prepared = prepare("Convolution", operands, ONES)
    result, how = prepared.execute(), how_of(prepared)
    result[3] = (result[3].astype(np.float64) * (1 + 4.5e-8)).astype(np.float32)  # rounds some elements up
    whole, parts = (verdicts_of([(result, how)], prepared, maximum=most)[0] for most in (result.size, result[3].size))
    assert (whole.outcome, parts.outcome) == (OK, DEGRADED)


def test_sums_that_may_overflow_are_undecided() -> None:
    prepared = forward(4)
    large = prepare("Convolution", tuple(a * np.float32(1e19) for a in prepared.taken.values()), ONES)
    with np.errstate(all="ignore"):
        result = large.execute()
    one, other = (verdicts_of([(result, how_of(large))], large, maximum=most)[0] for most in (200, 10**6))
    assert one.outcome == UNDECIDED
    assert said(one) == said(other)


def test_claims_share_the_exact_sums() -> None:
    """What is no result at all has its verdict beside the others; progress ends at 1."""
    prepared, shares = forward(), list[float]()
    how, result = how_of(prepared), prepared.execute()
    given: Sequence[tuple[object, Declared]] = [(result, how), (result[:1], how), (result.astype(BF16.dtype), how)]
    found = verdicts_of(given, prepared, progress=shares.append, maximum=600)
    assert [one.outcome for one in found] == [OK, WRONG, OK]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_parts_take_the_memory_of_a_part() -> None:
    prepared = forward(8, 90)
    how, result = how_of(prepared), prepared.execute()

    def peak(most: int) -> int:
        tracemalloc.start()
        verdict = verdicts_of([(result, how)], prepared, maximum=most)[0]
        assert verdict.ok
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(result.size // 16) < peak(result.size) / 3


def test_a_part_counts_as_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that is too small for the exact sums of all elements at once, 81 MB, is enough for those of a part."""
    layer = ["1x1200x1200x1", "1x1x1x1", "--attr", "strides=1,1", "--attr", "dilations=1,1"]
    line = ["verify", "Convolution", "--shapes", *layer, "--fill", "integers", "--limit", "memory_bytes=70000000"]
    assert main(line) == 0
    assert main([*line, "--print-tolerance"]) == 2
    assert "arrays must take at most 70000000 bytes" in capsys.readouterr().err
