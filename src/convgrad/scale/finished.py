"""The finished parts of an ``out``, with checksums that show whether it still contains the written results."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from convgrad.arrays import libraries
from convgrad.scale.cut import remaining
from convgrad.scale.source import chunks_of
from convgrad.spec.problem import Problem
from convgrad.spec.subproblems import Region, SubProblem, subproblem_of, whole

STEP_BYTES = 1 << 20  # bytes read at a time; more if a row of an image or a chunk is larger

Place = tuple[int, int]  # the number of finished images, and of finished rows of the next image


class FinishedPart(NamedTuple):
    """A finished part of ``out``: its end, and the CRC-32 of its contents. It begins where the previous part ends."""

    images: int
    rows: int
    crc: int

    @property
    def end(self) -> Place:
        """The finished images and rows at the end of the part."""
        return self.images, self.rows


def checksum(problem: Problem, out: Any, begin: Place, end: Place) -> int:
    """Return the CRC-32 of the contents of ``out`` from the place ``begin`` to the place ``end``."""
    crc, tensor = 0, libraries.opened(out)
    out = out if tensor is None else tensor  # PyTorch does not convert tensors of bf16 and f8 to NumPy
    step_bytes = max(STEP_BYTES, prod(chunks_of(out)) * problem.output_format.itemsize)
    for region in _regions(problem, begin, end, step_bytes):
        crc = zlib.crc32(np.ascontiguousarray(out[region]).reshape(-1).view(np.uint8).data, crc)
    return crc


def _regions(problem: Problem, begin: Place, end: Place, step_bytes: int) -> Iterator[Region]:
    """Yield the regions of the result from ``begin`` to ``end`` in order, each of about ``step_bytes``."""
    (images, rows), ranges = end, whole(problem)
    subproblems = [subproblem_of(problem, range(images), ranges)] if images else []
    if rows:
        subproblems.append(subproblem_of(problem, range(images, images + 1), (range(rows), *ranges[1:])))
    for subproblem in remaining(problem, subproblems, *begin):
        for part in _steps(problem, subproblem, step_bytes):
            yield part.writes


def _steps(problem: Problem, subproblem: SubProblem, step_bytes: int) -> Iterator[SubProblem]:
    size = prod(written.stop - written.start for written in subproblem.writes) * problem.output_format.itemsize
    image_bytes = size // len(subproblem.images)
    if image_bytes <= step_bytes or not subproblem.ranges:
        for some in _cut(subproblem.images, max(1, step_bytes // image_bytes)):
            yield subproblem_of(problem, some, subproblem.ranges)
        return
    rows, *others = subproblem.ranges
    step = max(1, step_bytes * len(rows) // image_bytes)
    for image in _cut(subproblem.images, 1):
        for some in _cut(rows, step):
            yield subproblem_of(problem, image, (some, *others))


def _cut(numbers: range, step: int) -> Iterator[range]:
    return (range(first, min(first + step, numbers.stop)) for first in range(numbers.start, numbers.stop, step))
