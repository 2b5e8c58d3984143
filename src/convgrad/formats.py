"""The table of number formats, and the correct rounding from float64 to each format.

Each row is a format that operands can have. The types of arrays in files, of other libraries' tensors and of kernels'
operands are derived from these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ldexp
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from convgrad import words
from convgrad.array_types import Array, Dtype
from convgrad.cached import cached_property
from convgrad.float_environment import in_default_environment
from convgrad.starting import deferred


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, which makes lookups fast
class Format:
    """A binary floating-point format: m * 2**e, where m has ``significand_bits`` bits, including the implicit one."""

    name: str
    dtype_name: str
    itemsize: int  # bytes
    significand_bits: int
    min_exponent: int  # the smallest normal number is 2**min_exponent
    max_exponent: int  # the largest binade begins at 2**max_exponent
    spent: int = 0  # how many encodings at the end of the largest binade are NaN
    is_extension: bool = False  # whether the dtype is from ml_dtypes: other programs receive unsigned integers
    aliases: Mapping[str, str] = field(default_factory=dict, repr=False)  # the format's name in each other program

    @cached_property
    def dtype(self) -> Dtype:
        """The dtype of arrays. The first use of an extension's dtype imports ml_dtypes, which may take a second."""
        kind: Dtype = np.dtype(getattr(_ml_dtypes() if self.is_extension else np, self.dtype_name))
        return kind

    @property
    def unit(self) -> float:
        """The unit roundoff u. Rounding changes a number of the normal range by at most u times its absolute value."""
        return ldexp(1.0, -self.significand_bits)

    @property
    @in_default_environment
    def tiny(self) -> float:
        """The smallest subnormal number. Rounding changes a number below the normal range by at most half of it."""
        return ldexp(1.0, self.min_exponent - self.significand_bits + 1)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return ldexp(2.0 - ldexp(1.0 + self.spent, 1 - self.significand_bits), self.max_exponent)

    @property
    def bits(self) -> Dtype:
        """The dtype of unsigned integers of the same size."""
        return np.dtype(f"u{self.itemsize}")

    @property
    def accumulator(self) -> Format:
        """The format in which products are summed: f64 for f64 operands, f32 for all others."""
        return F64 if self is F64 else F32

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], Format], tuple[str]]:
        """Pickle only the name, so that a copied or unpickled format is the one object with this name."""
        return _by_name, (self.name,)


def _by_name(name: str) -> Format:
    return ACCUMULATIONS[name]


@deferred
def _ml_dtypes() -> Any:
    import ml_dtypes  # noqa: PLC0415

    return ml_dtypes


def _names(names: str) -> dict[str, str]:
    return dict(zip(("onnx", "safetensors", "hipdnn", "hlo"), names.split(), strict=True))


F32 = Format("f32", "float32", 4, 24, -126, 127, aliases=_names("FLOAT F32 float f32"))
BF16 = Format("bf16", "bfloat16", 2, 8, -126, 127, is_extension=True, aliases=_names("BFLOAT16 BF16 bfloat16 bf16"))
F16 = Format("f16", "float16", 2, 11, -14, 15, aliases=_names("FLOAT16 F16 half f16"))
F64 = Format("f64", "float64", 8, 53, -1022, 1023, aliases=_names("DOUBLE F64 double f64"))
_OF_E4M3, _OF_E5M2 = _names("FLOAT8E4M3FN F8_E4M3 fp8_e4m3 f8e4m3fn"), _names("FLOAT8E5M2 F8_E5M2 fp8_e5m2 f8e5m2")
# Without infinities: a value beyond the largest number becomes NaN.
F8_E4M3 = Format("f8_e4m3", "float8_e4m3fn", 1, 4, -6, 8, spent=1, is_extension=True, aliases=_OF_E4M3)
F8_E5M2 = Format("f8_e5m2", "float8_e5m2", 1, 3, -14, 15, is_extension=True, aliases=_OF_E5M2)

FORMATS = {f.name: f for f in (F32, BF16, F16, F64, F8_E4M3, F8_E5M2)}
LISTED = " or ".join(", ".join(FORMATS).rsplit(", ", 1))  # in messages

# Formats in which other libraries accumulate sums. tf32 has no dtype of its own and is stored as f32.
TF32 = Format("tf32", "float32", 4, 11, -126, 127)
_UNSIGNED_ZERO = (
    Format("f8_e4m3fnuz", "float8_e4m3fnuz", 1, 4, -7, 7, is_extension=True),
    Format("f8_e5m2fnuz", "float8_e5m2fnuz", 1, 3, -15, 15, is_extension=True),
)
ACCUMULATIONS = FORMATS | {f.name: f for f in (TF32, *_UNSIGNED_ZERO)}
_BY_DTYPE_NAME = {f.dtype_name: f for f in FORMATS.values()}


def of_program(program: str) -> dict[str, Format]:
    """Return the number formats, keyed by their names in another program.

    >>> print(of_program("onnx")["BFLOAT16"])
    bf16
    """
    return {fmt.aliases[program]: fmt for fmt in FORMATS.values()}


@lru_cache(64)
def of_dtype(dtype: Dtype) -> Format | None:
    """Return the number format of a NumPy dtype in any byte order; None if no format has this dtype.

    >>> print(of_dtype(np.dtype(">f4")), of_dtype(np.dtype(np.int8)))
    f32 None
    """
    fmt = _BY_DTYPE_NAME.get(dtype.name)
    return fmt if fmt and fmt.dtype in (dtype, dtype.newbyteorder("=")) else None


def strided(array: Array, shape: Sequence[int], strides: Sequence[int], writeable: bool = False) -> Array:
    """Return a view of an array with another shape and strides. Unlike NumPy's ``as_strided``, it supports f8_e5m2.

    >>> strided(np.arange(4).astype(F8_E5M2.dtype), (2, 2), (1, 2)).tolist()
    [[0.0, 2.0], [1.0, 3.0]]
    """
    bits = array.view(f"u{array.itemsize}")
    return as_strided(bits, shape, strides, writeable=writeable).view(array.dtype)


def named(what: str | DTypeLike | Format) -> Format | None:
    """Return the number format that a name ("bf16", "bfloat16"), a dtype or a scalar type means; None if unknown.

    >>> print(named("bf16"), named("bfloat16"), named(np.float16), named("float8_e5m2"), named("int8"))
    bf16 bf16 f16 f8_e5m2 None
    """
    if isinstance(what, Format):
        return what
    if isinstance(what, str) and (fmt := FORMATS.get(what) or _BY_DTYPE_NAME.get(what)):
        return fmt
    try:
        return of_dtype(np.dtype(what)) if what else None  # NumPy's default, f64, is for None and ""
    except Exception:  # NumPy may raise almost any exception for a wrong string
        return None


def meant(what: object) -> str:
    """Return a hint that names the format most similar to an unknown name; "" if no name is similar.

    >>> meant("fp32"), meant("int8")
    ('. Did you mean f32?', '')
    """
    return words.meant(what, FORMATS) if isinstance(what, str) else ""


@in_default_environment
def round_to(values: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    """Round float64 values to numbers of ``fmt`` (to nearest, ties to even), and return them as float64.

    Overflow gives infinity. Each value is scaled so that its last place in ``fmt`` becomes 1, rounded to an integer,
    and scaled back. Both scalings are exact, so each value is rounded only once. For example, 1 + 2**-8 + 2**-40 rounds
    up in bf16. Rounding this number to f32 first would lose 2**-40, and the remaining tie would then be rounded down.
    NumPy's conversion to f32 gives the same results for normal numbers, in a third of the time of these steps.

    >>> float(round_to(np.array([1 + 2**-8 + 2**-40]), BF16)[0])
    1.0078125
    >>> round_to(np.array([65519.9, 65520.0, -0.0]), F16).tolist()
    [65504.0, inf, -0.0]
    """
    values = np.asarray(values, np.float64)
    if fmt is F64:
        return values
    with np.errstate(all="ignore"):
        if fmt is F32:
            return _to_f32(values)
        _, exponent = np.frexp(values)  # 2**(exponent-1) <= |value| < 2**exponent
        last_place = np.maximum(exponent - fmt.significand_bits, fmt.min_exponent - fmt.significand_bits + 1)
        rounded = np.ldexp(np.rint(np.ldexp(values, -last_place)), last_place)
        finite: NDArray[np.float64] = np.where(np.abs(rounded) > fmt.largest, np.copysign(np.inf, rounded), rounded)
        return finite


def _to_f32(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round float64 values to f32. Subnormal results are computed here, because a process may flush them to zero."""
    rounded = values.astype(np.float32).astype(np.float64)
    small = np.abs(values) < 2.0**F32.min_exponent
    if small.any():
        rounded = np.where(small, np.rint(values / F32.tiny) * F32.tiny, rounded)
    return rounded


@in_default_environment
def store(values: NDArray[np.float64], fmt: Format) -> Array:
    """Round float64 values once to ``fmt`` and return them in its dtype; every NaN becomes the canonical quiet NaN.

    >>> store(np.array([1.0, np.nan]), BF16).view(np.uint16).tolist() == [0x3F80, 0x7FC0]
    True
    """
    with np.errstate(all="ignore"):
        rounded = round_to(values, fmt).astype(fmt.dtype)
    return np.where(np.isnan(rounded), fmt.dtype.type(np.nan), rounded)
