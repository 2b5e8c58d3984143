"""Problems that Winograd computes, their operands, and its transforms as matrices of fractions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from convgrad.engines.llvm.winograd.run import tiled
from convgrad.notation import problem as problem_of
from convgrad.plan.machine import ISAS, Machine
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import SolvesFor
from convgrad.spec.problem import Problem, canonical_shapes
from convgrad.spec.winograd.algorithms import Algorithm, algorithm_of
from convgrad.spec.winograd.filtering import FILTERINGS, Filtering, Transform
from tests.support.engine_helpers import Array, lying

NAMES = ["2x2", "4x4"]
ROLES: tuple[SolvesFor, ...] = ("weights", "dst")
FILTERED = [(one, of) for one in FILTERINGS.values() for of in ROLES if of == "dst" or one.of_weights]
DIRECTIONS = ("BWD_W", "FWD_D", "BWD_D")

# One axis, axes of one tap, five taps, an axis that is summed directly: the first, the second, with many taps.
OTHER_KERNELS = (
    "mb2ic32iw19oc33ow19kw3pw1", "mb2ic40iw19oc33ow17kw5pw1", "mb2ic37ih6iw9oc33oh6ow9kh1kw3ph0pw1",
    "mb2ic32ih6iw9oc33oh8ow9kh3kw1ph2pw0", "mb2ic32ih9oc33oh9kh5ph2", "mb2ic35ih7iw9oc33oh7ow9kh5kw3ph2pw1",
    "mb2ic35ih9iw9oc33oh9ow9kh7kw3ph3pw1", "mb1ic35id5ih6iw7oc33od5oh6ow7kd3kh3kw3pd1ph1pw1",
    "mb2ic32id5ih6iw7oc33od5oh6ow7kd3kh1kw1pd1ph0pw0", "mb1ic32id5ih6iw7oc33od3oh6ow7kd3kh3kw3pd0ph1pw1",
    "mb1ic32id4ih6iw7oc33od4oh6ow7kd3kh4kw3pd1ph2pw1", "g2mb1ic74id5ih6iw7oc66od7oh6ow7kd3kh3kw3pd2ph1pw1",
    "mb1ic256id3ih4iw4oc256od3oh4ow4kd3kh3kw3pd1ph1pw1",
)  # fmt: skip


class InFractions:
    """Exact arithmetic."""

    def add(self, x: Fraction, y: Fraction) -> Fraction:
        return x + y

    def sub(self, x: Fraction, y: Fraction) -> Fraction:
        return x - y

    def fma(self, factor: float, x: Fraction, y: Fraction) -> Fraction:
        return Fraction(factor) * x + y

    def scale(self, factor: float, x: Fraction) -> Fraction:
        return Fraction(factor) * x


def matrix(transform: Transform, size: int) -> np.ndarray[Any, Any]:
    """Return the coefficients of a transform, [what it makes][what it is made of]."""
    units = [[Fraction(int(i == j)) for j in range(size)] for i in range(size)]
    return np.array([transform(InFractions(), unit) for unit in units], object).T


def matrices(one: Filtering, solves_for: SolvesFor = "weights") -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(matrix(transform, count) for transform, count in one.lines(solves_for))


def algorithm(one: Problem) -> Algorithm:
    assert isinstance(one.geometry, Conv)
    return algorithm_of(one.geometry, one.algorithm)


def posed(line: str, name: str, layout: str = "NXC", direction: str = "BWD_W", fmt: str = "f32") -> Problem:
    return replace(problem_of(f"{direction} {fmt} {layout} {line}"), algorithm=name)


def drawn(one: Problem, seed: int, integers: bool = False) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = canonical_shapes(one)[:-1]
    made = [rng.integers(-2, 3, shape) if integers else rng.standard_normal(shape) for shape in shapes]
    dtype = one.operand_format.dtype
    return [lying(each.astype(dtype), layout) for each, layout in zip(made, one.layouts, strict=False)]


def computed(one: Problem, operands: Sequence[Array], out: Array, isa: str, threads: int) -> Array:
    lies = (*[each.strides for each in operands], out.strides)
    tiled(one, lies, Machine(ISAS[isa]), threads).execute(operands, out)
    return out
