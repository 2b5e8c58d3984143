"""Operands whose exact sums are between two results, which distinguishes rounding to nearest from truncation.

A result has p bits, and a sum q = 24 bits (53 for f64). There are two constructions. In both, any right order of sums
gives the exact sum rounded once to nearest. If bits are truncated instead, about half of the elements differ.

p < q, for bf16 and f16 results: all terms are integers times one power of 2, and sum |x||y| is at most 2^q. So every
partial sum is exact. Terms are as large as this limit allows, so most sums have more than p bits.

p = q: two products of each sum are not 0. Both are exact, because one factor of each is a power of 2. The second is so
much smaller that its last bits are below the p bits of the first: their sum is the only addition that rounds. If only
one product exists, both factors have all their bits, and the product itself is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import Format
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Array = NDArray[Any]
F64Array = NDArray[np.float64]
Shape = tuple[int, ...]

MINIMUM = 8  # the minimum of the operands' largest magnitude; sums of more than 2^q / MINIMUM^2 terms get zeros
SHIFT = 8  # bits of the second product below the last bit of the result, if its factor has so many


def truncation(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    """Yield canonical operands of these canonical shapes."""
    result, sums = problem.output_format.significand_bits, problem.operand_format.accumulator.significand_bits
    whole = result < sums and problem.solves_for != "bias_add"
    values = _integers(problem, shapes, rng, sums) if whole else _pairs(problem, shapes, rng)
    for array in values:
        yield array.astype(problem.operand_format.dtype)


# -- p < q -------------------------------------------------------------------------------------------------------------


def _integers(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator, sums: int) -> Iterator[F64Array]:
    maximum = 2**sums // max(1, _terms(problem) + ("bias" in problem.operands))  # of a product
    largest = maximum if problem.solves_for == "bias" else isqrt(maximum)
    largest = max(MINIMUM, min(largest, 2**problem.operand_format.significand_bits))
    share = min(1.0, maximum / largest**2 / 2)  # values of the thinned operand: half of the average limit
    range_bits = min(problem.operand_format.max_exponent, problem.output_format.max_exponent)
    scale = 2.0 ** -max(0, -(-(sums - range_bits) // 2))  # of both factors: keeps sums below the largest number
    for tensor, shape in zip(problem.operands, shapes, strict=True):
        values = rng.integers(-largest, largest + 1, shape).astype(np.float64)
        if maximum < MINIMUM**2 and tensor == _thinned(problem):
            values *= rng.random(shape) < share
        yield values * (scale**2 if "bias" in (tensor, problem.solves_for) else scale)


def _terms(problem: Problem) -> int:
    """Return the largest number of terms of a sum."""
    conv = problem.geometry
    if isinstance(conv, Channels) or problem.solves_for == "weights":
        return conv.batch * conv.positions
    channels = conv.src_channels if problem.solves_for == "dst" else conv.dst_channels
    return channels // conv.groups * conv.taps


def _thinned(problem: Problem) -> Tensor:
    """Return the operand whose zeros limit the number of terms that are not 0."""
    return "weights" if problem.solves_for in ("dst", "src") else "dst"


# -- p = q -------------------------------------------------------------------------------------------------------------


def _pairs(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[F64Array]:
    fmt = problem.operand_format
    behind = min(SHIFT, fmt.significand_bits - 2)
    shift = problem.output_format.significand_bits - fmt.significand_bits + behind
    for tensor, shape in zip(problem.operands, shapes, strict=True):
        if problem.solves_for == "bias_add":
            yield _full(shape, fmt, rng) * (2.0**-shift if tensor == "bias" else 1.0)
        elif tensor == "bias":
            yield np.zeros(shape)
        elif tensor == _thinned(problem):
            yield _two_of_each_sum(problem, shape, shift, rng)
        else:
            yield _full(shape, fmt, rng)


def _full(shape: Shape, fmt: Format, rng: np.random.Generator) -> F64Array:
    """Return numbers that use all bits of a format, with magnitudes from 1 to 2."""
    bits = fmt.significand_bits
    integers = rng.integers(2 ** (bits - 1), 2**bits, shape) * rng.choice((-1, 1), shape)
    full: F64Array = np.ldexp(integers.astype(np.float64), 1 - bits)
    return full


def _two_of_each_sum(problem: Problem, shape: Shape, shift: int, rng: np.random.Generator) -> F64Array:
    """Return an operand with two values that are not 0 per sum, if the sum has two terms.

    A tap or position is drawn more often if it exists in more sums. Both values usually share one tap or position, in
    different channels or images. So padding removes one of the two values from few sums.
    """
    fmt, factors = problem.operand_format, 2.0 ** (shift // 2 - np.array([0, shift]))
    values = np.zeros(prod(shape))
    if not values.size:
        return values.reshape(shape)
    signs = _full(shape, fmt, rng) if problem.solves_for == "bias" else rng.choice((-1.0, 1.0), shape)
    beside = 1 if problem.solves_for == "dst" else 0  # the summed axis that is not spatial
    alike = [1 if axis == beside else extent for axis, extent in enumerate(shape)]
    with np.errstate(divide="ignore"):  # the two largest are a draw by these chances; -inf: never
        drawn = np.log(rng.random(alike)) / _chances(problem) * (1 + 1e-9 * rng.random(shape))
    rows = _rows(problem, shape)
    drawn = drawn.ravel()[rows]
    for phase in _phases(problem, shape, rows):
        keys = np.where(phase, drawn, -np.inf)
        count = min(2, rows.shape[1])
        chosen = np.argpartition(-keys, count - 1, axis=1)[:, :count]
        there = np.take_along_axis(keys, chosen, 1) > -np.inf
        alone = there & (there.sum(1, keepdims=True) == 1)
        at = np.take_along_axis(rows, chosen, 1)
        factor = np.where(alone, np.abs(_full(at.shape, fmt, rng)), factors[: chosen.shape[1]])
        values[at[there]] = (signs.ravel()[at] * factor)[there]
    return values.reshape(shape)


def _rows(problem: Problem, shape: Shape) -> NDArray[np.intp]:
    """Return an operand's flat indices, with one row for the sums of each channel of the output."""
    flat = np.arange(prod(shape)).reshape(shape)
    if problem.solves_for == "src":
        groups = problem.geometry.groups if isinstance(problem.geometry, Conv) else 1
        flat = flat.reshape(groups, shape[0] // groups, *shape[1:]).swapaxes(1, 2)
        return flat.reshape(groups * shape[1], -1)
    axis = 0 if problem.solves_for == "dst" else 1
    return np.moveaxis(flat, axis, 0).reshape(shape[axis], -1)


def _phases(problem: Problem, shape: Shape, rows: NDArray[np.intp]) -> Iterator[NDArray[np.bool_]]:
    """Yield which entries of the rows share a sum: for a data gradient, the taps of one phase of the strides."""
    conv = problem.geometry
    if problem.solves_for != "src" or isinstance(conv, Channels):
        yield np.ones(rows.shape, np.bool_)
        return
    of_tap = np.zeros((1,) * 2, np.int64)
    for axis in conv.axes:
        phases = np.unique(np.arange(axis.kernel) * axis.dilation % axis.stride, return_inverse=True)[1]
        of_tap = of_tap[..., None] * (int(phases.max()) + 1) + phases
    of_value = np.broadcast_to(of_tap, shape).ravel()[rows]
    for phase in range(int(of_tap.max()) + 1):
        yield of_value == phase


def _chances(problem: Problem) -> NDArray[np.int64]:
    """Return how many existing positions each tap meets, or how many taps each position of dst."""
    conv = problem.geometry
    counts = np.ones((1, 1), np.int64)
    if isinstance(conv, Conv):
        for axis in conv.axes:
            met = _met_positions(axis) if problem.solves_for == "weights" else _met_taps(axis)
            counts = counts[..., None] * met
        return counts
    return counts.reshape((1,) * (2 + len(conv.extents)))


def _met_taps(axis: Axis) -> NDArray[np.int64]:
    return np.array([len(axis.existing(k, range(axis.src), range(axis.dst))) for k in range(axis.kernel)])


def _met_positions(axis: Axis) -> NDArray[np.int64]:
    ends = np.zeros(axis.dst + 1, np.int64)
    for k in range(axis.kernel):
        existing = axis.existing(k, range(axis.src), range(axis.dst))
        ends[existing.start] += 1
        ends[existing.stop] -= 1
    return np.cumsum(ends[:-1])
