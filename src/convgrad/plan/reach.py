"""The check for problems that no kernel computes. This module imports no planner, so the check is fast."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from convgrad.formats import F64
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem

REMEMBERED = 1024  # the number of problems whose results are cached
NO_KERNEL = ("bias_add",)


@lru_cache(maxsize=REMEMBERED)
def unsupported(problem: Problem) -> str:
    """Return why no kernel computes a problem, or the empty string if one does."""
    if problem.solves_for in NO_KERNEL:
        return f"there is no kernel that solves for {problem.solves_for}"
    if problem.operand_format is F64:
        return "kernels keep their sums in f32; got f64"
    conv = conv_of(problem)
    positions = conv.batch * conv.positions * prod(axis.src for axis in conv.axes)
    return "" if positions * conv.src_channels * conv.dst_channels else "there is nothing to sum"


def conv_of(problem: Problem) -> Conv:
    """Return the geometry of a problem as a convolution. For a bias, this has one tap and one src channel."""
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        axes = tuple(Axis(n, n, 1) for n in geometry.extents or (1,))
        return Conv(geometry.batch, 1, 1, geometry.channels, axes)
    return geometry
