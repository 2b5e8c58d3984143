"""Minimal filtering in f32 keeps its bound, wherever its tiles begin; and where nothing is promised."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import convgrad
from convgrad.formats import F32
from convgrad.functional.call import prepare
from convgrad.spec.problem import Problem
from convgrad.verify.check import check
from convgrad.verify.reference import certify
from convgrad.verify.winograd import matrices, winograd_bound
from tests.support.tiers import tiers

Array = np.ndarray
FILTERS = [(1, 3), (2, 3), (4, 3), (6, 3), (3, 2), (2, 5), (3, 4), (5, 1)]


@pytest.mark.parametrize(("outputs", "taps"), FILTERS)
def test_the_matrices_compute_correlations(outputs: int, taps: int) -> None:
    """For any data and taps: sum over s of A[s][a] G[s][k] B[s][j] is 1 where j = a + k, else 0."""
    a, g, b = matrices(outputs, taps)
    length = outputs + taps - 1
    for i, k, j in np.ndindex(outputs, taps, length):
        assert sum(a[s][i] * g[s][k] * b[s][j] for s in range(length)) == (j == i + k)


def rescaled(outputs: int, taps: int, rng: np.random.Generator) -> list[Array]:
    """Return A, G and B in f32, their rows scaled by powers of two or by fractions whose product is 1."""
    found: list[list[list[Fraction]]] = [[], [], []]
    for rows in zip(*matrices(outputs, taps), strict=True):
        one, two = (Fraction(int(rng.integers(1, 7)), int(rng.integers(1, 7))) for _ in range(2))
        for scale, row, matrix in zip((one, two, 1 / (one * two)), rows, found, strict=True):
            matrix.append([scale * x for x in row])
    return [np.array(matrix, np.float64).astype(np.float32) for matrix in found]


def along(matrix: Array, values: Array, axes: int) -> Array:
    """Multiply along each of the last axes, in f32."""
    for axis in range(-axes, 0):
        values = np.moveaxis(np.moveaxis(values, axis, -1) @ matrix.T, -1, axis)
    return values


def cut(values: Array, begins: tuple[int, ...], sizes: int) -> Array:
    """Return a tile of the last axes; 0 beyond the ends."""
    tile = np.zeros((*values.shape[: values.ndim - len(begins)], *[sizes] * len(begins)), np.float32)
    to, of = [], []
    for begin, extent in zip(begins, values.shape[-len(begins) :], strict=True):
        first, last = max(0, begin), max(0, begin, min(extent, begin + sizes))
        to.append(slice(first - begin, last - begin))
        of.append(slice(first, last))
    tile[(..., *to)] = values[(..., *of)]
    return tile


def filtered(
    data: Array, weights: Array, first: int, shape: tuple[int, ...], outputs: int, tile: int, ms: list[Array]
) -> Array:
    """Correlate (n, c, i...) with (o, c, k...) from position ``first``: tiles of outputs, the first begins before 0."""
    a, g, b = ms
    axes = len(shape)
    result = np.zeros((len(data), len(weights), *shape), np.float32)
    kernels = along(g, weights, axes)
    for at in np.ndindex(*(-(-(extent + tile) // outputs) for extent in shape)):
        begins = tuple(outputs * x - tile for x in at)
        some = along(b, cut(data, tuple(x + first for x in begins), len(b)), axes)
        sums = along(a.T, np.einsum("nc...,oc...->no...", some, kernels), axes)
        to = tuple(slice(max(0, x), min(x + outputs, e)) for x, e in zip(begins, shape, strict=True))
        of = tuple(slice(t.start - x, t.stop - x) for t, x in zip(to, begins, strict=True))
        if all(t.start < t.stop for t in to):
            result[(..., *to)] = sums[(..., *of)]
    return result


def solved(problem: Problem, operands: tuple[Array, ...], outputs: int, taps: int, rng: np.random.Generator) -> Array:
    """Solve a problem of one group, stride and dilation 1, by minimal filtering in f32."""
    conv, ms = problem.geometry, rescaled(outputs, taps, rng)
    x, y = operands
    pad, axes = conv.axes[0].pad_begin, len(conv.axes)
    tile = int(rng.integers(outputs))
    if problem.solves_for == "dst":
        return filtered(x, y, -pad, conv.dst_shape[2:], outputs, tile, ms)
    if problem.solves_for == "src":
        flipped = np.flip(y, tuple(range(2, 2 + axes))).swapaxes(0, 1)
        return filtered(x, flipped, pad - (taps - 1), conv.src_shape[2:], outputs, tile, ms)
    result = np.zeros(conv.weights_shape, np.float32)
    begin = int(rng.integers(taps))
    for at in np.ndindex(*(-(-(extent + begin) // taps) for extent in y.shape[2:])):
        begins = tuple(taps * p - begin for p in at)
        some = cut(x, tuple(p - pad for p in begins), outputs + taps - 1)
        terms = cut(y, begins, taps)
        products = np.einsum("nc...,no...->oc...", along(ms[2], some, axes), along(ms[1], terms, axes))
        result += along(ms[0].T, products, axes)
    return result


ROLES = ("Convolution", "ConvolutionBackwardData", "ConvolutionBackwardWeights")


def posed(role: str, outputs: int, taps: int, axes: int, scale: float, rng: np.random.Generator) -> tuple[object, ...]:
    """Return the operands and attributes of a call that F(outputs, taps) solves."""
    kernel, pad, src = outputs if "Weights" in role else taps, int(rng.integers(3)), int(rng.integers(7, 10))
    dst = src + 2 * pad - kernel + 1
    shapes = {"src": (2, 3, *[src] * axes), "dst": (2, 4, *[dst] * axes), "weights": (4, 3, *[kernel] * axes)}
    of = {"Convolution": ("src", "weights"), "ConvolutionBackwardData": ("dst", "weights")}.get(role, ("src", "dst"))
    made = [(rng.standard_normal(shapes[tensor]) * scale).astype(np.float32) for tensor in of]
    made[0].reshape(-1)[rng.random(made[0].size) < 0.3] *= np.float32(2.0**-9)
    call = {"strides": [1] * axes, "dilations": [1] * axes, "pads_begin": [pad] * axes, "pads_end": [pad] * axes}
    call |= {"data_format": "NCX", "weights_format": "OIX"}
    if "Weights" in role:
        call["weights_shape"] = list(shapes["weights"])
    if "Data" in role:
        call["dst_shape"] = list(shapes["src"])
    return made, call


@tiers("filtering, role", FILTERS, ROLES, every=11)
def test_f32_keeps_the_bound(filtering: tuple[int, int], role: str) -> None:
    """Also where products underflow; on one axis and on two; it is less than that of a result that is off by all."""
    outputs, taps = filtering
    rng = np.random.default_rng([106, outputs, taps, ROLES.index(role)])
    for axes, scale in ((1, 1.0), (2, 1.0), (1, 2.0**-70), (2, 2.0**-75)):
        made, call = posed(role, outputs, taps, axes, scale, rng)
        prepared = prepare(role, tuple(made), call)
        found = certify(prepared.problem, prepared.operands)
        got = solved(prepared.problem, prepared.operands, outputs, taps, rng)
        bound = winograd_bound(prepared.problem, prepared.operands, outputs, taps, found.magnitude, F32)
        share = np.abs(got - found.value) / bound
        assert share.max() <= 1
        assert scale < 1 or np.median(bound) < np.median(found.magnitude)
        verdict = check(role, got, *made, algorithm=f"winograd:{outputs},{taps}", **call)
        assert verdict.beyond == verdict.undecided == 0
        got.reshape(-1)[0] += 3 * bound.reshape(-1)[0] + np.abs(found.value.reshape(-1)[0])
        assert check(role, got, *made, algorithm=f"winograd:{outputs},{taps}", **call).outcome == "wrong"


@pytest.mark.parametrize("outputs", [8, 14])
def test_tiles_of_any_size_keep_the_bound_where_small_entries_underflow(outputs: int) -> None:
    rng, call = np.random.default_rng([outputs, 1]), {"strides": [1], "dilations": [1]}
    ms = [np.array(matrix, np.float64).astype(np.float32) for matrix in matrices(outputs, 3)]
    for exponent in range(-140, 1, 4):
        x = (rng.standard_normal((1, 1, 40 * outputs + 2)) * 2.0**40).astype(np.float32)
        y = (rng.standard_normal((1, 1, 3)) * 2.0**exponent).astype(np.float32)
        got = filtered(x, y, 0, (40 * outputs,), outputs, 0, ms).swapaxes(1, 2)
        operands = x.swapaxes(1, 2), y.transpose(2, 1, 0)
        assert check("Convolution", got, *operands, algorithm=f"winograd:{outputs},3", **call).beyond == 0


UNDECIDED = {
    "another kernel": ("winograd:2,5", {}),
    "strides": ("winograd:2,3", {"strides": [2, 2]}),
    "dilations": ("winograd:2,3", {"dilations": [2, 2]}),
    "what no bound is known of": ("fft", {}),
    "transforms that may overflow": ("winograd:2,3", {"accumulation": "f16"}),
}


@pytest.mark.parametrize("case", UNDECIDED)
def test_nothing_is_promised_of(case: str) -> None:
    algorithm, options = UNDECIDED[case]
    src, weights = np.ones((1, 9, 9, 2), np.float32), np.ones((3, 3, 2, 2), np.float32)
    call = {"strides": [1, 1], "dilations": [1, 1]} | options
    bound = convgrad.error_bound("Convolution", src, weights, algorithm=algorithm, **call)
    assert np.isinf(bound).all()
    result = convgrad.run("Convolution", src, weights, **{k: v for k, v in call.items() if k != "accumulation"})
    verdict = check("Convolution", result, src, weights, algorithm=algorithm, **call)
    assert (verdict.outcome, f"the errors of {algorithm} in this problem" in verdict.reason) == ("undecided", True)


def test_what_is_not_finite_spreads_as_far_as_tiles_may_reach() -> None:
    src, weights = np.ones((1, 12, 1), np.float32), np.ones((3, 1, 1), np.float32)
    src[0, 6] = np.nan
    call = {"strides": [1], "dilations": [1], "algorithm": "winograd:2,3"}
    bound = convgrad.error_bound("Convolution", src, weights, **call)[0, :, 0]
    assert np.isinf(bound).tolist() == [False] * 3 + [True] * 5 + [False] * 2


def test_data_whose_transform_may_overflow_has_no_bound_whatever_it_meets() -> None:
    src, weights = np.full((1, 9, 1), 2.0**127, np.float32), np.zeros((3, 1, 1), np.float32)
    bound = convgrad.error_bound("Convolution", src, weights, strides=[1], dilations=[1], algorithm="winograd:2,3")
    assert np.isinf(bound).all()


@pytest.mark.parametrize("algorithm", ["winograd", "winograd:0,3", "winograd:15,3", "strassen", 4])
def test_an_algorithm_that_is_not_known_is_refused(algorithm: str) -> None:
    with pytest.raises(convgrad.InvalidAttributeError, match="algorithm must be"):
        convgrad.error_bound("BiasAdd", np.ones((1, 2), np.float32), np.ones(2, np.float32), algorithm=algorithm)
