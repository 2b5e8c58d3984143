"""Weight gradients by Toom-Cook: transforms are exact, kernels have the specified bits, errors are within the bound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import convgrad
import tiles_campaign
from convgrad.engines.llvm.tiled import tiled
from convgrad.errors import InvalidAttributeError
from convgrad.formats import BF16, F16, F32
from convgrad.notation import problem as problem_of
from convgrad.plan.machine import ISAS, Machine
from convgrad.spec.bound import gamma
from convgrad.spec.chosen import guarantee, in_variant, kappa, why_not_of
from convgrad.spec.oracle import evaluate
from convgrad.spec.order import height_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import TAPS, VARIANTS, Transform, Variant
from convgrad.spec.toom_cook_bound import variant_bound
from engine_helpers import HOST, Array, empty
from helpers import assert_same_bits
from tiers import tiers

NAMES = [*VARIANTS]
# Tiles that hang over by any number of positions, one row, one column, pads on one side, beyond the kernel, none.
LINES = (
    "mb2ic32ih9oc33oh9kh3ph1", "mb3ic37ih6iw13oc40oh4ow11kh3kw3ph0pw0", "mb1ic32ih41oc32oh41kh3ph1",
    "mb5ic40ih1iw12oc35oh1ow12kh3kw3ph1pw1", "mb5ic33ih12iw1oc32oh12ow1kh3kw3ph1pw1", "mb2ic32ih3oc32oh1kh3ph0",
    "mb1ic48ih7iw8oc32oh9ow11kh3kw3ph2pw2", "mb130ic32ih4oc32oh4kh3ph1", "mb2ic32ih118oc32oh118kh3ph1",
    "mb1ic32ih2oc32oh5kh3ph2",
)  # fmt: skip


class InFractions:
    """Exact arithmetic."""

    def add(self, x: Fraction, y: Fraction) -> Fraction:
        return x + y

    def sub(self, x: Fraction, y: Fraction) -> Fraction:
        return x - y

    def fma(self, factor: float, x: Fraction, y: Fraction) -> Fraction:
        return Fraction(factor) * x + y

    def scale(self, factor: float, x: Fraction) -> Fraction:
        return Fraction(factor) * x


def matrix(transform: Transform, size: int) -> np.ndarray[Any, Any]:
    """Return the coefficients of a transform, [what it makes][what it is made of]."""
    units = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    return np.array([transform(InFractions(), unit) for unit in units], object).T


def matrices(variant: Variant) -> tuple[np.ndarray[Any, Any], ...]:
    source, destination = matrix(variant.source, variant.axis_points), matrix(variant.destination, variant.tile)
    return source, destination, matrix(variant.weights, variant.axis_points)


@pytest.mark.parametrize("name", NAMES)
def test_transforms_are_the_weight_gradient_of_a_tile(name: str) -> None:
    """A weight is the sum over j of dst[j] src[j + k], exactly, along one axis."""
    variant = VARIANTS[name]
    source, destination, weights = matrices(variant)
    for k in range(TAPS):
        made = (source.T * weights[k]) @ destination / variant.divisor
        wanted = [[Fraction(int(i == j + k)) for j in range(variant.tile)] for i in range(variant.axis_points)]
        assert (made == np.array(wanted, object)).all()


# Of what two tiles meet, the share of the later one, by variant and tap: of its first position, of its second.
SHARES = {"2x2": ((0.29290, 1), (0, 1), (0, 0.70710)), "4x4": ((0.19200, 1), (0, 1), (0, 0.80800))}


@pytest.mark.parametrize("name", NAMES)
def test_kappa_bounds_the_paths_to_a_weight(name: str) -> None:
    """The norm of the paths' coefficients, whatever shares are chosen: docs/numerics.md derives it."""
    variant, norms = VARIANTS[name], []
    source, destination, weights = (np.abs(each).astype(float) for each in matrices(variant))
    for k, (first, second) in enumerate(SHARES[name]):
        paths = (source.T * weights[k]) @ destination / variant.divisor
        share = np.ones(variant.axis_points)
        share[[0, variant.tile]] = first, 1 - first
        share[[1, variant.tile + 1]] = second, 1 - second
        met = paths.any(1)
        assert (share[met] > 0).all()
        norms.append(np.linalg.norm(paths[met] / np.sqrt(share[met])[:, None], 2))
    assert variant.kappa * 0.9999 <= max(norms) <= variant.kappa


def posed(line: str, name: str, layout: str = "NXC") -> Problem:
    return replace(problem_of(f"BWD_W f32 {layout} {line}"), variant=name)


def lying(values: Array, layout: str) -> Array:
    """Return canonical values as they lie in a layout."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 1, -1)), -1, 1) if layout == "NXC" else values


def drawn(one: Problem, seed: int, integers: bool = False) -> list[Array]:
    rng, conv = np.random.default_rng(seed), one.geometry
    shapes = (conv.src_shape, conv.dst_shape)  # type: ignore[union-attr]
    made = [rng.integers(-2, 3, shape) if integers else rng.standard_normal(shape) for shape in shapes]
    return [lying(each.astype(np.float32), layout) for each, layout in zip(made, one.layouts, strict=False)]


def computed(one: Problem, operands: Sequence[Array], out: Array, isa: str, threads: int) -> Array:
    lies = (*[each.strides for each in operands], out.strides)
    tiled(one, lies, Machine(ISAS[isa]), threads).execute(operands, out)
    return out


runs = pytest.mark.skipif(not HOST, reason="no generated kernels run here")


@runs
@tiers("line, name, isa", LINES, NAMES, HOST, every=5)
@pytest.mark.usefixtures("eight_cores")
def test_kernels_have_the_specified_bits(line: str, name: str, isa: str) -> None:
    """In both layouts, on any threads, into what was NaN."""
    one = posed(line, name)
    operands = drawn(one, len(line))
    expected = evaluate_in_order(one, operands)
    for layout, threads in (("NXC", 1), ("NCX", 3), ("NXC", 2)):
        there = posed(line, name, layout)
        given = [lying(np.ascontiguousarray(each), layout) for each in operands]
        got = computed(there, given, empty(there), isa, threads)
        assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (line, name, layout, threads))


@runs
@pytest.mark.parametrize("name", NAMES)
def test_old_values_and_output_types(name: str) -> None:
    """Added and rounded once, as of the direct sum."""
    for fmt, accumulate in ((F32, True), (BF16, False), (F16, True)):
        one = replace(posed(LINES[0], name), output_format=fmt, accumulate=accumulate)
        operands, old = drawn(one, 3), empty(one, 1.5)
        expected = evaluate_in_order(one, operands, old)
        got = computed(one, operands, old, HOST[0], 2)
        assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (name, str(fmt), accumulate))


@runs
@pytest.mark.parametrize(("name", "value"), list(product(NAMES, (np.nan, np.inf, -np.inf, 3e38))))
def test_what_is_not_finite_is_the_direct_sum_s(name: str, value: float) -> None:
    """All weights are, where one is not finite; what overflows in between is not."""
    one = posed(LINES[1], name)
    operands = drawn(one, 5)
    operands[0][0, 3, 2, 4] = value
    expected = evaluate_in_order(one, operands)
    direct = evaluate_in_order(replace(one, variant=""), operands)
    if not np.isfinite(value):
        assert_same_bits(np.ascontiguousarray(expected), np.ascontiguousarray(direct), (name, value))
    got = computed(one, operands, empty(one), HOST[0], 1)
    assert_same_bits(np.ascontiguousarray(got), np.ascontiguousarray(expected), (name, value))


@pytest.mark.parametrize("name", NAMES)
def test_small_integers_are_exact(name: str) -> None:
    one = posed("mb2ic32ih11oc32oh11kh3ph1", name)
    operands = drawn(one, 7, integers=True)
    assert (evaluate_in_order(one, operands) == evaluate(one, operands).value).all()


@tiers("seed", range(60), every=10)
def test_errors_lie_within_the_bound(seed: int) -> None:
    """On data of mixed scales too, where the direct sum's bound of an element is far less."""
    rng = np.random.default_rng([20, seed])
    name, size = NAMES[seed % 2], int(rng.integers(1, 14))
    one = posed(f"mb{rng.integers(1, 4)}ic32ih{size}oc32oh{size}kh3ph1", name)
    operands = [
        each * np.float32(10) ** rng.integers(-9, 9, each.shape).astype(np.float32) for each in drawn(one, seed)
    ]
    exact, got = evaluate(one, operands).value, evaluate_in_order(one, operands)
    assert (np.abs(got - exact) <= variant_bound(one, operands)).all()


def test_an_accuracy_admits_what_keeps_it() -> None:
    """The variant is a function of the problem and the accuracy, however operands lie."""
    for layout in ("NXC", "NCX"):
        one = problem_of(f"BWD_W f32 {layout} mb8ic128ih28oc128oh28kh3ph1")
        assert [in_variant(one, most).variant for most in (1, 4, 8, 27, 64)] == ["", "", "2x2", "2x2", "4x4"]
        for name in NAMES:
            held = replace(one, variant=name)
            factor = kappa(name) * gamma(height_of(held), F32.unit) / gamma(height_of(one), F32.unit)
            assert factor == pytest.approx(guarantee(one, name), rel=1e-4)
    for line, why in (
        ("BWD_W f32 NXC mb8ic128ih28oc128oh28kh5ph2", "kernels of 3x3 have tiles; this one is 5x5"),
        ("BWD_W f32 NXC mb8ic128ih28oc128oh14kh3sh2ph1", "stride 1 and dilation 1"),
        ("BWD_W f32 NXC g2mb8ic128ih28oc128oh28kh3ph1", "one group"),
        ("BWD_W f32 NXC mb8ic16ih28oc128oh28kh3ph1", "from 32 channels"),
        ("BWD_W bf16 NXC mb8ic128ih28oc128oh28kh3ph1", "these are bf16"),
        ("FWD_D f32 NXC mb8ic128ih28oc128oh28kh3ph1", "weight gradients have variants"),
    ):  # fmt: skip
        one = problem_of(line)
        assert in_variant(one, 1e9) is one
        assert why in why_not_of(one)


@runs
def test_max_error_is_an_argument_and_a_context() -> None:
    rng = np.random.default_rng(1)
    src, diff_dst = (rng.standard_normal((2, 20, 20, n)).astype(np.float32) for n in (40, 50))
    shape, same = (3, 3, 40, 50), {"auto_pad": "same_upper"}
    direct = convgrad.convolution_backward_weights(src, diff_dst, shape, auto_pad="same_upper")
    by_tiles = convgrad.convolution_backward_weights(src, diff_dst, shape, auto_pad="same_upper", max_error=64)
    assert (direct != by_tiles).any()
    with convgrad.max_error(64):
        assert_same_bits(
            convgrad.convolution_backward_weights(src, diff_dst, shape, auto_pad="same_upper"), by_tiles, "context"
        )
        one = convgrad.convolution_backward_weights(src, diff_dst, shape, auto_pad="same_upper", max_error=1)
        assert_same_bits(one, direct, "the call beats it")
        parts = convgrad.partials("ConvolutionBackwardWeights", src, diff_dst, shape, **same)
        assert_same_bits(np.asarray(convgrad.join([parts])), direct, "pieces are direct")
    strict = {"strides": [1, 1], "dilations": [1, 1], **same}
    assert_same_bits(
        convgrad.run("ConvolutionBackwardWeights", src, diff_dst, shape, max_error=64, **strict), by_tiles, "run"
    )
    bounds = [
        convgrad.error_bound("ConvolutionBackwardWeights", src, diff_dst, shape, max_error=most, **strict)
        for most in (1, 64)
    ]
    assert (np.abs(by_tiles - direct) <= bounds[0] + bounds[1]).all()
    told = str(convgrad.explain("ConvolutionBackwardWeights", src.shape, diff_dst.shape, shape, max_error=64, **same))
    assert "tiles of 4x4: 36 points of 50 tiles" in told
    assert "kappa = 100.9" in told


@pytest.mark.parametrize("most", [0.5, -1, float("nan"), "8", None])
def test_an_accuracy_below_the_direct_sum_s_is_refused(most: Any) -> None:
    with (
        pytest.raises(InvalidAttributeError, match="max_error must be a number, 1 at least; got"),
        convgrad.max_error(most),
    ):
        pass


@runs
def test_a_campaign_finds_nothing_beyond_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert tiles_campaign.main(["--problems", "60"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["beyond"] == 0
    assert told["largest"] > 1e-3  # of a bound that is not infinite


@pytest.mark.parametrize(("batch", "extent"), [(0, 9), (2, 2)])
def test_nothing_to_sum_is_direct(batch: int, extent: int) -> None:
    """Of no images, or of no positions, whatever is admitted."""
    src, diff_dst = (np.zeros((batch, size, size, 32), np.float32) for size in (extent, extent - 2))
    assert not convgrad.convolution_backward_weights(src, diff_dst, (3, 3, 32, 32), max_error=64).any()


def test_numpy_s_engine_sums_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bound is the direct sum's, by its own height."""
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    explained = convgrad.explain(
        "ConvolutionBackwardWeights", (8, 28, 28, 64), (8, 28, 28, 64), (3, 3, 64, 64), auto_pad="same_upper",
        max_error=64,
    )  # fmt: skip
    assert explained.problem.variant == ""
    assert "sum |x||y|" in str(explained)


@runs
def test_the_bound_is_of_the_format_that_is_declared() -> None:
    x = np.random.default_rng(2).standard_normal((1, 9, 9, 32)).astype(np.float32)
    given = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "same_upper", "max_error": np.float32(64)}
    single, tf32 = (
        convgrad.error_bound("ConvolutionBackwardWeights", x, x, (3, 3, 32, 32), accumulation=name, **given)
        for name in ("f32", "tf32")
    )
    assert (tf32 > 1000 * single).all()
