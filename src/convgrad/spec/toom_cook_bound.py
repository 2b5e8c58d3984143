"""The error bound of a weight gradient in a variant of Toom-Cook: by the norms of the channels of each weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F32, Format
from convgrad.spec.bound import gamma
from convgrad.spec.chosen import kappa
from convgrad.spec.order import height_of
from convgrad.spec.problem import Problem
from convgrad.spec.toom_cook import TAPS

F64Array = NDArray[np.float64]
UNDERFLOW = 1 << 14  # by what a denormal's rounding is multiplied at most, on all ways to a weight: docs/numerics.md
_UP = 1 + 2.0**-40  # what a bound may lose that is itself computed in float64


def variant_bound(problem: Problem, operands: Sequence[NDArray[Any]], accumulator: Format = F32) -> F64Array:
    """Return the bound before the output's rounding: gamma_H kappa ||x_c|| ||dy_k||, and what underflows.

    Of operands that are not finite, what is: where one reaches a weight, all are computed by the direct sum, whose
    bound is less.
    """
    given = dict(zip(problem.operands, operands, strict=True))
    norms, sums = [], []
    for tensor in ("dst", "src"):
        values = np.nan_to_num(np.abs(given[tensor].astype(np.float64)), nan=0.0, posinf=0.0)
        others = (0, *range(2, values.ndim))
        norms.append(np.sqrt((values * values).sum(others)))
        sums.append(values.sum(others))
    size = kappa(problem.variant) * norms[0][:, None] * norms[1][None, :]
    lost = accumulator.tiny * UNDERFLOW * (sums[0][:, None] + sums[1][None, :] + given["dst"][:, 0].size)
    size, lost = (each[:, :, None, None] for each in (size, lost))
    g = gamma(height_of(problem), accumulator.unit)
    bound: F64Array = (g * size + lost * (1 + g)) * _UP
    return np.broadcast_to(bound, (*bound.shape[:2], TAPS, TAPS)).copy()
