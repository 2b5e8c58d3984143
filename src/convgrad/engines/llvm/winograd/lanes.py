"""What transforms are written in, in IR: vectors whose lanes are channels; quotients, and whether they are finite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convgrad.engines.llvm.emit import Function, Value
from convgrad.spec.toom_cook import Variant


class InLanes:
    """Vectors of f32."""

    def __init__(self, f: Function, lanes: int) -> None:
        self.f, self.kind = f, f"<{lanes} x float>"

    def add(self, x: Value, y: Value) -> Value:
        """Return x + y."""
        return self.f.add(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        """Return x - y."""
        return self.f.op(self.kind, f"fsub {x}, {y.name}")

    def fma(self, factor: float, x: Value, y: Value) -> Value:
        """Return factor * x + y."""
        return self.f.fma(self.f.everywhere(self.kind, factor), x, y)

    def scale(self, factor: float, x: Value) -> Value:
        """Return factor * x."""
        return self.f.op(self.kind, f"fmul {x}, {self.f.everywhere(self.kind, factor).name}")


def divided(f: Function, arithmetic: InLanes, variant: Variant, value: Value) -> Value:
    """Return a quotient rounded once, and +0: as ``spec/toom_cook_ordered.py`` has it."""
    by = float(variant.divided)
    reciprocal = float(np.float32(1) / np.float32(by))
    quotient = arithmetic.scale(reciprocal, value)
    if not variant.exactly:
        negated = f.op(quotient.type, f"fneg {quotient}")
        quotient = arithmetic.fma(reciprocal, arithmetic.fma(by, negated, value), quotient)
    return f.add(quotient, f.zeros(quotient.type))


def flag_infinite(f: Function, values: Sequence[Value], mask: Value, infinite: Value) -> None:
    """Set a flag if any value of a mask is not finite: such a value times 0 is NaN."""
    zeros = f.zeros(values[0].type)
    found = zeros
    for value in values:
        found = f.fma(value, zeros, found)
    beyond = f.op(mask.type, f"fcmp uno {found}, {found.name}")
    with f.when(f.any_of([f.op(mask.type, f"and {beyond}, {mask.name}")])):
        f.say(f"store atomic i64 1, {infinite} monotonic, align 8")


def gathered(f: Function, lanes: int, place: Value, step: Value, mask: Value) -> Value:
    """Return what lies ``step`` bytes apart under a mask, 0 elsewhere."""
    name = f"llvm.masked.gather.v{lanes}f32.v{lanes}p0"
    kind = f"<{lanes} x float>"
    return f.intrinsic(kind, name, places(f, lanes, place, step), "i32 4", mask, f"{kind} zeroinitializer")


def places(f: Function, lanes: int, place: Value, step: Value) -> Value:
    """Return the places of all lanes, ``step`` bytes apart."""
    numbers = Value(f, f"<{lanes} x i64>", f"<{', '.join(f'i64 {n}' for n in range(lanes))}>")
    apart = f.op(numbers.type, f"mul {f.splat(step, lanes)}, {numbers.name}")
    return f.op(f"<{lanes} x ptr>", f"getelementptr i8, {place}, {apart}")


def scattered(f: Function, lanes: int, value: Value, place: Value, step: Value, mask: Value) -> None:
    """Write the lanes of a mask ``step`` bytes apart."""
    name = f"llvm.masked.scatter.v{lanes}f32.v{lanes}p0"
    f.intrinsic("void", name, value, places(f, lanes, place, step), "i32 4", mask)
