"""Weight gradients in parts, verdicts on samples, and the time of verdicts."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from convgrad import run
from convgrad.errors import InvalidAttributeError
from convgrad.formats import BF16, F16, F32
from convgrad.functional.call import Prepared, prepare
from convgrad.notation import problem
from convgrad.verify import check
from convgrad.verify.check import verdicts_of
from convgrad.verify.cost import cost_s, default_sample, measured_blas_s
from convgrad.verify.declared import declared
from convgrad.verify.parts import SampleWish, is_sampled, parts_of, references, said_of
from convgrad.verify.reference import certify
from convgrad.verify.verdict import DEGRADED, OK, WRONG, Verdict
from tests.support.helpers import assert_same_bits
from tests.support.verify_helpers import Run, here, said_by_the_command, values  # noqa: F401 - fixtures

Array = np.ndarray
SAME: Mapping[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper"}
HUGE = "FWD_D f32 NXC mb2ic64id32ih64iw64oc64od32oh64ow64kd3kh3kw3pd1ph1pw1"


def operands(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(4)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def weights(groups: int = 1, src: int = 12, dst: int = 8) -> Prepared:
    """Return a weight gradient with some undetectable zeros and special values in its operands."""
    given = operands((2, 9, 9, src), (2, 9, 9, dst))
    given[0][0, 2, 3, 1], given[1][1, 1, 1, 5] = 0, np.inf
    call = {**SAME, "weights_shape": [3, 3, src // groups, dst], "groups": groups}
    return prepare("ConvolutionBackwardWeights", given, call)


FORWARD = "Convolution", operands((4, 56, 56, 8), (3, 3, 8, 16)), SAME
DATA = "ConvolutionBackwardData", [*operands((4, 28, 28, 8), (3, 3, 16, 8))], {**SAME, "strides": [2, 2]}
WEIGHTS = (
    "ConvolutionBackwardWeights",
    operands((2, 28, 28, 64), (2, 28, 28, 32)),
    {**SAME, "weights_shape": [3, 3, 64, 32]},
)


def verdict(of: Any, change: Any, elements: int = 4700, seed: int = 0) -> Verdict:
    operator, given, attributes = of
    if operator == "ConvolutionBackwardData":
        attributes = {**attributes, "src_shape": [4, 56, 56, 16]}
    return check(
        operator, change(run(operator, *given, **attributes)), *given, sample=elements, seed=seed, **attributes
    )


@pytest.mark.parametrize(("groups", "maximum"), [(1, 1), (1, 250), (4, 60), (4, 30), (2, 150), (4, 130)])
def test_weights_in_parts(groups: int, maximum: int) -> None:
    prepared = weights(groups)
    whole = certify(prepared.problem, prepared.operands)
    parts = list(references(parts_of(prepared.problem, prepared.operands, maximum=maximum), whole.value.size))
    assert len(parts) > 1
    seen = np.zeros(whole.value.shape, int)
    for part, reference in parts:
        seen[part.index] += 1
        for fmt in (F32, BF16, F16):
            assert_same_bits(reference.rounded(fmt), whole.rounded(fmt)[part.index], part.index)
        assert np.array_equal(reference.nonzero, whole.nonzero[part.index])
    assert (seen == 1).all()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_sample_of_weights_has_each_channel(groups: int) -> None:
    prepared = weights(groups)
    whole = certify(prepared.problem, prepared.operands)
    [part] = parts_of(prepared.problem, prepared.operands, sample=SampleWish(whole.value.size // 2))
    seen = np.zeros(whole.value.shape, int)
    seen[part.index] += 1
    assert seen.max() == 1
    assert part.elements == seen.sum() == whole.value.size // 2
    assert seen.any(axis=(1, 2, 3)).all()
    sources = seen.reshape(groups, -1, *seen.shape[1:]).sum(axis=1)
    assert sources.all()
    assert_same_bits(part.certify().rounded(F32), whole.rounded(F32)[part.index], part.index)
    at = (1, 2, 0, 1)
    assert whole.value[part.whole_index(at)] == pytest.approx(part.certify().value[at], rel=1e-12)


def test_a_wrong_sample_names_the_defect() -> None:
    for of in (WEIGHTS, FORWARD):
        wrong = verdict(of, lambda right: -right)
        assert (wrong.outcome, wrong.defects) == (WRONG, ("sign",))
        assert wrong.where.startswith("in the first wrong part, ")
    flipped = verdict(WEIGHTS, lambda right: right[::-1, ::-1])
    assert flipped.defects == ("kernel flipped",)


def test_a_degraded_sample_names_the_defect() -> None:
    rounded = verdict(WEIGHTS, lambda right: right.astype(np.float16).astype(np.float32))
    assert (rounded.outcome, rounded.defects) == (DEGRADED, ("result rounded to f16",))
    assert {one.where for one in rounded.evidence} == {""}


def test_a_sample_inside_its_bound_names_the_defect() -> None:
    """The bound of 1,200 terms in f16 is so wide that a flipped kernel is inside."""
    given = operands((3, 20, 20, 16), (3, 20, 20, 16))
    call = {**SAME, "weights_shape": [3, 3, 16, 16]}
    flipped = run("ConvolutionBackwardWeights", *given, **call)[::-1]
    found = check("ConvolutionBackwardWeights", flipped, *given, sample=600, accumulation="f16", **call)
    assert (found.outcome, found.defects, found.elements) == (DEGRADED, ("kernel flipped",), 576)


def test_long_sums_are_diagnosed_in_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of the last 8 of 32 channels is named in their block, where it explains all elements."""

    def negated(right: Array) -> Array:
        right[..., -8:] *= -1
        return right

    assert verdict(WEIGHTS, negated).defects == ()
    monkeypatch.setattr(importlib.import_module("convgrad.verify.diagnose"), "WHOLE", 0)
    found = verdict(WEIGHTS, negated)
    assert found.defects == ("sign",)
    assert f"all {found.beyond} wrong elements are in group 3 of 4" in found.where
    assert verdict(WEIGHTS, lambda right: right[::-1]).defects == ("kernel flipped",)


def test_the_progress_of_a_sample_ends_at_1() -> None:
    prepared = prepare(WEIGHTS[0], WEIGHTS[1], WEIGHTS[2])
    shares: list[float] = []
    how = declared(WEIGHTS[0], F32)
    verdicts_of([(prepared.execute(), how)], prepared, progress=shares.append, sample=SampleWish(6000))
    assert shares[-1] == 1


def test_a_right_sample_states_its_size() -> None:
    one, other = verdict(WEIGHTS, lambda right: right), verdict(FORWARD, lambda right: right)
    assert one.outcome == other.outcome == OK
    words = "checked 4608 of 18432 elements, drawn by seed 0, with each channel and tap; a defect in fewer than 6.2 %"
    assert one.sample.startswith(words)
    assert one.sample in str(one)
    assert "; a defect in fewer than 4.7 % of the elements may be missed" in other.sample


def test_what_a_sample_may_miss() -> None:
    """Defects of the stated size at any pairs of channels, or in any parts, are missed at most once in 20 seeds."""
    call = {**SAME, "weights_shape": [1, 1, 16, 16]}
    prepared = prepare("ConvolutionBackwardWeights", operands((1, 3, 3, 16), (1, 3, 3, 16)), call)
    words = said_of(prepared.problem, SampleWish(128), 128)
    share = float(re.findall(r"fewer than (\S+) %", words)[0]) / 100
    size, rng = round(16 * share**0.5 + 0.5), np.random.default_rng(0)
    square, scattered = np.zeros((2, 16, 16, 1, 1), bool)
    square[:size, -size:] = True
    scattered.ravel()[rng.choice(256, int(256 * share) + 1, replace=False)] = True
    for defect in (square, scattered):
        drawn = (
            next(parts_of(prepared.problem, prepared.operands, sample=SampleWish(128, seed))).index
            for seed in range(400)
        )
        assert np.mean([not defect[index].any() for index in drawn]) < 0.05


def test_seeds_draw_different_elements() -> None:
    one, again, other = (verdict(FORWARD, lambda right: right, 1000, seed) for seed in (1, 1, 2))
    assert one == again
    assert one.equal != other.equal


def test_the_worst_element_is_in_the_whole() -> None:
    """Of both kinds of samples: the first and the last position, and the only source channel of a destination."""

    def last(right: Array) -> Array:
        right[-1, -1, -1, 3] += 9
        return right

    assert verdict(FORWARD, last).worst == (3, 55, 55, 3)
    found = verdict(WEIGHTS, lambda right: right + np.float32(9)).worst
    assert verdict(WEIGHTS, lambda right: right).elements == 4608
    right = run(WEIGHTS[0], *WEIGHTS[1], **WEIGHTS[2])
    right[found] += 9
    assert verdict(WEIGHTS, lambda _: right).worst == found


def test_a_sample_of_more_elements_is_the_whole() -> None:
    whole = verdict(FORWARD, lambda right: right, 10**6)
    assert (whole.elements, whole.sample) == (4 * 56 * 56 * 16, "")
    tiles = prepare("Convolution", FORWARD[1], SAME)
    how = declared("Convolution", tiles.problem.operand_format, algorithm="winograd:2,3")
    [found] = verdicts_of([(tiles.execute(), how)], tiles, sample=SampleWish(900))
    assert (found.elements, found.sample) == (whole.elements, "")


def test_costs_choose_samples() -> None:
    huge = problem(HUGE)
    sample = default_sample(huge, 3)
    assert sample is not None
    assert sample.seed == 3
    assert is_sampled(huge, sample)
    assert cost_s(huge, sample) < cost_s(huge) / 3
    assert default_sample(problem("FWD_D f32 NXC mb2ic8ih9oc8oh9kh3ph1"), 0) is None
    assert 0 < measured_blas_s() < 1e-6


def test_the_command_line_takes_a_sample(said: Run) -> None:
    line = "FWD_D f32 NXC mb4ic4ih56oc8oh56kh3ph1"
    code, out, err = said(line, "--sample", "4096", "--seed", "5")
    assert code == 0
    assert "; a defect in fewer than 4.7 % of the elements may be missed" in out
    assert "the verdict takes about" in err
    found = values(said(line, "--sample", "4096", "--json", "--call", "foreign_functions:wrong_weights")[1])[0]
    assert found["sample"].startswith("checked ")
    assert values(said(line, "--sample", "all", "--json")[1])[0]["sample"] == ""
    small = "FWD_D f32 NXC mb1ic4ih5oc8oh5kh3ph1"
    assert said(small, line, "--sample", "4096")[1].splitlines()[-1].startswith("2 cases (1 in a sample")
    assert said(line, "--sample", "none")[0] == 2


def test_an_estimate_is_printed_first(said: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    report = importlib.import_module("convgrad.cli.verify_report")
    monkeypatch.setattr(report, "cost_s", lambda *_: 7.2)
    _, out, err = said("FWD_D f32 NXC mb1ic4ih5oc8oh5kh3ph1")
    assert "the verdict takes about 7 s (without the call of the function)" in err
    assert out.startswith("1 case; judged: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("sample", value) for value in (0, -1, 2.5, True, "8")), *(("seed", value) for value in (-1, 2.5, True, "8"))],
)
def test_what_is_no_sample(name: str, value: Any) -> None:
    message = "sample must be a positive integer or None, and seed a non-negative integer; got "
    with pytest.raises(InvalidAttributeError, match=message):
        check("BiasAddBackward", np.ones(4, np.float32), np.ones((1, 4), np.float32), **{"sample": 9, name: value})


@pytest.mark.parametrize("value", [0, 0.0, False, -1, "8", []])
def test_what_is_no_max_error(value: Any) -> None:
    with pytest.raises(InvalidAttributeError, match="max_error must be a number, 1 at least; got "):
        check("BiasAddBackward", np.ones(4, np.float32), np.ones((1, 4), np.float32), max_error=value)
