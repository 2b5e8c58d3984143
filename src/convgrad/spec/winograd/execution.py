"""A reference computation of Winograd for any pass and algorithm on small data, with exactly the specified bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.chains import fma_f32, sum_in_order
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.winograd.algorithms import Algorithm, algorithm_of, of_group, regions
from convgrad.spec.winograd.filtering import Arithmetic, Transform
from convgrad.spec.winograd.slices import arrays_in_slices, from_slices, problem_in_slices

F32Array = NDArray[np.float32]
AnyFloat = TypeVar("AnyFloat", np.float32, np.float64)
Transforms: TypeAlias = tuple[Transform, Transform]  # of rows, of columns
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


def by_tiles(problem: Problem, arrays: Mapping[Tensor, F32Array]) -> F32Array | None:
    """Return the sums of a problem that has an algorithm, with the specified bits; None if a sum is not finite."""
    sums = by_groups(problem, arrays, _of_slices)
    return sums if np.isfinite(sums).all() else None


def by_groups(
    problem: Problem,
    operands: Mapping[Tensor, NDArray[AnyFloat]],
    compute: Callable[[Problem, Mapping[Tensor, NDArray[AnyFloat]]], NDArray[AnyFloat]],
) -> NDArray[AnyFloat]:
    """Return the results of all groups of channels.

    ``compute`` is called with one group at a time, as a weight gradient of slices (``slices.py``), or as a forward of a
    part of slices that has tiles of one size.
    """
    conv, results = problem.geometry, 0 if problem.solves_for == "weights" else 1
    assert isinstance(conv, Conv)
    of_one_group, axes = replace(problem, geometry=of_group(conv)), {"weights": 0, "bias": 0}
    slices = problem_in_slices(of_one_group)
    parts = {name: np.split(values, conv.groups, axes.get(name, 1)) for name, values in operands.items()}

    def of_group_number(group: int) -> NDArray[AnyFloat]:
        arrays = arrays_in_slices(
            of_one_group, {name: arrays_of_groups[group] for name, arrays_of_groups in parts.items()}
        )
        if problem.solves_for == "weights":
            return from_slices(of_one_group, compute(slices, arrays))
        dst = np.empty(canonical_shape(slices.geometry, "dst"), arrays["src"].dtype)
        for (rows, columns), there, name in regions(*slices_of(slices)):
            dst[:, :, rows, columns] = compute(replace(slices, geometry=there, algorithm=name), arrays)
        return from_slices(of_one_group, dst)

    return np.concatenate([of_group_number(group) for group in range(conv.groups)], results)


def slices_of(problem: Problem) -> tuple[Conv, Algorithm]:
    """Return the geometry and the algorithm of a problem of slices."""
    assert isinstance(problem.geometry, Conv)
    return problem.geometry, algorithm_of(problem.geometry, problem.algorithm)


def _of_slices(problem: Problem, arrays: Mapping[Tensor, F32Array]) -> F32Array:
    algorithm, order = slices_of(problem)[1], order_of(problem)
    data_by, other_by, back_by = transforms(problem)
    data, other = tiled(problem, arrays)
    sums = []
    for here, there in zip(points(data, data_by, InF32()), points(other, other_by, InF32()), strict=True):
        if problem.solves_for == "weights":
            first, second = (filled(by_channel(values), order.terms) for values in (here, there))
            first, second = np.broadcast_arrays(first[None], second[:, None])
        else:
            first, second = np.broadcast_arrays(np.moveaxis(here, 1, -1)[:, None], there[:, None, None])
        sums.append(sum_in_order(first, second, order))
    rows = [[divided(value, algorithm) for value in row] for row in back(sums, algorithm.sides, back_by, InF32())]
    return placed(problem, rows)


def transforms(problem: Problem) -> tuple[Transforms, Transforms, Transforms]:
    """Return the transforms (data, other, back) of a problem of slices, each for rows and for columns."""
    rows, columns = (axis.way(problem.solves_for) for axis in slices_of(problem)[1].axes)
    return (rows.data, columns.data), (rows.other, columns.other), (rows.back, columns.back)


def tiled(problem: Problem, arrays: Mapping[Tensor, NDArray[AnyFloat]]) -> tuple[Values[AnyFloat], Values[AnyFloat]]:
    """Return the two factors of all products before their transforms, as arrays [row][column] of a tile or of the taps.

    The first factor is the data that tiles meet. The second factor is the tiles of dst, or the weights. Arrays of data
    have axes for slices, channels, and rows and columns of tiles. Arrays of weights have axes for result channels and
    summed channels.
    """
    conv, algorithm = slices_of(problem)
    pads = [axis.pad_begin for axis in conv.axes]
    if problem.solves_for == "weights":
        turns = algorithm.turns(conv)
        grid = (turns.rows, turns.parts * turns.length)
        data = tiles_of(arrays["src"], grid, pads, algorithm.tile, algorithm.sides)
        return data, tiles_of(arrays["dst"], grid, (0, 0), algorithm.tile, algorithm.tile)
    data = tiles_of(arrays["src"], algorithm.covering(conv), pads, algorithm.tile, algorithm.sides)
    rows, columns = algorithm.taps
    return data, [[arrays["weights"][..., i, j] for j in range(columns)] for i in range(rows)]


def by_channel(values: NDArray[AnyFloat]) -> NDArray[AnyFloat]:
    """Return the values of all tiles as (channels, tiles), from (slices, channels, rows and columns of tiles)."""
    return values.swapaxes(0, 1).reshape(values.shape[1], -1)


def filled(values: F32Array, terms: int) -> F32Array:
    """Return the values of each channel, padded with zeros to ``terms`` terms."""
    return np.pad(values, ((0, 0), (0, terms - values.shape[1])))


def placed(problem: Problem, rows: Sequence[Sequence[NDArray[AnyFloat]]]) -> NDArray[AnyFloat]:
    """Return the result of a problem of slices from arrays [row][column], one per tap, or per position of a tile."""
    if problem.solves_for == "weights":
        return np.array(rows).transpose(2, 3, 0, 1)
    conv, algorithm = slices_of(problem)
    (high, wide), (count, results, down, across) = algorithm.tile, rows[0][0].shape
    result = np.empty((count, results, down * high, across * wide), rows[0][0].dtype)
    for i, row in enumerate(rows):
        for j, values in enumerate(row):
            result[:, :, i::high, j::wide] = values
    height, width = (axis.dst for axis in conv.axes)
    return result[:, :, :height, :width]


def tiles_of(
    array: NDArray[AnyFloat], grid: tuple[int, int], pads: Sequence[int], steps: tuple[int, int], sizes: tuple[int, int]
) -> Values[AnyFloat]:
    """Return an array [row][column] for each position of a tile, with the values of all slices, channels and tiles."""
    array = array[:, :, max(0, -pads[0]) :, max(0, -pads[1]) :]
    around = [(0, 0), (0, 0)]
    for count, pad, extent, step, size in zip(grid, pads, array.shape[2:], steps, sizes, strict=True):
        around.append((max(0, pad), max(0, (count - 1) * step + size - max(0, pad) - extent)))
    whole = np.pad(array, around)
    (down, across), (high, wide) = grid, steps
    return [
        [
            whole[:, :, i : i + (down - 1) * high + 1 : high, j : j + (across - 1) * wide + 1 : wide]
            for j in range(sizes[1])
        ]
        for i in range(sizes[0])
    ]


def points(
    values: Sequence[Sequence[NDArray[AnyFloat]]], transform: Transforms, arithmetic: Arithmetic[NDArray[AnyFloat]]
) -> list[NDArray[AnyFloat]]:
    """Return the values at all points, in row-major order. Rows are transformed first."""
    of_rows, of_columns = transform
    columns = [of_rows(arithmetic, column) for column in zip(*values, strict=True)]
    return [point for row in zip(*columns, strict=True) for point in of_columns(arithmetic, row)]


def back(
    sums: Sequence[NDArray[AnyFloat]],
    sides: tuple[int, int],
    transform: Transforms,
    arithmetic: Arithmetic[NDArray[AnyFloat]],
) -> Values[AnyFloat]:
    """Return the results [row][column] before their division, from the sums of all points.

    Columns are transformed back first.
    """
    (of_rows, of_columns), (down, across) = transform, sides
    rows = [of_columns(arithmetic, sums[i * across : (i + 1) * across]) for i in range(down)]
    columns = [of_rows(arithmetic, column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def divided(values: F32Array, algorithm: Algorithm) -> F32Array:
    """Return the values divided by the algorithm's divisor, plus +0.

    A product with the reciprocal and one Newton step give the quotient rounded once.
    """
    by = np.float32(algorithm.divisor)
    reciprocal = np.float32(1) / by
    quotient = values * reciprocal
    if not algorithm.divides_exactly:
        remainder = fma_f32(-quotient, np.full_like(values, by), values)
        quotient = fma_f32(remainder, np.full_like(values, reciprocal), quotient)
    return quotient + np.float32(0)
