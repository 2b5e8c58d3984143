"""Generated operands that distinguish rounding to nearest from truncation: sums need more bits than results have.

A result has p significand bits, and a sum has q = 24 (53 for f64). Sums that round to nearest, in any order, equal the
exact sum rounded once. If bits are truncated instead, about half of the elements differ.

The construction for p < q (bf16 and f16 results): all terms are integers times one power of 2, and the magnitudes of
these integers add up to at most 2^q. So every partial sum is exact. Terms are as large as this limit allows, so most
sums have more than p bits.

The construction for p = q: each sum has two nonzero products. Both products are exact, because one factor of each is a
power of 2. The last bits of the second product are below the last bit of the first one, so only the addition of the two
products rounds. If a sum has only one product, both factors use all significand bits, and the product itself is
rounded. The range of f8_e4m3 is too small for such factors: its sums in f32 are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.formats import Format
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Shape = tuple[int, ...]

MINIMUM = 8  # the range of integers is never smaller; sums of more than 2^q / MINIMUM^2 terms get zeros instead
SHIFT = 8  # number of bits of the second product below the result's last bit, if the factor has as many


def truncation(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    """Yield one canonical operand per canonical shape, such that results differ if sums are truncated."""
    result, sums = problem.output_format.significand_bits, problem.operand_format.accumulator.significand_bits
    whole = result < sums and problem.solves_for != "bias_add"
    values = _integers(problem, shapes, rng, sums) if whole else _pairs(problem, shapes, rng)
    for array in values:
        yield array.astype(problem.operand_format.dtype)


# -- p < q -------------------------------------------------------------------------------------------------------------


def _integers(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator, sums: int) -> Iterator[F64Array]:
    maximum = 2**sums // max(1, _terms(problem) + ("bias" in problem.operands))  # of a product's magnitude
    largest = maximum if problem.solves_for == "bias" else isqrt(maximum)
    largest = max(MINIMUM, min(largest, 2**problem.operand_format.significand_bits))
    share = min(1.0, maximum / largest**2 / 2)  # of nonzero values, half of what the limit allows
    range_bits = min(problem.operand_format.max_exponent, problem.output_format.max_exponent)
    scale = 2.0 ** -max(0, -(-(sums - range_bits) // 2))  # factor of both operands that keeps sums from overflow
    for tensor, shape in zip(problem.operands, shapes, strict=True):
        values = rng.integers(-largest, largest + 1, shape).astype(np.float64)
        if maximum < MINIMUM**2 and tensor == _thinned(problem):
            values *= rng.random(shape) < share
        yield values * (scale**2 if "bias" in (tensor, problem.solves_for) else scale)


def _terms(problem: Problem) -> int:
    """Return the largest number of terms of an output element."""
    conv = problem.geometry
    if isinstance(conv, Channels) or problem.solves_for == "weights":
        return conv.batch * conv.positions
    channels = conv.src_channels if problem.solves_for == "dst" else conv.dst_channels
    return channels // conv.groups * conv.taps


def _thinned(problem: Problem) -> Tensor:
    """Return the operand in which values are set to 0, so that sums have few nonzero terms."""
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
    """Return the operand with zeros: it has two nonzero values per sum, or one if the sum has one term.

    A tap or position is more likely to be drawn if it exists in more sums. Both values usually share one tap or
    position, in different channels or images. So padding removes one of the two values from few sums.
    """
    fmt = problem.operand_format
    factors = 2.0 ** np.clip(shift // 2 - np.array([0, shift]), fmt.min_exponent, fmt.max_exponent - 1)
    values = np.zeros(prod(shape))
    if not values.size:
        return values.reshape(shape)
    signs = _full(shape, fmt, rng) if problem.solves_for == "bias" else rng.choice((-1.0, 1.0), shape)
    beside = 1 if problem.solves_for == "dst" else 0  # number of the summed axis of channels or images
    alike = [1 if axis == beside else extent for axis, extent in enumerate(shape)]
    with np.errstate(divide="ignore"):  # the two largest are a weighted draw; -inf is never drawn
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
    """Return flat indices of the operand with zeros: one row per output channel, for the values that its sums use."""
    flat = np.arange(prod(shape)).reshape(shape)
    if problem.solves_for == "src":
        groups = problem.geometry.groups if isinstance(problem.geometry, Conv) else 1
        flat = flat.reshape(groups, shape[0] // groups, *shape[1:]).swapaxes(1, 2)
        return flat.reshape(groups * shape[1], -1)
    axis = 0 if problem.solves_for == "dst" else 1
    return np.moveaxis(flat, axis, 0).reshape(shape[axis], -1)


def _phases(problem: Problem, shape: Shape, rows: NDArray[np.intp]) -> Iterator[NDArray[np.bool_]]:
    """Yield masks of the values in ``rows`` that are added in the same sums.

    For a data gradient, these are the taps with equal k * dilation modulo the stride.
    """
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
    """Return the number of products of each tap, or of each dst position in a weight gradient, without padding."""
    conv = problem.geometry
    counts = np.ones((1, 1), np.int64)
    if isinstance(conv, Conv):
        for axis in conv.axes:
            axis_counts = _met_positions(axis) if problem.solves_for == "weights" else _met_taps(axis)
            counts = counts[..., None] * axis_counts
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
