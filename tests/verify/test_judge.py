"""The statistics of a verdict: right results pass in any order, planted defects are seen and named."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import convgrad
from campaigns.verdict import LINES, Tally, filled, judge_all, problems
from convgrad.formats import ACCUMULATIONS, BF16, F16, F32, Format, round_to
from convgrad.functional.call import prepare
from convgrad.notation import calls, read
from convgrad.spec.operators import find
from convgrad.spec.order import height_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.verify.cases.collection import read as cases_of
from convgrad.verify.check import check, verdict_on
from convgrad.verify.declared import Declared, DeclaredResult, declared
from convgrad.verify.judge import judge
from convgrad.verify.judge.conspire import conspiracies
from convgrad.verify.judge.lost import curve
from convgrad.verify.judge.model import cell, last_place, partial_sums, tree
from convgrad.verify.reference import certify
from convgrad.verify.verdict import Verdict
from tests.support.judging import judged
from tests.support.tiers import tiers
from tests.verify.planted import ARITHMETIC, Planted, chain, one_element, to_f32_truncated
from tests.verify.plants import Plant, plant_of
from tests.verify.verdict_data import KINDS
from tests.verify.verdict_orders import chains, columns_of, finished, nearest
from tests.verify.verdict_power import LAYER, NARROW

Array = NDArray[Any]
WHOLE = "BWD_W f32 NXC mb4ic12ih9oc12oh9kh3ph1"
SMALL = "BWD_W f32 NXC mb8ic16ih7oc16oh7kh1"  # 392 terms, 256 elements
DATA = "BWD_D f32 NXC mb2ic8ih12oc16oh12kh3ph1"


def said_of(one: Plant, got: Planted, how: Declared | None = None, fmt: Format = F32) -> Verdict:
    """Return the verdict on sums, rounded to f32 and then to a result's type."""
    assert isinstance(got, np.ndarray)
    return verdict_on(got.astype(np.float32).astype(fmt.dtype), one.prepared(), how or declared("it", F32))


# -- right results ----------------------------------------------------------------------------------------------


@tiers("kind, at", list(KINDS), range(4), every=31)
def test_right_results_are_ok_in_any_order(kind: str, at: int) -> None:
    tally = Tally()
    for what, prepared in problems(7 + 50 * at + list(KINDS).index(kind), 1):
        if np.prod(prepared.problem.output_shape) <= 500:  # quick: the others are the campaign's
            judge_all(what, prepared, at, tally)
    assert tally.alarms == []


@pytest.mark.parametrize("channels", [16, 32, 48, 128])
@pytest.mark.parametrize("signs", ["random", "alternating", "alike"])
def test_blocks_of_two_bf16_chains_are_ok_at_their_own_depth(signs: str, channels: int) -> None:
    """If signs alternate over the channels, each of the two chains adds terms of one sign, and their sums cancel."""
    rng = np.random.default_rng(channels)
    sign = {"alternating": np.resize([1, -1], channels), "alike": 1}.get(signs, rng.choice([-1, 1], channels))
    src, weights = (1 + 0.2 * rng.standard_normal(shape) for shape in ((2, 24, channels), (3, channels, 16)))
    operands = src.astype(BF16.dtype), (weights * np.reshape(sign, (-1, 1))).astype(BF16.dtype)
    layer: dict[str, Any] = {"strides": [1], "dilations": [1], "pads_begin": [1], "pads_end": [1]}
    one = prepare("Convolution", operands, layer, "f32")
    got = evaluate_in_order(one.problem, one.operands).transpose(np.argsort(one.problem.output_order))
    assert check("Convolution", got, *operands, **layer).outcome == "ok"
    assert check("Convolution", got, *operands, height=height_of(one.problem), **layer).outcome == "ok"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_twenty_thousand_right_results_are_ok(seed: int) -> None:
    tally = Tally()
    for number, (what, prepared) in enumerate(problems(1000 + seed, 60)):
        judge_all(what, prepared, number, tally)
    assert tally.alarms == []


def test_sums_beside_numbers_of_few_bits_may_end_there() -> None:
    """1536 + 1024 and four numbers that are lost one by one, though not together: 2560 where these come last."""
    rng = np.random.default_rng(0)
    small = rng.choice([-1.0, 1.0], (300, 1)) * rng.uniform(0.3, 0.45, (300, 4)) * 2.0**-13
    src = np.concatenate([np.full((300, 1), 1536), np.full((300, 1), 1024), small], 1)[None].astype(np.float32)
    result = np.full((1, 300, 1), 2560, np.float32)
    verdict = check("Convolution", result, src, np.ones((1, 6, 1), np.float32), strides=[1], dilations=[1])
    assert not [one for one in verdict.evidence if "grid" in one.statistic]


def test_a_bias_that_all_elements_of_a_channel_lose_alike_is_no_bias_of_the_sums() -> None:
    call = calls(read("FWD_B f32 NXC mb1ic200ih7oc12oh7kh3ph1"))[0]
    prepared = filled(find(call.operator), call.shapes, dict(call.attributes), call.format, "positive", 3)
    tally = Tally()
    reference = certify(prepared.problem, prepared.operands)
    bias = prepared.operands[2].astype(np.float64).reshape(1, -1, 1)
    sums = (reference.value.reshape(1, 12, -1) - bias).astype(np.float32)
    got = (sums + bias.astype(np.float32)).reshape(reference.value.shape)
    in_layout = got.transpose(np.argsort(prepared.problem.output_order))
    tally.count("f64 sums", verdict_on(in_layout, prepared, declared("it", F32), None, reference))
    assert tally.alarms == []


def test_copies_count_once() -> None:
    one = plant_of(SMALL, "ones")
    one = replace(one, y=np.ones_like(one.y))
    assert said_of(one, one.right()).ok


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("FWD_D f32 NXC g4mb1ic4ih24oc4oh24kh7ph3", "box of ReLU"),  # neighbours share products
        ("FWD_B f32 NXC mb1ic200ih7oc12oh7kh3ph1", "ones"),  # so do channels, which biases tell apart
        ("BWD_W f32 NXC mb8ic12ih8oc2oh8kh1", "binary"),  # all products are one
    ],
)
def test_elements_that_share_products_count_as_one(line: str, kind: str) -> None:
    (_, prepared) = next(problems(0, 1, line, [kind]))
    columns, reference = columns_of(prepared.problem, prepared.operands), certify(prepared.problem, prepared.operands)
    got = finished(columns, chains(columns.x, columns.y, 1)[0], F32).reshape(reference.value.shape)
    in_layout = got.transpose(np.argsort(prepared.problem.output_order))
    verdict = verdict_on(in_layout, prepared, declared("it", F32), None, reference)
    assert verdict.ok, str(verdict)


# -- defects ----------------------------------------------------------------------------------------------------


# What changes nothing to be seen at 392 terms, or is seen by no name.
UNSEEN = {"products truncated", "none: convgrad", "tf32 accumulation of blocks"}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", sorted(ARITHMETIC.keys() - UNSEEN))
def test_a_planted_defect_is_seen_and_named(name: str) -> None:
    wanted, planted = ARITHMETIC[name]
    one = plant_of(SMALL, "relu")
    verdict = said_of(one, planted(one))
    assert verdict.outcome in {"wrong", "degraded"}
    assert verdict.defects[0] in wanted.split("|")


@pytest.mark.parametrize(
    "name", ["f16 partials, 2", "result rounded to f16", "f16 accumulation", "all 1e-5 too large", "one element 0.001"]
)
@pytest.mark.parametrize("kind", ["relu", "positive"])
def test_a_narrow_result_has_no_other_defect_s_name(name: str, kind: str) -> None:
    """What told them was rounded away; some other defect explains what is left about as well."""
    wanted, planted = ARITHMETIC[name]
    one = plant_of(SMALL, kind)
    assert set(said_of(one, planted(one), fmt=BF16).defects) <= {*wanted.split("|"), NARROW.get(name)}


@pytest.mark.parametrize(
    ("line", "index", "wanted"),
    [
        (WHOLE, np.s_[..., 1, 2], "one tap off"),
        (WHOLE, 5, "one destination channel off"),
        (DATA, np.s_[1, :, 7], "one row of an image off"),
        (DATA, np.s_[:, 3], "one source channel off"),
        (DATA, np.s_[..., 11], "one column off"),
    ],
)
def test_one_group_is_named(line: str, index: Any, wanted: str) -> None:
    one = plant_of(line, "normal")
    got = one.sums()
    got[index] = round_to(got[index], ACCUMULATIONS["tf32"])
    assert wanted in said_of(one, got, Declared(F32)).defects


@pytest.mark.parametrize("fmt", [BF16, F16])
def test_a_narrow_result_is_judged_by_what_crosses_a_boundary(fmt: Format) -> None:
    one = plant_of("BWD_W f32 NXC mb8ic40ih7oc40oh7kh1", "normal")
    right = one.sums()
    assert said_of(one, right, fmt=fmt).ok
    low, high = cell(round_to(right, fmt), fmt)
    moved = np.where(
        np.arange(right.size).reshape(right.shape) % 9, right, np.where(right - low < high - right, low, high)
    )
    beside = round_to(moved + np.sign(moved - right) * last_place(right, fmt) / 64, fmt)
    assert said_of(one, beside, fmt=fmt).outcome in {"wrong", "degraded"}


def test_a_tighter_declaration_sees_more() -> None:
    one = plant_of("BWD_W f32 NXC mb8ic16ih28oc16oh28kh1", "normal")
    off = ARITHMETIC["one element 1e-05"][1](one)
    assert said_of(one, off).ok
    assert not said_of(one, off, Declared(F32, height=40)).ok
    assert not said_of(one, off, Declared(F32, blocks=(224,) * 28)).ok
    assert said_of(one, one.right(), Declared(F32, height=300)).ok


def test_the_same_call_has_the_same_judgement() -> None:
    one = plant_of(SMALL, "normal")
    problem, operands = one.prepared().problem, one.prepared().operands
    reference = certify(problem, operands)
    first, second = (judge(DeclaredResult(one.right(), problem, operands, Declared(F32)), reference) for _ in range(2))
    assert first == second
    assert first.statistics["R"] > 0
    assert first.limits["one element, relative"] > 0


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_what_is_above_the_detection_limit_is_seen(share: float) -> None:
    """An element of median size scaled by its limit is seen at twice, not at half of it."""
    one = plant_of(SMALL, "normal")
    limit = said_of(one, one.right()).limits["one element, relative"]
    assert said_of(one, one_element(one, share * limit)).ok == (share < 1)


# -- where nothing is said --------------------------------------------------------------------------------------


def test_sums_that_stagnate_are_undecided_unless_accurate() -> None:
    src, dst = (np.random.default_rng(0).random((1, 2000, 4)).astype(np.float32) + 1 for _ in range(2))
    call = {"strides": [1], "dilations": [1], "weights_shape": [1, 4, 4]}
    result = np.einsum("npi,npo->io", src.astype(np.float64), dst)[None].astype(np.float32)
    assert check("ConvolutionBackwardWeights", result, src, dst, accumulation="f16", height=200, **call).ok
    result += 40 * np.random.default_rng(1).standard_normal(result.shape)
    verdict = check(
        "ConvolutionBackwardWeights", result.astype(np.float32), src, dst, accumulation="f16", height=200, **call
    )
    assert verdict.outcome == "undecided"
    assert "lose whole terms" in verdict.reason


def test_another_algorithm_is_ok_or_undecided() -> None:
    one = plant_of("FWD_D f32 NXC mb4ic16ih28oc16oh28kh3ph1", "normal")
    winograd = Declared(F32, algorithm="winograd:4,3")
    assert said_of(one, one.right(), winograd).ok
    noise = np.random.default_rng(0).standard_normal(one.y.shape) * 0.01
    verdict = said_of(one, one.right() + noise, winograd)
    assert (verdict.outcome, "winograd" in verdict.reason) == ("undecided", True)
    verdict = said_of(one, one.right(), Declared(F32, algorithm="fft"))
    assert (verdict.outcome, "no bound" in verdict.reason) == ("undecided", True)


def test_integers_have_no_figures() -> None:
    src, dst = (np.ones((2, 5, 3), np.float32) for _ in range(2))
    call = {"strides": [1], "dilations": [1], "weights_shape": [1, 3, 3]}
    verdict = check("ConvolutionBackwardWeights", np.full((1, 3, 3), 10, np.float32), src, dst, **call)
    assert verdict.ok
    assert dict(verdict.statistics) == {}


# -- the model --------------------------------------------------------------------------------------------------


def test_a_chain_of_exchangeable_terms_has_the_model_s_partial_sums() -> None:
    """Over all orders of five terms the mean of sum s_k^2 is a S^2 + b (Q - S^2/n), exactly."""
    terms = np.array([3.0, -1.0, 4.0, 1.0, -5.0])
    orders = np.array(list(permutations(terms)))
    mean = np.square(np.cumsum(orders, 1)).sum(1).mean()
    total, squares = terms.sum(), np.square(terms).sum()
    a, b = tree(Declared(F32), np.array([5.0]))
    assert partial_sums(a, b, total, squares - total**2 / 5)[0] == pytest.approx(mean, rel=1e-12)


def test_blocks_have_the_partial_sums_of_their_chains_and_of_their_join() -> None:
    """K chains of n/K joined by a chain: about a = n / (3 K^2) + K/3, b = n / (2K) - n / (3 K^2) + K/6."""
    n, parts = 10_000, 10
    chain, blocks, one = (tree(Declared(F32, None, b), np.array([float(n)])) for b in ((), (n // parts,) * parts, (n,)))
    assert one[0] == pytest.approx(chain[0])
    assert blocks[0] == pytest.approx(n / (3 * parts**2) + parts / 3, rel=0.05)
    assert blocks[1] == pytest.approx(n / (2 * parts) - n / (3 * parts**2) + parts / 6, rel=0.05)


@pytest.mark.parametrize("fmt", [BF16, F16, F32])
def test_a_cell_is_what_rounds_to_a_value(fmt: Format) -> None:
    values = round_to(np.array([1.0, -1.0, 1.5, 2.0**-14, fmt.tiny, 3 * fmt.tiny, -(2.0**5), 0.1]), fmt)
    low, high = cell(values, fmt)
    inside = 2.0**-20 * last_place(values, fmt)
    for end, inward in ((low, inside), (high, -inside)):
        assert (round_to(end + inward, fmt) == values).all()
        assert (round_to(end - inward, fmt) != values).all()


def test_what_conspires_is_measured() -> None:
    rng = np.random.default_rng(0)
    up_and_down = rng.standard_normal((4, 2, 500)) + np.array([3.0, -3.0]).reshape(1, 2, 1)
    alternating = rng.random((4, 1, 800)) * (1 - 2 * (np.arange(800) % 2))
    assert (conspiracies(up_and_down) > 20).all()
    assert (conspiracies(alternating) > 5).all()  # interleaved lanes take one sign each
    assert (conspiracies(rng.standard_normal((4, 2, 500))) < 8).all()


def test_terms_of_whole_grids_lose_nothing() -> None:
    products = np.random.default_rng(0).integers(1, 9, (6, 100)).astype(np.float64)
    whole = curve(products, 2.0**-12, 2.0**-10)
    share = whole.of(np.array([2.0**-10]), np.array([1.0]), np.array([1.0]))
    assert 0 <= share[0] < 2.0**-10
    small = curve(np.full((6, 100), 0.3), 1.0, 1.0)  # of a grid of one mean term nothing is lost, of four all
    assert small.of(np.array([4.0]), np.array([1.0]), np.array([1.0]))[0] == pytest.approx(1.0)


def test_lines_are_read() -> None:
    assert all(calls(read(line)) for line in (*LINES, LAYER))


def test_noise_in_one_tap_is_not_called_rounded_partial_sums() -> None:
    """Two thirds of the elements have next to no error: no arithmetic does that to the others."""
    one = plant_of("BWD_W f32 NXC mb4ic16ih28oc32oh14kh3sh2ph1", "normal")
    got = one.right()
    got[:, :, -1] += 0.01 * np.random.default_rng(0).standard_normal(got.T.shape)[-1].T
    verdict = said_of(one, got)
    assert verdict.outcome == "wrong"
    assert "tap 2" in verdict.where
    off = int(re.search(r"; of the 1536 elements there (\d+) err more than any elsewhere$", verdict.where)[1])  # type: ignore[index]
    assert off > 10 * verdict.beyond
    assert not [name for name in verdict.defects if "partial sums" in name]


# -- what all elements share ------------------------------------------------------------------------------------


CHANGES = {
    "scaled by a constant": lambda right: right * (1 + 3e-7),
    "offset added": lambda right: right + 1e-6 * np.abs(right).mean(),
    "result rounded to multiples": np.round,
}


@tiers("wanted, seed", CHANGES, range(8), every=5)
def test_a_change_of_all_elements_is_named(wanted: str, seed: int) -> None:
    one = plant_of(WHOLE, "normal", seed)
    assert said_of(one, CHANGES[wanted](one.sums())).defects == (wanted,)


def test_a_scale_of_positive_sums_may_be_an_offset() -> None:
    """Sums that are all about equal do not tell a factor from a constant: the verdict names both."""
    one = plant_of(WHOLE, "positive")
    (defect,) = said_of(one, CHANGES["scaled by a constant"](one.sums())).found
    assert defect.name == "scaled by a constant"
    assert "also fits: offset added" in defect.detail


def test_products_truncated_are_named() -> None:
    """676 positive terms: results are too small by 0.7 unit roundoffs on average."""
    one = plant_of("BWD_W f32 NXC mb4ic48ih13ow13iw13oc48oh13kh1kw1", "positive", 1)
    assert said_of(one, chain(one, nearest, to_f32_truncated)).defects == ("products truncated",)


def test_multiples_of_decimals() -> None:
    one = plant_of(WHOLE, "normal")
    (defect,) = said_of(one, np.round(one.right(), 2)).found
    assert (defect.name, defect.detail) == ("result rounded to multiples", "of 0.01")


def test_terms_whose_squares_overflow_are_not_judged() -> None:
    """The bound alone decides about ill-conditioned f64 sums, whose largest terms have no square in f64."""
    (case,) = cases_of("case deconv mb2ic8ih9oc8oh9kh3ph1 types=f64 roles=FWD_D layouts=NXC # of this test", "here")
    assert judged(case, convgrad.run, "adversarial").ok


@pytest.mark.every(4)  # each operator, and each type
@pytest.mark.parametrize("fmt", [F32, BF16, F16], ids=str)
@pytest.mark.parametrize("operator", ["Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights"])
@tiers("seed", [0], long=[1])
def test_a_result_of_other_operands_has_no_cause(operator: str, fmt: Format, seed: int) -> None:
    """Its errors are as large as the sums: no rounding of partial sums explains them."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, Any] = {
        "Convolution": [(2, 14, 14, 16), (3, 3, 16, 32)],
        "ConvolutionBackwardData": [(2, 14, 14, 32), (3, 3, 16, 32)],
        "ConvolutionBackwardWeights": [(2, 14, 14, 16), (2, 14, 14, 32)],
    }
    mine, other = ([rng.standard_normal(s).astype(fmt.dtype) for s in shapes[operator]] for _ in range(2))
    layer: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    if operator.endswith("Weights"):
        layer["weights_shape"] = [3, 3, 16, 32]
    verdict = check(operator, convgrad.run(operator, *other, **layer), *mine, **layer)
    assert (verdict.outcome, verdict.defects) == ("wrong", ())


def test_filters_of_sampled_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large problems compute filters element by element, and none for errors that rounded operands cannot cause."""
    one, words = plant_of(SMALL, "normal"), "t of operands rounded to tf32"
    prepared = one.prepared()
    reference, how = certify(prepared.problem, prepared.operands), Declared(F32)
    rounded = np.asarray(ARITHMETIC["operands rounded to tf32"][1](one), np.float32)
    noise = rounded + np.random.default_rng(0).standard_normal(rounded.shape, np.float32)

    def found(got: Array) -> Any:
        canonical = got.transpose(prepared.problem.output_order)
        return judge(DeclaredResult(canonical, prepared.problem, prepared.operands, how), reference)

    whole = found(rounded)
    monkeypatch.setattr("convgrad.verify.judge.statistics.filters.MULTIPLY_ADDS", 0)
    sampled = found(rounded)
    assert sampled.defects == whole.defects
    assert sampled.statistics[words] == pytest.approx(whole.statistics[words], rel=1e-6)
    assert words not in found(noise).statistics
