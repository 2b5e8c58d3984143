"""A reference computation of Winograd for any pass and algorithm on small data, with exactly the specified bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isqrt
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.chains import fma_f32, sum_in_order
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import ALGORITHMS, MET, TAPS, Algorithm, Arithmetic, Transform, as_forward, of_group

F32Array = NDArray[np.float32]
AnyFloat = TypeVar("AnyFloat", np.float32, np.float64)
Values: TypeAlias = list[list[NDArray[AnyFloat]]]  # [row][column]


class InF32:
    """The arithmetic of f32 arrays. Each operation rounds once."""

    def add(self, x: F32Array, y: F32Array) -> F32Array:
        """Return x + y."""
        return x + y

    def sub(self, x: F32Array, y: F32Array) -> F32Array:
        """Return x - y."""
        return x - y

    def fma(self, factor: float, x: F32Array, y: F32Array) -> F32Array:
        """Return factor * x + y."""
        return fma_f32(np.full_like(x, factor), x, y)

    def scale(self, factor: float, x: F32Array) -> F32Array:
        """Return factor * x."""
        return x * np.float32(factor)


def by_tiles(problem: Problem, given: Mapping[Tensor, F32Array]) -> F32Array | None:
    """Return the sums of a problem that has an algorithm, with the specified bits; None if a sum is not finite."""
    made = by_groups(problem, given, _of_group)
    return made if np.isfinite(made).all() else None


def by_groups(
    problem: Problem,
    given: Mapping[Tensor, NDArray[AnyFloat]],
    compute: Callable[[Problem, Mapping[Tensor, NDArray[AnyFloat]]], NDArray[AnyFloat]],
) -> NDArray[AnyFloat]:
    """Return the results of all groups of channels. ``compute`` is called with the problem of one group at a time."""
    conv, results = problem.geometry, 0 if problem.solves_for == "weights" else 1
    assert isinstance(conv, Conv)
    if conv.groups == 1:
        return compute(problem, given)
    one, axes = replace(problem, geometry=of_group(conv)), {"weights": 0, "bias": 0}
    parts = {name: np.split(values, conv.groups, axes.get(name, 1)) for name, values in given.items()}
    made = [compute(one, {name: each[group] for name, each in parts.items()}) for group in range(conv.groups)]
    return np.concatenate(made, results)


def _of_group(problem: Problem, given: Mapping[Tensor, F32Array]) -> F32Array:
    algorithm, order = ALGORITHMS[problem.algorithm], order_of(problem)
    way = algorithm.way(problem.solves_for)
    met, other = tiled(problem, given)
    sums = []
    for here, there in zip(points(met, way.met, InF32()), points(other, way.other, InF32()), strict=True):
        if problem.solves_for == "weights":
            first, second = (filled(by_channel(each), order.terms) for each in (here, there))
            first, second = np.broadcast_arrays(first[None], second[:, None])
        else:
            first, second = np.broadcast_arrays(np.moveaxis(here, 1, -1)[:, None], there[:, None, None])
        sums.append(sum_in_order(first, second, order))
    rows = [[divided(each, algorithm) for each in row] for row in back(sums, way.back, InF32())]
    return placed(problem, rows)


def tiled(problem: Problem, given: Mapping[Tensor, NDArray[AnyFloat]]) -> tuple[Values[AnyFloat], Values[AnyFloat]]:
    """Return the two factors of all products before their transforms, as arrays [row][column] of a tile or of the taps.

    The first factor is the data that tiles meet. The second factor is the tiles of dst, or the weights. Arrays of data
    have axes for images, channels, and rows and columns of tiles. Arrays of weights have axes for result channels and
    summed channels.
    """
    conv, algorithm, data = problem.geometry, ALGORITHMS[problem.algorithm], given[MET[problem.solves_for]]
    assert isinstance(conv, Conv)
    m, size = algorithm.tile, algorithm.axis_points
    if problem.solves_for == "weights":
        turns, pads = algorithm.turns(conv), [axis.pad_begin for axis in conv.axes]
        grid = (turns.rows, turns.parts * turns.length)
        return tiles_of(data, grid, pads, m, size), tiles_of(given["dst"], grid, (0, 0), m, m)
    conv = as_forward(conv, problem.solves_for)
    weights = given["weights"]
    if problem.solves_for == "src":
        weights = weights.swapaxes(0, 1)[..., ::-1, ::-1]
    met = tiles_of(data, algorithm.covering(conv), [axis.pad_begin for axis in conv.axes], m, size)
    return met, [[weights[..., i, j] for j in range(TAPS)] for i in range(TAPS)]


def by_channel(values: NDArray[AnyFloat]) -> NDArray[AnyFloat]:
    """Return the values of all tiles as (channels, tiles), from (images, channels, rows and columns of tiles)."""
    return values.swapaxes(0, 1).reshape(values.shape[1], -1)


def filled(values: F32Array, terms: int) -> F32Array:
    """Return the values of each channel, padded with zeros to ``terms`` terms."""
    return np.pad(values, ((0, 0), (0, terms - values.shape[1])))


def placed(problem: Problem, rows: Sequence[Sequence[NDArray[AnyFloat]]]) -> NDArray[AnyFloat]:
    """Return the canonical result from arrays [row][column], one per tap, or one per position of a tile."""
    if problem.solves_for == "weights":
        return np.array(rows).transpose(2, 3, 0, 1)
    assert isinstance(problem.geometry, Conv)
    conv, algorithm = as_forward(problem.geometry, problem.solves_for), ALGORITHMS[problem.algorithm]
    m, (images, results, down, across) = algorithm.tile, rows[0][0].shape
    made = np.empty((images, results, down * m, across * m), rows[0][0].dtype)
    for i, row in enumerate(rows):
        for j, values in enumerate(row):
            made[:, :, i::m, j::m] = values
    height, width = (axis.dst for axis in conv.axes)
    return made[:, :, :height, :width]


def tiles_of(
    array: NDArray[AnyFloat], grid: tuple[int, int], pads: Sequence[int], step: int, size: int
) -> Values[AnyFloat]:
    """Return an array [row][column] for each position of a tile, with the values of all images, channels and tiles."""
    array = array[:, :, max(0, -pads[0]) :, max(0, -pads[1]) :]
    around = [(0, 0), (0, 0)]
    for count, pad, extent in zip(grid, pads, array.shape[2:], strict=True):
        around.append((max(0, pad), max(0, (count - 1) * step + size - max(0, pad) - extent)))
    whole = np.pad(array, around)
    (ty, tx) = grid
    return [
        [whole[:, :, i : i + (ty - 1) * step + 1 : step, j : j + (tx - 1) * step + 1 : step] for j in range(size)]
        for i in range(size)
    ]


def points(
    values: Sequence[Sequence[NDArray[AnyFloat]]], transform: Transform, arithmetic: Arithmetic[NDArray[AnyFloat]]
) -> list[NDArray[AnyFloat]]:
    """Return the values at all points, in row-major order. The first axis is transformed first."""
    columns = [transform(arithmetic, column) for column in zip(*values, strict=True)]
    return [point for row in zip(*columns, strict=True) for point in transform(arithmetic, row)]


def back(
    sums: Sequence[NDArray[AnyFloat]], transform: Transform, arithmetic: Arithmetic[NDArray[AnyFloat]]
) -> Values[AnyFloat]:
    """Return the results [row][column] before their division, from the sums of all points.

    The last axis is transformed back first.
    """
    side = isqrt(len(sums))
    rows = [transform(arithmetic, sums[i * side : (i + 1) * side]) for i in range(side)]
    columns = [transform(arithmetic, column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def divided(values: F32Array, algorithm: Algorithm) -> F32Array:
    """Return the values divided by the algorithm's divisor, plus +0.

    A product with the reciprocal and one Newton step give the quotient rounded once.
    """
    by = np.float32(algorithm.divided)
    reciprocal = np.float32(1) / by
    quotient = values * reciprocal
    if not algorithm.exactly:
        remainder = fma_f32(-quotient, np.full_like(values, by), values)
        quotient = fma_f32(remainder, np.full_like(values, reciprocal), quotient)
    return quotient + np.float32(0)
