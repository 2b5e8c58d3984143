"""The one rounding: against NumPy's own conversions, against integer arithmetic, and at every boundary."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import convgrad
from convgrad.formats import (
    ACCUMULATIONS,
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    TF32,
    Format,
    named,
    of_dtype,
    round_to,
    store,
)

F8 = [fmt for fmt in ACCUMULATIONS.values() if fmt.itemsize == 1]


def all_of(fmt: Format) -> np.ndarray:
    """Every finite value of a format of 8 or 16 bits, ascending, as float64."""
    word = f"u{fmt.itemsize}"
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = np.arange(2 ** (8 * fmt.itemsize), dtype=word).view(fmt.dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


@pytest.mark.parametrize("fmt", ACCUMULATIONS.values(), ids=str)
def test_a_copy_is_the_format_itself(fmt: Format) -> None:
    assert copy.deepcopy(fmt) is fmt
    assert pickle.loads(pickle.dumps(fmt)) is fmt


@pytest.mark.parametrize("fmt", F8, ids=str)
def test_the_rows_of_8_bits_are_the_types(fmt: Format) -> None:
    """What bounds are made of: the unit roundoff, the smallest and the largest number."""
    values = all_of(fmt)
    assert np.array_equal(round_to(values, fmt), values)
    assert (values[-1], values[values > 0][0]) == (fmt.largest, fmt.tiny)
    middles = (values[1:] + values[:-1]) / 2
    assert not np.isin(round_to(middles, fmt), middles).any()
    normal = middles[middles > 2.0**fmt.min_exponent]
    assert np.max(np.abs(round_to(normal, fmt) - normal) / normal) == fmt.unit / (1 + fmt.unit)


@pytest.mark.parametrize("fmt", [BF16, F16], ids=str)
def test_every_value_and_every_midpoint_rounds_to_even(fmt: Format) -> None:
    values = all_of(fmt)
    assert np.array_equal(round_to(values, fmt), values)
    low, high = values[:-1], values[1:]
    middle = (low + high) / 2
    bits = np.abs(low).astype(fmt.dtype).view(np.uint16)
    even = np.where(bits % 2 == 0, low, high)
    assert np.array_equal(round_to(middle, fmt), even)
    assert np.array_equal(round_to(np.nextafter(middle, np.inf), fmt), high)
    assert np.array_equal(round_to(np.nextafter(middle, -np.inf), fmt), low)


@pytest.mark.parametrize("fmt", [F32, F16], ids=str)
def test_agrees_with_numpy_where_numpy_rounds_once(fmt: Format) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(100_000) * 10.0 ** rng.integers(-50, 45, 100_000)
    with np.errstate(all="ignore"):
        assert np.array_equal(round_to(values, fmt), values.astype(fmt.dtype).astype(np.float64))


def by_definition(values: np.ndarray, fmt: Format) -> np.ndarray:
    """Scale each value so that the last place of the format is 1, round to an integer, and scale back."""
    with np.errstate(all="ignore"):
        place = np.maximum(np.frexp(values)[1] - 1, fmt.min_exponent) - fmt.significand_bits + 1
        rounded = np.ldexp(np.rint(np.ldexp(values, -place)), place)
        return np.where(np.abs(rounded) > fmt.largest, np.copysign(np.inf, rounded), rounded)


@pytest.mark.parametrize("fmt", [F32, BF16, F16, TF32, *F8], ids=str)
def test_every_rounding_is_that_of_the_definition(fmt: Format) -> None:
    """Ties, subnormals, the boundary of overflow, zeros of both signs, NaN of any bits, and any bits at all."""
    rng = np.random.default_rng(0)
    steps = fmt.tiny * np.arange(0, 2 ** min(fmt.significand_bits + 1, 10) + 1) / 2
    ends = np.array([0.0, 2.0**fmt.min_exponent, fmt.largest, fmt.largest + fmt.unit * 2.0**fmt.max_exponent])
    near = np.concatenate([ends, steps, np.ldexp(rng.integers(2**24, 2**26, 2000), rng.integers(-180, 120, 2000))])
    beside = np.concatenate([near, np.nextafter(near, 0), np.nextafter(near, np.inf)])
    strange = np.array([0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FEFFFFFFFFFFFFF, 1])
    bits = np.concatenate([strange, rng.integers(0, 2**63, 2000)]).view(np.float64)
    positive = np.concatenate([beside, bits])
    values = np.concatenate([positive, -positive])
    rounded, wanted = round_to(values, fmt), by_definition(values, fmt)
    assert np.array_equal(rounded, wanted, equal_nan=True)
    signed = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(rounded[signed]), np.signbit(wanted[signed]))


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_extremes(fmt: Format) -> None:
    largest = Fraction(fmt.largest)
    last = Fraction(2) ** (1 - fmt.significand_bits)
    assert largest == (2 - (1 + fmt.spent) * last) * Fraction(2) ** fmt.max_exponent
    info = ml_dtypes.finfo(fmt.dtype)
    assert float(info.max) == fmt.largest
    assert float(info.smallest_subnormal) == fmt.tiny
    if fmt is not F64:
        next_up = fmt.largest + 2.0 ** (fmt.max_exponent - fmt.significand_bits)  # halfway to what would come next
        above = np.nextafter(next_up, np.inf) if fmt.spent else next_up  # of which the even one is the largest number
        assert round_to(np.array([above, -above]), fmt).tolist() == [np.inf, -np.inf]
        assert round_to(np.array([np.nextafter(above, 0)]), fmt)[0] == fmt.largest
        assert round_to(np.array([fmt.tiny / 2, fmt.tiny * 0.75]), fmt).tolist() == [0, fmt.tiny]


def test_the_engine_s_conversion_of_f32_to_bf16_is_the_same_rounding() -> None:
    """Every f32 high half with low halves around the tie, by ml_dtypes, by ours, and by integer arithmetic."""
    high = np.arange(2**16, dtype=np.uint32) << 16
    for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        bits = high | np.uint32(low)
        values = bits.view(np.float32)
        finite = np.isfinite(values)
        with np.errstate(all="ignore"):
            converted = values.astype(ml_dtypes.bfloat16).view(np.uint16)
            ours = store(values.astype(np.float64), BF16).view(np.uint16)
        integer = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        assert np.array_equal(converted[finite], integer[finite])
        assert np.array_equal(ours[finite], integer[finite])


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=str)
def test_nan_leaves_as_the_canonical_quiet_nan(fmt: Format) -> None:
    payload = np.array([np.nan, -np.nan])
    canonical = np.array(np.nan).astype(fmt.dtype)
    assert store(payload, fmt).tobytes() == canonical.tobytes() * 2


def test_names() -> None:
    assert named("f32") is named(np.float32) is named("float32") is F32
    assert named(ml_dtypes.bfloat16) is named("bfloat16") is BF16
    assert named("int8") is named("nonsense") is None
    assert of_dtype(np.dtype(">f8")) is F64


@pytest.mark.parametrize("what", [None, "", b"", 0, (), [], pytest.param(10**5000, id="long")])
def test_nothing_is_not_the_default_of_numpy(what: Any) -> None:
    """NumPy makes f64 of None and of the empty string."""
    assert named(what) is None
    with pytest.raises(convgrad.InvalidDataTypeError, match="operand_type must be one of f32, bf16"):
        convgrad.explain("Convolution", (1, 5, 2), (3, 2, 2), operand_type=what)
    if what is not None:
        with pytest.raises(convgrad.InvalidDataTypeError, match="dtype must be one of f32, bf16"):
            convgrad.convolution(np.ones((1, 5, 2)), np.ones((3, 2, 2)), dtype=what)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_view_of_bits_that_an_error_names_is_taken(library: str) -> None:
    module = pytest.importorskip(library)
    src, weights = module.zeros((1, 5, 2), dtype=module.uint16), module.zeros((3, 2, 2), dtype=module.uint16)
    with pytest.raises(convgrad.InvalidDataTypeError, match="The bits of bf16 are ") as caught:
        convgrad.convolution(src, weights)
    scope = {library: module, "ml_dtypes": ml_dtypes, "src": src}
    view = eval(str(caught.value).partition("are ")[2].partition(" [")[0], scope)
    assert convgrad.convolution(view, weights.view(view.dtype)).dtype == view.dtype
