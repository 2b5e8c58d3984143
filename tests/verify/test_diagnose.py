"""Diagnosis: planted defects get their names, unrelated damage gets none, and wrong elements are placed in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.notation import calls, problem, read
from convgrad.spec.check import check_attributes
from convgrad.spec.exact_result import count_terms
from convgrad.spec.operators import find
from convgrad.spec.problem import Problem, canonical_shape, problem_of
from convgrad.verify import check, exact
from convgrad.verify.diagnose import mutants
from convgrad.verify.diagnose.place import place
from convgrad.verify.diagnose.sums import Instead
from tests.support.places import DOCS
from tests.support.tiers import tiers
from tests.verify.planted import WRONG, is_named, verdict_of
from tests.verify.plants import ROLES, SIZES, TYPES, Plant, cut, plant

PLANTS = {role: plant(role, 200) for role in ROLES}


def applies(defect: str) -> Plant:
    """A problem that may have a defect, of another role from defect to defect."""
    at = list(WRONG).index(defect)
    for role in (ROLES[at % 3], *ROLES):
        if WRONG[defect][1](PLANTS[role]) is not None:
            return PLANTS[role]
    raise AssertionError(f"no role has {defect}")


@tiers("defect", list(WRONG), every=10)
def test_a_planted_defect_is_named(defect: str) -> None:
    verdict = verdict_of(defect, applies(defect) if defect != "output truncated" else plant("dst", 200, "bf16"))
    assert verdict is not None
    assert verdict.outcome == "wrong"
    assert is_named(defect, verdict), str(verdict)
    assert len(verdict.found) == 1
    assert verdict.where


@pytest.mark.long
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("terms", SIZES[:2])
@pytest.mark.parametrize("defect", WRONG)
def test_a_planted_defect_is_named_in_every_role(defect: str, terms: int, dtype: str) -> None:
    for role in ROLES:
        verdict = verdict_of(defect, plant(role, terms, dtype))
        if verdict is not None and verdict.outcome == "wrong":
            assert is_named(defect, verdict), (role, str(verdict))


def damaged(sums: np.ndarray, how: str, rng: np.random.Generator) -> np.ndarray:
    """Damage that no defect of the table does."""
    flat, scale = sums.ravel().copy(), np.abs(sums).mean()
    some = rng.choice(flat.size, 1 if how == "one" else flat.size // 20, replace=False)
    if how in ("one", "some"):
        flat[some] += scale * rng.standard_normal(some.size)
    elif how == "all":
        flat += 0.01 * scale * rng.standard_normal(flat.size)
    elif how == "relative":
        flat *= 1 + 0.01 * rng.standard_normal(flat.size)
    elif how == "another result":
        flat = scale * rng.standard_normal(flat.size)
    return flat.reshape(sums.shape)


@tiers("how, role", ["nothing", "one", "some", "all", "relative", "another result"], ROLES, every=7)
def test_unrelated_damage_has_no_name(role: str, how: str) -> None:
    """But for one that says no more than that few elements are off."""
    for integers in (False, True):
        one = PLANTS[role]
        if integers:
            one = replace(one, **{n: np.rint(getattr(one, n)) for n in "xyw"})
        sums = damaged(one.sums(), how, np.random.default_rng([3, ROLES.index(role)]))
        verdict = one.call(np.rint(sums) if integers and how != "relative" else sums)
        assert verdict.defects == (("single elements off",) if how == "one" and not integers else ())
        assert verdict.outcome == ("ok" if how == "nothing" or not verdict.beyond else "wrong")


def test_a_result_may_keep_what_was_there() -> None:
    """Elements that hold the old contents, where the result was to be added to them."""
    one = PLANTS["dst"]
    old = np.random.default_rng(8).standard_normal(one.sums().shape).astype(np.float32)
    sums = one.sums() + old
    some = np.random.default_rng(9).random(sums.shape) < 0.2
    sums[some] = old[some]
    verdict = replace(one, extra={"old": old}).call(sums)
    assert verdict.defects == ("old contents left",)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e35])
def test_what_is_huge_or_not_finite_was_not_written(value: float) -> None:
    sums = PLANTS["src"].sums()
    sums[np.random.default_rng(9).random(sums.shape) < 0.2] = value
    assert PLANTS["src"].call(sums).defects == ("uninitialised output",)


def test_one_huge_element_among_other_damage_was_not_written() -> None:
    sums = PLANTS["src"].sums()
    some = np.flatnonzero(np.random.default_rng(9).random(sums.size) < 0.2)
    sums.flat[some] = np.random.default_rng(10).standard_normal(some.size)
    sums.flat[some[0]] = 1e35
    assert PLANTS["src"].call(sums).defects == ("uninitialised output",)


def test_nan_where_the_operands_have_one_elsewhere_has_spread() -> None:
    one = PLANTS["dst"]
    x = one.x.copy()
    x.flat[0] = np.nan  # enters some sums of the first image
    sums = replace(one, x=x).sums()
    sums[-1][np.random.default_rng(9).random(sums[-1].shape) < 0.2] = np.nan
    assert replace(one, x=x).call(sums).defects == ("NaN spread",)


def test_elements_left_0_without_a_pattern() -> None:
    sums = PLANTS["weights"].sums()
    some = np.random.default_rng(9).random(sums.shape) < 0.2
    assert PLANTS["weights"].call(cut(sums, some)).defects == ("elements left 0",)


def test_the_bound_of_the_declared_accumulation_counts() -> None:
    """Sums kept in bf16, of a kernel that is flipped besides: the flip is seen through their error."""
    one = PLANTS["dst"]
    one = replace(one, x=one.x[:, :4], w=one.w[:, :2])  # 18 terms: more would leave bf16 sums of any order no bound
    sums = replace(one, w=np.flip(one.w, (2, 3))).sums()
    sums *= 1 + 2.0**-9 * np.random.default_rng(4).standard_normal(sums.shape)
    assert replace(one, extra={"accumulation": "bf16"}).call(sums).defects == ("kernel flipped",)
    assert one.call(sums).defects == ()


def test_that_sums_may_have_been_kept_in_the_operands_format_is_said() -> None:
    src, dst = np.random.default_rng(0).standard_normal((2, 1, 40, 4)).astype(np.float16)
    sums = np.zeros((4, 4), np.float16)
    for x, y in zip(src[0], dst[0], strict=True):
        sums = sums + np.outer(x, y)
    call = {"strides": [1], "dilations": [1], "weights_shape": [1, 4, 4]}
    verdict = check("ConvolutionBackwardWeights", sums[None], src, dst, **call)
    assert verdict.outcome == "wrong"
    assert (
        "; none is beyond the bound of sums kept in f16; all elements have the bits of one running sum" in verdict.where
    )
    sums[0, 0] += 100
    verdict = check("ConvolutionBackwardWeights", sums[None], src, dst, **call)
    assert "kept in f16" not in verdict.where


def test_f64_computed_in_f32_is_named() -> None:
    src, dst = np.random.default_rng(0).standard_normal((2, 1, 40, 4))
    call = {"weights_shape": [3, 4, 4], "pads_begin": 1, "pads_end": 1}
    narrow = convgrad.convolution_backward_weights(src.astype(np.float32), dst.astype(np.float32), **call)
    right = convgrad.convolution_backward_weights(src, dst, **call)

    def verdict(result: Any) -> Any:
        return check("ConvolutionBackwardWeights", result, src, dst, **call)

    for result in (narrow, narrow.astype(np.float64)):
        assert verdict(result).defects == ("sums accumulated in f32",)
        assert "; none is beyond the bound of sums kept in f32" in verdict(result).where
    assert verdict(right.astype(np.float32)).ok
    assert verdict(right.astype(np.float32).astype(np.float64)).defects == ("result rounded to f32",)
    rounded = [array.astype(np.float32).astype(np.float64) for array in (src, dst)]
    assert verdict(convgrad.convolution_backward_weights(*rounded, **call)).defects == ("operands rounded to f32",)
    narrow[0, 0, 0] = 0
    assert verdict(narrow).defects == ()


def test_that_subnormal_operands_count_as_0_is_said_of_one_wrong_element() -> None:
    """Which is too few for a name."""
    rng = np.random.default_rng(0)
    src = rng.standard_normal((1, 40, 4)).astype(np.float32)
    src[0, 7] = 0, 2.0**-130, 0, 0
    weights = np.full((1, 4, 1), 2.0**100, np.float32)
    result = (src[0].astype(np.float64) @ weights[0])[None].astype(np.float32)
    assert result[0, 7] == 2.0**-30
    result[0, 7] = 0
    verdict = check("Convolution", result, src, weights, strides=[1], dilations=[1])
    assert verdict.beyond == 1
    assert verdict.where.endswith("none is beyond the bound where subnormal operands count as 0")


def test_of_long_sums_few_explanations_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all lie inside a bound so wide; only those that are near as any are computed whole."""
    computed = []
    whole = Instead.whole
    monkeypatch.setattr(Instead, "whole", lambda sums: computed.append(sums) or whole(sums))
    one = plant("weights", 20_000)
    one = replace(one, x=one.x[:, :4], y=one.y[:, :4], w=one.w[:4, :2])
    verdict = one.call(np.flip(one.sums(), (2, 3)))
    assert verdict.defects == ("kernel flipped",)
    assert len(computed) < 5


@pytest.mark.parametrize(
    ("operator", "shapes", "pads"),
    [
        ("Convolution", [(1, 0, 2), (3, 2, 4)], 2),
        ("Convolution", [(1, 0, 2), (3, 2, 4), (4,)], 2),
        ("Convolution", [(2, 0, 3, 2), (3, 3, 2, 4), (4,)], 2),
        ("ConvolutionBackwardWeights", [(0, 4, 2), (0, 4, 3)], 1),
        ("ConvolutionBackwardWeights", [(1, 0, 2), (1, 2, 3)], 2),
        ("BiasAddBackward", [(0, 3, 2)], None),
        ("BiasAddBackward", [(2, 0, 2)], None),
    ],
)
def test_sums_without_terms(operator: str, shapes: list[tuple[int, ...]], pads: int | None) -> None:
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape, np.float32) for shape in shapes]
    layer: dict[str, Any] = {} if pads is None else {"pads_begin": pads, "pads_end": pads}
    if operator == "ConvolutionBackwardWeights":
        layer["weights_shape"] = (3, 2, 3)
    right = exact(operator, *operands, **layer)
    assert check(operator, right, *operands, **layer).outcome == "ok"
    for wrong in (right + 1, np.full_like(right, np.nan), np.random.default_rng(1).permuted(right) + right + 2):
        assert check(operator, wrong, *operands, **layer).outcome == "wrong"


OPERATORS = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights")


@tiers("wide, transposed, operator", [2**31, 2**61], [False, True], OPERATORS, every=5)
def test_wide_dilations_need_no_memory(operator: str, transposed: bool, wide: int) -> None:
    """Two taps are as far apart as the pad is wide. One operand has a NaN, so that padding may be multiplied."""
    ones = np.full((1, 2, 2, 3), 0.1, np.float32)
    weights = ones.reshape(2, 2, 1, 3)[:, :, [0] * 3]
    layer = {"dilations": wide, "pads_begin": [wide, wide // 2], "pads_end": [0, wide - wide // 2]}
    others = {"ConvolutionBackwardWeights": (ones, weights.shape), "ConvolutionBackwardData": (weights, ones.shape)}
    others_of_operator = others.get(operator, (weights,))
    if transposed:
        operator = operator.replace("Convolution", "ConvTranspose", 1)
        others_of_operator = others_of_operator[: 1 + operator.endswith("Weights")]
    right = exact(operator, ones, *others_of_operator, **layer)
    wrong = right + np.square(np.arange(right.size, dtype=np.float32)).reshape(right.shape)
    assert check(operator, right, ones, *others_of_operator, **layer).ok
    for value in (0.1, np.nan):
        ones[0, 0, 0, 0] = value
        assert check(operator, wrong, ones, *others_of_operator, **layer).outcome == "wrong"


def test_what_is_not_tried_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "LARGE", 10)
    one = PLANTS["weights"]
    said = one.call(replace(one, x=cut(one.x, (..., -1))).sums())
    assert said.defects == ()
    assert "not tried on operands so large" in said.where
    assert "positions not read" in said.where
    assert one.call(np.flip(one.sums(), (2, 3))).defects == ("kernel flipped",)  # which copies nothing


# -- places ------------------------------------------------------------------------------------------------------------


def posed(line: str) -> Problem:
    """The problem of a line; of two the second, a bias gradient."""
    call = calls(read(line))[-1]
    op = find(call.operator)
    attributes = check_attributes(op, call.attributes, len(call.shapes[0]) - 2)
    return problem_of(op, call.shapes, attributes, call.format, call.format)


# A mask by the index of its wrong elements, and the sentence.
W, D = "BWD_W f32 NXC g2mb2ic8ih6oc4oh6kh3ph1", "BWD_D f32 NXC g2mb2ic8ih6oc4oh6kh3ph1"
UP, BIAS = "deconv BWD_W f32 NXC mb1ic2ih4oc4oh4kh3ph1", "BWD_WB f32 NXC mb1ic2iw4oc4ow4kw1"
ALL = slice(None)
FEW = "image 1 (the last of 2), channel 3 (one of 8), row 5 (the last of 6), columns 0, 2, 3"
FIRST = "image 0 (the first of 2), column 0 (the first of 6)"
PLACES = {
    "all": (W, (...,), "every element is wrong"),
    "a tap": (W, (..., 2, ALL), "exactly all elements of tap 2 on axis 0 (the last of 3): 48 of 144"),
    "a group": (W, (slice(2, 4),), "exactly all elements of group 1 of 2: 72 of 144"),
    "tail": (D, (ALL, slice(5, 8)), "exactly all elements of channels 5..7 (the last 3 of 8): 216 of 576"),
    "groups of src": (D, (ALL, slice(0, 4)), "exactly all elements of group 0 of 2: 288 of 576"),
    "row": (D, (..., 5, ALL), "exactly all elements of row 5 (the last of 6): 96 of 576"),
    "image, column": (D, (0, ..., 0), f"exactly all elements of {FIRST}: 48 of 576"),
    "every other": (D, (..., slice(1, None, 2)), "exactly all elements of every 2nd column from 1: 288 of 576"),
    "some of a row": (D, (1, 3, 5, [0, 2, 3]), f"exactly all elements of {FEW}: 3 of 576"),
    "diagonal": (
        D,
        (1, range(8), 3, [0, 1, 2, 3, 4, 5, 0, 1]),
        "all 8 wrong elements are in image 1 (the last of 2), row 3 (one of 6): 8 of 576",
    ),
    "transposed": (UP, (0,), "exactly all elements of input channel 0 (the first of 2): 36 of 72"),
    "bias": (BIAS, (2,), "only the element of channel 2 (one of 4): 1 of 4"),
    "none": (D, (slice(0, 0),), ""),
}


@pytest.mark.parametrize("case", PLACES)
def test_wrong_elements_in_words(case: str) -> None:
    line, index, words = PLACES[case]
    one = posed(line)
    mask = np.zeros(canonical_shape(one.geometry, one.output), bool)
    mask[index] = True
    assert place(mask, np.ones(mask.shape, np.int64), one) == words


def test_elements_beside_padding_in_words() -> None:
    one = problem(D)
    shape = canonical_shape(one.geometry, one.output)
    terms = count_terms(one, shape)
    beside = terms < terms.max()
    words = "with fewer terms than others, next to padding"
    assert place(beside, terms, one) == f"exactly the elements {words}: {beside.sum()} of 576"
    some = beside & (np.random.default_rng(0).random(shape) < 0.5)
    assert (
        place(some, terms, one)
        == f"all {some.sum()} wrong elements are among the {beside.sum()} {words}: {some.sum()} of 576"
    )
    scattered = np.random.default_rng(0).random(shape) < 0.5
    share = f"{100 * scattered.mean():.3g} % of the elements, no pattern"
    assert place(scattered, terms, one) == f"{share}: {scattered.sum()} of 576"


@pytest.mark.parametrize("name", sorted({name for names, _ in WRONG.values() for name in names.split("|")}))
def test_the_page_has_the_name(name: str) -> None:
    page = (DOCS / "diagnosis.md").read_text(encoding="utf-8")
    assert name in page
