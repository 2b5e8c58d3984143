"""The operations of elementwise functions, emitted on vectors of f32, or of f64 for wide maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convgrad.engines.llvm.emit import Function, Value
from convgrad.spec.elementwise.arithmetic import (
    BIAS,
    HALF_ROOT,
    NEAREST_INTEGER,
    SIGNIFICAND,
    WIDE_BIAS,
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
    """A vector of f32 or f64 with Python's operators."""

    f: Function
    value: Value

    def __add__(self, other: Vector | float) -> Vector:
        return self._by("fadd", self, other)

    def __radd__(self, other: float) -> Vector:
        return self._by("fadd", other, self)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._by("fsub", self, other)

    def __rsub__(self, other: float) -> Vector:
        return self._by("fsub", other, self)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._by("fmul", self, other)

    def __rmul__(self, other: float) -> Vector:
        return self._by("fmul", other, self)

    def __truediv__(self, other: Vector | float) -> Vector:
        return self._by("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Vector:
        return self._by("fdiv", other, self)

    def __neg__(self) -> Vector:
        return Vector(self.f, self.f.op(self.value.type, f"fneg {self.value}"))

    def _by(self, what: str, a: Vector | float, b: Vector | float) -> Vector:
        if what == "fmul" and isinstance(a, Vector) and isinstance(b, Power) and b.exponent is not None:
            return b.scaled(a)
        kind = self.value.type
        left, right = (
            operand.value if isinstance(operand, Vector) else constant(self.f, kind, operand) for operand in (a, b)
        )
        return Vector(self.f, self.f.op(left.type, f"{what} {left}, {right.name}"))


@dataclass(frozen=True)
class Power(Vector):
    """Powers of two. AVX-512 multiplies by them in one instruction, which rounds ``exponent`` down.

    ``power`` is the number whose power is the product of two powers.
    """

    exponent: Value | None = None
    power: Value | None = None

    def scaled(self, a: Vector) -> Vector:
        """Return ``a`` times the powers. The first of two such products is exact, so both are one instruction."""
        assert self.exponent is not None
        if isinstance(a, Scaled) and self.power is not None and a.power == self.power:
            return Vector(self.f, _scaled(self.f, a.before, self.power))
        return Scaled(self.f, _scaled(self.f, a.value, self.exponent), a.value, self.power)


@dataclass(frozen=True)
class Scaled(Vector):
    """The numbers ``before`` times the first of the two powers of two of ``power``."""

    before: Value
    power: Value | None


def _scaled(f: Function, a: Value, exponent: Value) -> Value:
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    return f.intrinsic(a.type, name, a, exponent, a, "i16 -1", "i32 4")  # all lanes, rounded as usual


class VectorOperations:
    """The operations on vectors of ``lanes`` numbers; see ``Operations`` of the specification."""

    def __init__(self, f: Function, lanes: int, wide: bool = False, scales: bool = False) -> None:
        """``scales`` is whether an instruction multiplies by powers of two."""
        self.f, self.lanes, self.scales = f, lanes, scales
        self.kind, self.whole = (f"<{lanes} x {kind}>" for kind in (("double", "i64") if wide else ("float", "i32")))

    def fma(self, a: Vector | float, b: Vector | float, c: Vector | float) -> Vector:
        """Return a * b + c with one rounding."""
        return Vector(self.f, self.f.fma(self._value(a), self._value(b), self._value(c)))

    def sqrt(self, a: Vector) -> Vector:
        """Return the square root."""
        return self._intrinsic("sqrt", a)

    def abs(self, a: Vector) -> Vector:
        """Return the number without its sign."""
        return self._intrinsic("fabs", a)

    def copysign(self, a: Vector, sign: Vector) -> Vector:
        """Return ``a`` with the sign of ``sign``."""
        return self._intrinsic("copysign", a, sign)

    def less(self, a: Vector | float, b: Vector | float) -> Value:
        """Return whether a < b."""
        return self._compared("olt", a, b)

    def equal(self, a: Vector | float, b: Vector | float) -> Value:
        """Return whether a == b."""
        return self._compared("oeq", a, b)

    def select(self, condition: Value, a: Vector | float, b: Vector | float) -> Vector:
        """Return ``a`` where the condition is true, and ``b`` elsewhere."""
        return Vector(self.f, self.f.select(condition, self._value(a), self._value(b)))

    def rounded(self, a: Vector) -> Vector:
        """Return f64 numbers rounded to f32."""
        return self._number("fpext", narrowed(self.f, a.value))

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
        k = self._whole("sub", self._bits(power), bits_of(NEAREST_INTEGER))
        half = self._whole("ashr", k, 1)
        remainder = self.f.op(self.whole, f"sub {k}, {half.name}")
        powers = self._power_of_two(half), self._power_of_two(remainder)
        if not self.scales:
            return powers
        number = power - NEAREST_INTEGER
        number = self.select(self.less(number, _MAX_POWER), number, _MAX_POWER)  # NaN times 2^inf would be inf
        exponents = number * 0.5, self.fma(number, 0.5, 0.5)
        first, second = (
            Power(self.f, factor.value, exponent.value, number.value)
            for factor, exponent in zip(powers, exponents, strict=True)
        )
        return first, second

    def split(self, a: Vector) -> tuple[Vector, Vector]:
        """Return the significand and the exponent."""
        bits = self._bits(a)
        k = self._whole("ashr", self._whole("sub", bits, HALF_ROOT), SIGNIFICAND)
        significand = self.f.op(self.whole, f"sub {bits}, {self._whole('shl', k, SIGNIFICAND).name}")
        return self._number("bitcast", significand), self._number("sitofp", k)

    def _value(self, a: Vector | float) -> Value:
        return a.value if isinstance(a, Vector) else constant(self.f, self.kind, a)

    def _intrinsic(self, name: str, *operands: Vector) -> Vector:
        kind = f"llvm.{name}.v{self.lanes}f{'32' if self.kind.endswith('float>') else '64'}"
        return Vector(self.f, self.f.intrinsic(self.kind, kind, *[operand.value for operand in operands]))

    def _compared(self, how: str, a: Vector | float, b: Vector | float) -> Value:
        return self.f.op(f"<{self.lanes} x i1>", f"fcmp {how} {self._value(a)}, {self._value(b).name}")

    def _bits(self, a: Vector) -> Value:
        return self.f.op(self.whole, f"bitcast {a.value} to {self.whole}")

    def _whole(self, what: str, a: Value, number: int) -> Value:
        return self.f.op(self.whole, f"{what} {a}, {self.f.everywhere(self.whole, number).name}")

    def _number(self, how: str, a: Value) -> Vector:
        return Vector(self.f, self.f.op(self.kind, f"{how} {a} to {self.kind}"))

    def _power_of_two(self, k: Value) -> Vector:
        return self._number("bitcast", self._whole("shl", self._whole("add", k, BIAS), SIGNIFICAND))
