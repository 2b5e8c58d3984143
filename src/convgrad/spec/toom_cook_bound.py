"""The error bound of a result in a variant of Toom-Cook: by all ways of its terms, by norms of points, of operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
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
from convgrad.spec.toom_cook_ordered import by_groups, tiles_of
from convgrad.spec.toom_cook_sizes import by_norms, by_paths, ways

F64Array = NDArray[np.float64]
PATHS, NORMS, KAPPA = BOUNDS = ("paths", "norms", "kappa")  # from the tightest to the one known beforehand
UNDERFLOW = 1 << 14  # by what a denormal's rounding is multiplied at most, on all ways to a result: docs/numerics.md
GROWTH = 1 << 32  # by what a value on these ways exceeds the largest operands, their product and the terms, at most


def variant_bound(
    problem: Problem, operands: Sequence[NDArray[Any]], accumulator: Format = F32, bound: str = PATHS
) -> F64Array:
    """Return the bound before the output's rounding, in one of three forms, and what underflows.

    "paths" is gamma_H W at most, each rounding counted where it is, and 0 of integers that are exact; "norms" has norms
    of a point's values in place of their products; "kappa" is gamma_H kappa times two norms: of the channels of a
    weight, or of what a position's tile meets and the weights of its channel. Of results by tiles: where one of them
    may not be finite, all are the direct sum's (``may_be_direct``), and so is their bound.
    """
    given = {
        tensor: np.nan_to_num(each.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        for tensor, each in zip(problem.operands, operands, strict=True)
    }
    return by_groups(problem, given, partial(_of_group, accumulator=accumulator, bound=bound))


def _of_group(problem: Problem, given: Mapping[Tensor, F64Array], accumulator: Format, bound: str) -> F64Array:
    sizes = {tensor: np.abs(each) for tensor, each in given.items()}
    of_operands = _of_weights if problem.solves_for == "weights" else _of_positions
    g = gamma(height_of(problem), accumulator.unit)
    lost = accumulator.tiny * UNDERFLOW * (sum(of_operands(problem, sizes)) + order_of(problem).terms)
    last = sizes["bias"][:, None, None] if "bias" in given else np.zeros(())
    with np.errstate(invalid="ignore"):  # of gamma that is infinite
        if bound == KAPPA:
            first, second = of_operands(problem, {tensor: each * each for tensor, each in given.items()})
            relative = g * kappa(problem) * np.sqrt(first * second)
        else:
            relative = (by_paths if bound == PATHS else by_norms)(problem, given, accumulator.unit)
        total = (relative + g * last + lost * (1 + g)) * (1 + 2.0**-40 + order_of(problem).terms * 2.0**-46)
    total = np.where(np.isnan(total), np.inf, total)
    if bound == PATHS and all(np.array_equal(each, np.rint(each)) for each in given.values()):
        granules = (ways(problem, given) + last) * VARIANTS[problem.variant].scale(problem.solves_for)
        total = np.where(granules <= 2.0**accumulator.significand_bits, 0.0, total)
    return np.broadcast_to(total, canonical_shape(problem.geometry, problem.output)).copy()


def may_be_direct(problem: Problem, operands: Sequence[NDArray[Any]], accumulator: Format = F32) -> bool:
    """Return whether a value on the way to a result may not be finite, so that all results are the direct sum's."""
    first, second, *_ = (float(np.abs(each.astype(np.float64)).max(initial=0)) for each in operands)
    most = GROWTH * max(first, second, first * second * order_of(problem).terms)
    return not (most < accumulator.largest and all(np.isfinite(each).all() for each in operands))


def direct_height(problem: Problem) -> int:
    """Return the height of the direct sum of a problem that has a variant."""
    return height_of(replace(problem, variant=""))


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
