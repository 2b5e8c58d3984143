"""What is asked of single samples: the squared norm of each one's gradient, a weighted sum of all; order, bound.

The **gradient of sample n** is the weight or bias gradient of that image alone, in the order of its own (``order.py``),
kept in f32 (of f64 in f64) and never rounded to a narrower type.

Its **squared norm** is a float64. Elements stand in the order of a row-major array in XIO (transposed: XOI): taps, then
channels of src, then channels of dst. Element e goes to chain e mod 32. A chain starts from +0 and adds the squares of
its elements one after the other; squares of f32 are exact there, and neither overflow nor underflow. The 32 chains are
joined by the 16-ary tree. Where a gradient of one group has more than 2^18 elements, dst channels are cut every 128: a
part is a gradient by itself, and their norms are added from the first to the last. So it may be computed part by part.

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

from convgrad.formats import F64
from convgrad.spec.bound import error_bound, gamma
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import FAN_IN, height_of, tree_height
from convgrad.spec.problem import Problem, canonical_shape, of_images

CHAINS = 32  # of squares: element e goes to chain e mod 32
LARGE = 1 << 18  # elements: a gradient of more has its squares added in parts,
PART = 128  # of so many dst channels
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
        of_images(problem, 1),
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


def cuts(problem: Problem) -> list[slice]:
    """Return the channels of each part of a sample's gradient, canonical, whose squares are added by themselves.

    >>> from convgrad.notation import problem
    >>> cuts(problem("BWD_W f32 NXC mb64ic512ih7oc300oh7kh3ph1"))
    [slice(0, 128, None), slice(128, 256, None), slice(256, 300, None)]
    """
    geometry = problem.geometry
    first, *others = canonical_shape(geometry, problem.output)
    large = isinstance(geometry, Conv) and geometry.groups == 1 and first * prod(others) > LARGE
    step = PART if large else max(1, first)
    return [slice(begin, min(begin + step, first)) for begin in range(0, first, step)]


def in_parts(problem: Problem, operands: Sequence[NDArray[Any]]) -> list[tuple[Problem, list[NDArray[Any]]]]:
    """Return the problem of each part of a sample's gradient, with its operands, canonical, of any samples."""
    parts = cuts(problem)
    if len(parts) == 1:
        return [(problem, list(operands))]
    named = list(zip(problem.operands, operands, strict=True))
    return [
        (_part(problem, here.stop - here.start), [array[:, here] if name == "dst" else array for name, array in named])
        for here in parts
    ]


@lru_cache(maxsize=REMEMBERED)
def _part(problem: Problem, dst_channels: int) -> Problem:
    assert isinstance(problem.geometry, Conv)
    return replace(problem, geometry=replace(problem.geometry, dst_channels=dst_channels))


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


def norm2_height(problem: Problem) -> int:
    """Return the most additions that a square goes through; of a product, of both squares, and with its rounding.

    >>> from convgrad.notation import problem
    >>> [norm2_height(problem(f"BWD_W f32 NXC g2mb64ic128ih{2 + oh}oc64oh{oh}kh3")) for oh in (3, 1)]
    [1168, 53]
    """
    geometry = problem.geometry
    if is_product(problem):
        assert isinstance(geometry, Conv)
        both = (geometry.taps * geometry.src_channels, geometry.dst_channels)
        return sum(_height(elements // geometry.groups) for elements in both) + geometry.groups
    _, *others = canonical_shape(geometry, problem.output)
    parts = cuts(problem)
    return max(_height((part.stop - part.start) * prod(others)) for part in parts) + len(parts) - 1


def _height(elements: int) -> int:
    """Return the most additions that a square goes through, of so many elements of a part."""
    return -(-elements // CHAINS) + tree_height(CHAINS)


def norm2_bound(problem: Problem, gradient: Numbers, bound: Numbers) -> float:
    """Return how far a squared norm may lie from the exact gradient's, whose elements are off by ``bound`` at most.

    Of a product no element is off. Of f64 squares are rounded too, and may underflow; nothing may overflow.
    """
    fmt, height = problem.operand_format, norm2_height(problem)
    bound = bound * (not is_product(problem))
    off = float(np.sum((2 * np.abs(gradient) + bound) * bound))
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
