"""What the generated engine solves for: a row each, with the convolution behind it and what its tensors are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from convgrad.formats import F64
from convgrad.plan.view import Strides, View, view
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.layouts import axis_order, from_canonical
from convgrad.spec.problem import Problem, canonical_shape

ONES = "ones"  # in the place of an operand: a one everywhere
REMEMBERED = 1024  # problems whose reasons are kept


@dataclass(frozen=True)
class Role:
    """What is solved for, and which of a problem's operands are the convolution's src and dst; or why there is none."""

    solves_for: str
    operands: Mapping[str, str]
    why_not: str = ""


ROLES = {
    role.solves_for: role
    for role in (
        Role("weights", {"src": "src", "dst": "dst"}),
        # the weight gradient of one src channel of ones under one tap: the same terms in the same order, and 1 * y = y
        Role("bias", {"src": ONES, "dst": "dst"}),
        Role("dst", {}, "there is no kernel that solves for dst"),
        Role("src", {}, "there is no kernel that solves for src"),
        Role("bias_add", {}, "there is no kernel that solves for bias_add"),
    )
}


@lru_cache(maxsize=REMEMBERED)
def why_no_kernel(problem: Problem) -> str:
    """Return why there is no kernel for a problem; nothing where there is."""
    if reason := ROLES[problem.solves_for].why_not:
        return reason
    if problem.operand_format is F64:
        return "kernels keep their sums in f32; got f64"
    conv = conv_of(problem)
    terms = conv.batch * conv.positions
    return "" if terms * conv.src_channels * conv.dst_channels else "there is nothing to sum"


def conv_of(problem: Problem) -> Conv:
    """Return the convolution whose weights a problem solves for."""
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        axes = tuple(Axis(n, n, 1) for n in geometry.extents or (1,))
        return Conv(geometry.batch, 1, 1, geometry.channels, axes)
    return geometry


def view_of(problem: Problem, operands: Sequence[Strides], out: Strides) -> View:
    """Return the view of a problem on canonical arrays of these strides in bytes."""
    conv, role = conv_of(problem), ROLES[problem.solves_for]
    rank, size = 2 + len(conv.axes), problem.operand_format.dtype.itemsize
    given: dict[str, Strides] = dict(zip(problem.operands, operands, strict=True))
    src, dst = (
        (0,) * rank if tensor == ONES else _padded(given[tensor], rank, size)
        for tensor in (role.operands["src"], role.operands["dst"])
    )
    return view(conv, src, dst, _padded(out, rank, problem.output_format.dtype.itemsize), problem.solves_for)


def _padded(strides: tuple[int, ...], rank: int, size: int) -> tuple[int, ...]:
    """Return strides with those of as many axes of one element as a convolution's tensor has more."""
    return strides + (size,) * (rank - len(strides))


def dense_view(problem: Problem) -> View:
    """Return the view of a problem on dense row-major arrays."""
    size, written = problem.operand_format.dtype.itemsize, problem.output_format.dtype.itemsize
    shapes = [canonical_shape(problem.geometry, tensor) for tensor in (*problem.operands, problem.output)]
    sizes = [size] * len(problem.operands) + [written]
    *operands, out = (_dense(*each) for each in zip(shapes, problem.layouts, sizes, strict=True))
    return view_of(problem, operands, out)


def _dense(shape: Sequence[int], layout: str, size: int) -> tuple[int, ...]:
    """Return the strides in bytes of the canonical view of a dense array in a layout."""
    lies = from_canonical(shape, layout)
    steps = [size * prod(lies[axis + 1 :]) for axis in range(len(lies))]
    return tuple(steps[axis] for axis in axis_order(layout, len(lies)))
