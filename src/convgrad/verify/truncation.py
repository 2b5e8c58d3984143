"""Operands whose exact sums lie between two results, so that rounding to nearest and cutting off are told apart.

A result keeps p bits, a sum q = 24 (53 of f64). There are two ways, either of which any right order of sums answers
with the exact sum rounded once to nearest, whereas about half of the elements differ where bits are cut off instead.

p < q, as of bf16 and f16 results: all terms are integers, times one power of 2, and sum |x||y| is at most 2^q, so that
every partial sum is exact; most sums have some bits more than p, as terms are as large as that lets them be.

p = q: of each sum two products are not 0. Both are exact, as a factor of each is a power of 2, and the second is so
much smaller that its last bits are behind the p bits of the first: their sum is the one addition that rounds. Where
only one product is there, both factors have all their bits, and the product itself is rounded.
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

LEAST = 8  # the largest magnitude of operands whose sums are longer than 2^q / LEAST^2: the others of their terms are 0
SHIFT = 8  # bits of the second product behind the last one of the result, where its factor has as many


def truncation(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    """Yield canonical operands of canonical shapes."""
    result, sums = problem.output_format.significand_bits, problem.operand_format.accumulator.significand_bits
    whole = result < sums and problem.solves_for != "bias_add"
    values = _integers(problem, shapes, rng, sums) if whole else _pairs(problem, shapes, rng)
    for array in values:
        yield array.astype(problem.operand_format.dtype)


# -- p < q -------------------------------------------------------------------------------------------------------------


def _integers(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator, sums: int) -> Iterator[F64Array]:
    most = 2**sums // max(1, _terms(problem) + ("bias" in problem.operands))  # of a product
    largest = most if problem.solves_for == "bias" else isqrt(most)
    largest = max(LEAST, min(largest, 2**problem.operand_format.significand_bits))
    share = min(1.0, most / largest**2 / 2)  # of the thinned operand: twice as many would still be exact on average
    range_bits = min(problem.operand_format.max_exponent, problem.output_format.max_exponent)
    scale = 2.0 ** -max(0, -(-(sums - range_bits) // 2))  # of both factors: a sum is below the largest number
    for tensor, shape in zip(problem.operands, shapes, strict=True):
        values = rng.integers(-largest, largest + 1, shape).astype(np.float64)
        if most < LEAST**2 and tensor == _thinned(problem):
            values *= rng.random(shape) < share
        yield values * (scale**2 if "bias" in (tensor, problem.solves_for) else scale)


def _terms(problem: Problem) -> int:
    """Return the most terms of a sum."""
    conv = problem.geometry
    if isinstance(conv, Channels) or problem.solves_for == "weights":
        return conv.batch * conv.positions
    channels = conv.src_channels if problem.solves_for == "dst" else conv.dst_channels
    return channels // conv.groups * conv.taps


def _thinned(problem: Problem) -> Tensor:
    """Return the operand that decides how many terms of a sum are not 0."""
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
    """Return numbers of all bits of a format, 1 to 2 in size."""
    bits = fmt.significand_bits
    integers = rng.integers(2 ** (bits - 1), 2**bits, shape) * rng.choice((-1, 1), shape)
    full: F64Array = np.ldexp(integers.astype(np.float64), 1 - bits)
    return full


def _two_of_each_sum(problem: Problem, shape: Shape, shift: int, rng: np.random.Generator) -> F64Array:
    """Return an operand of which each sum meets two values that are not 0, where it meets two at all.

    The likelier a tap or position is theirs, the more often it exists beside what it meets; and both are of one, of two
    channels or images, where there are several: so pads leave few sums a single one.
    """
    fmt, factors = problem.operand_format, 2.0 ** (shift // 2 - np.array([0, shift]))
    values = np.zeros(prod(shape))
    if not values.size:
        return values.reshape(shape)
    signs = _full(shape, fmt, rng) if problem.solves_for == "bias" else rng.choice((-1.0, 1.0), shape)
    beside = 1 if problem.solves_for == "dst" else 0  # the axis that is summed and is no spatial one
    alike = [1 if axis == beside else extent for axis, extent in enumerate(shape)]
    with np.errstate(divide="ignore"):  # the largest two are a draw by these chances; -inf: never
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
    """Return an operand's flat indices, a row for those that the sums of one channel of the output meet."""
    flat = np.arange(prod(shape)).reshape(shape)
    if problem.solves_for == "src":
        groups = problem.geometry.groups if isinstance(problem.geometry, Conv) else 1
        flat = flat.reshape(groups, shape[0] // groups, *shape[1:]).swapaxes(1, 2)
        return flat.reshape(groups * shape[1], -1)
    axis = 0 if problem.solves_for == "dst" else 1
    return np.moveaxis(flat, axis, 0).reshape(shape[axis], -1)


def _phases(problem: Problem, shape: Shape, rows: NDArray[np.intp]) -> Iterator[NDArray[np.bool_]]:
    """Yield which of the rows meet each other in a sum: of a data gradient, the taps of one phase of the strides."""
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
    """Return how often each tap, or each position of dst, meets an existing position, or tap."""
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
