"""Operands that are hard to sum: terms that cancel, the format's whole range of exponents, zeros of both signs.

Sums are over an axis that both operands have: channels or images. One operand is scaled by 2^k along the summed axis,
and the other by 2^-k, where k reaches the limits of the format. So operands are as large and as small as the format
allows, but products are moderate and results are finite. For about half of the pairs of neighbouring channels or
images, the two products nearly cancel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from convgrad.array_types import Array, F64Array
from convgrad.formats import store
from convgrad.spec.geometry import Channels
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem

Shape = tuple[int, ...]

# Shares of values: normally distributed numbers, such numbers times a random power of 2, numbers of few bits, zeros.
KINDS: Mapping[str, float] = {"normal": 0.4, "scaled": 0.2, "few bits": 0.3, "zeros": 0.1}
SCALES = {127: (-30, 12), 15: (-12, 2), 8: (-6, -1)}  # exponents of "scaled", by the exponent of the largest result
NORMAL_BITS = 3  # about one of 10^15 normally distributed numbers has a magnitude of 2^3 or more


class SharedAxis(NamedTuple):
    """The summed axis that both operands have: its number in each operand, and its period.

    The period is the number of channels of a group, or of images.
    """

    axes: Mapping[Tensor, int]
    period: int


def adversarial(problem: Problem, shapes: Sequence[Shape], rng: np.random.Generator) -> Iterator[Array]:
    """Yield one canonical operand per canonical shape, such that sums are hard to compute accurately."""
    fmt, shared = problem.operand_format, _shared(problem, shapes)
    exponents = SCALES[min(fmt.max_exponent, problem.output_format.max_exponent, 127)]
    reach = max(0, fmt.max_exponent - exponents[1] - NORMAL_BITS - 2)
    powers = np.resize((reach, -reach, 0, 0, reach // 2), shared.period)
    opposite = rng.random(shared.period) < 0.5  # marks the second of two neighbours whose products cancel
    opposite[::2] = False
    last_bits = 1 + 4 * fmt.unit
    for at, (tensor, shape) in enumerate(zip(problem.operands, shapes, strict=True)):
        values = _mixed(shape, exponents, problem, rng)
        if tensor in shared.axes:
            rows = np.moveaxis(values, shared.axes[tensor], 0)  # a view
            of = np.arange(len(rows)) % shared.period
            second = np.flatnonzero(opposite[of])
            rows[second] = rows[second - 1] * (-last_bits if at == 0 else 1.0)
            k = np.where(opposite[of], powers[of - 1], powers[of])
            rows *= np.ldexp(1.0, k if at == 0 else -k).reshape(-1, *[1] * (rows.ndim - 1))
        yield store(values, fmt)


def _shared(problem: Problem, shapes: Sequence[Shape]) -> SharedAxis:
    conv = problem.geometry
    if isinstance(conv, Channels):
        return SharedAxis({}, 1)
    if problem.solves_for == "weights":
        return SharedAxis({"src": 0, "dst": 0}, max(conv.batch, 1))
    if problem.solves_for == "dst":
        return SharedAxis({"src": 1, "weights": 1}, conv.src_channels // conv.groups)
    return SharedAxis({"dst": 1, "weights": 0}, conv.dst_channels // conv.groups)


def _mixed(shape: Shape, exponents: tuple[int, int], problem: Problem, rng: np.random.Generator) -> F64Array:
    """Return a random mixture of the kinds of numbers in ``KINDS``.

    Sums of numbers of few bits (1, 1.5 and the unit roundoff of the result) are often exact ties.
    """
    normal = np.clip(rng.standard_normal(shape), -(2.0**NORMAL_BITS), 2.0**NORMAL_BITS)
    signs = rng.choice((-1.0, 1.0), shape)
    kinds = rng.choice(len(KINDS), shape, p=list(KINDS.values()))
    values_by_kind = (
        normal,
        np.ldexp(normal, rng.integers(exponents[0], exponents[1] + 1, shape)),
        rng.choice((1.0, 1.5, problem.output_format.unit), shape) * signs,
        np.zeros(shape) * signs,
    )
    return np.choose(kinds, values_by_kind)
