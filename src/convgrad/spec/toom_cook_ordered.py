"""Toom-Cook executed: any role in a variant on small data, to the very bits that are specified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.chains import fma_f32, sum_in_order
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import MET, TAPS, VARIANTS, Transform, Variant, as_forward

F32Array = NDArray[np.float32]
AnyFloat = TypeVar("AnyFloat", np.float32, np.float64)


class InF32:
    """f32 arrays: each operation rounds once."""

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
    """Return the sums of a problem that has a variant, with their specified bits; None where one is not finite."""
    made = (_weights if problem.solves_for == "weights" else _positions)(problem, given)
    return made if np.isfinite(made).all() else None


def _weights(problem: Problem, given: Mapping[Tensor, F32Array]) -> F32Array:
    conv, variant = problem.geometry, VARIANTS[problem.variant]
    assert isinstance(conv, Conv)
    way, grid = variant.of_weights, variant.grid(conv)
    pads = tuple(axis.pad_begin for axis in conv.axes)
    x = _points(tiles_of(given["src"], grid, pads, variant.tile, variant.axis_points), way.met)  # n, c, tiles
    y = _points(tiles_of(given["dst"], grid, (0, 0), variant.tile, variant.tile), way.other)
    sums = []
    for here, there in zip(x, y, strict=True):
        rows, lanes = (each.swapaxes(0, 1).reshape(each.shape[1], -1) for each in (here, there))
        first, second = np.broadcast_arrays(rows[None], lanes[:, None])
        sums.append(sum_in_order(first, second, order_of(problem)))
    back = [[divided(each, variant) for each in row] for row in _back(sums, way.back, variant.axis_points)]
    return np.array(back, np.float32).transpose(2, 3, 0, 1)


def _positions(problem: Problem, given: Mapping[Tensor, F32Array]) -> F32Array:
    assert isinstance(problem.geometry, Conv)
    conv, variant = as_forward(problem.geometry, problem.solves_for), VARIANTS[problem.variant]
    way, grid, m = variant.of_positions, variant.covering(conv), variant.tile
    data, weights = given[MET[problem.solves_for]], given["weights"]
    if problem.solves_for == "src":
        weights = weights.swapaxes(0, 1)[..., ::-1, ::-1]
    pads = tuple(axis.pad_begin for axis in conv.axes)
    x = _points(tiles_of(data, grid, pads, m, variant.axis_points), way.met)  # n, c, tiles
    y = _points([[weights[..., i, j] for j in range(TAPS)] for i in range(TAPS)], way.other)  # result, c
    sums = []
    for here, there in zip(x, y, strict=True):
        first, second = np.broadcast_arrays(np.moveaxis(here, 1, -1)[:, None], there[:, None, None])
        sums.append(sum_in_order(first, second, order_of(problem)))
    made = np.zeros((conv.batch, conv.dst_channels, *(count * m for count in grid)), np.float32)
    for i, row in enumerate(_back(sums, way.back, variant.axis_points)):
        for j, values in enumerate(row):
            made[:, :, i::m, j::m] = divided(values, variant)
    rows, columns = (axis.dst for axis in conv.axes)
    return made[:, :, :rows, :columns]


def tiles_of(
    array: NDArray[AnyFloat], grid: tuple[int, int], pads: Sequence[int], step: int, size: int
) -> list[list[NDArray[AnyFloat]]]:
    """Return the values of all tiles, [row][column] of a tile, each an array of images, channels and tiles."""
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


def _points(values: list[list[F32Array]], transform: Transform) -> list[F32Array]:
    """Return all points, row-major: along the first axis, then along the last."""
    arithmetic = InF32()
    columns = [transform(arithmetic, column) for column in zip(*values, strict=True)]
    return [point for row in zip(*columns, strict=True) for point in transform(arithmetic, row)]


def _back(sums: Sequence[F32Array], transform: Transform, side: int) -> list[list[F32Array]]:
    """Return what is to be divided, [row][column], of the sums of all points: along the last axis, then the first."""
    arithmetic = InF32()
    rows = [transform(arithmetic, sums[i * side : (i + 1) * side]) for i in range(side)]
    columns = [transform(arithmetic, column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def divided(values: F32Array, variant: Variant) -> F32Array:
    """Return the quotients, rounded once, by a product and one step of Newton's; and +0."""
    by = np.float32(variant.divided)
    reciprocal = np.float32(1) / by
    quotient = values * reciprocal
    if not variant.exactly:
        rest = fma_f32(-quotient, np.full_like(values, by), values)
        quotient = fma_f32(rest, np.full_like(values, reciprocal), quotient)
    return quotient + np.float32(0)
