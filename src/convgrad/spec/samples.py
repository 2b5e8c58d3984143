"""Per-sample gradients: the squared norm of each, the weighted sum of all, their orders of additions and error bounds.

The **gradient of sample n** is the weight or bias gradient of image n alone, in the order of a batch of one image
(``order.py``). It is kept in f32 (f64 for f64 operands) and never rounded to a narrower type.

Its **squared norm** is a float64. Elements have the row-major order of XIO (transposed operators: XOI): taps, then
channels of src, then channels of dst. Element e is added to chain e mod 32. A chain starts from +0 and adds the squares
of its elements one after the other. Squares of f32 are exact in float64, and neither overflow nor underflow. The 16-ary
tree adds the 32 chains. If a gradient with groups 1 has more than 2^18 elements, its dst channels are cut every 128.
Each part is treated as a separate gradient, and the squared norms of the parts are added from the first to the last. So
the squared norm can be computed part by part.

If dst has one position, a weight gradient is the outer product of two vectors: x has the src values at existing taps,
and dy has the values of diff_dst. Then, except for f64 operands, the squared norm of each group is |x|^2 |dy|^2. The
squares of both vectors are summed in the order above; x is ordered by taps, then channels. The product of the two sums
is rounded to float64, and groups are added from the first to the last. If no tap exists, the norm is 0.

The **weighted sum** is the weight or bias gradient of the whole batch for scale[n] * diff_dst. If src has fewer
elements, scale[n] * src is used instead. Scales are f32 (f64 for f64 operands), and each product with a scale is
rounded once. The order is that of the plain gradient of f32 operands (f64 for f64 operands), also for bf16 operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from convgrad.array_types import Array
from convgrad.float_environment import in_default_environment
from convgrad.formats import F64
from convgrad.spec.bound import error_bound, gamma
from convgrad.spec.geometry import Axis, Conv
from convgrad.spec.order import FAN_IN, height_of, tree_height
from convgrad.spec.problem import Problem, canonical_shape, of_images

CHAINS = 32  # chains of squares: the square of element e is added to chain e mod 32
LARGE = 1 << 18  # elements: the squares of a larger gradient are added in parts
PART = 128  # dst channels per part
WRITTEN = {"weights": "XIO", "bias": "NCX"}  # the memory format, row-major, that defines the order of elements
REMEMBERED = 1024

Numbers = NDArray[np.float64]


@lru_cache(maxsize=REMEMBERED)
def of_one(problem: Problem) -> Problem:
    """Return the problem of one sample's gradient, in the accumulator's format and with elements in the squares' order.

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
    """Return the problem that sums scaled operands: the same problem with f32 operands, or f64 if the given are f64."""
    return replace(problem, operand_format=problem.operand_format.accumulator)


@lru_cache(maxsize=REMEMBERED)
def scaled_operand(problem: Problem) -> int:
    """Return the number of the operand that a weighted sum scales: diff_dst, unless src has fewer elements.

    >>> from convgrad.notation import problem
    >>> [scaled_operand(problem(f"BWD_W f32 NXC mb64ic{c}ih8oc6oh8kh3ph1")) for c in (5, 6)]
    [0, 1]
    """
    elements = [prod(canonical_shape(problem.geometry, tensor)) for tensor in problem.operands]
    return min(range(len(elements)), key=lambda number: (elements[number], -number))


@lru_cache(maxsize=REMEMBERED)
def is_product(problem: Problem) -> bool:
    """Return whether the norm of a sample is a product of norms, because dst has one position.

    >>> from convgrad.notation import problem
    >>> [is_product(problem(f"BWD_W {fmt} NXC mb64ic4ih3oc6oh1kh3")) for fmt in ("f16", "f64")]
    [True, False]
    """
    geometry = problem.geometry
    return isinstance(geometry, Conv) and geometry.positions == 1 and problem.operand_format is not F64


def factors(problem: Problem, operands: Sequence[Array]) -> list[Array]:
    """Return x and dy, whose norms give a sample's norm: src at existing taps, and diff_dst.

    Each has the shape (samples, groups, elements in the specified order).
    """
    assert isinstance(problem.geometry, Conv)
    groups, axes = problem.geometry.groups, problem.geometry.axes
    by_name = dict(zip(problem.operands, operands, strict=True))
    src_at_taps = by_name["src"][:, :, *map(_read_positions, axes)]
    sides = []
    for array in (src_at_taps, by_name["dst"]):
        samples, channels, *extents = array.shape
        apart = np.moveaxis(array.reshape(samples, groups, channels // groups, *extents), 2, -1)
        sides.append(apart.reshape(samples, groups, channels // groups * prod(extents)))
    return sides


def _read_positions(axis: Axis) -> slice:
    """Return the positions of src that the existing taps read for the only position of dst."""
    step, pad = axis.dilation, axis.pad_begin
    first, behind = -(-pad // step), min(axis.kernel, -(-(axis.src + pad) // step))
    return slice(first * step - pad, max(first, behind) * step - pad, step)


def cuts(problem: Problem) -> list[slice]:
    """Return the dst channels of each part of a sample's gradient. The squares of each part are added separately.

    >>> from convgrad.notation import problem
    >>> cuts(problem("BWD_W f32 NXC mb64ic512ih7oc300oh7kh3ph1"))
    [slice(0, 128, None), slice(128, 256, None), slice(256, 300, None)]
    """
    geometry = problem.geometry
    first, *others = canonical_shape(geometry, problem.output)
    large = isinstance(geometry, Conv) and geometry.groups == 1 and first * prod(others) > LARGE
    step = PART if large else max(1, first)
    return [slice(begin, min(begin + step, first)) for begin in range(0, first, step)]


def in_parts(problem: Problem, operands: Sequence[Array]) -> list[tuple[Problem, list[Array]]]:
    """Return the problem of each part of a sample's gradient, with its canonical operands for one or more samples."""
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


@in_default_environment
def squares_in_order(gradient: Array) -> np.float64:
    """Return the squared norm of a gradient whose memory format has the specified order of elements.

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
    """Return the rounding depth of a squared norm: additions that a square passes through, and a product of norms.

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
    """Return the largest number of additions that any square passes through in a part with this number of elements."""
    return -(-elements // CHAINS) + tree_height(CHAINS)


@in_default_environment
def norm2_bound(problem: Problem, gradient: Numbers, bound: Numbers) -> float:
    """Return the largest error of a squared norm if each element of the gradient has an error of at most ``bound``.

    If the norm is a product of norms, elements have no error, because they are operands. Squares of f64 are rounded and
    may underflow. The bound holds if no operation overflows.
    """
    fmt, height = problem.operand_format, norm2_height(problem)
    bound = bound * (not is_product(problem))
    off = float(np.sum((2 * np.abs(gradient) + bound) * bound))
    squares = float(np.sum((np.abs(gradient) + bound) ** 2))
    rounded = int(fmt is F64)
    g = gamma(height + rounded, F64.unit)
    underflow = rounded * gradient.size * F64.tiny * (1 + g)
    return float((off + g * squares + underflow) * (1 + 2.0**-40))  # compensates for the roundings of the bound itself


@in_default_environment
def weighted_bound(
    problem: Problem, terms: NDArray[np.int64], magnitude: Numbers, others: Numbers, height: int | None = None
) -> Numbers:
    """Return the error bound of a weighted sum before it is rounded to the output's type.

    ``magnitude`` is sum |scale||x||dy| including the old value. ``others`` is the sum of absolute values of the operand
    that is not scaled, for example sum |x|. Underflow may change a product scale * dy by half of the smallest number,
    and this error is multiplied by x. The rounding depth is that of ``weighted(problem)`` plus one.
    """
    accumulator = problem.operand_format.accumulator
    height = height_of(weighted(problem)) + 1 if height is None else height
    underflow = max(accumulator.tiny / 2, F64.tiny)
    products: Numbers = underflow * others * (1 + gamma(height, accumulator.unit))
    return error_bound(height, terms, magnitude, accumulator) + products


@in_default_environment
def clip_scales(norm2: Array, max_norm: float) -> NDArray[np.float32]:
    """Return min(1, max_norm / norm) of each sample, in f32, rounded towards zero; 1 if the norm is 0."""
    with np.errstate(all="ignore"):
        exact = np.minimum(1.0, max_norm / np.sqrt(norm2.astype(np.float64)))
        scale: NDArray[np.float32] = exact.astype(np.float32)
        below = np.nextafter(scale, np.float32(0))
    return np.where(scale > exact, below, scale)
