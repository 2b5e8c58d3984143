"""How a call is cut so that its arrays fit in so many bytes, and what that reads, as a value that can be printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from convgrad import engines
from convgrad.formats import F32
from convgrad.functional.partials import SUMMED
from convgrad.scale.cut import Cut, cuts
from convgrad.scale.memory import words
from convgrad.scale.source import Source, chunks_of
from convgrad.scale.target import Target
from convgrad.spec.boxes import blocks_of, boxes
from convgrad.spec.geometry import Channels
from convgrad.spec.layouts import axis_order, shape_words
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images, nodes_of
from convgrad.spec.problem import Problem, of_images, only
from convgrad.spec.rules import refuse
from convgrad.spec.slabs import Slab, positions, slab_of, swept

Array = NDArray[Any]

ONCE = ("weights", "bias")  # operands that every piece reads whole: read once, and kept
LOOKED_AT = 512  # pieces whose sums are counted: they come again after as many as nodes of a tree have leaves


@dataclass(frozen=True)
class Plan:
    """A call in pieces: its problem, the cut and why it, what is read, and what it takes in memory at most, by what."""

    problem: Problem
    cut: Cut
    why: str
    operands: tuple[str, ...]
    memory_bytes: int
    takes: tuple[tuple[str, int], ...]
    read_bytes: int
    twice_bytes: int

    @property
    def pieces(self) -> int:
        """How many slabs there are."""
        return self.cut.pieces(self.problem)

    @property
    def peak_bytes(self) -> int:
        """The bytes of all arrays that the call makes, at most, at any time."""
        return _total(self.takes)

    def slabs(self) -> Iterator[Slab]:
        """Yield the pieces in the order in which they are computed."""
        return self.cut.slabs(self.problem)

    def __str__(self) -> str:
        problem, number = self.problem, self.pieces
        lines = [f"{problem.operator} {problem.operand_format}, in {number} piece{'s' * (number != 1)} of {self.cut}"]
        lines += [f"  {line}" for line in self.operands]
        lines.append(f"  reads {words(self.read_bytes)}, of which {words(self.twice_bytes)} again")
        taken = ", ".join(f"{what} {words(size)}" for what, size in self.takes if size)
        lines.append(f"  takes {words(self.peak_bytes)} of {words(self.memory_bytes)}: {taken or 'nothing'}")
        return "\n".join([*lines, f"  why: {self.why}"])


Way = tuple[Cut, str, tuple[tuple[str, int], ...]]  # a cut, why it is of that size, what it takes


def ways(problem: Problem, sources: tuple[Source, ...], target: Target | None, threads: int | None) -> Iterator[Way]:
    """Yield the ways to cut a call, the better ones first; without a target its result is one of its arrays."""
    streamed = [source for source, tensor in zip(sources, problem.operands, strict=True) if tensor not in ONCE]
    image_bytes = sum(source.nbytes for source in streamed) // max(1, problem.geometry.batch)
    for cut, why in cuts(problem, image_bytes, *_chunks(problem, sources, target)):
        yield cut, why, _takes(problem, cut, sources, target, threads)


def plan_of(
    problem: Problem, sources: tuple[Source, ...], target: Target | None, memory_bytes: int, threads: int | None
) -> Plan:
    """Return the plan of the best way whose arrays fit in memory, by rule M2."""
    seen: list[Way] = []
    for cut, why, takes in ways(problem, sources, target, threads):
        if _total(takes) <= memory_bytes:
            operands = zip(sources, problem.operands, strict=True)
            said = tuple(_words_of(source, tensor in ONCE) for source, tensor in operands)
            whole = "it is one piece" if cut.pieces(problem) == 1 else why
            of_size = whole + "; there are better sizes, which memory has no room for" * bool(seen)
            return Plan(problem, cut, of_size, said, memory_bytes, takes, *_reads(problem, cut, sources))
        seen.append((cut, why, takes))
    cut, _, takes = min(seen, key=lambda way: _total(way[2]))
    held = ", ".join(f"{what} {words(size)}" for what, size in takes if size)
    must = f"memory must hold a piece of {cut}, which takes {_total(takes)} bytes: {held}"
    must += " (an out in a file takes none)" * (target is None and problem.solves_for not in SUMMED)
    refuse("M2", problem.operator, f"{must}; got {memory_bytes}")  # M2


def _total(takes: tuple[tuple[str, int], ...]) -> int:
    return sum(size for _, size in takes)


def _words_of(source: Source, once: bool) -> str:
    how = "where it lies" if source.how == "in place" else "once" if once else "piece by piece"
    chunks = f", in chunks of {shape_words(source.chunks)}" if source.chunks else ""
    return f"{source.name} {shape_words(source.shape)}, {words(source.nbytes)}{chunks}: read {how}"


def _chunks(problem: Problem, sources: Sequence[Source], target: Target | None) -> tuple[int, int]:
    """Return the images and the rows of chunks: of several arrays those that suit all, of what a piece writes, too."""
    tensors = (*problem.operands, problem.output)
    chunks = [source.chunks for source in sources]
    if target is not None and problem.solves_for not in SUMMED:
        chunks.append(chunks_of(target.out))
    images = rows = 1
    for each, tensor, layout in zip(chunks, tensors, problem.layouts, strict=False):
        if each and tensor not in ONCE:
            order = axis_order(layout, len(each))
            images = lcm(images, each[order[0]])
            if len(order) > 2 and (tensor == swept(problem) or isinstance(problem.geometry, Channels)):
                rows = lcm(rows, each[order[2]])
    return min(images, max(1, problem.geometry.batch)), rows


def buffers(problem: Problem, cut: Cut, sources: Sequence[Source]) -> int:
    """Return how many pieces are held: while one is computed the next is read, where anything is read."""
    streamed = any(s.how != "in place" for s, t in zip(sources, problem.operands, strict=True) if t not in ONCE)
    return 2 if streamed and cut.pieces(problem) > 1 else 1


def room_bytes(problem: Problem, cut: Cut, sources: Sequence[Source], how: Sequence[str]) -> list[int]:
    """Return the bytes of each operand that a piece takes at most, of those that are read so."""
    if not cut.pieces(problem):
        return [0] * len(sources)
    first, bands = cut.batches(problem)[0], cut.bands(problem)
    middle = max(0, (len(bands) - LOOKED_AT) // 2)  # at the ends less is read, and between by the stride's phases
    slabs = [cut.slab(problem, first, rows) for rows in (bands[0], *bands[middle : middle + LOOKED_AT], bands[-1])]
    return [
        max(source.bytes_of(slab.reads[at]) for slab in slabs) if source.how in how and tensor not in ONCE else 0
        for at, (source, tensor) in enumerate(zip(sources, problem.operands, strict=True))
    ]


def _takes(
    problem: Problem, cut: Cut, sources: Sequence[Source], target: Target | None, threads: int | None
) -> tuple[tuple[str, int], ...]:
    """Return what arrays a cut needs, and their bytes at most."""
    kept = sum(s.nbytes for s, t in zip(sources, problem.operands, strict=True) if t in ONCE and s.how != "in place")
    number = buffers(problem, cut, sources)
    piece = sum(room_bytes(problem, cut, sources, ("copied", "sliced")))
    output = prod(problem.output_shape) * problem.output_format.dtype.itemsize
    sums = problem.solves_for in SUMMED
    result = ("the result", output)
    if target is not None:
        staged = output if sums else _written_bytes(problem, cut)
        result = ("what is written", staged if target.is_staged else 0)
    return (
        (f"{number} piece{'s' * (number != 1)} of operands", number * piece),
        ("operands that are kept", kept),
        ("scratch", _scratch_bytes(problem, cut, sources, threads)),
        ("sums", _sums(problem, cut) * prod(problem.output_shape) * F32.dtype.itemsize if sums else 0),
        result,
    )


def _written_bytes(problem: Problem, cut: Cut) -> int:
    slab = cut.slab(problem, cut.batches(problem)[0], cut.bands(problem)[0]) if cut.pieces(problem) else None
    size = prod(one.stop - one.start for one in slab.writes) if slab else 0
    return size * problem.output_format.dtype.itemsize


def _sums(problem: Problem, cut: Cut) -> int:
    """Return how many sums are alive at most: those so far, those of a piece, and those that are made of both."""
    if not cut.pieces(problem):
        return 0
    leaf, batch = leaf_images(problem.geometry), problem.geometry.batch
    most = _alive([(a.start // leaf, -(-a.stop // leaf)) for a in cut.batches(problem)[:LOOKED_AT]], -(-batch // leaf))
    if cut.rows is None:
        return most
    extents = positions(problem)
    blocks = [blocks_of(extents, rows) for rows in cut.bands(problem)[:LOOKED_AT]]
    return most + _alive([(b.start, b.stop) for b in blocks], blocks_of(extents, range(extents[0])).stop)


def _alive(runs: Sequence[tuple[int, int]], leaves: int) -> int:
    levels = 1
    while FAN_IN**levels < leaves:
        levels += 1
    return max(len(nodes_of(0, a)) + len(nodes_of(a, b)) for a, b in runs) + levels + 1


def _scratch_bytes(problem: Problem, cut: Cut, sources: Sequence[Source], threads: int | None) -> int:
    """Return what kernels take beside operands and results, at most, of the pieces whose shapes tell."""
    return max((_scratch_of(part, sources, threads) for part in _computed(problem, cut)), default=0)


def _computed(problem: Problem, cut: Cut) -> Iterator[Problem]:
    """Yield the problems of calls that pieces are computed by, the largest among them."""
    if not cut.pieces(problem):
        return
    batches, bands = cut.batches(problem), cut.bands(problem)
    if problem.solves_for not in SUMMED:
        for rows in {bands[0], bands[len(bands) // 2], bands[-1]}:
            yield cut.slab(problem, batches[0], rows).problem
        return
    unrounded = only(replace(problem, output_format=F32, accumulate=False))
    if cut.rows is None:
        leaf = leaf_images(problem.geometry)
        nodes = nodes_of(0, -(-len(batches[0]) // leaf))
        for images in {min(len(one.leaves) * leaf, len(batches[0])) for one in nodes}:
            yield of_images(cut.slab(unrounded, batches[0], bands[0]).problem, images)
        return
    extents = positions(problem)
    for rows in {bands[0], bands[len(bands) // 2], bands[-1]}:
        for _, box in boxes(extents, blocks_of(extents, rows)):
            yield slab_of(unrounded, batches[0][:1], box).problem


def _scratch_of(problem: Problem, sources: Sequence[Source], threads: int | None) -> int:
    """Return the scratch of one call, on operands that lie as they are read and an output in rows."""
    images = slab_of(problem, range(problem.geometry.batch), tuple(range(extent) for extent in positions(problem)))
    views = [
        _lying(source, tuple(one.stop - one.start for one in region)).transpose(order)
        for source, region, order in zip(sources, images.reads, problem.operand_orders, strict=False)
    ]
    out = _dense(problem.output_shape, problem.output_format.dtype).transpose(problem.output_order)
    return engines.memory_bytes(problem, views, out, threads)


def _lying(source: Source, shape: tuple[int, ...]) -> Array:
    if source.how == "in place":
        return as_strided(np.empty((), source.format.dtype), shape, source.given.strides)
    return _dense(shape, source.format.dtype)


def _dense(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array of no memory that lies as a dense one: only its strides are looked at."""
    strides = [dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return as_strided(np.empty((), dtype), shape, strides)


def _reads(problem: Problem, cut: Cut, sources: Sequence[Source]) -> tuple[int, int]:
    """Return the bytes that are read, and of them those that had been read before, whole chunks where there are any."""
    read = once = 0
    if cut.pieces(problem):
        batches, bands = cut.batches(problem), cut.bands(problem)
        by_images = [cut.slab(problem, images, bands[0]) for images in batches]
        by_rows = [cut.slab(problem, batches[0], rows) for rows in bands]
        for at, (source, tensor) in enumerate(zip(sources, problem.operands, strict=True)):
            if tensor in ONCE:
                read, once = read + source.nbytes, once + source.nbytes
                continue
            images = [_touched(source, slab.reads[at]) for slab in by_images]
            rows = [_touched(source, slab.reads[at]) for slab in by_rows]
            size = source.format.dtype.itemsize
            each = prod(map(len, images[0]))
            if each:
                read += (
                    size * sum(prod(map(len, one)) for one in images) * sum(prod(map(len, one)) for one in rows) // each
                )
                once += size * prod(map(_union, zip(*images, *rows, strict=True)))
    return read, read - once


def _touched(source: Source, region: Sequence[slice]) -> list[range]:
    """Return what is read of a region, axis by axis: whole chunks."""
    if not source.chunks:
        return [range(one.start, one.stop) for one in region]
    return [
        range(one.start // chunk * chunk, min(-(-one.stop // chunk) * chunk, extent))
        for one, chunk, extent in zip(region, source.chunks, source.shape, strict=True)
    ]


def _union(ranges: Sequence[range]) -> int:
    """Return how many numbers are in any of some ranges."""
    number = end = 0
    for one in sorted(ranges, key=lambda one: one.start):
        number += max(0, one.stop - max(one.start, end))
        end = max(end, one.stop)
    return number
