"""The error bound of a result in a variant of Toom-Cook: by norms of what its products are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F32, Format
from convgrad.spec.bound import gamma
from convgrad.spec.chosen import kappa
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.order import height_of, order_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.toom_cook import MET, VARIANTS, as_forward
from convgrad.spec.toom_cook_ordered import tiles_of

F64Array = NDArray[np.float64]
UNDERFLOW = 1 << 14  # by what a denormal's rounding is multiplied at most, on all ways to a weight: docs/numerics.md
_UP = 1 + 2.0**-40  # what a bound may lose that is itself computed in float64


def variant_bound(problem: Problem, operands: Sequence[NDArray[Any]], accumulator: Format = F32) -> F64Array:
    """Return the bound before the output's rounding: gamma_H kappa, times two norms, and what underflows.

    Of a weight they are those of its channels; of a position, that of what its tile meets and that of the weights of
    its channel. Of operands that are not finite, what is: where one reaches a result, all are computed by the direct
    sum, whose bound is less.
    """
    given = {
        tensor: np.nan_to_num(np.abs(each.astype(np.float64)), nan=0.0, posinf=0.0)
        for tensor, each in zip(problem.operands, operands, strict=True)
    }
    squares, sums = ((_of_weights if problem.solves_for == "weights" else _of_positions)(problem, each) for each in (
        {tensor: values * values for tensor, values in given.items()}, given
    ))  # fmt: skip
    size = kappa(problem) * np.sqrt(squares[0] * squares[1])
    if "bias" in given:
        size = size + given["bias"][:, None, None]
    lost = accumulator.tiny * UNDERFLOW * (sums[0] + sums[1] + order_of(problem).terms)
    g = gamma(height_of(problem), accumulator.unit)
    bound: F64Array = (g * size + lost * (1 + g)) * _UP
    return np.broadcast_to(bound, canonical_shape(problem.geometry, problem.output)).copy()


def _of_weights(problem: Problem, given: Mapping[Tensor, F64Array]) -> tuple[F64Array, F64Array]:
    """Return sums of the channels of dst and of src, to be broadcast to weights."""
    dst, src = (given[tensor].sum((0, 2, 3))[:, None, None] for tensor in ("dst", "src"))
    return dst[:, None], src


def _of_positions(problem: Problem, given: Mapping[Tensor, F64Array]) -> tuple[F64Array, F64Array]:
    """Return sums of what the tile of each position meets and of the weights of each channel."""
    assert isinstance(problem.geometry, Conv)
    conv, variant = as_forward(problem.geometry, problem.solves_for), VARIANTS[problem.variant]
    channel, m = int(problem.solves_for == "src"), variant.tile
    weights = given["weights"].sum((1 - channel, 2, 3))[:, None, None]
    met = given[MET[problem.solves_for]].sum(1, keepdims=True)
    pads = [axis.pad_begin for axis in conv.axes]
    tiles = tiles_of(met, variant.covering(conv), pads, m, variant.axis_points)
    each = np.sum([value for row in tiles for value in row], axis=0).repeat(m, 2).repeat(m, 3)
    rows, columns = (axis.dst for axis in conv.axes)
    return each[:, :, :rows, :columns], weights
