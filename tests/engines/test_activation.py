"""ReLU at the end of a sum: the bits of a result without it, made 0 where it is at most 0, before the one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.cli import main
from convgrad.engines.llvm import isas
from convgrad.errors import ConvgradError, InvalidAttributeError
from convgrad.formats import FORMATS, store
from convgrad.functional.call import prepare
from convgrad.plan.machine import Isa
from convgrad.spec.activation import activate
from convgrad.spec.exact_result import evaluate
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from convgrad.verify.check import verdict_on
from convgrad.verify.compare import compare
from convgrad.verify.declared import declared
from convgrad.verify.reference import certify
from convgrad.verify.verdict import OK, WRONG
from tests.support import helpers
from tests.support.engine_helpers import empty, lying, run_plan
from tests.support.forward_problems import PROBLEMS, plans_of, posed, unlike
from tests.support.hash_problems import shape_of, values
from tests.support.tiers import tiers

Array = Any
RELU = "relu"
ISAS = list(isas.host_isas())
KERNELS = pytest.mark.skipif(not ISAS, reason="no generated kernels run here")
LAYERS = {  # src, weights, attributes
    "dense": ((2, 12, 12, 48), (3, 3, 48, 40), {"pads_begin": 1, "pads_end": 1}),
    "stem": ((2, 20, 20, 3), (7, 7, 3, 32), {"strides": 2, "pads_begin": 3, "pads_end": 3}),
    "depthwise": ((2, 9, 9, 32), (3, 3, 1, 32), {"groups": 32, "pads_begin": 1, "pads_end": 1}),
    "grouped": ((2, 9, 9, 24), (3, 3, 8, 24), {"groups": 3}),
    "few results": ((2, 24, 24, 40), (3, 3, 40, 3), {"pads_begin": 1, "pads_end": 1}),
    "grouped, channels first": ((2, 16, 9, 40), (3, 3, 4, 16), {"groups": 4, "data_format": "NCX"}),
    "tiles": ((2, 12, 12, 64), (3, 3, 64, 64), {"pads_begin": 1, "pads_end": 1, "max_error": 64}),
}


def assert_same_bits(got: Array, expected: Array) -> None:
    helpers.assert_same_bits(got, expected, "activated")


def layer(name: str, seed: int = 0) -> tuple[list[Array], dict[str, Any]]:
    """Normal operands and attributes of a layer with a bias."""
    rng = np.random.default_rng(seed)
    src, weights, attributes = LAYERS[name]
    shapes = (src, weights, weights[-1:])
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes], dict(attributes)


@KERNELS
@tiers(
    "name, role, heights, isa", ["dense", "dense, full vectors", "one tap, 600 channels"], ["dst", "src"],
    [(1, 14), (6, 12)], ISAS, every=19,
)  # fmt: skip
def test_pairs_of_bf16_give_the_bits_of_the_order(name: str, role: str, heights: tuple[int, ...], isa: Isa) -> None:
    """Without a bias, whole vectors of bf16 are rounded two at a time."""
    plain = posed(PROBLEMS[name], role, role == "src", ("bf16", "bf16"), "NXC XIO")
    rng = np.random.default_rng(0)
    shapes = [shape_of(plain, tensor) for tensor in plain.operands]
    normal = [rng.standard_normal(shape).astype(plain.operand_format.dtype) for shape in shapes]
    assert_in_order(plain, [lying(*each) for each in zip(normal, plain.layouts, strict=False)], heights, isa)


def assert_in_order(plain: Problem, operands: Sequence[Array], heights: tuple[int, ...], isa: Isa) -> None:
    """Assert the bits of unlike plans, and of those of pairs whose micro-tiles have these heights."""
    problem = replace(plain, activation=RELU)
    old = values(shape_of(problem, problem.output), problem.output_format, np.random.PCG64(99))
    expected = evaluate_in_order(problem, operands, old)
    assert (evaluate_in_order(plain, operands, old) < 0).any()
    _, found = plans_of(problem, operands, empty(problem), isa)
    dense = [plan for plan in found if plan.strategy == "dense"]
    in_pairs = [plan for plan in dense if plan.in_pairs and plan.spec.mr in heights]
    for plan in [*unlike(found, 0), *in_pairs]:
        out = empty(problem)
        if problem.accumulate:
            out[...] = old
        assert plan.spec.activation == RELU
        assert_same_bits(run_plan(plan, problem, operands, out), expected)


@pytest.mark.every(9)
@KERNELS
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_f32_results_are_the_maximum_with_0(name: str, threads: int) -> None:
    operands, attributes = layer(name)
    plain = convgrad.convolution(*operands, **attributes, threads=threads)
    active = convgrad.convolution(*operands, **attributes, threads=threads, activation=RELU)
    assert (plain < 0).any()
    assert_same_bits(active, np.maximum(plain, 0))
    assert not np.signbit(active).any()


@tiers("output, name", list(FORMATS), ["dense", "tiles", "few results"], every=5)
def test_output_formats(name: str, output: str) -> None:
    """f32 results, activated and rounded once."""
    if output == "f64":
        pytest.skip("f64 is made of f64 only")
    operands, attributes = layer(name)
    wide = np.maximum(convgrad.convolution(*operands, **attributes), 0)
    narrow = convgrad.convolution(*operands, **attributes, activation=RELU, dtype=output)
    assert_same_bits(narrow, store(wide.astype(np.float64), FORMATS[output]))


@pytest.mark.parametrize("name", LAYERS)
def test_integers_are_exact(name: str) -> None:
    rng = np.random.default_rng(1)
    operands, attributes = layer(name)
    attributes.pop("max_error", None)
    operands = [rng.integers(-3, 4, each.shape).astype(np.float32) for each in operands]
    spelled = {
        key: [value] * 2 if key in ("strides", "pads_begin", "pads_end") else value for key, value in attributes.items()
    }
    spelled = {"strides": [1, 1], "dilations": [1, 1], **spelled}
    posed = prepare("Convolution", tuple(operands), spelled).activated(RELU)
    exact = evaluate(posed.problem, posed.operands).rounded(posed.problem)
    got = convgrad.convolution(*operands, **attributes, activation=RELU)
    assert (got == exact.transpose(np.argsort(posed.problem.output_order))).all()
    assert (got == 0).any()


@pytest.mark.parametrize("isa", ["", "numpy"])
@pytest.mark.parametrize("channels", [1, 32])
def test_nan_stays_and_zeros_are_positive(monkeypatch: pytest.MonkeyPatch, isa: str, channels: int) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
    src = np.array([np.nan, -0.0, -1.0, 2.0, np.inf, -np.inf, -1e-45, 1e-45], np.float32).reshape(1, 8, 1)
    weights = np.ones((1, 1, channels), np.float32)
    expected = np.array([np.nan, 0.0, 0.0, 2.0, np.inf, 0.0, 0.0, 1e-45], np.float32).reshape(1, 8, 1)
    expected = np.broadcast_to(expected, (1, 8, channels))
    assert_same_bits(convgrad.convolution(src, weights, activation=RELU), np.ascontiguousarray(expected))
    bias = np.full(1, -0.0, np.float32)
    assert_same_bits(convgrad.bias_add(src, bias, activation=RELU), np.ascontiguousarray(expected[..., :1]))


@pytest.mark.parametrize("isa", ["", "numpy"])
@pytest.mark.parametrize("name", ["dense", "tiles", "grouped, channels first"])
def test_old_values_are_added_before(monkeypatch: pytest.MonkeyPatch, isa: str, name: str) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
    operands, attributes = layer(name)
    old = np.random.default_rng(3).standard_normal(convgrad.convolution(*operands, **attributes).shape, np.float32)
    both = [old.copy(), old.copy()]
    convgrad.convolution(*operands, **attributes, out=both[0], accumulate=True)
    convgrad.convolution(*operands, **attributes, out=both[1], accumulate=True, activation=RELU)
    assert_same_bits(both[1], np.maximum(both[0], 0))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_numpy_engine(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    operands, attributes = layer("grouped")
    operands = [each.astype(FORMATS[dtype].dtype) for each in operands]
    plain = convgrad.convolution(*operands, **attributes)
    assert_same_bits(convgrad.convolution(*operands, **attributes, activation=RELU), np.maximum(plain, 0))


def test_doors() -> None:
    """conv_transpose, run, compile, bias_add and explain."""
    (src, weights, bias), attributes = layer("dense")
    expected = convgrad.convolution(src, weights, bias, **attributes, activation=RELU)
    strict = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    assert_same_bits(convgrad.run("Convolution", src, weights, bias, **strict, activation=RELU), expected)
    made = convgrad.compile("Convolution", src, weights, bias, **strict, activation=RELU)
    assert_same_bits(made(src, weights, bias), expected)
    out = np.ones_like(expected)
    onto = convgrad.compile("Convolution", src, weights, bias, **strict, accumulate=True, activation=RELU)
    assert_same_bits(
        onto(src, weights, bias, out=out), np.maximum(convgrad.convolution(src, weights, bias, **attributes) + 1, 0)
    )
    across = np.ascontiguousarray(weights.swapaxes(2, 3)).reshape(3, 3, 40, 48)
    plain = convgrad.conv_transpose(src, across, bias)
    assert_same_bits(convgrad.conv_transpose(src, across, bias, activation=RELU), np.maximum(plain, 0))
    added = convgrad.bias_add(src, src[0, 0, 0])
    assert_same_bits(convgrad.bias_add(src, src[0, 0, 0], activation=RELU), np.maximum(added, 0))
    text = str(convgrad.explain("Convolution", src.shape, weights.shape, **strict, activation=RELU))
    assert "activation  relu" in text
    assert "activation" not in str(convgrad.explain("Convolution", src.shape, weights.shape, **strict))


@pytest.mark.parametrize("name", ["dense", "depthwise", "tiles"])
def test_vjp_is_that_of_masked_cotangents(name: str) -> None:
    (src, weights, bias), attributes = layer(name)
    dst, pullback = convgrad.vjp("Convolution", src, weights, bias, **attributes, activation=RELU)
    assert_same_bits(dst, convgrad.convolution(src, weights, bias, **attributes, activation=RELU))
    v = np.random.default_rng(5).standard_normal(dst.shape, np.float32)
    masked = np.where(dst <= 0, np.float32(0), v)
    _, plain = convgrad.vjp("Convolution", src, weights, bias, **attributes)
    for ours, theirs in zip(pullback(v), plain(masked), strict=True):
        assert_same_bits(ours, theirs)
    again, other = pullback.vjp(v)[1], plain.vjp(masked)[1]
    cotangents = tuple(np.ones_like(each) for each in (src, weights, bias))
    assert_gated(again(cotangents), other(cotangents), dst)
    third, fourth = again.vjp(cotangents)[1], other.vjp(cotangents)[1]
    assert_gated(third((None, None, None, v)), fourth((None, None, None, masked)), dst)


def assert_gated(ours: Sequence[Array | None], theirs: Sequence[Array | None], dst: Array) -> None:
    """Equal gradients, but that the one by v is 0 where the result is."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert_same_bits(one, np.where(dst <= 0, np.float32(0), other) if number == 3 else other)


@pytest.mark.parametrize("activation", ["gelu", "", "RELU", True, 0, ["relu"], np.ones(2)])
def test_other_activations_are_refused(activation: Any) -> None:
    (src, weights, _), _ = layer("dense")
    calls = (
        lambda: convgrad.convolution(src, weights, activation=activation),
        lambda: convgrad.bias_add(src, src[0, 0, 0], activation=activation),
        lambda: convgrad.vjp("Convolution", src, weights, activation=activation),
        lambda: convgrad.explain("Convolution", src.shape, weights.shape, activation=activation),
    )
    for call in calls:
        with pytest.raises(InvalidAttributeError, match=r'activation must be None or "relu"; got .*\[D13\]'):
            call()


def test_parts_of_sums_and_gradients_have_none() -> None:
    """A ReLU of a part is not a part of a ReLU."""
    (src, weights, _), _ = layer("dense")
    dst = convgrad.convolution(src, weights)
    shaped = {"weights_shape": weights.shape, "strides": [1, 1], "dilations": [1, 1]}
    calls: Sequence[Any] = (
        lambda: convgrad.run("ConvolutionBackwardWeights", src, dst, **shaped, activation=RELU),
        lambda: convgrad.partials("ConvolutionBackwardWeights", src, dst, **shaped, activation=RELU),
        lambda: convgrad.convolution_backward_weights(src, dst, weights.shape, activation=RELU),
        lambda: convgrad.verify.check("Convolution", dst, src, weights, activation=RELU),
    )
    for call in calls:
        with pytest.raises(ConvgradError, match=r"activation.*\[(A1|D13)\]"):
            call()


def test_verdicts_on_activated_results() -> None:
    """The reference is activated; what is not, or is activated before the bias, is wrong."""
    (src, weights, bias), attributes = layer("dense")
    spelled = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
    posed = prepare("Convolution", (src, weights, bias), spelled).activated(RELU)
    how = declared("Convolution", posed.problem.operand_format)
    plain = convgrad.convolution(src, weights, bias, **attributes)
    early = np.maximum(convgrad.convolution(src, weights, **attributes), 0) + bias
    assert verdict_on(np.maximum(plain, 0), posed, how).outcome == OK
    for most in (1 << 20, 1 << 10):
        assert verdict_on(np.maximum(plain, 0), posed, how, maximum=most).outcome == OK
        assert verdict_on(plain, posed, how, maximum=most).outcome == WRONG
        assert verdict_on(early, posed, how, maximum=most).outcome == WRONG
    tiny = np.maximum(plain, 0)
    tiny[plain < 0] = -1e-6  # inside the bound of the sum, but no value of ReLU
    assert verdict_on(tiny, posed, how).outcome == WRONG


def test_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The result is activated and compared with the exact one, activated; graphs and pieces refuse the option."""
    line, out = "FWD_D f32 NXC mb1ic4ih6oc5oh6kh3ph1", tmp_path / "out.npy"
    arguments = ["run", line, "--fill", "normal", "--activation", "relu", "--check", "oracle"]
    assert main([*arguments, "-o", str(out)]) == 0
    assert (np.load(out) >= 0).all()
    assert (np.load(out) == 0).any()
    assert main(["run", "graph.json", "--activation", "relu"]) == 2
    assert main(["run", "Convolution", "x.npy", "w.npy", "--memory", "1GB", "--activation", "relu"]) == 2
    assert "--activation does not go with --memory" in capsys.readouterr().err


def test_activation_is_part_of_what_calls_are_known_by() -> None:
    (src, weights, bias), attributes = layer("dense")
    for activation in (None, RELU, None):
        got = convgrad.convolution(src, weights, bias, **attributes, activation=activation)
        assert (got < 0).any() == (activation is None)
    posed = prepare("BiasAdd", (src, src[0, 0, 0]), {})
    active = posed.activated(RELU).problem
    assert active != posed.problem
    assert active is posed.activated(RELU).problem
    assert activate(np.array([-1.0, 1.0]), active).tolist() == [0.0, 1.0]
    assert engines.choose(active).engine == "numpy"


@pytest.mark.parametrize("type_name", FORMATS)
@pytest.mark.parametrize("share", [-3.0, -1.5, -0.5, 0.0, 0.5, 3.0])
def test_the_ends_of_the_bound_are_activated(type_name: str, share: float) -> None:
    """The exact sum is a multiple of its bound. If no sum inside the bound is positive, only 0 is right."""
    dtype, bound = FORMATS[type_name].dtype, 0.25
    src, weights = np.full((1, 1, 1), share * bound, dtype), np.ones((1, 1, 1), dtype)
    call = prepare("Convolution", (src, weights), {"strides": [1], "dilations": [1]}).activated("relu")
    sums = certify(call.problem, call.operands)
    for got in (0.0, 0.0625, 0.125, 0.375, 0.5, 1.0, 1.25):
        verdict = compare(np.full((1, 1, 1), got, dtype), sums, call.problem, 0, np.full((1, 1, 1), bound))
        assert verdict.ok == (max(0.0, share - 1) * bound <= got <= max(0.0, share + 1) * bound)
