"""The minimal cost of a problem: operations and bytes."""

from __future__ import annotations

from math import prod

from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.problem import Problem, canonical_shape


def nominal_flops(geometry: Conv | Channels) -> int:
    """Return the usual number of operations: two per multiply-add, including taps on padding.

    A bias operator has one operation per element.
    """
    return 2 * geometry.multiply_adds if isinstance(geometry, Conv) else prod(geometry.shape)


def needed_flops(geometry: Conv | Channels) -> int:
    """Return the usual number of operations without the operations of taps on padding.

    >>> from convgrad.notation import problem
    >>> conv = problem("BWD_W f32 NXC mb1ic1iw3oc1ow3kw3pw1").geometry
    >>> nominal_flops(conv), needed_flops(conv)
    (18, 14)
    """
    if isinstance(geometry, Channels):
        return nominal_flops(geometry)
    per_axis = (sum(len(a.existing(k, range(a.src), range(a.dst))) for k in range(a.kernel)) for a in geometry.axes)
    return 2 * geometry.batch * prod(per_axis) * geometry.dst_channels * (geometry.src_channels // geometry.groups)


def moved_bytes(problem: Problem) -> int:
    """Return the number of bytes of the operands, except a bias, and of the result. Each array counts once."""
    elements = sum(prod(canonical_shape(problem.geometry, t)) for t in problem.operands if t != "bias")
    outputs = prod(canonical_shape(problem.geometry, problem.output))
    return elements * problem.operand_format.dtype.itemsize + outputs * problem.output_format.dtype.itemsize
