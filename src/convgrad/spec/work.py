"""The minimal cost of a problem: operations and bytes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from convgrad.spec.geometry import Axis, Channels, Conv
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
    channel_pairs = geometry.dst_channels * (geometry.src_channels // geometry.groups)
    return 2 * geometry.batch * prod(map(_meetings, geometry.axes)) * channel_pairs


def _meetings(axis: Axis) -> int:
    """Return the number of pairs of a tap and a position of dst whose position of src exists.

    Taps and positions can be exchanged, so that a kernel of millions of taps with few positions takes no time.
    """
    if axis.dst < axis.kernel:
        axis = replace(axis, dst=axis.kernel, kernel=axis.dst, stride=axis.dilation, dilation=axis.stride)
    return sum(len(axis.existing(tap, range(axis.src), range(axis.dst))) for tap in range(axis.kernel))


def moved_bytes(problem: Problem) -> int:
    """Return the number of bytes of the operands, except a bias, and of the result. Each array counts once."""
    elements = sum(prod(canonical_shape(problem.geometry, t)) for t in problem.operands if t != "bias")
    outputs = prod(canonical_shape(problem.geometry, problem.output))
    return elements * problem.operand_format.itemsize + outputs * problem.output_format.itemsize
