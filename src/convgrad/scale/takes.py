"""The maximum memory of a call in pieces, by use: operands, scratch, sums and result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from convgrad import engines
from convgrad.array_types import Array, Dtype
from convgrad.formats import F32, strided
from convgrad.functional.partials import SUMMED
from convgrad.scale.cut import ONCE, Cut, EvenRanges
from convgrad.scale.source import OperandSource
from convgrad.scale.target import Target
from convgrad.spec.image_cuts import blocks_of, nodes_with_ranges
from convgrad.spec.layouts import dense
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images, max_sums, nodes_of
from convgrad.spec.problem import Problem, intern, of_images
from convgrad.spec.subproblems import positions, subproblem_of, whole

Takes = tuple[tuple[str, int], ...]  # uses of memory, each with its bytes

LOOKED_AT = 512  # the examined pieces; later pieces repeat these, or add one sum per level of the reduction tree


def buffers(problem: Problem, cut: Cut, sources: Sequence[OperandSource]) -> int:
    """Return how many pieces are in memory at a time: 2 if a piece is read while another is computed, otherwise 1."""
    streamed = any(s.how != "in place" for s, t in zip(sources, problem.operands, strict=True) if t not in ONCE)
    return 2 if streamed and cut.pieces(problem) > 1 else 1


def room_bytes(problem: Problem, cut: Cut, sources: Sequence[OperandSource], how: Sequence[str]) -> list[int]:
    """Return the maximum bytes that a piece reads from each source, or 0 if its way to read is not in ``how``."""
    if not cut.pieces(problem):
        return [0] * len(sources)
    first, bands = cut.batches(problem)[0], cut.bands(problem)
    middle = max(0, (len(bands) - LOOKED_AT) // 2)  # bands between the ends differ only by the phase of the stride
    subproblems = [
        cut.subproblem(problem, first, rows) for rows in (bands[0], *bands[middle : middle + LOOKED_AT], bands[-1])
    ]
    return [
        max(source.bytes_of(subproblem.reads[at]) for subproblem in subproblems)
        if source.how in how and tensor not in ONCE
        else 0
        for at, (source, tensor) in enumerate(zip(sources, problem.operands, strict=True))
    ]


def takes_of(
    problem: Problem, cut: Cut, sources: Sequence[OperandSource], target: Target | None, threads: int | None
) -> Takes:
    """Return the maximum bytes that a call with this cut takes for each use: operands, scratch, sums and result."""
    kept = sum(s.nbytes for s, t in zip(sources, problem.operands, strict=True) if t in ONCE and s.how != "in place")
    number = buffers(problem, cut, sources)
    piece = sum(room_bytes(problem, cut, sources, ("copied", "sliced")))
    output = prod(problem.output_shape) * problem.output_format.itemsize
    sums = problem.solves_for in SUMMED
    result = ("the result", output)
    if target is not None:
        staged = output if sums else _written_bytes(problem, cut)
        result = ("what is written", staged if target.is_staged or (sums and target.is_strided) else 0)
    return (
        (f"{number} piece{'s' * (number != 1)} of operands", number * piece),
        ("operands that are kept", kept),
        ("scratch", _scratch_bytes(problem, cut, sources, target, threads)),
        ("sums", _sums(problem, cut) * prod(problem.output_shape) * F32.itemsize if sums else 0),
        result,
    )


def _written_bytes(problem: Problem, cut: Cut) -> int:
    subproblem = (
        cut.subproblem(problem, cut.batches(problem)[0], cut.bands(problem)[0]) if cut.pieces(problem) else None
    )
    size = prod(written.stop - written.start for written in subproblem.writes) if subproblem else 0
    return size * problem.output_format.itemsize


def _sums(problem: Problem, cut: Cut) -> int:
    """Return the largest number of sums in memory, while pieces are added to earlier sums or all sums are joined."""
    if not cut.pieces(problem):
        return 0
    leaf, batches = leaf_images(problem.geometry), cut.batches(problem)
    all_sums = len(nodes_of(0, -(-problem.geometry.batch // leaf)))
    joining = all_sums + min(2, max(0, all_sums - 2))  # the last addition is made in the result
    maximum = max(alive(batches, lambda some: range(some.start // leaf, -(-some.stop // leaf))), joining)
    if cut.rows is None:
        return maximum
    extents = positions(problem)
    return maximum + alive(cut.bands(problem), lambda rows: blocks_of(extents, rows)) + 1  # 1: the sum of an image


def alive(pieces: EvenRanges, leaves_of: Callable[[range], range]) -> int:
    """Return the largest number of sums in memory while the pieces are computed in order.

    Only the first pieces are examined. Each level of the reduction tree that begins after these pieces adds one sum.
    If there are such levels, a sum that is pushed into a level adds another.
    """
    looked = [leaves_of(piece) for piece in pieces[:LOOKED_AT]]
    begun, last = looked[-1].stop, leaves_of(pieces[-1]).stop
    higher = [level for level in range(last.bit_length()) if begun <= FAN_IN**level < last]
    behind = len(higher) + 1 if begun < last else 0
    return max_sums(nodes_of(leaves.start, leaves.stop) for leaves in looked) + behind


def _scratch_bytes(
    problem: Problem, cut: Cut, sources: Sequence[OperandSource], target: Target | None, threads: int | None
) -> int:
    """Return the maximum bytes of scratch memory that kernels need, over pieces with representative shapes."""
    strides = None if target is None or target.array is None or problem.solves_for in SUMMED else target.array.strides
    return max((_scratch_of(part, sources, strides, threads) for part in _computed(problem, cut)), default=0)


def _computed(problem: Problem, cut: Cut) -> Iterator[Problem]:
    """Yield some problems of the calls that compute the pieces, including the largest problem."""
    if not cut.pieces(problem):
        return
    batches, bands = cut.batches(problem), cut.bands(problem)
    if problem.solves_for not in SUMMED:
        for images in {len(batches[0]), len(batches[-1])}:  # fewer images may use a kernel with more scratch
            for rows in {bands[0], bands[len(bands) // 2], bands[-1]}:
                yield cut.subproblem(problem, range(images), rows).problem
        return
    for begun in (False, True):
        yield from _summed(intern(replace(problem, output_format=F32, accumulate=begun)), cut)


def _summed(unrounded: Problem, cut: Cut) -> Iterator[Problem]:
    """Yield some problems of the calls that compute pieces of a sum: new sums, or additions to unfinished sums."""
    batches, bands = cut.batches(unrounded), cut.bands(unrounded)
    if cut.rows is None:
        leaf = leaf_images(unrounded.geometry)
        some = (*batches[:LOOKED_AT], batches[-1])
        nodes = {node for run in some for node in nodes_of(run.start // leaf, -(-run.stop // leaf))}
        for images in {min(node.leaves.stop * leaf, batches.extent) - node.leaves.start * leaf for node in nodes}:
            yield of_images(cut.subproblem(unrounded, batches[0], bands[0]).problem, images)
        return
    extents = positions(unrounded)
    for rows in {bands[0], bands[len(bands) // 2], bands[-1]}:
        for _, ranges in nodes_with_ranges(extents, blocks_of(extents, rows)):
            yield subproblem_of(unrounded, batches[0][:1], ranges).problem


def _scratch_of(
    problem: Problem, sources: Sequence[OperandSource], strides: tuple[int, ...] | None, threads: int | None
) -> int:
    """Return the scratch bytes of one call on operands that are read from ``sources``.

    The output is dense, or has the strides ``strides``.
    """
    images = subproblem_of(problem, range(problem.geometry.batch), whole(problem))
    views = [
        _lying(source, tuple(interval.stop - interval.start for interval in region)).transpose(order)
        for source, region, order in zip(sources, images.reads, problem.operand_orders, strict=False)
    ]
    out = _dense(problem.output_shape, problem.output_format.dtype)
    out = out if strides is None else strided(out, out.shape, strides)
    return engines.memory_bytes(problem, views, out.transpose(problem.output_order), threads)


def _lying(source: OperandSource, shape: tuple[int, ...]) -> Array:
    if source.how == "in place":
        assert isinstance(source.operand, np.ndarray), "what is used in place is an array"
        return strided(np.empty((), source.format.dtype), shape, source.operand.strides)
    return _dense(shape, source.format.dtype)


def _dense(shape: tuple[int, ...], dtype: Dtype) -> Array:
    """Return an array with the strides of a dense array, but without memory: only its strides are used."""
    return strided(np.empty((), dtype), shape, [dtype.itemsize * step for step in dense(shape)])
