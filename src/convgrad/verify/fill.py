"""Generated operands for a problem: integers that add exactly in any order, random numbers, and two harder kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Literal, get_args

import numpy as np

from convgrad import arrays
from convgrad.array_types import Array
from convgrad.spec.geometry import Channels
from convgrad.spec.layouts import axis_order, to_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem
from convgrad.verify.adversarial import adversarial
from convgrad.verify.truncation import truncation

# Largest magnitudes of integers, by format and tensor.
_RANGES: Mapping[str, Mapping[Tensor, int]] = {
    "f32": {"src": 32, "weights": 32, "dst": 8, "bias": 32},
    "f64": {"src": 32, "weights": 32, "dst": 8, "bias": 32},
    "bf16": {"src": 4, "weights": 4, "dst": 4, "bias": 4},
    **{name: {"src": 4, "weights": 2, "dst": 4, "bias": 4} for name in ("f16", "f8_e4m3", "f8_e5m2")},
}
_F32_BITS = 24


Kind = Literal["integers", "normal", "truncation", "adversarial"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Shape = tuple[int, ...]


def fill(problem: Problem, shapes: Sequence[Shape], kind: Kind, seed: int | Sequence[int]) -> tuple[Array, ...]:
    """Return operands of these shapes, in the problem's layouts; problem, kind and seed determine the values.

    | kind        | operands                                                                                         |
    |-------------|--------------------------------------------------------------------------------------------------|
    | integers    | small integers; one operand has enough zeros that f32 adds exactly in any order                  |
    | normal      | normally distributed numbers                                                                     |
    | truncation  | results change if sums are truncated instead of rounded, but do not depend on the order          |
    | adversarial | terms that cancel, the format's whole range, subnormals, zeros of both signs, ties               |

    For a weight gradient, diff_dst has at most 2^b / (src range x weights range) nonzero integers per channel. b is the
    smaller of the output's significand bits and 24. In the other passes, one sum has at most 2^23 / (product of the
    ranges) nonzero terms.
    """
    rng = np.random.default_rng(seed)
    operands: list[Array] = []
    layouts = problem.layouts[: len(shapes)]
    canonical = [to_canonical(shape, layout) for shape, layout in zip(shapes, layouts, strict=True)]
    for shape, layout, values in zip(shapes, layouts, _MAKERS[kind](problem, canonical, rng), strict=True):
        operands.append(arrays.empty(shape, problem.operand_format.dtype))
        operands[-1].transpose(axis_order(layout, len(shape)))[...] = values
    return tuple(operands)


def _normal(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    dtype = problem.operand_format.dtype
    for shape in shapes:
        yield rng.standard_normal(shape, np.float64 if dtype == np.float64 else np.float32).astype(dtype)


def _integers(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    ranges = _RANGES[problem.operand_format.name]
    thinned, keep, axis = _thinning(problem, ranges)
    for tensor, shape in zip(problem.operands, shapes, strict=True):
        values = rng.integers(-ranges[tensor], ranges[tensor] + 1, shape, np.int8)
        if tensor == thinned:
            _thin(values, axis, keep, rng)
        yield values.astype(problem.operand_format.dtype)


def _thinning(problem: Problem, ranges: Mapping[Tensor, int]) -> tuple[Tensor, int, int]:
    """Return the operand that gets zeros, its largest number of nonzero values per index of an axis, and this axis."""
    exact: int = 2 ** (_F32_BITS - 1)
    if isinstance(problem.geometry, Channels):
        return "dst", exact // ranges["dst"], 1
    if problem.solves_for == "weights":
        bits = min(problem.output_format.significand_bits, _F32_BITS)
        return "dst", max(1, 2**bits // (ranges["src"] * ranges["weights"])), 1
    other: Tensor = "src" if problem.solves_for == "dst" else "dst"
    return "weights", exact // (ranges[other] * ranges["weights"]), 0 if problem.solves_for == "dst" else 1


def _thin(values: Array, axis: int, keep: int, rng: np.random.Generator) -> None:
    """Set all but at most ``keep`` values per index of ``axis`` to 0: one random value of each equal segment stays."""
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


_MAKERS: Mapping[Kind, Callable[[Problem, Sequence[Shape], np.random.Generator], Iterator[Array]]] = {
    "integers": _integers,
    "normal": _normal,
    "truncation": truncation,
    "adversarial": adversarial,
}
