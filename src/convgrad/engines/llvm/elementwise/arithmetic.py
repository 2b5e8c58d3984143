"""The operations of elementwise functions, emitted on vectors of f32, or of f64 for wide maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from convgrad.engines.llvm.emit import Function, Value
from convgrad.spec.elementwise.arithmetic import (
    BIAS,
    HALF_ROOT,
    NEAREST_INTEGER,
    SIGNIFICAND,
    WIDE_BIAS,
    WIDE_NEAREST_INTEGER,
    WIDE_SIGNIFICAND,
    bits_of,
)

_MAX_POWER = 256.0  # above all that are specified


def constant(f: Function, kind: str, number: float) -> Value:
    """Return a vector with the same number, rounded to its type, in all lanes."""
    return f.everywhere(kind, float(np.float32(number)) if kind.endswith("float>") else number)


def widened(f: Function, value: Value) -> Value:
    """Return a vector of f32 as f64."""
    kind = value.type.replace("float", "double")
    return f.op(kind, f"fpext {value} to {kind}")


def narrowed(f: Function, value: Value) -> Value:
    """Return a vector of f64 rounded to f32."""
    kind = value.type.replace("double", "float")
    return f.op(kind, f"fptrunc {value} to {kind}")


@dataclass(frozen=True)
class Vector:
    """Vectors of f32 or f64 with Python's operators. They take turns, so that their operations overlap."""

    f: Function
    values: tuple[Value, ...]

    def __add__(self, other: Vector | float) -> Vector:
        return self._by("fadd", self, other)

    def __radd__(self, other: float) -> Vector:
        return self._by("fadd", other, self)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._by("fsub", self, other)

    def __rsub__(self, other: float) -> Vector:
        return self._by("fsub", other, self)

    def __mul__(self, other: Vector | float) -> Vector:
        return other.scaled(self) if isinstance(other, Power) else self._by("fmul", self, other)

    def __rmul__(self, other: float) -> Vector:
        return self._by("fmul", other, self)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._by("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Vector:
        return self._by("fdiv", other, self)

    def __neg__(self) -> Vector:
        return Vector(self.f, tuple([self.f.op(value.type, f"fneg {value}") for value in self.values]))

    def _by(self, what: str, a: Vector | float, b: Vector | float) -> Vector:
        count, kind = len(self.values), self.values[0].type
        both = [
            operand.values if isinstance(operand, Vector) else [constant(self.f, kind, operand)] * count
            for operand in (a, b)
        ]
        return Vector(self.f, tuple([self.f.op(x.type, f"{what} {x}, {y.name}") for x, y in zip(*both, strict=True)]))


@dataclass(frozen=True)
class Power(Vector):
    """Powers of two. AVX-512 multiplies by them in one instruction, which rounds ``exponent`` down.

    ``power`` is the number whose power is the product of two powers.
    """

    exponent: Vector
    power: Vector

    def scaled(self, a: Vector) -> Vector:
        """Return ``a`` times the powers. The first of two such products is exact, so both are one instruction."""
        if isinstance(a, Scaled) and a.power is self.power:
            return _scaled(a.before, self.power)
        return Scaled(self.f, _scaled(a, self.exponent).values, a, self.power)


@dataclass(frozen=True)
class Scaled(Vector):
    """The numbers ``before`` times the first of the two powers of two of ``power``."""

    before: Vector
    power: Vector


def _scaled(a: Vector, exponent: Vector) -> Vector:
    name, scaled = "llvm.x86.avx512.mask.scalef.ps.512", []
    for value, by in zip(a.values, exponent.values, strict=True):
        everywhere, rounded = "i16 -1", "i32 4"  # as the control register says
        scaled.append(a.f.intrinsic(value.type, name, value, by, value, everywhere, rounded))
    return Vector(a.f, tuple(scaled))


class VectorOperations:
    """The operations on ``count`` vectors of ``lanes`` numbers; see ``Operations`` of the specification."""

    def __init__(self, f: Function, lanes: int, wide: bool = False, scales: bool = False, count: int = 1) -> None:
        """``scales`` is whether an instruction multiplies by powers of two."""
        self.f, self.lanes, self.scales, self.count = f, lanes, scales, count
        self.kind, self.whole = (f"<{lanes} x {kind}>" for kind in (("double", "i64") if wide else ("float", "i32")))
        self._significand, self._bias = (WIDE_SIGNIFICAND, WIDE_BIAS) if wide else (SIGNIFICAND, BIAS)
        wide_bits = int(np.float64(WIDE_NEAREST_INTEGER).view(np.int64))
        self._nearest = wide_bits if wide else bits_of(NEAREST_INTEGER)

    def fma(self, a: Vector | float, b: Vector | float, c: Vector | float) -> Vector:
        """Return a * b + c with one rounding."""
        return self._results(self.f.fma, a, b, c)

    def sqrt(self, a: Vector) -> Vector:
        """Return the square root."""
        return self._intrinsic("sqrt", a)

    def abs(self, a: Vector) -> Vector:
        """Return the number without its sign."""
        return self._intrinsic("fabs", a)

    def copysign(self, a: Vector, sign: Vector) -> Vector:
        """Return ``a`` with the sign of ``sign``."""
        return self._intrinsic("copysign", a, sign)

    def less(self, a: Vector | float, b: Vector | float) -> Vector:
        """Return whether a < b."""
        return self._compared("olt", a, b)

    def equal(self, a: Vector | float, b: Vector | float) -> Vector:
        """Return whether a == b."""
        return self._compared("oeq", a, b)

    def select(self, condition: Vector, a: Vector | float, b: Vector | float) -> Vector:
        """Return ``a`` where the condition is true, and ``b`` elsewhere."""
        return self._results(self.f.select, condition, a, b)

    def rounded(self, a: Vector) -> Vector:
        """Return f64 numbers rounded to f32."""
        return self._number("fpext", self._results(lambda value: narrowed(self.f, value), a))

    def floor(self, a: Vector) -> Vector:
        """Return the largest whole number that is not larger."""
        return self._intrinsic("floor", a)

    def significand(self, a: Vector) -> tuple[Vector, Vector]:
        """Return the significand and the exponent, which becomes a number as the last bits of a large one."""
        bits, large = self._bits(a), 2.0**WIDE_SIGNIFICAND
        fraction = self._whole("and", bits, (1 << WIDE_SIGNIFICAND) - 1)
        exponent = self._whole("lshr", bits, WIDE_SIGNIFICAND)
        in_large = self._whole("or", exponent, WIDE_BIAS + WIDE_SIGNIFICAND << WIDE_SIGNIFICAND)
        fraction = self._whole("or", fraction, WIDE_BIAS << WIDE_SIGNIFICAND)
        return self._number("bitcast", fraction), self._number("bitcast", in_large) - (large + WIDE_BIAS)

    def powers_of_two(self, power: Vector) -> tuple[Vector, Vector]:
        """Return two powers of two whose product is 2^k."""
        k = self._whole("sub", self._bits(power), self._nearest)
        half = self._whole("ashr", k, 1)
        powers = self._power_of_two(half), self._power_of_two(self._difference(k, half))
        if not self.scales:
            return powers
        number = power - NEAREST_INTEGER
        number = self.select(self.less(number, _MAX_POWER), number, _MAX_POWER)  # NaN times 2^inf would be inf
        exponents = number * 0.5, self.fma(number, 0.5, 0.5)
        first, second = (
            Power(self.f, factor.values, exponent, number) for factor, exponent in zip(powers, exponents, strict=True)
        )
        return first, second

    def split(self, a: Vector) -> tuple[Vector, Vector]:
        """Return the significand and the exponent."""
        bits = self._bits(a)
        k = self._whole("ashr", self._whole("sub", bits, HALF_ROOT), SIGNIFICAND)
        significand = self._difference(bits, self._whole("shl", k, SIGNIFICAND))
        return self._number("bitcast", significand), self._number("sitofp", k)

    def _results(self, emit: Callable[..., Value], *operands: Vector | float) -> Vector:
        """Return the results of ``emit`` on the values of each vector."""
        values = [
            operand.values if isinstance(operand, Vector) else [constant(self.f, self.kind, operand)] * self.count
            for operand in operands
        ]
        return Vector(self.f, tuple([emit(*row) for row in zip(*values, strict=True)]))

    def _intrinsic(self, name: str, *operands: Vector) -> Vector:
        kind = f"llvm.{name}.v{self.lanes}f{'32' if self.kind.endswith('float>') else '64'}"
        return self._results(lambda *values: self.f.intrinsic(self.kind, kind, *values), *operands)

    def _compared(self, how: str, a: Vector | float, b: Vector | float) -> Vector:
        return self._results(lambda x, y: self.f.op(f"<{self.lanes} x i1>", f"fcmp {how} {x}, {y.name}"), a, b)

    def _bits(self, a: Vector) -> Vector:
        return self._results(lambda value: self.f.op(self.whole, f"bitcast {value} to {self.whole}"), a)

    def _whole(self, what: str, a: Vector, number: int) -> Vector:
        by = self.f.everywhere(self.whole, number).name
        return self._results(lambda value: self.f.op(self.whole, f"{what} {value}, {by}"), a)

    def _difference(self, a: Vector, b: Vector) -> Vector:
        return self._results(lambda x, y: self.f.op(self.whole, f"sub {x}, {y.name}"), a, b)

    def _number(self, how: str, a: Vector) -> Vector:
        return self._results(lambda value: self.f.op(self.kind, f"{how} {value} to {self.kind}"), a)

    def _power_of_two(self, k: Vector) -> Vector:
        return self._number("bitcast", self._whole("shl", self._whole("add", k, self._bias), self._significand))
