"""The finished parts of an ``out``, with checksums that show whether it still contains the written results."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from convgrad.scale.cut import remaining
from convgrad.scale.source import chunks_of
from convgrad.spec.problem import Problem
from convgrad.spec.slabs import Region, Slab, slab_of, whole

STEP_BYTES = 1 << 20  # read at a time; more if a row of an image or a chunk is larger

Place = tuple[int, int]  # the number of finished images, and of finished rows of the next


class Part(NamedTuple):
    """The end of a part and the CRC-32 of its contents. It begins at the end of the part before."""

    images: int
    rows: int
    crc: int

    @property
    def end(self) -> Place:
        """The place where the part ends."""
        return self.images, self.rows


def checksum(problem: Problem, out: Any, begin: Place, end: Place) -> int:
    """Return the CRC-32 of the contents of ``out`` from one place to another."""
    crc = 0
    step_bytes = max(STEP_BYTES, prod(chunks_of(out)) * problem.output_format.dtype.itemsize)
    for region in _regions(problem, begin, end, step_bytes):
        crc = zlib.crc32(np.ascontiguousarray(out[region]).reshape(-1).view(np.uint8).data, crc)
    return crc


def _regions(problem: Problem, begin: Place, end: Place, step_bytes: int) -> Iterator[Region]:
    """Yield the regions of the result from one place to another, in order, each of about ``step_bytes``."""
    (images, rows), box = end, whole(problem)
    slabs = [slab_of(problem, range(images), box)] if images else []
    if rows:
        slabs.append(slab_of(problem, range(images, images + 1), (range(rows), *box[1:])))
    for slab in remaining(problem, slabs, *begin):
        for part in _steps(problem, slab, step_bytes):
            yield part.writes


def _steps(problem: Problem, slab: Slab, step_bytes: int) -> Iterator[Slab]:
    size = prod(one.stop - one.start for one in slab.writes) * problem.output_format.dtype.itemsize
    image_bytes = size // len(slab.images)
    if image_bytes <= step_bytes or not slab.box:
        for some in _cut(slab.images, max(1, step_bytes // image_bytes)):
            yield slab_of(problem, some, slab.box)
        return
    rows, *others = slab.box
    step = max(1, step_bytes * len(rows) // image_bytes)
    for image in _cut(slab.images, 1):
        for some in _cut(rows, step):
            yield slab_of(problem, image, (some, *others))


def _cut(numbers: range, step: int) -> Iterator[range]:
    return (range(first, min(first + step, numbers.stop)) for first in range(numbers.start, numbers.stop, step))
