"""Weighted sums of samples' gradients: the specified bits in any pieces, exact on integers; scales that clip."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad import engines
from convgrad.engines import numpy as by_numpy
from convgrad.engines import scratch
from convgrad.engines.addresses import address_of
from convgrad.formats import BF16, F32, F64, FORMATS
from convgrad.functional import scaled_sum
from convgrad.functional.call import prepare
from convgrad.spec import exact_result
from convgrad.spec.bound import error_bound
from convgrad.spec.order import height_of
from convgrad.spec.ordered_samples import weighted_in_order
from convgrad.spec.samples import scaled_operand, weighted, weighted_bound
from tests.functional.sample_cases import BIAS, SUMS, Samples, samples_of
from tests.support.engine_helpers import HOST, Array
from tests.support.helpers import assert_same_bits, peak_bytes
from tests.support.tiers import tiers

several = pytest.mark.usefixtures("eight_cores")


def weighted_sum(batch: Samples, scale: Any, **options: Any) -> Array:
    function = convgrad.weighted_bias_sum if batch.operator == BIAS else convgrad.weighted_weights_sum
    result: Array = function(*batch.arrays, *batch.shape, scale=scale, **batch.options, **options)
    return result


def scales_of(batch: Samples, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0, 2, batch.batch)


@tiers("seed", range(150), every=13)
def test_integers_are_the_sum_of_explicit_gradients(seed: int) -> None:
    batch = samples_of(seed, "integers")
    scale = np.random.default_rng(seed).integers(-1, 2, batch.batch)
    each = [one.astype(np.float64) for one in batch.gradients("f32")]
    expected = sum(s * one for s, one in zip(scale, each, strict=True)) + 0.0
    got = weighted_sum(batch, scale.astype(np.float32), dtype="f32")
    assert_same_bits(got, np.asarray(expected, np.float32), batch)


@several
@tiers("seed", range(60), every=29)
def test_the_specified_bits_on_all_threads_and_instruction_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every type of result, added to an old one or not."""
    batch, dtype = samples_of(seed, "normal", 20_000), ("f32", "bf16", "f16")[seed // 3 % 3]
    scale, adds = scales_of(batch, seed), seed % 2 == 1
    prepared = batch.prepared
    posed = prepare(batch.operator, (*batch.arrays, *batch.shape), batch.attributes, dtype, adds, lenient=True)
    old = np.random.default_rng(seed).standard_normal(posed.problem.output_shape)
    old = old.astype(FORMATS[dtype].dtype)
    canonical = old.transpose(posed.problem.output_order)
    expected = weighted_in_order(posed.problem, prepared.operands, scale.tolist(), canonical if adds else None)
    for isa in HOST:
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        for threads in (1, 3):
            out = old.copy()
            assert weighted_sum(batch, scale, out=out, dtype=dtype, accumulate=adds, threads=threads) is out
            assert_same_bits(out.transpose(posed.problem.output_order), expected, (batch, isa, threads))


@tiers("seed", range(60), every=11)
def test_scales_of_one_are_the_plain_call(seed: int) -> None:
    """Whatever the type: wider operands are the same numbers, and few channels have the same order."""
    batch = samples_of(seed, "normal")
    plain = convgrad.run(batch.operator, *batch.arrays, *batch.shape, **batch.attributes)
    assert_same_bits(weighted_sum(batch, np.ones(batch.batch)), plain, batch)


@pytest.mark.parametrize("channels", [15, 16])
def test_scales_of_one_of_bf16_are_the_plain_call_in_f32(channels: int) -> None:
    """From 16 channels on, the plain gradient of bf16 has two chains, and so another order and a smaller bound."""
    rng, of = np.random.default_rng(0), (1, 1, 16, channels)
    src, diff_dst = (rng.standard_normal((6, 9, 9, number)).astype(BF16.dtype) for number in of[2:])
    got = convgrad.weighted_weights_sum(src, diff_dst, of, scale=np.ones(6), dtype="f32")
    wide = [array.astype(np.float32) for array in (src, diff_dst)]
    assert_same_bits(got, convgrad.convolution_backward_weights(*wide, of), str(channels))
    plain = convgrad.convolution_backward_weights(src, diff_dst, of, dtype="f32")
    assert np.array_equal(got, plain) == (channels < 16)
    problem, nothing = prepare(SUMS[0], (src, diff_dst, of), {}, lenient=True).problem, np.zeros(1)
    bound = weighted_bound(problem, np.zeros(1, np.int64), np.ones(1), nothing)
    assert bound == error_bound(height_of(weighted(problem)) + 1, 0, np.ones(1), F32)


@tiers("seed", range(60), every=7)
def test_sums_keep_their_bound(seed: int) -> None:
    """Against the exact sum of the scaled terms, in f64 too."""
    batch = samples_of(seed, "normal", f64=seed % 4 == 0)
    scale = scales_of(batch, seed)
    problem, operands = batch.prepared.problem, batch.prepared.operands
    fmt = problem.operand_format.accumulator
    given, number = [operand.astype(np.float64) for operand in operands], scaled_operand(problem)
    factors = scale.astype(fmt.dtype).astype(np.float64).reshape(-1, *[1] * (given[0].ndim - 1))
    scaled = [x * factors if at == number else x for at, x in enumerate(given)]
    exact = exact_result.evaluate(problem, scaled)  # products of 24 bits: exact but for f64
    beside = [np.ones_like(x) if at == number else np.abs(x) for at, x in enumerate(given)]
    others = exact_result.evaluate(problem, beside).value
    height = by_numpy.NUMPY.height(problem) + 1 if problem.operand_format is F64 else None
    bound = weighted_bound(problem, exact.terms, exact.magnitude, others, height)
    got = weighted_sum(batch, scale, dtype=fmt.name).transpose(problem.output_order)
    assert (np.abs(got - exact.value) <= bound).all(), batch


LAYERS = {
    "packs": ((200, 7, 7), (3, 3)),  # 5 images a leaf: chunks of 80
    "larger images": ((50, 300), (2,)),  # a leaf each: chunks of 16
}


def batch_of(name: str, samples: int | None = None) -> tuple[Array, Array, tuple[int, ...], dict[str, Any]]:
    (images, *extents), kernel = LAYERS[name]
    rng, most = np.random.default_rng(0), samples or images
    src, diff_dst = (rng.standard_normal((most, *extents, channels), np.float32) for channels in (3, 5))
    return src, diff_dst, (*kernel, 3, 5), {"auto_pad": "same_upper"}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("chunk_bytes", [0, 1 << 20, 1 << 30])
def test_a_batch_scaled_in_pieces_has_the_bits_of_the_whole(
    name: str, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaled_sum, "BATCH_BYTES", chunk_bytes)
    src, diff_dst, shape, layer = batch_of(name)
    scale = np.random.default_rng(1).standard_normal(len(src)).astype(np.float32)
    scaled = src * scale.reshape(-1, *[1] * (src.ndim - 1))  # of 3 channels, where diff_dst has 5
    old = np.ones(shape, np.float32)
    expected = convgrad.convolution_backward_weights(scaled, diff_dst, shape, **layer, out=old.copy(), accumulate=True)
    got = convgrad.weighted_weights_sum(src, diff_dst, shape, scale=scale, **layer, out=old, accumulate=True)
    assert_same_bits(got, expected, name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_kernels_pieces_are_added_one_after_the_other(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVGRAD_MAX_ISA", "numpy")
    monkeypatch.setattr(scaled_sum, "BATCH_BYTES", 0)
    src, diff_dst, shape, layer = batch_of("larger images")
    src, diff_dst = np.rint(src).astype(dtype), np.rint(diff_dst).astype(dtype)
    scale = np.arange(len(src)) - 7.0
    scaled = diff_dst * scale.reshape(-1, 1, 1).astype(dtype)
    expected = convgrad.convolution_backward_weights(src, scaled, shape, **layer, dtype=dtype)
    old = np.full(shape, 3, dtype)
    got = convgrad.weighted_weights_sum(src, diff_dst, shape, scale=scale, **layer, out=old, accumulate=True)
    assert_same_bits(got, expected + dtype(3), dtype)


def peak(samples: int) -> int:
    src, diff_dst, shape, layer = batch_of("packs", 1)
    src, diff_dst = (np.broadcast_to(array, (samples, *array.shape[1:])) for array in (src, diff_dst))
    scale, out = np.ones(samples, np.float32), np.empty(shape, np.float32)
    scratch.own.held = None
    call = partial(convgrad.weighted_weights_sum, src, diff_dst, shape, scale=scale, **layer, out=out, threads=1)
    return peak_bytes(call) - scale.nbytes


def test_memory_knows_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 times the images, in 16 times the pieces, hardly more: the sums that wait for others are few."""
    monkeypatch.setattr(scaled_sum, "BATCH_BYTES", 0)
    few, many = [(peak(samples), peak(samples))[1] for samples in (160, 2560)]
    assert few > 80 * 49 * 5 * 4
    assert many < few + 20_000


def test_no_images() -> None:
    src, diff_dst, shape, layer = batch_of("packs", 1)
    none = convgrad.weighted_weights_sum(src[:0], diff_dst[:0], shape, scale=[], **layer)
    assert_same_bits(none, np.zeros(shape, np.float32), "none")


# -- clipping --------------------------------------------------------------------------------------------------------


def test_scales_are_the_largest_that_clip() -> None:
    """In f32: not above max_norm / norm, and the next number is."""
    norm2 = np.exp(np.random.default_rng(2).uniform(-100, 100, 1000))
    quotient = 3.0 / np.sqrt(norm2)
    scale = convgrad.clip_scales(norm2, max_norm=3.0)
    clipped = quotient < 1
    assert 300 < clipped.sum() < 700
    assert (scale[~clipped] == 1).all()
    assert (scale.astype(np.float64) <= quotient)[clipped].all()
    assert (np.nextafter(scale, np.float32(2)).astype(np.float64) > quotient)[clipped].all()


def test_scales_of_norms_at_the_ends() -> None:
    scale = convgrad.clip_scales([0.0, np.inf, np.nan, 1e-300, 4.0], max_norm=2)
    assert scale.dtype == np.float32
    assert scale[[0, 1, 3, 4]].tolist() == [1, 0, 1, 1]
    assert np.isnan(scale[2])


@pytest.mark.parametrize("most", [np.inf, 10**400, np.float32(np.inf), np.finfo(np.float64).max])
def test_what_no_finite_norm_reaches_clips_but_infinite_ones(most: float) -> None:
    assert convgrad.clip_scales([0.0, 1e300, np.inf], max_norm=most).tolist() == [1, 1, 0]


@tiers("seed", range(60), every=13)
def test_a_clipped_sum_is_the_weighted_sum_of_its_scales(seed: int) -> None:
    batch = samples_of(seed, "normal")
    if batch.operator == BIAS:
        batch = samples_of(seed + 1, "normal")
    norm2 = batch.norms2()
    most = float(np.sqrt(np.median(norm2))) or 1.0
    got = convgrad.clipped_weights_sum(*batch.arrays, *batch.shape, max_norm=most, **batch.options)
    assert_same_bits(got, weighted_sum(batch, convgrad.clip_scales(norm2, most)), batch)


def test_a_wrong_out_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "norms2", lambda *_: pytest.fail("norms were computed"))
    src = np.ones((1, 3, 1), np.float32)
    with pytest.raises(convgrad.InvalidShapeError, match="D2"):
        convgrad.clipped_weights_sum(src, src, (1, 1, 1), max_norm=1.0, out=np.zeros((1, 1), np.float32))
    with pytest.raises(convgrad.InvalidAttributeError, match="D5"):
        convgrad.clipped_weights_sum(src, src, (1, 1, 1), max_norm=1.0, accumulate=True)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_operands_in_foreign_byte_order_are_read_as_numbers(dtype: str) -> None:
    rng = np.random.default_rng(3)
    src, diff_dst = (rng.standard_normal((3, 5, c)).astype(dtype) for c in (2, 4))
    shape, scale = (1, 2, 4), np.array([0.5, 2, 3])
    foreign = [array.astype(array.dtype.newbyteorder("S")) for array in (src, diff_dst, scale)]
    theirs = convgrad.weighted_weights_sum(*foreign[:2], shape, scale=foreign[2])
    assert_same_bits(theirs, convgrad.weighted_weights_sum(src, diff_dst, shape, scale=scale), "sum")
    theirs = convgrad.per_sample_weights_norm2(*foreign[:2], shape)
    assert_same_bits(theirs, convgrad.per_sample_weights_norm2(src, diff_dst, shape), "norms")


def test_scales_beyond_f32_are_infinite_without_a_word() -> None:
    """As every conversion to the format of sums; the warning would be an error here."""
    assert convgrad.weighted_bias_sum(np.ones((2, 3, 1), np.float32), scale=[1e300, -1.0]).tolist() == [np.inf]


def test_clipped_samples_have_the_norm_asked_for() -> None:
    """Gradients (3, 4) and (6, 8) k of norm 5 and 10 k: what is beyond 10 becomes 10, as halves are exact."""
    src = np.array([1, 2, 4, 8], np.float32).reshape(4, 1, 1)
    diff_dst = np.tile(np.array([3, 4], np.float32), (4, 1, 1))
    each = [convgrad.clipped_weights_sum(src[[n]], diff_dst[[n]], (1, 1, 2), max_norm=10) for n in range(4)]
    assert np.ravel(each).tolist() == [3, 4, 6, 8, 6, 8, 6, 8]


# -- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_scaling_of_any_number_of_elements(fmt: str) -> None:
    """Products rounded once, and nothing written beside them."""
    rng = np.random.default_rng(4)
    for elements in (1, 7, 16, 63, 64, 65, 200):
        data = rng.standard_normal((3, elements)).astype(FORMATS[fmt].dtype)
        factors = rng.standard_normal(3).astype(np.float32)
        memory = np.full(3 * elements + 2, np.nan, np.float32)
        out = memory[1:-1].reshape(3, elements)
        engines.generated().scale(data, factors, out, 1)
        assert_same_bits(out, data.astype(np.float32) * factors[:, None], elements)
        assert np.isnan(memory[[0, -1]]).all()
        assert address_of(out) == address_of(memory) + 4
