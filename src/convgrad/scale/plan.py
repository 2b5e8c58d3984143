"""Plans of calls in pieces: the cut whose arrays fit in memory, and the bytes read, as a printable value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import lcm, prod

from convgrad.functional.partials import SUMMED
from convgrad.scale.cut import ONCE, Cut, cuts
from convgrad.scale.memory import words
from convgrad.scale.source import OperandSource, chunks_of
from convgrad.scale.takes import Takes, takes_of
from convgrad.scale.target import Target
from convgrad.spec.geometry import Channels
from convgrad.spec.layouts import axis_order, shape_words
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse
from convgrad.spec.subproblems import SubProblem, rows_read, swept


@dataclass(frozen=True)
class Plan:
    """A call in pieces. :func:`plan` makes it.

    Args:
        problem: The geometry, layouts and types of the call.
        cut: The size of a piece, in images or in rows of an image.
        why: The reason for this cut.
        operands: A line of text per operand: how it is read.
        memory_bytes: The largest number of bytes allowed.
        takes: The maximum memory for each use, as pairs of a name and a number of bytes.
        read_bytes: The number of bytes that the call reads.
        twice_bytes: The number of these bytes that were already read for an earlier piece.
    """

    problem: Problem
    cut: Cut
    why: str
    operands: tuple[str, ...]
    memory_bytes: int
    takes: Takes
    read_bytes: int
    twice_bytes: int

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return self.cut.pieces(self.problem)

    @property
    def peak_bytes(self) -> int:
        """The maximum bytes, at any time, of all arrays that the call allocates."""
        return _total(self.takes)

    def subproblems(self) -> Iterator[SubProblem]:
        """Yield the pieces in the order in which they are computed."""
        return self.cut.subproblems(self.problem)

    def __str__(self) -> str:
        problem, number = self.problem, self.pieces
        lines = [f"{problem.operator} {problem.operand_format}, in {number} piece{'s' * (number != 1)} of {self.cut}"]
        lines += [f"  {line}" for line in self.operands]
        lines.append(f"  reads {words(self.read_bytes)}, of which {words(self.twice_bytes)} again")
        taken = ", ".join(f"{what} {words(size)}" for what, size in self.takes if size)
        lines.append(f"  takes {words(self.peak_bytes)} of {words(self.memory_bytes)}: {taken or 'nothing'}")
        return "\n".join([*lines, f"  why: {self.why}"])


Way = tuple[Cut, str, Takes]  # a cut, the reason for its size, and the memory that it needs


def ways(
    problem: Problem, sources: tuple[OperandSource, ...], target: Target | None, threads: int | None
) -> Iterator[Way]:
    """Yield the possible cuts of a call, better cuts first. Without a target, the result is part of the memory."""
    streamed = [source for source, tensor in zip(sources, problem.operands, strict=True) if tensor not in ONCE]
    image_bytes = sum(source.nbytes for source in streamed) // max(1, problem.geometry.batch)
    for cut, why in cuts(problem, image_bytes, *_chunks(problem, sources, target)):
        yield cut, why, takes_of(problem, cut, sources, target, threads)


def plan_of(
    problem: Problem, sources: tuple[OperandSource, ...], target: Target | None, memory_bytes: int, threads: int | None
) -> Plan:
    """Return the plan of the best cut whose arrays fit in memory, or raise the error of rule M2."""
    rejected: list[Way] = []
    for cut, why, takes in ways(problem, sources, target, threads):
        if _total(takes) <= memory_bytes:
            operands = zip(sources, problem.operands, strict=True)
            said = tuple(_words_of(source, tensor in ONCE) for source, tensor in operands)
            whole = "it is one piece" if cut.pieces(problem) == 1 else why
            of_size = whole + "; better sizes do not fit in memory" * bool(rejected)
            return Plan(problem, cut, of_size, said, memory_bytes, takes, *_reads(problem, cut, sources))
        rejected.append((cut, why, takes))
    cut, _, takes = min(rejected, key=lambda way: _total(way[2]))
    held = ", ".join(f"{what} {words(size)}" for what, size in takes if size)
    must = f"memory must hold a piece of {cut}, which takes {_total(takes)} bytes: {held}"
    must += " (an out in a file takes none)" * (target is None and problem.solves_for not in SUMMED)
    refuse("M2", problem.operator, f"{must}; got {memory_bytes}")  # M2


def _total(takes: Takes) -> int:
    return sum(size for _, size in takes)


def _words_of(source: OperandSource, once: bool) -> str:
    how = "in place" if source.how == "in place" else "once" if once else "piece by piece"
    chunks = f", in chunks of {shape_words(source.chunks)}" if source.chunks else ""
    return f"{source.name} {shape_words(source.shape)}, {words(source.nbytes)}{chunks}: read {how}"


def _chunks(problem: Problem, sources: Sequence[OperandSource], target: Target | None) -> tuple[int, int]:
    """Return the least common multiples, over all chunked arrays, of the images per chunk and of the rows per chunk."""
    tensors = (*problem.operands, problem.output)
    chunks = [source.chunks for source in sources]
    if target is not None and problem.solves_for not in SUMMED:
        chunks.append(chunks_of(target.out))
    images = rows = 1
    for chunk, tensor, layout in zip(chunks, tensors, problem.layouts, strict=False):
        if chunk and tensor not in ONCE:
            order = axis_order(layout, len(chunk))
            images = lcm(images, chunk[order[0]])
            if len(order) > 2 and (tensor == swept(problem) or isinstance(problem.geometry, Channels)):
                rows = lcm(rows, chunk[order[2]])
    return min(images, max(1, problem.geometry.batch)), rows


def _reads(problem: Problem, cut: Cut, sources: Sequence[OperandSource]) -> tuple[int, int]:
    """Return the bytes that are read, and how many of these were read before. Chunks are always read whole."""
    read = once = 0
    if cut.pieces(problem):
        batches, bands = cut.batches(problem), cut.bands(problem)
        regions = cut.subproblem(problem, batches[0], bands[0]).reads
        for source, tensor, layout, region in zip(sources, problem.operands, problem.layouts, regions, strict=False):
            if tensor in ONCE:
                read, once = read + source.nbytes, once + source.nbytes
                continue
            batch, _, *spatial = axis_order(layout, len(region))
            images = (_touched(source, batch, some) for some in batches)
            read_images, once_images = _sums(images) if source.chunks else (problem.geometry.batch,) * 2
            read_rows = once_rows = 1
            for axis in spatial[:1]:
                read_rows, once_rows = _sums(_touched(source, axis, rows_read(problem, tensor, some)) for some in bands)
            others = (axis for axis in range(len(region)) if axis not in (batch, *spatial[:1]))
            size = prod(len(_touched(source, axis, region[axis])) for axis in others) * source.format.itemsize
            read, once = read + read_images * read_rows * size, once + once_images * once_rows * size
    return read, read - once


def _touched(source: OperandSource, axis: int, interval: range | slice) -> range:
    """Return the range of an axis that is read for an interval, which is extended to whole chunks."""
    if not source.chunks:
        return range(interval.start, interval.stop)
    chunk, extent = source.chunks[axis], source.shape[axis]
    return range(interval.start // chunk * chunk, min(-(-interval.stop // chunk) * chunk, extent))


def _sums(ranges: Iterable[range]) -> tuple[int, int]:
    """Return the sum of the lengths of ranges, and the number of integers in their union.

    The ranges follow one another, but may overlap. A range before others has integers of the first range only.
    """
    total = union = end = 0
    for part in ranges:
        total += len(part)
        union += max(0, part.stop - max(part.start, end))
        end = max(end, part.stop)
    return total, union
