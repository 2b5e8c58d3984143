"""The operations that elementwise functions consist of, and their execution on NumPy arrays.

Each operation is one of IEEE 754 on f32, or on f64 in wide maps, rounded once to nearest, or an exact operation on the
bits. So any machine that executes the same operations in the same order computes the same bits. Wide maps use only
Python's operators, sqrt, abs, comparisons, ``select``, ``rounded``, ``floor``, ``significand`` and ``power_of_two``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from convgrad.spec.chains import fma_f32

Number = Any  # a NumPy array, or a vector of generated code; + - * / and - are rounded to f32, or to f64 in wide maps
Condition = Any  # the result of a comparison
Operand = Number | float  # a constant is rounded to f32, except in wide maps

NEAREST_INTEGER = 1.5 * 2.0**23  # added to a small number, it leaves the nearest integer in the last bits
WIDE_SIGNIFICAND, WIDE_BIAS = 52, 1023  # bits of the significand, and exponent of 1, in f64
SIGNIFICAND, BIAS, HALF_ROOT = 23, 127, 0x3F3504F3  # bits of the significand, exponent of 1, bits of sqrt(1/2)


class Operations(Protocol):
    """The operations besides those of Python's operators."""

    def fma(self, a: Operand, b: Operand, c: Operand) -> Number:
        """Return a * b + c with one rounding."""

    def sqrt(self, a: Number) -> Number:
        """Return the square root."""

    def abs(self, a: Number) -> Number:
        """Return the number without its sign."""

    def copysign(self, a: Number, sign: Number) -> Number:
        """Return ``a`` with the sign of ``sign``."""

    def less(self, a: Operand, b: Operand) -> Condition:
        """Return whether a < b; False if one is NaN."""

    def equal(self, a: Operand, b: Operand) -> Condition:
        """Return whether a == b; False if one is NaN."""

    def select(self, condition: Condition, a: Operand, b: Operand) -> Number:
        """Return ``a`` where the condition is true, and ``b`` elsewhere."""

    def repeated(self, condition: Condition, count: int, step: Callable[[Number], Number], a: Number) -> Number:
        """Return the result of ``count`` steps from ``a`` where the condition is true, and ``a`` elsewhere."""

    def rounded(self, a: Number) -> Number:
        """Return an f64 number rounded to f32."""

    def floor(self, a: Number) -> Number:
        """Return the largest whole number that is not larger."""

    def significand(self, a: Number) -> tuple[Number, Number]:
        """Return (m, k) with a = m * 2^k and m from 1 to 2, for positive normal numbers of f64."""

    def power_of_two(self, k: Number) -> Number:
        """Return 2^k in f64, for whole numbers k from -1022 to 1023."""

    def from_exponent(self, a: Number) -> Number:
        """Return 2^k, where the last bits of ``a`` are those of the exponent of the result, k plus that of 1."""

    def split(self, a: Number) -> tuple[Number, Number]:
        """Return (m, k) with a = m * 2^k and m from sqrt(1/2) to sqrt(2), for positive normal numbers."""


class NumpyOperations:
    """The operations on NumPy arrays of f32 or f64. Slow, because NumPy has no fused multiply-add of f32."""

    def __init__(self, dtype: type[np.float32 | np.float64] = np.float32) -> None:
        self._dtype = dtype

    def fma(self, a: Operand, b: Operand, c: Operand) -> Number:
        """Return a * b + c with one rounding."""
        self._check_f32()
        return fma_f32(*[np.asarray(operand, np.float32) for operand in (a, b, c)])

    def sqrt(self, a: Number) -> Number:
        """Return the square root."""
        return np.sqrt(a)

    def abs(self, a: Number) -> Number:
        """Return the number without its sign."""
        return np.abs(a)

    def copysign(self, a: Number, sign: Number) -> Number:
        """Return ``a`` with the sign of ``sign``."""
        return np.copysign(a, sign)

    def less(self, a: Operand, b: Operand) -> Condition:
        """Return whether a < b."""
        return np.less(a, b)

    def equal(self, a: Operand, b: Operand) -> Condition:
        """Return whether a == b."""
        return np.equal(a, b)

    def select(self, condition: Condition, a: Operand, b: Operand) -> Number:
        """Return ``a`` where the condition is true, and ``b`` elsewhere."""
        return np.where(condition, self._dtype(a), self._dtype(b))

    def repeated(self, condition: Condition, count: int, step: Callable[[Number], Number], a: Number) -> Number:
        """Return the result of ``count`` steps from ``a`` where the condition is true."""
        result = a
        for _ in range(count if np.any(condition) else 0):
            result = step(result)
        return self.select(condition, result, a)

    def rounded(self, a: Number) -> Number:
        """Return an f64 number rounded to f32."""
        return a.astype(np.float32).astype(np.float64)

    def floor(self, a: Number) -> Number:
        """Return the largest whole number that is not larger."""
        return np.floor(a)

    def significand(self, a: Number) -> tuple[Number, Number]:
        """Return the significand and the exponent."""
        bits = np.asarray(a, np.float64).view(np.uint64)
        fraction = (bits & ((1 << WIDE_SIGNIFICAND) - 1)) | (WIDE_BIAS << WIDE_SIGNIFICAND)
        return fraction.view(np.float64), (bits >> WIDE_SIGNIFICAND).astype(np.float64) - WIDE_BIAS

    def power_of_two(self, k: Number) -> Number:
        """Return 2^k."""
        return self.from_exponent(np.asarray(k, np.float64) + (2.0**WIDE_SIGNIFICAND + WIDE_BIAS))

    def from_exponent(self, a: Number) -> Number:
        """Return 2^k."""
        if self._dtype is np.float32:
            return (_bits(a) << SIGNIFICAND).view(np.float32)
        return (np.asarray(a, np.float64).view(np.int64) << WIDE_SIGNIFICAND).view(np.float64)

    def split(self, a: Number) -> tuple[Number, Number]:
        """Return the significand and the exponent."""
        self._check_f32()
        k = (_bits(a) - HALF_ROOT) >> SIGNIFICAND
        return (_bits(a) - (k << SIGNIFICAND)).view(np.float32), k.astype(np.float32)

    def _check_f32(self) -> None:
        if self._dtype is not np.float32:
            raise TypeError("this operation is one of f32")


def bits_of(number: float) -> int:
    """Return the bits of an f32 as an integer."""
    return int(np.float32(number).view(np.int32))


def _bits(a: Number) -> Any:
    return np.asarray(a, np.float32).view(np.int32)
