"""convgrad.jax.lax means what jax.lax means: on integers, where nothing is rounded, both give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from tests.support.tiers import tiers

jax = pytest.importorskip("jax")

import convgrad.jax as cj  # noqa: E402

ORDERS = {
    1: [None, ("NWC", "WIO", "NWC"), ("NCW", "WIO", "NWC"), ("WCN", "IWO", "CNW")],
    2: [None, ("NHWC", "HWIO", "NHWC"), ("NHWC", "OIHW", "NCHW"), ("CWNH", "OHIW", "HNCW")],
    3: [None, ("NDHWC", "DHWIO", "NDHWC")],
}


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return rng.integers(-3, 4, shape).astype(dtype)


def laid(canonical: tuple[int, ...], order: str | None, first: str) -> tuple[int, ...]:
    """Return a canonical shape as a spec of jax.lax orders it; ``first`` are the letters of its first two axes."""
    if order is None:
        return canonical
    spatial = iter(sorted({*order} - {*first}, key=SPATIAL.index))
    at = {first[0]: canonical[0], first[1]: canonical[1]} | dict(zip(spatial, canonical[2:], strict=True))
    return tuple(at[letter] for letter in order)


SPATIAL = "DHW"


def drawn(rng: np.random.Generator) -> tuple[Any, Any, dict[str, Any]]:
    axes = int(rng.integers(1, 4))
    order = ORDERS[axes][rng.integers(len(ORDERS[axes]))]
    groups, inner, outer, batch = (int(n) for n in rng.integers(1, 4, 4))
    batches = int(rng.integers(1, 4)) if rng.random() < 0.3 else 1
    groups = groups if batches == 1 else 1
    kernel = tuple(int(k) for k in rng.integers(1, 4, axes))
    dilation = [int(d) for d in rng.integers(1, 3, axes)]
    extents = tuple(int(rng.integers(0 if rng.random() < 0.1 else 4, 10)) for _ in range(axes))
    keywords: dict[str, Any] = {
        "window_strides": [int(s) for s in rng.integers(1, 4, axes)],
        "rhs_dilation": dilation,
        "dimension_numbers": order,
        "feature_group_count": groups,
        "batch_group_count": batches,
    }
    if rng.random() < 0.5:
        keywords["lhs_dilation"] = [int(d) for d in rng.integers(1, 4, axes)]
        keywords["window_strides"] = [1] * axes
    if "lhs_dilation" not in keywords and rng.random() < 0.5:
        keywords["padding"] = str(rng.choice(["SAME", "same_lower", "VALID"]))
    else:
        keywords["padding"] = [(int(low), int(high)) for low, high in rng.integers(-3, 7, (axes, 2))]
    lhs = laid((batches * batch, groups * inner, *extents), order and order[0], "NC")
    rhs = laid((batches * groups * outer, inner, *kernel), order and order[1], "OI")
    return integers(rng, lhs), integers(rng, rhs), keywords


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 2)) for seed in range(300)])
def test_general_convolutions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lhs, rhs, keywords = drawn(rng)
    try:
        expected = jax.lax.conv_general_dilated(lhs, rhs, **keywords)
    except (TypeError, ValueError):  # an extent of nothing, or less, that it has no sense for
        with pytest.raises((convgrad.ConvgradError, TypeError, ValueError)):
            cj.conv_general_dilated(lhs, rhs, **keywords)
        return
    got = cj.conv_general_dilated(lhs, rhs, **keywords)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype), keywords
    assert np.array_equal(got, expected), keywords


FUNCTIONS = (jax.lax.conv_general_dilated, cj.conv_general_dilated)
EMPTY = [
    {"window_strides": [1], "padding": [(-7, 9)]},  # nothing but padding is left
    {"window_strides": [1], "padding": "VALID"},
    {"window_strides": [2], "padding": [(0, -3)]},
    {"window_strides": [1], "padding": [(0, -6)], "lhs_dilation": [2]},
]


@tiers("keywords", EMPTY, every=3)
def test_what_meets_nothing_is_zeros_or_empty_and_so_are_gradients(keywords: dict[str, Any]) -> None:
    lhs, rhs = np.ones((2, 3, 4), np.float32), np.ones((2, 3, 5), np.float32)

    def with_gradients(function: Any) -> Any:
        result, back = jax.vjp(lambda lhs, rhs: function(lhs, rhs, **keywords), lhs, rhs)
        return result, *back(result + 1)

    theirs, ours = (jax.jit(with_gradients, static_argnums=0)(f) for f in FUNCTIONS)
    for expected, got in zip(theirs, ours, strict=True):
        assert np.array_equal(got, expected)
        assert got.shape == expected.shape


TRANSPOSED = [
    {"strides": [2, 3], "padding": "SAME"},
    {"strides": [3, 1], "padding": "VALID", "rhs_dilation": [1, 2]},
    {"strides": [4, 2], "padding": "SAME", "transpose_kernel": True},
    {"strides": [2, 2], "padding": [(1, 0), (0, 2)]},
    {"strides": [2, 2], "padding": [(1, 0), (0, 2)], "use_consistent_padding": True},
    {"strides": [1, 1], "padding": "SAME"},
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


UNSUPPORTED, INVALID = convgrad.UnsupportedError, convgrad.InvalidAttributeError
REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"batch_group_count": 2}, INVALID, "batch_group_count must divide.*got 2, 1, 2 and 1"),
    ({"lhs_dilation": [2], "window_strides": [3]}, UNSUPPORTED,
     r"window_strides must be 1 where .* got window_strides \(3,\) and lhs_dilation \(2,\)"),
    ({"lhs_dilation": [2], "padding": "SAME"}, INVALID, "'SAME'. Use conv_transpose"),
    ({"padding": "FULL"}, INVALID, "one of SAME, SAME_LOWER, VALID, or pairs"),
    ({"feature_group_count": 2}, convgrad.InvalidShapeError, "G"),
    ({"out_sharding": jax.sharding.PartitionSpec("x")}, UNSUPPORTED,
     r"out_sharding must be None; got .*'x'.*\. Use jax.shard_map"),
]  # fmt: skip


@pytest.mark.parametrize(("keywords", "error", "words"), REFUSED)
def test_what_there_is_no_operator_for_is_refused_by_name(
    keywords: dict[str, Any], error: type[Exception], words: str
) -> None:
    given = {"window_strides": [1], "padding": [(0, 0)]} | keywords
    operands = np.ones((1, 3, 5)), np.ones((2, 3, 2))
    with pytest.raises(error, match=words):
        jax.eval_shape(lambda lhs, rhs: cj.conv_general_dilated(lhs, rhs, **given), *operands)


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
