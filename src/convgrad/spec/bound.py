"""The error bound of a sum, from its height: how far a correct result may lie from the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F64, Format


def gamma(height: int, unit: float) -> float:
    """Return gamma_h = h u / (1 - h u), the relative error h roundings can add up to; infinite where h u >= 1."""
    product = height * unit
    return product / (1 - product) if product < 1 else float("inf")


def error_bound(
    height: int, terms: NDArray[Any] | int, magnitude: NDArray[np.float64], accumulator: Format
) -> NDArray[np.float64]:
    """Return the bound on a sum before its output rounding: gamma_h sum|x||y| + n tiny/2 (1 + gamma_h).

    ``magnitude`` is sum |x||y|, bias and old value counted in; ``terms`` the number n of products, each of which may
    underflow by half of the accumulator's smallest number. Holds where nothing overflows.
    """
    g = gamma(height, accumulator.unit)
    underflow = max(accumulator.tiny / 2, F64.tiny)
    bound: NDArray[np.float64] = g * magnitude + np.asarray(terms) * underflow * (1 + g)
    return bound
