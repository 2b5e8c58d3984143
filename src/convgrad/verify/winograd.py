"""The bound of Winograd's minimal filtering F(M, R): M outputs of R taps from M + R - 1 products, along each axis.

    y = A^T [(G g) * (B^T d)]          y[a] = sum over k of g[k] d[a + k],    a < M, k < R

The paths from an operand to an output have coefficients that cancel, so the bound is normwise. The bound is gamma of
the number of roundings of a path, times the sum of magnitudes along all paths. In this sum, each data value is replaced
by the largest one in its tile. The interpolation points are 0, 1, -1, 2, -2, 1/2, -1/2, ... and infinity.
If an implementation scales the rows of A, G and B differently, the coefficients of whole paths are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, log2, prod

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.formats import Format
from convgrad.spec.bound import gamma
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import last_additions
from convgrad.spec.problem import Problem

Matrix = tuple[tuple[Fraction, ...], ...]  # a row per interpolation point

COEFFICIENT_BITS = 16  # nonzero entries of A, G and B of at most 9 points have magnitudes from 2^-16 to 2^16
_UP = 1 + 2.0**-30  # factor that covers the rounding errors of the bound in float64


def points(number: int) -> tuple[Fraction, ...]:
    """Return the first finite interpolation points: 0, 1, -1, 2, -2, 1/2, -1/2, 4, -4, 1/4, -1/4, ...

    >>> [str(point) for point in points(8)]
    ['0', '1', '-1', '2', '-2', '1/2', '-1/2', '4']
    """
    fractions = [Fraction(0), Fraction(1), Fraction(-1)]
    for power in range(1, number):
        fractions += [s * Fraction(2) ** e for e in (power, -power) for s in (1, -1)]
    return tuple(fractions[:number])


@lru_cache(maxsize=64)
def matrices(outputs: int, taps: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return A, G and B of F(outputs, taps), with one row per interpolation point, infinity last."""
    finite = points(outputs + taps - 2)
    a, g, b = [], [], []
    for s in finite:
        others = [t for t in finite if t != s]
        scale = prod((s - t for t in others), start=Fraction(1))
        a.append(tuple(s**j for j in range(outputs)))
        g.append(tuple(s**k / scale for k in range(taps)))
        b.append((*_polynomial(others), Fraction(0)))
    a.append(tuple(Fraction(j == outputs - 1) for j in range(outputs)))
    g.append(tuple(Fraction(k == taps - 1) for k in range(taps)))
    b.append(_polynomial(finite))
    return tuple(a), tuple(g), tuple(b)


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the coefficients of the monic polynomial with these roots, by ascending power."""
    coefficients = [Fraction(1)]
    for root in roots:
        coefficients = [
            low - root * high
            for low, high in zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        ]
    return tuple(coefficients)


@lru_cache(maxsize=64)
def carried(outputs: int, taps: int) -> tuple[float, ...]:
    """Return for each tap the sum of the magnitudes of coefficients along its paths to an output, for data of 1.

    The output of the tile with the largest sum counts.

    >>> carried(1, 3), carried(2, 3)
    ((3.0, 1.0, 3.0), (4.0, 2.0, 4.0))
    """
    a, g, b = matrices(outputs, taps)
    of_data = [sum(map(abs, row)) for row in b]
    maximum = []
    for k in range(taps):
        sums = (sum(abs(a[s][j] * g[s][k]) * of_data[s] for s in range(len(a))) for j in range(outputs))
        maximum.append(float(max(sums)))
    return tuple(maximum)


@lru_cache(maxsize=64)
def coefficient_bits(outputs: int, taps: int) -> int:
    """Return b such that nonzero entries of A, G and B have magnitudes from 2^-b to 2^b.

    >>> coefficient_bits(4, 3), coefficient_bits(14, 3)
    (16, 43)
    """
    sizes = [abs(entry) for matrix in matrices(outputs, taps) for row in matrix for entry in row if entry]
    return max(COEFFICIENT_BITS, *(ceil(abs(log2(size))) for size in (min(sizes), max(sizes))))


def winograd_bound(
    problem: Problem, operands: Sequence[Array], outputs: int, taps: int, magnitude: F64Array, accumulator: Format
) -> F64Array:
    """Return each element's error bound before the output's rounding; infinite if no bound is proved.

    ``outputs`` and ``taps`` are M and R along every axis. R is the kernel size of a forward or backward_data pass, and
    M the kernel size of a backward_weights pass. Operands are canonical. ``magnitude`` is sum |x||y|, including bias
    and old value.
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels) or not _fits(geometry, problem.solves_for, outputs, taps):
        return np.full_like(magnitude, np.inf)
    length, axes, bits = outputs + taps - 1, len(geometry.axes), coefficient_bits(outputs, taps)
    magnitudes: dict[Tensor, F64Array] = {
        tensor: _sizes(array) for tensor, array in zip(problem.operands, operands, strict=True)
    }
    summed = geometry.batch * geometry.positions
    if problem.solves_for != "weights":
        summed = (geometry.src_channels if problem.solves_for == "dst" else geometry.dst_channels) // geometry.groups
    minimum = accumulator.tiny / 2 * 2.0 ** (bits * (axes + 1) + 1)  # added to operands to cover underflow
    data: Tensor = "dst" if problem.solves_for == "src" else "src"
    other: Tensor = "dst" if problem.solves_for == "weights" else "weights"
    maximum = _in_reach(magnitudes[data], [_reach(axis, problem.solves_for, outputs, taps) for axis in geometry.axes])

    def paths(sizes: F64Array, others: F64Array) -> F64Array:
        return _paths(geometry, problem.solves_for, sizes, others, outputs, taps)

    propagated = paths(maximum, magnitudes[other])
    moved = paths(np.full_like(maximum, minimum), magnitudes[other] + minimum) + paths(
        maximum, np.full_like(magnitudes[other], minimum)
    )
    lost = accumulator.tiny * summed * (1 + 2 * axes * length) * (length * 2.0**bits) ** axes
    roundings = axes * (2 * (length + 1) + max(outputs, taps) + 1) + 1 + summed + last_additions(problem)
    g = gamma(roundings, accumulator.unit)
    bound = (g * (propagated + magnitude) + (1 + g) * (moved + lost)) * _UP
    room = 2.0 ** (2 * bits * axes) * length ** (2 * axes)  # the largest growth of values in transforms
    largest = max(float(np.max(a, initial=0.0, where=np.isfinite(a))) for a in (maximum, magnitudes[other]))
    fits = np.maximum(propagated + moved + magnitude, largest) * room <= accumulator.largest
    return np.where(fits & np.isfinite(bound), bound, np.inf)


def _fits(conv: Conv, solves_for: str, outputs: int, taps: int) -> bool:
    wanted = outputs if solves_for == "weights" else taps
    return all(a.kernel == wanted and a.stride == a.dilation == 1 for a in conv.axes)


def _sizes(array: Array) -> F64Array:
    """Return the magnitudes of an array, with infinity for NaN: transforms spread both to whole tiles."""
    sizes = np.abs(np.asarray(array).astype(np.float64))
    return np.where(np.isfinite(sizes), sizes, np.inf)


def _paths(conv: Conv, solves_for: str, maximum: F64Array, others: F64Array, outputs: int, taps: int) -> F64Array:
    """Return for each element of the canonical output the sum of magnitudes along all paths to it.

    ``maximum`` is the result of ``_in_reach`` for the data; ``others`` has the magnitudes of the other operand.
    """
    g, inner, outer = conv.groups, conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    channels, positions = outer if solves_for == "src" else inner, prod(maximum.shape[2:])
    columns = maximum.reshape(conv.batch, g, channels, positions)
    tap_sums = np.array(carried(outputs, taps))
    if solves_for == "weights":
        rows = others.reshape(conv.batch, g, outer, positions)
        path_sums = (rows @ columns.swapaxes(2, 3)).sum(axis=0) * max(tap_sums) ** len(conv.axes)
        return np.broadcast_to(path_sums.reshape(-1, inner, *[1] * len(conv.axes)), conv.weights_shape)
    weights = others.reshape(g, outer, inner, *conv.kernel)
    for _ in conv.axes:
        weights = weights @ (tap_sums[::-1] if solves_for == "src" else tap_sums)
    rows = weights.swapaxes(1, 2) if solves_for == "src" else weights
    return (rows @ columns).reshape(conv.src_shape if solves_for == "src" else conv.dst_shape)


def _reach(axis: Axis, solves_for: str, outputs: int, taps: int) -> tuple[int, int, int]:
    """Return the number of positions along an axis, and the first and last offset of the data that a position can use.

    The offsets cover every tile that may contain the position. A tile of M outputs, or of R terms of a weight gradient,
    begins at most M - 1 or R - 1 positions before.
    """
    length = outputs + taps - 1
    if solves_for == "src":
        first = axis.pad_begin - (taps - 1)
        return axis.src, first - (outputs - 1), first + length - 1
    before = taps if solves_for == "weights" else outputs
    return axis.dst, -axis.pad_begin - (before - 1), -axis.pad_begin + length - 1


def _in_reach(sizes: F64Array, reaches: Sequence[tuple[int, int, int]]) -> F64Array:
    """Return for each position the largest data magnitude in tiles that may contain it; ``reaches`` is from _reach."""
    for at, (number, first, last) in enumerate(reaches, start=2):
        lines = np.moveaxis(sizes, at, -1)
        maximum = np.zeros((*lines.shape[:-1], number))
        for offset in range(first, last + 1):
            begin, end = max(0, -offset), min(number, lines.shape[-1] - offset)
            if begin < end:
                some = maximum[..., begin:end]
                np.maximum(some, lines[..., begin + offset : end + offset], out=some)
        sizes = np.moveaxis(maximum, -1, at)
    return sizes
