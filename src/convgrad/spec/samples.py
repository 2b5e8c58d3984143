"""What is asked of single samples: the squared norm of each one's gradient, a weighted sum of all; order, bound.

The **gradient of sample n** is the weight or bias gradient of that image alone, in the order of its own (``order.py``),
kept in f32 (of f64 in f64) and never rounded to a narrower type.

Its **squared norm** is a float64. Elements stand in the order of a row-major array in XIO (transposed: XOI): taps, then
channels of src, then channels of dst. Element e goes to chain e mod 32. A chain starts from +0 and adds the squares of
its elements one after the other; squares of f32 are exact there, and neither overflow nor underflow. The 32 chains are
joined by the 16-ary tree.

Where dst has one position, a weight gradient is a product: of x, src at the taps that exist, and of diff_dst. So is the
norm, but of f64: in each group |x|^2 |dy|^2, each in that order, of x by taps, then channels. Their product is rounded
to float64; groups are added from the first to the last. Where no tap exists it is 0.

The **weighted sum** is the weight or bias gradient of the whole batch, of scale[n] * diff_dst, or of scale[n] * src
where src has fewer elements: scales are f32 (of f64 operands f64), each product is rounded once, and the order is the
plain gradient's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad.formats import F32, F64, Format
from convgrad.spec.bound import error_bound, gamma
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import FAN_IN, height_of, tree_height
from convgrad.spec.problem import Problem, canonical_shape

CHAINS = 32  # of squares: element e goes to chain e mod 32
WRITTEN = {"weights": "XIO", "bias": "NCX"}  # how the gradient of a sample lies: its elements' order is row-major
REMEMBERED = 1024

Numbers = NDArray[np.float64]


@lru_cache(maxsize=REMEMBERED)
def of_one(problem: Problem) -> Problem:
    """Return the problem of one sample's gradient, unrounded, in the order in which squares are added.

    >>> from convgrad.notation import problem
    >>> one = of_one(problem("BWD_W bf16 NXC mb64ic4ih8oc6oh8kh3ph1"))
    >>> one.geometry.batch, one.output_shape, one.output_format.name
    (1, (3, 3, 4, 6), 'f32')
    """
    return replace(
        problem,
        geometry=replace(problem.geometry, batch=1),
        layouts=(*problem.layouts[:-1], WRITTEN[problem.solves_for]),
        output_format=problem.operand_format.accumulator,
        accumulate=False,
        note=None,
    )


@lru_cache(maxsize=REMEMBERED)
def weighted(problem: Problem) -> Problem:
    """Return the problem that a weighted sum is, once an operand is scaled: the same, of operands in f32, or in f64."""
    return replace(problem, operand_format=problem.operand_format.accumulator)


@lru_cache(maxsize=REMEMBERED)
def scaled_operand(problem: Problem) -> int:
    """Return which operand a weighted sum scales: diff_dst, the last, unless src has fewer elements.

    >>> from convgrad.notation import problem
    >>> [scaled_operand(problem(f"BWD_W f32 NXC mb64ic{c}ih8oc6oh8kh3ph1")) for c in (5, 6)]
    [0, 1]
    """
    elements = [prod(canonical_shape(problem.geometry, tensor)) for tensor in problem.operands]
    return min(range(len(elements)), key=lambda number: (elements[number], -number))


@lru_cache(maxsize=REMEMBERED)
def is_product(problem: Problem) -> bool:
    """Return whether the norm of a sample is a product of norms, as dst has one position.

    >>> from convgrad.notation import problem
    >>> [is_product(problem(f"BWD_W {fmt} NXC mb64ic4ih3oc6oh1kh3")) for fmt in ("f16", "f64")]
    [True, False]
    """
    geometry = problem.geometry
    return isinstance(geometry, Conv) and geometry.positions == 1 and problem.operand_format is not F64


def factors(problem: Problem, operands: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return src where taps exist and diff_dst, canonical, as (samples, groups, elements in their order)."""
    assert isinstance(problem.geometry, Conv)
    groups, axes = problem.geometry.groups, problem.geometry.axes
    by_name = dict(zip(problem.operands, operands, strict=True))
    met = by_name["src"][:, :, *map(_met, axes)]
    made = []
    for array in (met, by_name["dst"]):
        samples, channels, *extents = array.shape
        apart = np.moveaxis(array.reshape(samples, groups, channels // groups, *extents), 2, -1)
        made.append(apart.reshape(samples, groups, channels // groups * prod(extents)))
    return made


def _met(axis: Axis) -> slice:
    """Return the source positions that the one destination position meets, tap by tap."""
    step, pad = axis.dilation, axis.pad_begin
    first, behind = -(-pad // step), min(axis.kernel, -(-(axis.src + pad) // step))
    return slice(first * step - pad, max(first, behind) * step - pad, step)


def squares_in_order(gradient: NDArray[Any]) -> np.float64:
    """Return the squared norm of a gradient that lies in the order of its elements.

    >>> float(squares_in_order(np.arange(100, dtype=np.float32)))
    328350.0
    """
    flat = gradient.ravel()
    with np.errstate(all="ignore"):
        chains = np.zeros(CHAINS)
        for first in range(0, flat.size, CHAINS):
            part = flat[first : first + CHAINS].astype(np.float64)
            chains[: part.size] += part * part
        parents = np.zeros(CHAINS // FAN_IN)
        for child in chains.reshape(-1, FAN_IN).T:
            parents += child
        return np.float64(parents[0] + parents[1])


def norm2_height(elements: int) -> int:
    """Return the most additions that a square goes through.

    >>> norm2_height(9 * 64 * 64)
    1168
    """
    return -(-elements // CHAINS) + tree_height(CHAINS)


def product_height(problem: Problem) -> int:
    """Return the most roundings that a square goes through where the norm is a product: of both, theirs, of groups.

    >>> from convgrad.notation import problem
    >>> product_height(problem("BWD_W f32 NXC g2mb64ic128ih3oc64oh1kh3"))
    53
    """
    assert isinstance(problem.geometry, Conv)
    geometry = problem.geometry
    both = (geometry.taps * geometry.src_channels, geometry.dst_channels)
    return sum(norm2_height(elements // geometry.groups) for elements in both) + geometry.groups


def norm2_bound(gradient: Numbers, bound: Numbers | float, fmt: Format = F32, height: int | None = None) -> float:
    """Return how far a squared norm may lie from the exact gradient's, whose elements are off by ``bound`` at most.

    ``fmt`` is the operands'. Of f64 squares are rounded too, and may underflow; nothing may overflow. Of a product no
    element is off; the ``height`` is :func:`product_height`.
    """
    off = float(np.sum((2 * np.abs(gradient) + bound) * bound))
    height = norm2_height(gradient.size) if height is None else height
    squares = float(np.sum((np.abs(gradient) + bound) ** 2))
    rounded = int(fmt is F64)
    g = gamma(height + rounded, F64.unit)
    underflow = rounded * gradient.size * F64.tiny * (1 + g)
    return float((off + g * squares + underflow) * (1 + 2.0**-40))  # what this may lose that is in float64 itself


def weighted_bound(
    problem: Problem, terms: NDArray[np.int64], magnitude: Numbers, others: Numbers, height: int | None = None
) -> Numbers:
    """Return the bound on a weighted sum before it is rounded to its type.

    ``magnitude`` is sum |scale||x||dy|, its old value counted in; ``others`` the sum of what is not scaled, sum |x|
    say, as a product scale * dy that underflows is off by half of the smallest number, times x. The height is one more
    than the plain gradient's.
    """
    accumulator = problem.operand_format.accumulator
    height = height_of(problem) + 1 if height is None else height
    underflow = max(accumulator.tiny / 2, F64.tiny)
    products: Numbers = underflow * others * (1 + gamma(height, accumulator.unit))
    return error_bound(height, terms, magnitude, accumulator) + products


def clip_scales(norm2: NDArray[Any], max_norm: float) -> NDArray[np.float32]:
    """Return min(1, max_norm / norm) of each sample, in f32, rounded towards zero; 1 where the norm is 0."""
    with np.errstate(all="ignore"):
        exact = np.minimum(1.0, max_norm / np.sqrt(norm2))
        scale: NDArray[np.float32] = exact.astype(np.float32)
        below = np.nextafter(scale, np.float32(0))
    return np.where(scale > exact, below, scale)
