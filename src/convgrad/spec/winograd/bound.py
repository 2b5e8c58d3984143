"""The error bounds of Winograd results: from sums over points, from norms at each point, or from norms of operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.float_environment import in_default_environment
from convgrad.formats import F32, Format
from convgrad.spec.bound import gamma
from convgrad.spec.operators import Tensor
from convgrad.spec.order import height_of, order_of
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.winograd.choice import kappa
from convgrad.spec.winograd.execution import by_groups, slices_of, tiles_of
from convgrad.spec.winograd.sizes import by_norms, by_paths, ways

PATHS, NORMS, KAPPA = BOUNDS = ("paths", "norms", "kappa")  # the factor of "kappa" does not depend on data
UNDERFLOW = 1 << 14  # the largest factor of a denormal's rounding error in a result; see docs/numerics.md
# The largest ratio of an intermediate value to the largest operand, or to the product of the largest operands times the
# number of terms
GROWTH = 1 << 32


@in_default_environment
def result_bound(
    problem: Problem, operands: Sequence[Array], accumulator: Format = F32, bound: str = PATHS
) -> F64Array:
    """Return the error bound before the output's rounding, including underflow, in one of three forms.

    - "paths", the tightest, counts each rounding where it happens. It is at most gamma_H W, and 0 for exact integers.
    - "norms" uses the norms of a point's values instead of the sums of their products.
    - "kappa" is gamma_H kappa times the product of two norms of operands.

    For a weight gradient, the two norms are those of the src channel and the dst channel of a weight. In the other
    passes, they are those of the positions that a tile meets and of the weights of the tile's channel.

    The bound holds for results that are computed by tiles. If a sum may not be finite, all results are direct sums
    with the direct sum's bound (``may_be_direct``).
    """
    arrays = {
        tensor: np.nan_to_num(operand.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        for tensor, operand in zip(problem.operands, operands, strict=True)
    }
    return by_groups(problem, arrays, partial(_of_slices, accumulator=accumulator, bound=bound))


def _of_slices(problem: Problem, arrays: Mapping[Tensor, F64Array], accumulator: Format, bound: str) -> F64Array:
    sizes = {tensor: np.abs(array) for tensor, array in arrays.items()}
    of_operands = _of_weights if problem.solves_for == "weights" else _of_positions
    g = gamma(height_of(problem), accumulator.unit)
    lost = accumulator.tiny * UNDERFLOW * (sum(of_operands(problem, sizes)) + order_of(problem).terms)
    last = sizes["bias"][:, None, None] if "bias" in arrays else np.zeros(())
    with np.errstate(invalid="ignore"):  # gamma may be infinite, and inf * 0 is NaN
        if bound == KAPPA:
            first, second = of_operands(problem, {tensor: array * array for tensor, array in arrays.items()})
            relative = g * kappa(problem) * np.sqrt(first * second)
        else:
            relative = (by_paths if bound == PATHS else by_norms)(problem, arrays, accumulator.unit)
        total = (relative + g * last + lost * (1 + g)) * (1 + 2.0**-40 + order_of(problem).terms * 2.0**-46)
    total = np.where(np.isnan(total), np.inf, total)
    if bound == PATHS and all(np.array_equal(array, np.rint(array)) for array in arrays.values()):
        granules = (ways(problem, arrays) + last) * slices_of(problem)[1].scale(problem.solves_for)
        total = np.where(granules <= 2.0**accumulator.significand_bits, 0.0, total)
    return np.broadcast_to(total, canonical_shape(problem.geometry, problem.output)).copy()


def may_be_direct(problem: Problem, operands: Sequence[Array], accumulator: Format = F32) -> bool:
    """Return whether an intermediate value may not be finite. Then all results are direct sums."""
    first, second, *_ = (float(np.abs(operand.astype(np.float64)).max(initial=0)) for operand in operands)
    maximum = GROWTH * max(first, second, first * second * order_of(problem).terms)
    return not (maximum < accumulator.largest and all(np.isfinite(operand).all() for operand in operands))


def direct_height(problem: Problem) -> int:
    """Return the rounding depth of the direct sum for a problem that has an algorithm."""
    return height_of(replace(problem, algorithm=""))


def _of_weights(problem: Problem, arrays: Mapping[Tensor, F64Array]) -> tuple[F64Array, F64Array]:
    """Return the sum of each channel of dst and the sum of each channel of src, with axes that broadcast to weights."""
    dst, src = (arrays[tensor].sum((0, 2, 3))[:, None, None] for tensor in ("dst", "src"))
    return dst[:, None], src


def _of_positions(problem: Problem, arrays: Mapping[Tensor, F64Array]) -> tuple[F64Array, F64Array]:
    """Return, per position, the sum of the values that its tile meets, and, per channel, the sum of its weights."""
    conv, algorithm = slices_of(problem)
    weights = arrays["weights"].sum((1, 2, 3))[:, None, None]
    data, pads = arrays["src"].sum(1, keepdims=True), [axis.pad_begin for axis in conv.axes]
    tiles = tiles_of(data, algorithm.covering(conv), pads, algorithm.tile, algorithm.sides)
    sums = np.sum([value for row in tiles for value in row], axis=0)
    for axis, tile in enumerate(algorithm.tile, 2):
        sums = sums.repeat(tile, axis)
    rows, columns = (axis.dst for axis in conv.axes)
    return sums[:, :, :rows, :columns], weights
