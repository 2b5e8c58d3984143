"""Norms of samples: the specified bits, exact on integers, each sample by itself, memory that knows no batch."""

from __future__ import annotations

import itertools
import re
from ctypes import addressof
from functools import partial
from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.engines import numpy as by_numpy
from convgrad.engines import products, scratch
from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import isas, jit, samples
from convgrad.engines.llvm.execute import executable
from convgrad.engines.llvm.squares import module_of
from convgrad.engines.team import STOP, work
from convgrad.formats import F64, FORMATS
from convgrad.functional.call import prepare
from convgrad.functional.samples import OPERATORS
from convgrad.plan.machine import ISAS
from convgrad.plan.records import FLAGS
from convgrad.plan.split_k.schedule import CALL
from convgrad.spec import exact_result
from convgrad.spec import samples as specified
from convgrad.spec.bound import error_bound
from convgrad.spec.order import height_of
from convgrad.spec.ordered_samples import norms2_in_order
from convgrad.spec.samples import CHAINS, is_product, norm2_bound, of_one, squares_in_order
from tests.functional.sample_cases import samples_of
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits, peak_bytes
from tests.support.tiers import tiers

THREADS = (1, 3)
several = pytest.mark.usefixtures("eight_cores")


@tiers("seed", range(300), every=31)
def test_integers_are_the_squares_of_explicit_gradients(seed: int) -> None:
    """Of any rank, attributes, layouts and type: norms of integers are integers."""
    batch = samples_of(seed, "integers")
    expected = [int(sum(int(x) ** 2 for x in one.ravel())) for one in batch.gradients("f32")]
    assert batch.norms2().tolist() == expected, batch


@several
@tiers("seed", range(90), every=23)
def test_the_specified_bits_on_all_threads_and_instruction_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = samples_of(seed, "normal", 20_000)
    expected = norms2_in_order(batch.prepared.problem, batch.prepared.operands)
    for isa in HOST:
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        for threads in THREADS:
            assert_same_bits(batch.norms2(threads=threads), expected, (batch, isa, threads))


@tiers("seed", range(60), every=7)
def test_norms_keep_their_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of f64 too, whose gradients and squares the NumPy engine adds; whole or in parts."""
    if seed % 3 == 1:
        monkeypatch.setattr(specified, "LARGE", 0)
        monkeypatch.setattr(specified, "PART", 1)
    batch = samples_of(seed, "normal", 50_000, f64=seed % 2 == 0)
    problem, operands = batch.prepared.problem, batch.prepared.operands
    one, got = of_one(problem), batch.norms2()
    height = by_numpy.NUMPY.height(one) if problem.operand_format is F64 else height_of(one)
    for n in range(batch.batch):
        answer = exact_result.evaluate(one, [operand[n : n + 1] for operand in operands])
        gradient = answer.value
        off = error_bound(height + 1, answer.terms, answer.magnitude, problem.operand_format.accumulator)
        exact = sum(int(x * 2.0**200) ** 2 for x in gradient.ravel().tolist()) / 2**400
        assert abs(got[n] - exact) <= norm2_bound(one, gradient, off), batch


# -- of one position: a product --------------------------------------------------------------------------------------

ONE_POSITION = (
    {"src": (6,), "kernel": ()},
    {"src": (12,), "kernel": (), "groups": 3},
    {"src": (5, 4, 6), "kernel": (5, 4)},
    {"src": (4, 3, 70), "kernel": (3, 4), "groups": 2, "dilations": 2, "pads_begin": (1, 2), "pads_end": (0, 2)},
    {"src": (2, 3), "kernel": (5,), "strides": 7, "pads_begin": 2, "pads_end": 1},
)


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("layer", ONE_POSITION, ids=str)
def test_of_one_position_a_norm_is_a_product(layer: dict[str, Any], fmt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every instruction set and without any, in pieces or not, to the specified bits; integers are exact."""
    options = dict(layer)
    (*extents, channels), kernel = options.pop("src"), options.pop("kernel")
    extents, kernel = extents or [1], kernel or (1,)
    groups, rng = options.get("groups", 1), np.random.default_rng(5)
    src, diff_dst = (
        rng.standard_normal((7, *extents, channels)),
        rng.standard_normal((7, *[1] * len(extents), 8 * groups)),
    )
    shape = (*kernel, channels // groups, 8 * groups)
    src, diff_dst = (array.astype(FORMATS[fmt].dtype) for array in (src, diff_dst))
    posed = prepare("ConvolutionBackwardWeights", (src, diff_dst, shape), options, lenient=True)
    assert is_product(posed.problem)
    expected = norms2_in_order(posed.problem, posed.operands)
    for isa, chunk_bytes in itertools.product([*HOST, "numpy"], [0, 1 << 20]):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        monkeypatch.setattr(products, "CHUNK_BYTES", chunk_bytes)
        assert_same_bits(convgrad.per_sample_weights_norm2(src, diff_dst, shape, **options), expected, (layer, isa))
    src, diff_dst = np.rint(4 * src.astype(np.float32)), np.rint(4 * diff_dst.astype(np.float32))
    each = [convgrad.convolution_backward_weights(src[[n]], diff_dst[[n]], shape, **options) for n in range(7)]
    exact = [float(np.sum(one.astype(np.float64) ** 2)) for one in each]
    assert convgrad.per_sample_weights_norm2(src, diff_dst, shape, **options).tolist() == exact


def test_where_no_tap_exists_nothing_reaches_a_norm() -> None:
    """Of one position and one tap, in the padding: diff_dst may be anything."""
    src, diff_dst = np.ones((2, 2, 1), np.float32), np.full((2, 1, 1), np.nan, np.float32)
    assert convgrad.per_sample_weights_norm2(src, diff_dst, (1, 1, 1), strides=9, pads_begin=3).tolist() == [0, 0]


def test_factors_of_large_norms_are_no_f32() -> None:
    """Gradients of 2^200 and 2^-200, which are no f32: the norm is theirs."""
    src = np.array([2.0**100, 2.0**-100], np.float32).reshape(2, 1, 1)
    assert convgrad.per_sample_weights_norm2(src, src, (1, 1, 1)).tolist() == [2.0**400, 2.0**-400]


LAYER = {"pads_begin": 1, "pads_end": 1}
SHAPE = (3, 3, 6, 10)


def batch_of(samples: int, size: int = 5, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal((samples, size, size, channels), np.float32) for channels in SHAPE[2:])


@several
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("part", [1, 4, 16])
def test_parts_of_large_gradients_are_gradients_by_themselves(
    part: int, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many of 10 channels: the specified bits on all threads and instruction sets."""
    src, diff_dst = batch_of(4)
    operands = (diff_dst, src) if transposed else (src, diff_dst)
    whole = convgrad.per_sample_weights_norm2(*operands, SHAPE, **LAYER, transposed=transposed)
    monkeypatch.setattr(specified, "LARGE", 100)
    monkeypatch.setattr(specified, "PART", part)
    operator = OPERATORS[transposed]
    posed = prepare(operator, (*operands, SHAPE), LAYER, lenient=True)
    expected = norms2_in_order(posed.problem, posed.operands)
    assert (expected.tolist() == whole.tolist()) == (part == 16)
    for isa, threads in itertools.product(HOST, THREADS):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        got = convgrad.per_sample_weights_norm2(*operands, SHAPE, **LAYER, transposed=transposed, threads=threads)
        assert_same_bits(got, expected, (isa, threads))


def test_samples_that_change_places_take_their_norms_along() -> None:
    src, diff_dst = batch_of(11)
    before = convgrad.per_sample_weights_norm2(src, diff_dst, SHAPE, **LAYER)
    moved = np.random.default_rng(1).permutation(11)
    assert_same_bits(
        convgrad.per_sample_weights_norm2(src[moved], diff_dst[moved], SHAPE, **LAYER), before[moved], moved
    )
    alone = convgrad.per_sample_weights_norm2(src[7:8], diff_dst[7:8], SHAPE, **LAYER)
    assert_same_bits(alone, before[7:8], "alone")


@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_what_is_not_finite_reaches_its_own_norm(what: float) -> None:
    src, diff_dst = batch_of(6)
    before = convgrad.per_sample_weights_norm2(src, diff_dst, SHAPE, **LAYER)
    diff_dst[4, 2, 2, 3] = what
    after = convgrad.per_sample_weights_norm2(src, diff_dst, SHAPE, **LAYER)
    assert not np.isfinite(after[4])
    assert_same_bits(np.delete(after, 4), np.delete(before, 4), what)


def test_squares_neither_overflow_nor_underflow() -> None:
    """Gradients of 2^96 and 2^-96: their squares are no f32."""
    src = np.ones((2, 3, 1), np.float32)
    diff_dst = np.array([[[2.0**96]], [[2.0**-96]]], np.float32)
    norms2 = convgrad.per_sample_weights_norm2(src, diff_dst, (3, 1, 1))
    assert norms2.tolist() == [3 * 2.0**192, 3 * 2.0**-192]


def test_nothing_to_sum() -> None:
    none = convgrad.per_sample_weights_norm2(*batch_of(0), SHAPE, **LAYER)
    assert none.shape == (0,)
    src, diff_dst = np.ones((3, 2, 2, 6), np.float32), np.ones((3, 0, 0, 10), np.float32)
    assert convgrad.per_sample_weights_norm2(src, diff_dst, SHAPE).tolist() == [0, 0, 0]


def test_an_output_padding_that_fits_is_taken() -> None:
    src, diff_dst = np.ones((2, 3, 1), np.float32), np.ones((2, 6, 1), np.float32)  # L = 2 (3 - 1) + 1 + op
    call = {"strides": 2, "transposed": True, "output_padding": 1}
    assert convgrad.per_sample_weights_norm2(src, diff_dst, (1, 1, 1), **call).tolist() == [9, 9]


@several
def test_few_samples_are_computed_by_all_threads_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two samples on three threads, each of 15 M multiply-adds: to the bits that one thread gives."""
    src, diff_dst = (np.repeat(array, 8, axis=-1) for array in batch_of(2, 60))
    shape = (3, 3, src.shape[-1], diff_dst.shape[-1])
    expected = convgrad.per_sample_weights_norm2(src, diff_dst, shape, **LAYER, threads=1)
    calls: list[str] = []
    one_by_one = samples._one_by_one
    monkeypatch.setattr(samples, "_one_by_one", lambda *given: calls.append("each") or one_by_one(*given))
    got = convgrad.per_sample_weights_norm2(src, diff_dst, shape, **LAYER, threads=3)
    assert calls == ["each"]
    assert_same_bits(got, expected, "few")


def peak(samples: int) -> int:
    """What the norms of so many samples take on one thread, beside operands and result."""
    src, diff_dst = (np.broadcast_to(array, (samples, *array.shape[1:])) for array in batch_of(1, 12))
    scratch.own.held = None
    call = partial(convgrad.per_sample_weights_norm2, src, diff_dst, SHAPE, **LAYER, threads=1)
    return peak_bytes(call) - 8 * samples


def test_memory_knows_no_batch() -> None:
    """Of 64 times the samples not one more gradient: what varies is Python's own."""
    few, many = [(peak(samples), peak(samples))[1] for samples in (8, 512)]  # plans are made at the first
    assert few > 4 * np.prod(SHAPE)
    assert many - few < 4 * np.prod(SHAPE)


# -- the kernel ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", HOST)
def test_squares_of_any_number_of_elements(isa: str) -> None:
    """Of all lengths up to some rounds of the chains, beside numbers that are not its own."""
    rng = np.random.default_rng(3)
    memory = np.full(5 * CHAINS, np.nan, np.float32)
    norm = np.empty(1)
    for elements in range(4 * CHAINS + 2):
        memory[1 : 1 + elements] = rng.standard_normal(elements)
        samples.compiled(ISAS[isa]).squares(address_of(memory) + 4, 1, elements, address_of(norm))
        assert norm[0] == squares_in_order(memory[1 : 1 + elements]), elements


@pytest.mark.parametrize("isa", ISAS)
def test_squares_want_no_symbol_from_outside(isa: str) -> None:
    text = jit.assembly(module_of(ISAS[isa]), ISAS[isa])
    called = set(re.findall(r"^\s+(?:callq?|jmp|bl|b)\s+([A-Za-z_]\w*)", text, re.MULTILINE))
    assert called <= {"squares"}


def test_a_raised_flag_ends_the_driver() -> None:
    """As Ctrl-C raises it: no sample is begun any more."""
    prepared = samples_of(0, "normal").prepared
    one, operands = of_one(prepared.problem), prepared.operands
    gradient, out = np.empty(one.output_shape, np.float32), np.full(len(operands[0]), np.nan)
    view, machine = gradient.transpose(one.output_order), isas.machine(ISAS[HOST[0]])
    call = executable(one, [array.strides for array in (*operands, view)], machine, 1)
    for stop in (1, 0):
        arguments, scratch_bytes = samples._bound(call, operands, gradient, out)
        arguments[STOP] = stop
        work(samples.compiled(machine.isa).driver, addressof(arguments), scratch_bytes)
        assert np.isnan(out).all() == bool(stop)
    at, memory = scratch.own.address(0)
    own = memory[at - address_of(memory) :][: CALL.bytes].view(np.int64)
    assert own[CALL.index("stop")] == arguments[FLAGS.index("stop")]  # within a sample too
