"""dtype, accumulate and the one rounding: bf16, f16, overflow, NaN bits, signed zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import convgrad
from convgrad.functional.call import prepare
from convgrad.spec.order import height_of
from tests.support.roles import BF16, DTYPES, F32, Array, Role, formats, roles, same


def bits(array: Array) -> list[int]:
    return array.view(f"u{array.itemsize}").ravel().tolist()


@pytest.mark.every(5)
@roles
@formats
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_dtype_is_the_output_type(role: Role, dtype: Any, name: str) -> None:
    operands = role.operands(dtype)
    exact = role(*role.operands(np.float64))
    result = role(*operands, dtype=name)
    assert result.dtype == DTYPES[name]
    assert np.array_equal(result.astype(np.float64), exact)  # small integers
    for alias in (DTYPES[name], DTYPES[name].type, str(DTYPES[name])):
        assert same(role(*operands, dtype=alias), result)
    out = np.full(role.output, np.nan, DTYPES[name])
    assert role(*operands, dtype=name, out=out) is out
    assert same(out, result)


def dot(x: list[float], y: list[float], of: Any, **options: Any) -> Array:
    """Return x . y as a weight gradient of one tap and one channel, of operands of a type."""
    shape = (1, len(x), 1)
    operands = (np.array(v, np.float64).astype(of).reshape(shape) for v in (x, y))
    if "out" in options:
        options["out"] = options["out"].reshape(1, 1, 1)
    result: Array = convgrad.convolution_backward_weights(*operands, (1, 1, 1), **options)
    return result.ravel()


SMALL = 2.0**-8, 2.0**-17  # their sum is half a last place of 1.0 in bf16, and a little more


def test_bf16_operands_give_an_f32_result_unrounded() -> None:
    assert dot([1, *SMALL], [1, 1, 1], BF16, dtype="f32").tolist() == [1 + 2**-8 + 2**-17]
    assert dot([1, *SMALL], [1, 1, 1], BF16).astype(F32).tolist() == [1 + 2**-7]
    assert dot([*SMALL], [1, 1], BF16).astype(F32).tolist() == [2**-8]  # the small one alone is rounded away


def test_accumulate_adds_once_before_the_one_rounding() -> None:
    """1 + bf16(2^-8 + 2^-17) is a tie that goes down to 1; the sum itself rounds up."""
    out = np.ones(1, BF16)
    dot([*SMALL], [1, 1], BF16, out=out, accumulate=True)
    assert out.astype(F32).tolist() == [1 + 2**-7]
    wide = np.ones(1, F32)
    dot([*SMALL], [1, 1], BF16, out=wide, accumulate=True, dtype="f32")
    assert wide.tolist() == [1 + 2**-8 + 2**-17]
    half = np.ones(1, np.float16)
    dot([2**-11, 2**-20], [1, 1], np.float16, out=half, accumulate=True)
    assert half.tolist() == [1 + 2**-10]


def test_bias_enters_before_the_one_rounding() -> None:
    src, weights = np.array(SMALL).astype(BF16).reshape(1, 1, 2), np.ones((1, 2, 1), BF16)
    result = convgrad.convolution(src, weights, np.ones(1, BF16))
    assert result.astype(F32).ravel().tolist() == [1 + 2**-7]
    out = np.full((1, 1, 1), 1, BF16)
    convgrad.convolution(src, weights, np.zeros(1, BF16), out=out, accumulate=True)
    assert out.astype(F32).ravel().tolist() == [1 + 2**-7]


@pytest.mark.every(3)
@roles
@formats
def test_accumulate_adds_the_fresh_result_to_the_old_value(role: Role, dtype: Any) -> None:
    operands, wide = role.operands(dtype), np.float64 if dtype == np.float64 else F32
    old = np.random.default_rng(1).integers(-9, 9, role.output).astype(wide)
    out = old.copy()
    role(*operands, out=out, dtype=wide, accumulate=True)
    expected = old.astype(np.float64) + role(*operands, dtype=wide).astype(np.float64)
    assert np.array_equal(out.astype(np.float64), expected)
    role(*operands, out=out, dtype=wide, accumulate=np.True_)
    assert np.array_equal(out.astype(np.float64), 2 * expected - old.astype(np.float64))


@pytest.mark.parametrize("true", [np.True_, True])
def test_accumulate_of_numpy_leaves_the_rounding_depth_of_other_calls(true: Any) -> None:
    """Equal problems are one object, and to NumPy True + True is True: the additions of a bias and an old value."""
    operands = np.ones((1, 7, 3), F32), np.ones((2, 3, 5), F32), np.ones(5, F32)
    depths = [
        height_of(prepare("Convolution", operands, {}, accumulate=value, lenient=True).problem)
        for value in (False, true, True)
    ]
    assert depths == [7, 8, 8]


def test_f64_operands_are_rounded_once() -> None:
    """The way to bf16 through f32 loses the last bit and then breaks the tie downwards."""
    x = [1, 2**-8, 2**-40]
    assert dot(x, [1, 1, 1], np.float64, dtype="bf16").astype(F32).tolist() == [1 + 2**-7]
    assert dot([1, 2**-11, 2**-40], [1, 1, 1], np.float64, dtype="f16").tolist() == [1 + 2**-10]
    assert dot([1, 2**-24, 2**-50], [1, 1, 1], np.float64, dtype="f32").tolist() == [1 + 2**-23]
    assert dot(x, [1, 1, 1], np.float64).tolist() == [1 + 2**-8 + 2**-40]


def test_ties_go_to_even() -> None:
    assert dot([1, 2**-8], [1, 1], BF16).astype(F32).tolist() == [1]
    assert dot([1 + 2**-7, 2**-8], [1, 1], BF16).astype(F32).tolist() == [1 + 2**-6]
    assert dot([1, 2**-11], [1, 1], np.float16).tolist() == [1]


def test_overflow_gives_infinity() -> None:
    assert dot([60000, 60000], [1, 1], np.float16).tolist() == [np.inf]
    assert dot([60000, 60000], [-1, -1], np.float16).tolist() == [-np.inf]
    assert dot([65504, 15], [1, 1], np.float16).tolist() == [65504]
    assert dot([65504, 16], [1, 1], np.float16).tolist() == [np.inf]
    assert dot([60000, 60000], [1, 1], np.float16, dtype="f32").tolist() == [120000]
    assert dot([60000, 60000, -60000], [1, 1, 1], np.float16).tolist() == [60000]  # sums are kept in f32
    assert dot([3e38, 3e38], [1, 1], F32).tolist() == [np.inf]
    assert dot([3e38, 3e38], [1, 1], BF16).astype(F32).tolist() == [np.inf]


def test_subnormals_are_kept() -> None:
    assert dot([2**-149], [1], F32).tolist() == [2**-149]
    assert dot([2**-133], [1], BF16).astype(F32).tolist() == [2**-133]
    assert dot([2**-24], [1], np.float16).tolist() == [2**-24]


QUIET = {"f32": 0x7FC00000, "bf16": 0x7FC0, "f16": 0x7E00, "f64": 0x7FF8000000000000}
QUIET |= {"f8_e4m3": 0x7F, "f8_e5m2": 0x7E}
PAYLOADS = {"f32": 0xFFA12345, "bf16": 0xFFA1, "f16": 0xFD23, "f64": 0xFFF4123456789ABC}
PAYLOADS |= {"f8_e4m3": 0xFF, "f8_e5m2": 0xFD}


@pytest.mark.parametrize("cap", ["", "numpy"])
@pytest.mark.parametrize("name", ["f8_e4m3", "f8_e5m2"])
def test_what_is_beyond_8_bits(name: str, cap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """f8_e5m2 has infinities; of f8_e4m3 NaN stands for those, the canonical one."""
    monkeypatch.setenv("CONVGRAD_MAX_ISA", cap)
    found = [dot([240, -240][at : at + 1], [300], F32, dtype=name).view(np.uint8).item() for at in (0, 1)]
    assert found == {"f8_e4m3": [0x7F, 0x7F], "f8_e5m2": [0x7C, 0xFC]}[name]


@pytest.mark.every(5)
@roles
@pytest.mark.parametrize("name", QUIET)
def test_nan_leaves_as_the_canonical_quiet_nan(role: Role, name: str) -> None:
    """A NaN of any sign and payload, an inf - inf, and an old value; in ``out`` of any layout."""
    dtype = DTYPES[name]
    unsigned = f"u{dtype.itemsize}"
    for payload in (PAYLOADS[name], QUIET[name], QUIET[name] | 1 << (8 * dtype.itemsize - 1)):
        operands = role.operands(dtype)
        operands[0].view(unsigned)[...] = payload
        result = role(*operands)
        nan = np.isnan(result)
        assert nan.any()
        assert set(bits(result[nan])) == {QUIET[name]}
        wide = role(*operands, dtype="f32") if name != "f64" else role(*operands, dtype="bf16")
        assert set(bits(wide[np.isnan(wide)])) == {QUIET["f32" if name != "f64" else "bf16"]}
        out = np.zeros(role.output, dtype)
        out.view(unsigned)[...] = payload
        role(*role.operands(dtype), out=out, accumulate=True)
        assert set(bits(out)) == {QUIET[name]}


@pytest.mark.parametrize("name", QUIET)
def test_invalid_operations_give_the_canonical_quiet_nan(name: str) -> None:
    assert bits(dot([np.inf, np.inf], [1, -1], DTYPES[name])) == [QUIET[name]]
    assert bits(dot([np.inf, 1], [0, 1], DTYPES[name])) == [QUIET[name]]


ZEROS = {
    "-0 x 1": ([-0.0], [1.0]),
    "-0 x 1, many": ([-0.0] * 300, [1.0] * 300),
    "0 x -1": ([0.0], [-1.0]),
    "cancelling": ([1.0, 1.0], [1.0, -1.0]),
    "cancelling, the negative first": ([1.0, 1.0], [-1.0, 1.0]),
    "empty": ([], []),
}


@pytest.mark.parametrize(("x", "y"), ZEROS.values(), ids=ZEROS)
@formats
def test_a_zero_sum_is_positive(x: list[float], y: list[float], dtype: Any) -> None:
    assert bits(dot(x, y, dtype)) == [0]
    out = np.array([-0.0]).astype(dtype)
    dot(x, y, dtype, out=out, accumulate=True)
    assert bits(out) == [0]


@pytest.mark.every(3)
@roles
@formats
def test_negative_zeros_never_leave(role: Role, dtype: Any) -> None:
    operands = role.operands(dtype)
    operands[0][...] = -0.0
    for other in operands[1:]:
        other[...] = 1
    if len(operands) == 3 or role.function is convgrad.bias_add:
        operands[-1][...] = -0.0
    assert set(bits(role(*operands))) == {0}
    out = np.full(role.output, -0.0, dtype)
    role(*operands, out=out, accumulate=True)
    assert set(bits(out)) == {0}


@pytest.mark.every(3)
@roles
@formats
def test_operands_are_never_changed_and_never_returned(role: Role, dtype: Any) -> None:
    operands = role.operands(dtype)
    before = [a.tobytes() for a in operands]
    result = role(*operands)
    assert [a.tobytes() for a in operands] == before
    assert not any(np.shares_memory(result, a) for a in operands)
    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.flags.owndata
