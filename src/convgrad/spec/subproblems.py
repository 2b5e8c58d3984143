"""Sub-problems: problems on some images and ranges of positions, and the regions of arrays that they read and write.

Ranges select positions of one tensor, the **swept** tensor. A weight or bias gradient sums over dst and a forward
writes dst, so dst is swept. A data gradient writes src, so src is swept. If dst is swept, a sub-problem reads the
positions of src that meet its positions of dst, and vice versa. Rows that two neighbouring sub-problems both read are
the **halo**. If a sub-problem has all positions of an axis, it reads all positions along this axis. So the sub-problem
of all images and positions is the problem itself.

A forward or a data gradient that is computed by sub-problems has the same bits for any ranges, because each output's
sum is over taps and channels. For weight and bias gradients, see ``spec/image_cuts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import Tensor
from convgrad.spec.problem import Problem, canonical_shapes, intern

Region = tuple[slice, ...]  # part of an array in the caller's layout, one slice per axis
Ranges = tuple[range, ...]  # ranges of positions of step 1, one per spatial axis

REMEMBERED = 4096


@dataclass(frozen=True)
class SubProblem:
    """A sub-problem of some images and ranges of positions, with the regions that it reads and writes.

    In a weight or bias gradient, a sub-problem computes a part of the sum, so it writes the whole output.
    """

    images: range
    ranges: Ranges
    problem: Problem
    reads: tuple[Region, ...]
    writes: Region


def swept(problem: Problem) -> Tensor:
    """Return the tensor whose positions are divided among sub-problems: the data that is summed over, or written."""
    return "src" if problem.solves_for in ("src", "bias_add") else "dst"


def positions(problem: Problem) -> tuple[int, ...]:
    """Return the extents of the swept tensor.

    >>> from convgrad.notation import problem
    >>> positions(problem("BWD_D f32 NXC mb1ic1iw9oc1ow4kw3sw2"))
    (9,)
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        return geometry.extents
    return tuple(axis.src if swept(problem) == "src" else axis.dst for axis in geometry.axes)


def whole(problem: Problem) -> Ranges:
    """Return the ranges of all positions of the swept tensor."""
    return tuple(range(extent) for extent in positions(problem))


@lru_cache(maxsize=REMEMBERED)
def subproblem_of(problem: Problem, images: range, ranges: Ranges) -> SubProblem:
    """Return the sub-problem of one or more images and one or more positions on each axis.

    >>> from convgrad.notation import problem
    >>> one = subproblem_of(problem("BWD_W f32 NXC mb8ic4iw300oc6ow300kw3pw1"), range(2, 4), (range(256, 300),))
    >>> one.reads[0]
    (slice(2, 4, None), slice(255, 300, None), slice(0, 4, None))
    >>> one.problem.geometry.axes
    (Axis(src=45, dst=44, kernel=3, stride=1, dilation=1, pad_begin=0, pad_end=1),)
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels):
        part: Conv | Channels = replace(geometry, batch=len(images), extents=tuple(map(len, ranges)))
        ranges_of: dict[Tensor, Ranges] = {"src": ranges, "dst": ranges}
    else:
        cut = _over_src if swept(problem) == "src" else _over_dst
        axes, src, dst = zip(*map(cut, geometry.axes, ranges), strict=True)
        part = Conv(len(images), geometry.groups, geometry.src_channels, geometry.dst_channels, axes)
        ranges_of = {"src": src, "dst": dst}

    def region(tensor: Tensor, whole_ranges: Ranges, order: tuple[int, ...]) -> Region:
        all_ranges = (images, whole_ranges[1], *ranges_of[tensor]) if tensor in ranges_of else whole_ranges
        return tuple(slice(all_ranges[axis].start, all_ranges[axis].stop) for axis in order)

    *reads, writes = (region(*arrays) for arrays in _arrays(problem))
    return SubProblem(images, ranges, _with(problem, part), tuple(reads), writes)


def rows_read(problem: Problem, tensor: Tensor, rows: range) -> range:
    """Return the rows of src or dst that a sub-problem with these rows of the swept tensor reads or writes.

    >>> from convgrad.notation import problem
    >>> rows_read(problem("BWD_W f32 NXC mb8ic4iw300oc6ow300kw3pw1"), "src", range(256, 300))
    range(255, 300)
    """
    geometry = problem.geometry
    if isinstance(geometry, Channels) or tensor == swept(problem):
        return rows
    _, src, dst = (_over_src if swept(problem) == "src" else _over_dst)(geometry.axes[0], rows)
    return src if tensor == "src" else dst


@lru_cache(maxsize=REMEMBERED)
def _arrays(problem: Problem) -> list[tuple[Tensor, Ranges, tuple[int, ...]]]:
    """Return, per operand and last for the output: the tensor, its canonical ranges, and the caller's order of axes."""
    tensors, shapes = (*problem.operands, problem.output), canonical_shapes(problem)
    orders = (
        from_canonical(range(len(shape)), lie) if len(shape) > 1 else (0,)
        for shape, lie in zip(shapes, problem.layouts, strict=True)
    )
    return [
        (tensor, tuple(map(range, shape)), order) for tensor, shape, order in zip(tensors, shapes, orders, strict=True)
    ]


@lru_cache(maxsize=REMEMBERED)
def _with(problem: Problem, geometry: Conv | Channels) -> Problem:
    return intern(replace(problem, geometry=geometry))


@lru_cache(maxsize=REMEMBERED)
def _over_dst(axis: Axis, positions: range) -> tuple[Axis, range, range]:
    """Return the axis of a sub-problem with these positions of dst, the positions of src to read, and ``positions``."""
    if len(positions) == axis.dst:
        return axis, range(axis.src), positions
    first = positions.start * axis.stride - axis.pad_begin
    end = (positions.stop - 1) * axis.stride - axis.pad_begin + axis.effective_kernel
    src = range(max(first, 0), min(end, axis.src))
    if not src:  # all taps are on padding: the sub-problem has one position of src, which no tap reads
        part = replace(axis, src=min(1, axis.src), dst=len(positions))
        return replace(part, pad_begin=part.span, pad_end=0), range(part.src), positions
    pads = {"pad_begin": src.start - first, "pad_end": end - src.stop}
    return replace(axis, src=len(src), dst=len(positions), **pads), src, positions


@lru_cache(maxsize=REMEMBERED)
def _over_src(axis: Axis, positions: range) -> tuple[Axis, range, range]:
    """Return the axis of a sub-problem with these positions of src, ``positions``, and the positions of dst to read.

    If the positions of src meet no position of dst, for example because of a stride, the sub-problem has one position
    of dst that no tap uses. So no pad is negative.
    """
    if len(positions) == axis.src:
        return axis, positions, range(axis.dst)
    first, last = positions.start + axis.pad_begin, positions[-1] + axis.pad_begin
    begin = min(-((axis.effective_kernel - 1 - first) // axis.stride), first // axis.stride, axis.dst - 1)
    begin = max(begin, 0)
    dst = range(begin, max(min(last // axis.stride + 1, axis.dst), begin + min(1, axis.dst)))
    part = replace(axis, src=len(positions), dst=len(dst), pad_begin=first - dst.start * axis.stride)
    return replace(part, pad_end=max(0, part.span - part.pad_begin - part.src)), positions, dst
