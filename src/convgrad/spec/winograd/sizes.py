"""Sums of absolute values for Winograd's error bounds, in float64: sums over points, or norms at each point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from convgrad.array_types import F64Array
from convgrad.formats import F64
from convgrad.spec.bound import gamma
from convgrad.spec.operators import Tensor
from convgrad.spec.order import last_additions, order_of
from convgrad.spec.problem import Problem
from convgrad.spec.winograd.execution import Transforms, back, by_channel, placed, points, slices_of, tiled, transforms

_OWN = gamma(16, F64.unit)  # the error of transforms in float64, relative to sums of absolute values


class InF64:
    """The arithmetic of f64 arrays. ``fma`` rounds the product, then the sum."""

    def add(self, x: F64Array, y: F64Array) -> F64Array:
        """Return x + y."""
        return x + y

    def sub(self, x: F64Array, y: F64Array) -> F64Array:
        """Return x - y."""
        return x - y

    def fma(self, factor: float, x: F64Array, y: F64Array) -> F64Array:
        """Return factor * x + y."""
        return factor * x + y

    def scale(self, factor: float, x: F64Array) -> F64Array:
        """Return factor * x."""
        return factor * x


class InMagnitudes:
    """The arithmetic of absolute values: nothing is subtracted, and factors have no sign.

    A transform in this arithmetic uses the absolute values of its coefficients.
    """

    def add(self, x: F64Array, y: F64Array) -> F64Array:
        """Return x + y."""
        return x + y

    sub = add

    def fma(self, factor: float, x: F64Array, y: F64Array) -> F64Array:
        """Return |factor| * x + y."""
        return abs(factor) * x + y

    def scale(self, factor: float, x: F64Array) -> F64Array:
        """Return |factor| * x."""
        return abs(factor) * x


def ways(problem: Problem, arrays: Mapping[Tensor, F64Array]) -> F64Array:
    """Return W of each result: sum over points p of |A_ip| sum over terms of (|B||d|)_p (|G||g|)_p.

    B and G transform the operands d and g, and A transforms sums back.
    """
    (data_by, other_by, _), (data, other) = transforms(problem), tiled(problem, arrays)
    pairs = zip(_sized(data, data_by), _sized(other, other_by), strict=True)
    return _returned(problem, [_summed(problem, *pair) for pair in pairs])


def by_paths(problem: Problem, arrays: Mapping[Tensor, F64Array], unit: float) -> F64Array:
    """Return sum over points p of |A_ip| sum over terms of gamma_a |U||V| + (1 + gamma_a) Q.

    Q is gamma_b D|V| + gamma_g |U|E + gamma_b gamma_g D E. U = B d and V = G g are the values of point p. D = |B||d|
    and E = |G||g| bound their absolute values. gamma_b counts the roundings to U, gamma_g those to V, and gamma_a those
    from their product to the result. The sum is at most gamma_H W, because |U| <= D and |V| <= E.
    """
    of_data, of_other, after = _gammas(problem, unit)
    sizes = []
    for u, d, v, e in _transformed(problem, arrays):
        off_other = (1 + after) * of_other * e
        off_data = (1 + after) * of_data * d
        sizes.append(_summed(problem, u, after * v + off_other) + _summed(problem, off_data, v + of_other * e))
    return _returned(problem, sizes)


def by_norms(problem: Problem, arrays: Mapping[Tensor, F64Array], unit: float) -> F64Array:
    """Return an upper bound of ``by_paths``, by the Cauchy-Schwarz inequality over the terms of each point.

    It replaces each sum of products of two arrays by the product of the arrays' norms, which is faster to compute.
    """
    of_data, of_other, after = _gammas(problem, unit)
    sizes = []
    for point in _transformed(problem, arrays):
        u, d, v, e = _norms(problem, *point)
        off = of_data * d * v + of_other * (u + of_data * d) * e
        sizes.append(after * u * v + (1 + after) * off)
    return _returned(problem, sizes)


def _gammas(problem: Problem, unit: float) -> tuple[float, float, float]:
    """Return gamma_b, gamma_g and gamma_a, which ``by_paths`` defines."""
    stages = slices_of(problem)[1].stages(problem.solves_for)
    after = order_of(problem).height + stages.back + last_additions(problem)
    of_data, of_other, of_sums = (gamma(height, unit) for height in (stages.data, stages.other, after))
    return of_data, of_other, of_sums


def _transformed(
    problem: Problem, arrays: Mapping[Tensor, F64Array]
) -> Iterator[tuple[F64Array, F64Array, F64Array, F64Array]]:
    """Yield |U|, |B||d|, |V| and |G||g| of each point. |U| and |V| are increased by their float64 rounding errors."""
    (data_by, other_by, _), (data, other) = transforms(problem), tiled(problem, arrays)
    for u, d, v, e in zip(
        points(data, data_by, InF64()),
        _sized(data, data_by),
        points(other, other_by, InF64()),
        _sized(other, other_by),
        strict=True,
    ):
        yield np.abs(u) + _OWN * d, d, np.abs(v) + _OWN * e, e


def _sized(values: list[list[F64Array]], transform: Transforms) -> list[F64Array]:
    return points([[np.abs(value) for value in row] for row in values], transform, InMagnitudes())


def _summed(problem: Problem, here: F64Array, there: F64Array) -> F64Array:
    """Return the sums of one point's products over all terms.

    There is a sum per pair of channels in a weight gradient, else per image, result channel and tile.
    """
    if problem.solves_for == "weights":
        return by_channel(there) @ by_channel(here).T
    images, channels, *grid = here.shape
    return (there @ here.reshape(images, channels, -1)).reshape(images, -1, *grid)


def _norms(problem: Problem, *point: F64Array) -> tuple[F64Array, ...]:
    """Return the norms of one point's u, d, v and e over all terms, as arrays that broadcast to the results."""
    if problem.solves_for == "weights":
        u, d, v, e = (np.linalg.norm(by_channel(array), axis=1) for array in point)
        return u, d, v[:, None], e[:, None]
    u, d, v, e = (np.linalg.norm(array, axis=1) for array in point)
    return u[:, None], d[:, None], v[:, None, None], e[:, None, None]


def _returned(problem: Problem, sizes: list[F64Array]) -> F64Array:
    """Return the results of the transform of ``sizes`` back, with the absolute values of its coefficients."""
    algorithm = slices_of(problem)[1]
    rows = back(sizes, algorithm.sides, transforms(problem)[2], InMagnitudes())
    return placed(problem, rows) / algorithm.divisor
