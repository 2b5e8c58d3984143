"""Toom-Cook executed: a weight gradient in a variant on small data, to the very bits that are specified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.spec.chains import fma_f32, sum_in_order
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import order_of
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import TAPS, VARIANTS, Transform, Variant

F32Array = NDArray[np.float32]


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
    conv, variant = problem.geometry, VARIANTS[problem.variant]
    assert isinstance(conv, Conv)
    x = _transformed(_tiles(given["src"], conv, variant, True), variant.source)  # a point an item: n, c, tiles
    y = _transformed(_tiles(given["dst"], conv, variant, False), variant.destination)
    sums = []
    for here, there in zip(x, y, strict=True):
        rows, lanes = (each.swapaxes(0, 1).reshape(each.shape[1], -1) for each in (here, there))
        first, second = np.broadcast_arrays(rows[None], lanes[:, None])
        sums.append(sum_in_order(first, second, order_of(problem)))
    back = divided(_back(np.stack(sums), variant), variant) + np.float32(0)
    return back.transpose(1, 2, 0).reshape(conv.weights_shape) if np.isfinite(back).all() else None


def _tiles(array: NDArray[Any], conv: Conv, variant: Variant, source: bool) -> list[list[F32Array]]:
    """Return the values of all tiles, [row][column] of a tile, each an array of images, channels and tiles."""
    m, size = variant.tile, variant.axis_points if source else variant.tile
    begin = [axis.pad_begin if source else 0 for axis in conv.axes]
    grid = variant.grid(conv)
    ends = [
        max(0, (count - 1) * m + size - pad - extent)
        for count, pad, extent in zip(grid, begin, array.shape[2:], strict=True)
    ]
    whole = np.pad(array.astype(np.float32), [(0, 0), (0, 0), *zip(begin, ends, strict=True)])
    (ty, tx) = grid
    return [
        [whole[:, :, i : i + (ty - 1) * m + 1 : m, j : j + (tx - 1) * m + 1 : m] for j in range(size)]
        for i in range(size)
    ]


def _transformed(tiles: list[list[F32Array]], transform: Transform) -> list[F32Array]:
    """Return the points of all tiles: along the first axis, then along the last."""
    arithmetic = InF32()
    columns = [transform(arithmetic, column) for column in zip(*tiles, strict=True)]
    return [point for row in zip(*columns, strict=True) for point in transform(arithmetic, row)]


def _back(sums: F32Array, variant: Variant) -> F32Array:
    """Return what is to be divided, of the sums of all points: along the last axis, then along the first."""
    arithmetic, side = InF32(), variant.axis_points
    rows = [variant.weights(arithmetic, list(sums[i * side : (i + 1) * side])) for i in range(side)]
    columns = [variant.weights(arithmetic, list(column)) for column in zip(*rows, strict=True)]
    assert len(columns) == TAPS
    return np.stack([columns[j][i] for i in range(TAPS) for j in range(TAPS)])


def divided(values: F32Array, variant: Variant) -> F32Array:
    """Return the quotients, rounded once: a product, and one step of Newton's."""
    by = np.float32(variant.divided)
    reciprocal = np.float32(1) / by
    quotient = values * reciprocal
    if variant.exactly:
        return quotient
    rest = fma_f32(-quotient, np.full_like(values, by), values)
    return fma_f32(rest, np.full_like(values, reciprocal), quotient)
