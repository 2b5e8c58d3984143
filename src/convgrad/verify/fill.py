"""Operands made up for a problem: integers on which every partial sum is exact, or normal numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays
from convgrad.spec.geometry import Channels
from convgrad.spec.layouts import axis_order
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Array = NDArray[Any]

# Largest magnitudes by format: of the source, the weights, the destination's gradient.
_RANGES: Mapping[str, Mapping[Tensor, int]] = {
    "f32": {"src": 32, "weights": 32, "dst": 8, "bias": 32},
    "f64": {"src": 32, "weights": 32, "dst": 8, "bias": 32},
    "bf16": {"src": 4, "weights": 4, "dst": 4, "bias": 4},
    "f16": {"src": 4, "weights": 2, "dst": 4, "bias": 4},
}
_F32_BITS = 24


Kind = Literal["integers", "normal"]


def fill(
    problem: Problem, shapes: Sequence[tuple[int, ...]], kind: Kind, seed: int | Sequence[int]
) -> tuple[Array, ...]:
    """Return operands of these shapes, in the problem's layouts; the same for the same problem, kind and seed.

    Integers are small, and one operand is thinned so far that f32 adds them exactly in any order. For a weight
    gradient, the destination's gradient keeps at most 2^b / (src range x weights range) values a channel, where b is
    the smaller number of significand bits of output and accumulator; for the others, at most 2^23 / (product of the
    ranges) values enter one sum.
    """
    rng = np.random.default_rng(seed)
    made = []
    for tensor, shape, layout in zip(problem.operands, shapes, problem.layouts, strict=False):
        operand = arrays.empty(shape, problem.operand_format.dtype)
        canonical = operand.transpose(axis_order(layout, operand.ndim))
        canonical[...] = (
            _integers(problem, tensor, canonical.shape, rng) if kind == "integers" else _normal(canonical, rng)
        )
        made.append(operand)
    return tuple(made)


def _normal(canonical: Array, rng: np.random.Generator) -> Array:
    wide = canonical.dtype == np.float64
    return rng.standard_normal(canonical.shape, np.float64 if wide else np.float32).astype(canonical.dtype)


def _integers(problem: Problem, tensor: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    ranges = _RANGES[problem.operand_format.name]
    values = rng.integers(-ranges[tensor], ranges[tensor] + 1, shape, np.int8)
    thinned, keep, axis = _thinning(problem, ranges)
    if tensor == thinned:
        _thin(values, axis, keep, rng)
    return values.astype(problem.operand_format.dtype)


def _thinning(problem: Problem, ranges: Mapping[Tensor, int]) -> tuple[Tensor, int, int]:
    """Return which operand is thinned, how many values it keeps for each index of which axis."""
    exact: int = 2 ** (_F32_BITS - 1)
    if isinstance(problem.geometry, Channels):
        return "dst", exact // ranges["dst"], 1
    if problem.solves_for == "weights":
        bits = min(problem.output_format.significand_bits, _F32_BITS)
        return "dst", max(1, 2**bits // (ranges["src"] * ranges["weights"])), 1
    other: Tensor = "src" if problem.solves_for == "dst" else "dst"
    return "weights", exact // (ranges[other] * ranges["weights"]), 0 if problem.solves_for == "dst" else 1


def _thin(values: Array, axis: int, keep: int, rng: np.random.Generator) -> None:
    """Zero all but at most ``keep`` values for each index of ``axis``: one at random in each of equal stretches."""
    rows = np.moveaxis(values, axis, 0)
    length = prod(rows.shape[1:])
    if length <= keep:
        return
    step = -(-length // keep)
    stretches = -(-length // step)
    kept = np.zeros((rows.shape[0], stretches * step), bool)
    chosen = np.arange(stretches) * step + rng.integers(0, step, (rows.shape[0], stretches))
    np.put_along_axis(kept, chosen, True, 1)
    rows *= kept[:, :length].reshape(rows.shape)
