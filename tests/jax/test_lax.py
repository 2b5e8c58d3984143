"""convgrad.jax.lax means what jax.lax means: on integers, where nothing is rounded, both give the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.tiers import tiers

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import convgrad.jax as cj  # noqa: E402
from tests.jax.configurations import drawn, values, wrong  # noqa: E402

THEIRS, OURS = jax.lax.conv_general_dilated, cj.lax.conv_general_dilated
FUNCTIONS = (THEIRS, OURS)


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return rng.integers(-3, 4, shape).astype(dtype)


def with_gradients(function: Any, keywords: dict[str, Any], lhs: Any, rhs: Any, cotangent: Any) -> Any:
    """Return the result, and the gradients if there is a cotangent."""

    def computed(lhs: Any, rhs: Any, cotangent: Any) -> Any:
        if cotangent is None:
            return [function(lhs, rhs, **keywords)]
        result, back = jax.vjp(lambda lhs, rhs: function(lhs, rhs, **keywords), lhs, rhs)
        return [result, *back(cotangent)]

    return jax.jit(computed)(lhs, rhs, cotangent)


def assert_as_jax(lhs: Any, rhs: Any, keywords: dict[str, Any]) -> None:
    """Check values, and gradients of operands that have any; integers are exact. Check refusals of both."""
    try:
        kind = jax.eval_shape(lambda lhs, rhs: THEIRS(lhs, rhs, **keywords), lhs, rhs)
    except (TypeError, ValueError):
        with pytest.raises(convgrad.ConvgradError):
            OURS(lhs, rhs, **keywords)
        return
    floating = jnp.issubdtype(lhs.dtype, jnp.inexact)
    cotangent = values(np.random.default_rng(0), kind.shape, str(kind.dtype)) if floating else None
    got = with_gradients(OURS, keywords, lhs, rhs, cotangent)
    assert (got[0].shape, got[0].dtype) == (kind.shape, kind.dtype), keywords
    if 0 in rhs.shape:  # XLA refuses a rhs without taps
        assert not any(np.any(array) for array in got), keywords
        return
    try:
        expected = with_gradients(THEIRS, keywords, lhs, rhs, cotangent)
    except ValueError:  # JAX has no gradient if the padding of its convolution is too negative
        got, expected = got[:1], with_gradients(THEIRS, keywords, lhs, rhs, None)
    for one, other in zip(got, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), keywords
        assert np.array_equal(one, other), keywords


QUICK = [162, 178]  # strides with lhs_dilation of f32 in groups, and of complex numbers in batch groups


@tiers("seed", QUICK, long=(seed for seed in range(400) if seed not in QUICK))
def test_general_convolutions(seed: int) -> None:
    assert_as_jax(*drawn(seed))


def is_refused(function: Any, lhs: Any, rhs: Any, keywords: dict[str, Any]) -> bool:
    """Trace a call. An error other than convgrad's is raised for convgrad's function."""
    try:
        jax.eval_shape(lambda lhs, rhs: function(lhs, rhs, **keywords), lhs, rhs)
    except convgrad.ConvgradError:
        return True
    except Exception:
        if function is OURS:
            raise
        return True
    return False


@tiers("first", [0], long=range(30, 1000, 30))
def test_every_call_is_served_or_refused_by_name(first: int) -> None:
    for seed in range(first, first + 30):
        assert is_refused(OURS, *drawn(seed)) == is_refused(THEIRS, *drawn(seed)), seed
        assert is_refused(OURS, *wrong(seed)), seed


EMPTY = [
    {"window_strides": [1], "padding": [(-7, 9)]},  # nothing but padding is left
    {"window_strides": [1], "padding": "VALID"},
    {"window_strides": [2], "padding": [(0, -3)]},
    {"window_strides": [1], "padding": [(0, -6)], "lhs_dilation": [2]},
    {"window_strides": [3], "padding": [(0, -6)], "lhs_dilation": [2]},
]


@tiers("keywords", EMPTY, every=3)
def test_what_meets_nothing_is_zeros_or_empty_and_so_are_gradients(keywords: dict[str, Any]) -> None:
    assert_as_jax(np.ones((2, 3, 4), np.float32), np.ones((2, 3, 5), np.float32), keywords)


TRANSPOSED = [
    {"strides": [2, 3], "padding": "SAME"},
    {"strides": [3, 1], "padding": "VALID", "rhs_dilation": [1, 2]},
    {"strides": [4, 2], "padding": "SAME", "transpose_kernel": True},
    {"strides": [2, 2], "padding": [(1, 0), (0, 2)]},
    {"strides": [2, 2], "padding": [(1, 0), (0, 2)], "use_consistent_padding": True},
    {"strides": [1, 1], "padding": "SAME"},
    {"strides": [1, 1], "padding": "SAME_LOWER"},
    {"strides": [1, 1], "padding": "same", "rhs_dilation": [2, 1]},
    {"strides": [5, 5], "padding": "VALID", "dimension_numbers": ("NCHW", "HWIO", "NCHW")},
]


@pytest.mark.parametrize(
    "number", [pytest.param(at, marks=[pytest.mark.long] * (at != 1)) for at in range(len(TRANSPOSED))]
)
def test_transposed_convolutions(number: int) -> None:
    rng, keywords = np.random.default_rng(number), TRANSPOSED[number]
    lhs, rhs = integers(rng, (2, 5, 4, 3)), integers(rng, (3, 2, 3, 3))
    if "dimension_numbers" in keywords:
        lhs = lhs.transpose(0, 3, 1, 2)
    expected = jax.lax.conv_transpose(lhs, rhs, **keywords)
    got = cj.lax.conv_transpose(lhs, rhs, **keywords)
    assert got.shape == expected.shape, keywords
    assert np.array_equal(got, expected), keywords


def test_conv_transpose_without_spatial_axes() -> None:
    rng = np.random.default_rng(8)
    lhs, rhs = integers(rng, (2, 3)), integers(rng, (4, 3))
    for padding in "SAME", []:
        got, expected = (
            f(lhs, rhs, [], padding, transpose_kernel=True) for f in (cj.lax.conv_transpose, jax.lax.conv_transpose)
        )
        assert got.tolist() == expected.tolist() == (lhs @ rhs.T).tolist()


UNSUPPORTED, INVALID = convgrad.UnsupportedError, convgrad.InvalidAttributeError
SHAPE, KIND = convgrad.InvalidShapeError, convgrad.InvalidDataTypeError
FEW_BITS = jnp.ones((1, 3, 2), jnp.float8_e4m3b11fnuz)
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batch_group_count": 2}, INVALID, "batch_group_count must divide.*got 2, 1, 2 and 1"),
    ({"lhs_dilation": [2], "padding": "SAME"}, INVALID, "'SAME'. Use conv_transpose"),
    ({"padding": "FULL"}, INVALID, "one of SAME, SAME_LOWER, VALID, or pairs"),
    ({"feature_group_count": 2}, SHAPE, "lhs must have feature_group_count times as many channels as rhs .* got 3 ch"),
    ({"feature_group_count": 3, "rhs": np.ones((2, 1, 2))}, SHAPE, "feature_group_count must divide .* got 3 and 2"),
    ({"feature_group_count": 0}, INVALID, "feature_group_count must be an integer of at least 1; got 0"),
    ({"padding": 1}, INVALID, r"padding must be one of SAME, .* got 1. Use \[\(1, 1\)\]"),
    ({"padding": (1, 1)}, INVALID, r"pairs \(low, high\) of integers, one for each of the 1 .* axes; got \(1, 1\)\n"),
    ({"padding": [(0, -6)]}, INVALID, r"remove no more than the 5 positions of an axis of lhs; got \(0, -6\)"),
    ({"window_strides": 2}, INVALID, r"window_strides must have one integer of at least 1 for .* got 2. Use \(2,\)"),
    ({"lhs_dilation": [1, 1]}, INVALID, r"lhs_dilation must have one integer .* the 1 spatial axes; got \[1, 1\]"),
    ({"rhs_dilation": [0]}, INVALID, r"rhs_dilation must have one integer of at least 1 .* got \[0\]"),
    ({"rhs": np.ones((2, 3))}, SHAPE, r"lhs and rhs must have the same rank, .* got shapes \(1, 3, 5\) and \(2, 3\)"),
    ({"lhs": None}, KIND, "convgrad.jax: an operand must be an array of numbers; got NoneType"),
    ({"rhs": np.ones((2, 3, 2), np.float16)}, KIND, "must have the same type; got float32 and float16"),
    ({"lhs": FEW_BITS, "rhs": FEW_BITS}, KIND, "arrays of f32, .* or of complex numbers; got float8_e4m3b11fnuz"),
    ({"dimension_numbers": ("NCH", "OIW", "NCH")}, INVALID, "must each have the same set of spatial characters"),
    ({"dimension_numbers": jax.lax.ConvDimensionNumbers((0, 1, 1), (0, 1, 2), (0, 1, 2))}, INVALID,
     "dimension_numbers must have every axis from 0 to 2 once"),
    ({"preferred_element_type": np.int32}, KIND, "a type that can have the results of float32; got .*int32"),
    ({"preferred_element_type": np.float64}, UNSUPPORTED, "float64 must be enabled in JAX.*jax_enable_x64"),
    ({"out_sharding": jax.sharding.PartitionSpec("x")}, UNSUPPORTED,
     r"out_sharding must be None; got .*'x'.*\. Use jax.shard_map"),
]  # fmt: skip


@pytest.mark.parametrize(("keywords", "error", "words"), REFUSED)
def test_what_there_is_no_operator_for_is_refused_by_name(
    keywords: dict[str, Any], error: type[Exception], words: str
) -> None:
    given = {"window_strides": [1], "padding": [(0, 0)]} | keywords
    lhs, rhs = given.pop("lhs", np.ones((1, 3, 5))), given.pop("rhs", np.ones((2, 3, 2)))
    with pytest.raises(error, match=words):
        jax.eval_shape(lambda lhs, rhs: OURS(lhs, rhs, **given), lhs, rhs)


WRONG_TRANSPOSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"strides": 2}, INVALID, r"conv_transpose: strides must have one integer .* got 2. Use \(2,\)"),
    ({"strides": [1, 1]}, INVALID, "conv_transpose: strides must have one integer .* the 1 spatial axes"),
    ({"rhs_dilation": [2, 2]}, INVALID, "conv_transpose: rhs_dilation must have one integer"),
    ({"padding": 1}, INVALID, r"conv_transpose: padding must be one of .*pairs \(low, high\) of integers"),
    ({"padding": [(1, 1)] * 2, "use_consistent_padding": True}, INVALID, "one for each of the 1 spatial axes"),
    ({"padding": "SAME_LOWER"}, INVALID, "conv_transpose: padding must be SAME, VALID or pairs"),
    ({"padding": "FULL", "strides": [1]}, INVALID, "conv_transpose: padding must be SAME, VALID or pairs"),
    ({"dimension_numbers": ("NHC", "OHI")}, INVALID, "conv_transpose: convolution dimension_numbers .* length 3"),
    ({"rhs": np.ones((2, 2))}, SHAPE, "conv_transpose: lhs and rhs must have the same rank"),
]


@pytest.mark.parametrize(("keywords", "error", "words"), WRONG_TRANSPOSED)
def test_wrong_arguments_of_conv_transpose(keywords: dict[str, Any], error: type[Exception], words: str) -> None:
    given = {"strides": [2], "padding": "SAME"} | keywords
    with pytest.raises(error, match=words):
        cj.lax.conv_transpose(np.ones((1, 5, 3)), given.pop("rhs", np.ones((2, 3, 3))), **given)


# -- what is defined here ------------------------------------------------------------------------------------------


def reals(*shape: int) -> Any:
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def test_zeros_inserted_are_not_multiplied() -> None:
    """Infinite weights, and infinite cotangents, meet positions of lhs only."""
    lhs, rhs = np.ones((1, 1, 3), np.float32), np.array([[[np.inf, 1]]], np.float32)
    given = {"padding": [(1, 1)], "window_strides": [3], "lhs_dilation": [2]}
    result, *gradients = with_gradients(OURS, given, lhs, rhs, np.array([[[np.inf, 1]]], np.float32))
    assert result.tolist() == [[[1, np.inf]]]  # of positions -1, 0 and 2, 3 of 1 0 1 0 1
    assert [array.tolist() for array in gradients] == [
        [[[np.inf, np.inf, 0]]],
        [[[1, np.inf]]],
    ]


@tiers("dtype", [jnp.bfloat16], long=[np.float32])
def test_sums_of_strides_with_lhs_dilation(dtype: Any) -> None:
    """Each result is a sum of one convolution; the gradient of lhs adds those of both in f32, the last first."""
    lhs, rhs, cotangent = (jnp.asarray(reals(*shape), dtype) for shape in ((2, 5, 40), (4, 5, 6), (2, 4, 25)))
    given = {"padding": [(0, 0)], "window_strides": [3], "lhs_dilation": [2]}
    result, of_lhs, _ = with_gradients(OURS, given, lhs, rhs, cotangent)
    layer = {"strides": 3, "data_format": "NCX", "weights_format": "OIX"}
    gradient = np.zeros((2, 5, 40), np.float32)
    for phase, begin in (1, 2), (0, 0):  # result p and tap k meet if p and k are both odd, or both even
        src, weights, diff_dst = (
            np.ascontiguousarray(array, np.float32)
            for array in (lhs[:, :, begin:], rhs[:, :, phase::2], cotangent[:, :, phase::2])
        )
        positions = diff_dst.shape[2]
        expected = convgrad.convolution(src, weights, **layer, dtype=lhs.dtype)[:, :, :positions]
        assert np.array_equal(result[:, :, phase::2], expected)
        used = 3 * (positions - 1) + 3
        gradient[:, :, begin : begin + used] += convgrad.convolution_backward_data(
            diff_dst, weights, (2, 5, used), **layer
        )
    assert np.array_equal(of_lhs, gradient.astype(lhs.dtype))


def test_complex_numbers_are_real_channels() -> None:
    """The definition: channels 2c and 2c + 1 are the parts of channel c; groups remain contiguous."""
    lhs, rhs = reals(2, 4, 7) + 1j * reals(2, 4, 8)[..., 1:], reals(6, 2, 3) + 1j * reals(6, 2, 4)[..., 1:]
    words = {"window_strides": [2], "padding": "SAME", "feature_group_count": 2}
    (got,) = with_gradients(OURS, words, lhs.astype(np.complex64), rhs.astype(np.complex64), None)
    src = np.stack([lhs.real, lhs.imag], 2).reshape(2, 8, 7)
    rows = [np.stack(pair, 2).reshape(6, 4, 3) for pair in ((rhs.real, -rhs.imag), (rhs.imag, rhs.real))]
    weights = np.stack(rows, 1).reshape(12, 4, 3)
    layer = {"strides": 2, "auto_pad": "same_upper", "groups": 2, "data_format": "NCX", "weights_format": "OIX"}
    dst = convgrad.convolution(src.astype(np.float32), weights.astype(np.float32), **layer)
    assert np.array_equal(got, dst[:, ::2] + 1j * dst[:, 1::2])


def test_complex_derivatives_and_batches() -> None:
    rng = np.random.default_rng(3)
    lhs, rhs = (
        jnp.asarray(integers(rng, s) + 1j * integers(rng, s), np.complex64) for s in ((2, 3, 1, 6), (2, 2, 1, 3))
    )

    def every(conv: Any) -> Any:
        each = jax.vmap(lambda lhs, rhs: conv(lhs, rhs, [1], "SAME"))
        return jax.jvp(each, (lhs, rhs), (2 * lhs, 1j * rhs))

    for got, expected in zip(*(jax.jit(every, static_argnums=0)(f) for f in (OURS, THEIRS)), strict=True):
        assert np.array_equal(got, expected)


@pytest.mark.parametrize(("kind", "to"), [("complex64", "complex128"), ("float32", "float64"), ("int32", "float64")])
def test_results_of_64_bits(kind: str, to: str) -> None:
    rng = np.random.default_rng(4)
    with jax.enable_x64(True):
        lhs, rhs = (jnp.asarray(integers(rng, shape), kind) for shape in ((1, 2, 5), (2, 2, 3)))
        words = {"window_strides": [1], "padding": "SAME", "preferred_element_type": to}
        (got,), (expected,) = (with_gradients(f, words, lhs, rhs, None) for f in (OURS, THEIRS))
        assert (got.dtype, got.tolist()) == (expected.dtype, expected.tolist())


def test_shard_map_over_nothing() -> None:
    """Zeros differ between devices, as their operands do."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    each = (
        jax.jit(
            jax.shard_map(partial(f, window_strides=[1], padding="VALID"), mesh=mesh, in_specs=spec, out_specs=spec)
        )
        for f in FUNCTIONS
    )
    got, expected = (f(np.ones((2, 0, 4), np.float32), np.ones((3, 0, 2), np.float32)) for f in each)
    assert np.array_equal(got, expected)


@pytest.mark.long
def test_flax_s_layers_take_it() -> None:
    nnx = pytest.importorskip("flax.nnx")
    given = integers(np.random.default_rng(0), (2, 6, 5, 3))
    theirs, ours = (
        nnx.Conv(3, 4, (3, 3), strides=2, rngs=nnx.Rngs(0), conv_general_dilated=convolve)
        for convolve in (jax.lax.conv_general_dilated, cj.lax.conv_general_dilated)
    )
    for layer in (theirs, ours):
        layer.kernel[...] = integers(np.random.default_rng(1), layer.kernel.shape)
    assert np.array_equal(ours(given), theirs(given))
