"""Granules of sums: the granule of a sum is a power of two that divides all its terms.

A float64 sum is exact, in any order, with or without FMA, if the magnitudes of its terms add up to at most 2^53
granules. Each partial sum is then a multiple of the granule and fits in 53 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.spec.geometry import Conv
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Exponents = NDArray[np.int32]

COARSE = 1 << 20  # exponent for zeros, which every power of two divides
NUMBERS = 1 << 20  # maximum number of elements that are processed together, which limits memory


def granules(problem: Problem, operands: Sequence[Array]) -> Exponents:
    """Return exponents e, broadcastable to the canonical output: all terms of an element are multiples of 2^e.

    Operands are canonical. Bias is one of the terms.
    """
    tensors = dict(zip(problem.operands, operands, strict=True))
    lines: dict[Tensor, Exponents] = {t: _lines(array) for t, array in tensors.items() if t != "bias"}
    if isinstance(problem.geometry, Conv):
        exponents = _of_products(problem.geometry, problem.solves_for, lines)
    else:
        (values,) = lines.values()
        exponents = values.min(axis=0, initial=COARSE) if problem.solves_for == "bias" else values
    exponents = exponents.reshape(*exponents.shape, *[1] * (_rank(problem) - exponents.ndim))
    if "bias" in tensors:
        exponents = np.minimum(exponents, lowest_bits(tensors["bias"]).reshape(-1, *[1] * (_rank(problem) - 2)))
    return exponents


def _rank(problem: Problem) -> int:
    return len(problem.output_shape)


def _of_products(conv: Conv, solves_for: str, lines: Mapping[Tensor, Exponents]) -> Exponents:
    """Return the exponents of ``granules`` along the first two axes of the output, from those of the operands."""
    g, inner, outer = conv.groups, conv.src_channels // conv.groups, conv.dst_channels // conv.groups
    if solves_for == "weights":
        src = lines["src"].min(axis=0, initial=COARSE).reshape(g, 1, inner)
        dst = lines["dst"].min(axis=0, initial=COARSE).reshape(g, outer, 1)
        both: Exponents = src + dst
        return both.reshape(conv.dst_channels, inner)
    weights = lines["weights"].reshape(g, outer, inner)
    if solves_for == "dst":
        data, by_channel = lines["src"].reshape(-1, g, inner, 1), weights.min(axis=2, initial=COARSE)
    else:
        data, by_channel = lines["dst"].reshape(-1, g, outer, 1), weights.min(axis=1, initial=COARSE)
    exponents: Exponents = data.min(axis=2, initial=COARSE) + by_channel
    return exponents.reshape(len(exponents), by_channel.size)


def _lines(array: Array) -> Exponents:
    """Return the smallest result of ``lowest_bits`` for each index of the first two axes."""
    exponents = np.full(array.shape[:2], COARSE, np.int32)
    if array.size > NUMBERS and len(array) > 1:
        step = max(1, NUMBERS // array[:1].size)
        for begin in range(0, len(array), step):
            exponents[begin : begin + step] = _lines(array[begin : begin + step])
    elif array.size > NUMBERS and array.ndim > 2 and array.shape[2] > 1:
        step = max(1, NUMBERS // array[:, :, :1].size)
        for begin in range(0, array.shape[2], step):
            np.minimum(exponents, _lines(array[:, :, begin : begin + step]), out=exponents)
    else:
        exponents = lowest_bits(array).min(axis=tuple(range(2, array.ndim)), initial=COARSE)
    return exponents


def lowest_bits(values: Array) -> Exponents:
    """Return the exponent of the lowest set bit of each number; ``COARSE`` for 0, NaN and infinities.

    >>> lowest_bits(np.array([1.0, 6.0, 0.75, 5e-324])).tolist(), int(lowest_bits(np.zeros(1))[0]) == COARSE
    ([0, 1, -2, -1074], True)
    """
    wide = np.asarray(values).astype(np.float64)
    fraction, exponent = np.frexp(np.where(np.isfinite(wide), wide, 0.0))
    digits = np.ldexp(fraction, 53).astype(np.int64)
    _, lowest = np.frexp((digits & -digits).astype(np.float64))  # 2^(lowest - 1)
    exponents: Exponents = np.where(digits == 0, COARSE, exponent + lowest - 54).astype(np.int32)
    return exponents
