"""The error bound of a sum, from its rounding depth: the largest error that a correct result may have."""

from __future__ import annotations

from typing import overload

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array, F64Array
from convgrad.float_environment import in_default_environment
from convgrad.formats import F64, Format

_UP = 1 + 2.0**-49  # compensates for the roundings of the bound itself, which is computed in float64


@overload
def gamma(height: int, unit: float) -> float: ...
@overload
def gamma(height: NDArray[np.int64], unit: float) -> F64Array: ...
@overload
def gamma(height: int | NDArray[np.int64], unit: float) -> float | F64Array: ...
def gamma(height: int | NDArray[np.int64], unit: float) -> float | F64Array:
    """Return gamma_h = h u / (1 - h u), the largest relative error of h roundings with unit u; infinite if h u >= 1.

    >>> gamma(3, 0.25), gamma(4, 0.25), gamma(np.array([1, 4]), 0.25).tolist()
    (3.0, inf, [0.3333333333333333, inf])
    """
    product = height * unit
    if isinstance(product, np.ndarray):
        with np.errstate(divide="ignore"):
            return np.where(product < 1, product / np.maximum(1 - product, 0), np.inf)
    return product / (1 - product) if product < 1 else float("inf")


@in_default_environment
def error_bound(
    height: int | NDArray[np.int64],
    terms: Array | int,
    magnitude: NDArray[np.float64],
    accumulator: Format,
    added: int = 0,
) -> NDArray[np.float64]:
    """Return the error bound of a sum before the output's rounding: gamma_h sum|x||y| + m tiny/2 (1 + gamma_h).

    ``magnitude`` is sum |x||y| including bias and old value. ``terms`` is the number n of products, and m is n plus
    ``added``, the number of bias and old value. Underflow may change each product by half of the accumulator's smallest
    number, and also a bias or old value that is not a number of its format. The bound holds if no operation overflows.

    Where gamma_h >= 1, the smaller of it and N u (1 + u) is used, with N = n + 2 terms including bias and old value.
    This holds for sums of any length, because rounding a + b to nearest changes the sum by at most min(|a|, |b|): in
    any order of N numbers, the errors are at most (N - 1) u times the sum of their magnitudes (Jeannerod and Rump, SIAM
    J. Matrix Anal. Appl. 34, 2013). Rounded products add u and a factor of 1 + u. A fused multiply-add has at most the
    errors of a rounded product and its addition, because its result is at least as near as theirs.
    """
    unit = accumulator.unit
    g = np.asarray(gamma(height, unit))
    g = np.where(g >= 1, np.minimum(g, (np.asarray(terms) + 2) * (unit * (1 + unit))), g)
    underflow = max(accumulator.tiny / 2, F64.tiny)
    bound: NDArray[np.float64] = (g * magnitude + (np.asarray(terms) + added) * underflow * (1 + g)) * _UP
    return bound


@in_default_environment
def output_bound(value: NDArray[np.float64], bound: NDArray[np.float64], fmt: Format) -> NDArray[np.float64]:
    """Return the error bound of a sum after it is rounded to ``fmt``; infinite if the rounding may overflow.

    ``value`` is the exact sum and ``bound`` is the error bound before this rounding. Rounding changes a sum by at most
    u times its absolute value, or by half of the smallest number of ``fmt``.
    """
    furthest = np.abs(value) + bound
    total: NDArray[np.float64] = (bound + np.maximum(furthest * fmt.unit, fmt.tiny / 2)) * _UP
    return np.where(furthest <= fmt.largest, total, np.inf)
