"""The operations of elementwise functions, emitted on vectors of f32, or of f64 for wide maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from convgrad.engines.llvm.emit import Function, Value
from convgrad.spec.elementwise.arithmetic import (
    HALF_ROOT,
    SIGNIFICAND,
    WIDE_BIAS,
    WIDE_SIGNIFICAND,
)


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
        return self._by("fmul", self, other)

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


class VectorOperations:
    """The operations on ``count`` vectors of ``lanes`` numbers; see ``Operations`` of the specification."""

    def __init__(self, f: Function, lanes: int, wide: bool = False, count: int = 1) -> None:
        self.f, self.lanes, self.count = f, lanes, count
        self.kind, self.whole = (f"<{lanes} x {kind}>" for kind in (("double", "i64") if wide else ("float", "i32")))

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

    def repeated(self, condition: Vector, count: int, step: Callable[[Vector], Vector], a: Vector) -> Vector:
        """Return the result of ``count`` steps from ``a`` where the condition is true; skip them if it is nowhere."""
        steps = self.f.select(self.f.any_of([*condition.values]), self.f.value(count), self.f.value(0))
        with self.f.loop(steps, **{f"a{number}": value for number, value in enumerate(a.values)}) as loop:
            following = step(Vector(self.f, tuple(loop.carried.values())))
            loop.next(**dict(zip(loop.carried, following.values, strict=True)))
        return self.select(condition, Vector(self.f, tuple(loop.carried.values())), a)

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

    def power_of_two(self, k: Vector) -> Vector:
        """Return 2^k."""
        return self.from_exponent(k + (2.0**WIDE_SIGNIFICAND + WIDE_BIAS))

    def from_exponent(self, a: Vector) -> Vector:
        """Return 2^k, where the last bits of ``a`` are those of its exponent."""
        by = SIGNIFICAND if self.kind.endswith("float>") else WIDE_SIGNIFICAND
        return self._number("bitcast", self._whole("shl", self._bits(a), by))

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
