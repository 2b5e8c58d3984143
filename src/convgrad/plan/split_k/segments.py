"""Tables of segments, which are parts of rows of dst, and of the rows of src to multiply with segments.

K is images times positions of dst. A row of dst is cut into segments where an accumulation chain begins. For each outer
tap, a segment is multiplied with part of one row of src, or with none if that row is padding. Rows of dst and outer
taps have numbers, and the sum of both is the number of the row of src. So no table lists pairs of segments and taps.
Example: an axis of 3 positions, with 3 taps and pads of 1:

    row of dst    0 1 2         tap    0 1 2
    number        0 1 2         number 0 1 2

    number        0     1     2     3     4
    indirection   none  row 0 row 1 row 2 none    (bytes to position 0 of the row of src, packed or in place)

Row 1 of dst and tap 2 have the number 1 + 2 = 3, which is row 2 of src. ``taps.py`` has the range of positions at which
each inner tap exists. A kernel sums over the positions of a segment that are in this range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.split_k.nest import Segments, WeightsNest
from convgrad.plan.split_k.operands import OperandStrides
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.taps import margins
from convgrad.plan.tables import Ints, distinct, merged, wrapped
from convgrad.spec.geometry import Axis

SEGMENT = Record(
    "image", "first", "end",  # the image in the leaf, and the range of positions in the row
    "dst", "row",  # the offset of the row's position 0 in dst, and an offset in the indirection table
    "odd",  # whether position 0 of the row has an odd number in the portion
    "of_portion",  # the number of the portion's segments, in the first of them
)  # fmt: skip
# An entry of the indirection table that stands for a row of padding. Offsets of rows are modulo 2**64, so wide padding
# can make them any multiple of a stride, 2**63 too; an odd number is one of them only if a stride is odd.
NO_ROW = np.iinfo(np.int64).max
PACKED = Record("offset", "count")  # contiguous positions to pack: bytes from the image's begin, and their number


@dataclass(frozen=True)
class Indirection:
    """The map from rows of dst and outer taps to rows of src: ``src_rows(rows[row] + taps[tap])``, -1 for padding."""

    rows: Ints  # the numbers of rows of dst, row-major
    taps: Ints  # the numbers of outer taps, row-major
    steps: tuple[tuple[int, int], ...]  # for each axis: the step of numbers from a tap to the next, and the taps
    sources: tuple[Ints, ...]  # for each axis and number: the src position, -1 for padding
    extents: tuple[int, ...]  # positions of src along each axis

    def src_rows(self, numbers: Ints) -> Ints:
        """Return the row of src of each number, counted row-major; -1 for padding."""
        rows, below = np.zeros_like(numbers), 1
        for source, extent in zip(reversed(self.sources), reversed(self.extents), strict=True):
            numbers, here = np.divmod(numbers, len(source))
            at = source[here]
            rows = np.where((rows >= 0) & (at >= 0), rows + at * below, -1)
            below *= extent
        return rows

    def reached(self, rows: Ints) -> tuple[int, Ints]:
        """Return the numbers that ``rows`` of dst have with all taps: the smallest, and a mask from the smallest on."""
        numbers = self.rows[rows]
        first = int(numbers.min())
        mask = np.zeros(int(numbers.max()) - first + int(self.taps[-1]) + 1, bool)
        mask[numbers - first] = True
        for step, count in self.steps:
            covered = 1
            while covered < count:  # each pass doubles the number of taps that the mask covers
                more = min(covered, count - covered)
                mask[more * step :] |= mask[: max(0, len(mask) - more * step)].copy()
                covered += more
        return first, mask


def indirection_of(axes: Sequence[Axis]) -> Indirection:
    """Return the indirection of outer axes.

    Numbers count the padded src positions of an axis. If strides or dilations skip most of these positions, numbers
    count the pairs of a dst position and a tap.

    >>> one = indirection_of([Axis(5, 3, 3, dilation=1, pad_begin=1)])
    >>> one.src_rows(np.add.outer(one.taps, one.rows)).tolist()
    [[-1, 0, 1], [0, 1, 2], [1, 2, 3]]
    """
    counted = [_counted(axis) for axis in axes]
    sizes = [len(source) for _, _, source in counted]
    below = [prod(sizes[at + 1 :]) for at in range(len(sizes))]
    rows, taps = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for axis, size, (step, tap_step, _) in zip(axes, below, counted, strict=True):
        rows = (rows[:, None] + np.arange(axis.dst, dtype=np.int64) * (step * size)).ravel()
        taps = (taps[:, None] + np.arange(axis.kernel, dtype=np.int64) * (tap_step * size)).ravel()
    steps = tuple((tap * size, axis.kernel) for axis, size, (_, tap, _) in zip(axes, below, counted, strict=True))
    return Indirection(rows, taps, steps, tuple(source for *_, source in counted), tuple(axis.src for axis in axes))


def _counted(axis: Axis) -> tuple[int, int, Ints]:
    """Return the steps of numbers per dst position and per tap, and the src position of each number (-1: padding)."""
    step, tap_step, size = _numbers(axis)
    numbers = np.arange(size, dtype=np.int64)
    if size == axis.span:
        src = numbers - axis.pad_begin
    else:
        p, k = np.divmod(numbers, axis.kernel)
        src = p * axis.stride + k * axis.dilation - axis.pad_begin
    return step, tap_step, np.where((src >= 0) & (src < axis.src), src, -1)


def _numbers(axis: Axis) -> tuple[int, int, int]:
    """Return the steps of numbers per dst position and per tap, and the count of numbers of an axis."""
    reach, pairs = axis.span, axis.dst * axis.kernel
    return (axis.stride, axis.dilation, reach) if reach <= pairs else (axis.kernel, 1, pairs)


def tap_share(axes: Sequence[Axis]) -> float:
    """Return the distance from the first tap's number to the last tap's, as a share of all numbers.

    >>> tap_share([Axis(58, 56, 3)])
    0.034482758620689655
    """
    taps, total = 0, 1
    for axis in reversed(axes):
        _, tap_step, size = _numbers(axis)
        taps += (axis.kernel - 1) * tap_step * total
        total *= size
    return taps / total


def existing_rows(axes: Sequence[Axis]) -> Ints:
    """Return for each outer tap the number of rows of dst that meet a row of src instead of padding.

    >>> existing_rows([Axis(5, 5, 3, pad_begin=1), Axis(5, 3, 1, stride=2)]).tolist()
    [12, 15, 12]
    """
    rows = np.ones(1, np.int64)
    for axis in axes:
        shift = axis.pad_begin - np.arange(axis.kernel, dtype=np.int64) * axis.dilation
        first = np.clip(-(-shift // axis.stride), 0, axis.dst)
        end = np.clip((axis.src - 1 + shift) // axis.stride + 1, 0, axis.dst)
        rows = (rows[:, None] * np.maximum(end - first, 0)).ravel()
    return rows


@dataclass(frozen=True)
class ImageTables:
    """The tables of an image, in the order of its cache blocks."""

    chains: tuple[tuple[int, int], ...]  # for each cache block: the first chain, and the end after the last
    packed: Mapping[str, tuple[Ints, ...]]  # for each tensor and cache block: rows of PACKED
    segments: Ints  # rows of SEGMENT, for all chains of a leaf
    indirection: Ints  # byte offsets of rows of src, or NO_ROW
    max_k: Mapping[str, int]  # for each tensor: positions packed for the largest cache block


def image_tables(
    nest: WeightsNest,
    segments: Segments,
    chains_a_cache_block: int,
    spec: SplitKSpec,
    operands: tuple[OperandStrides, OperandStrides],
    indirection: Indirection,
) -> ImageTables:
    """Return the tables of an image, and the segments of a leaf.

    A cache block has ``chains_a_cache_block`` chains, or all chains if this is 0.
    """
    image = _Image(nest, segments, spec, {operand.tensor: operand for operand in operands}, indirection)
    step = chains_a_cache_block or nest.chains
    begins = [0]
    a_row = 1 if nest.pointwise else nest.chains_a_row
    # Cache blocks end where rows end, because a block with parts of two rows would pack both rows.
    if a_row > 1 and (step < a_row or step % a_row):
        begins = [int(chain) for chain in segments.chain[(segments.first == 0) & (segments.image == 0)]]
    chains = tuple(
        (b, min(b + step, end)) for begin, end in pairwise([*begins, nest.chains]) for b in range(begin, end, step)
    )
    ends = np.searchsorted(segments.chain, [0, *(end for _, end in chains)])
    blocks, count = [], 0
    for first, end in pairwise(ends):
        blocks.append(image.cache_block(slice(first, end), count))
        count += len(blocks[-1][3])
    src, dst, segments_of_blocks, indirections = ([block[i] for block in blocks] for i in range(4))
    return ImageTables(
        chains,
        {"src": tuple(src), "dst": tuple(dst)},
        np.concatenate(segments_of_blocks),
        np.concatenate(indirections),
        {
            "src": max(int((packed[:, 1] + sum(margins(nest, spec))).sum()) for packed in src),
            "dst": max(int(packed[:, 1].sum()) for packed in dst),
        },
    )


@dataclass(frozen=True)
class _Image:
    """The segments of an image, and how the kernel reads its operands."""

    nest: WeightsNest
    segments: Segments
    spec: SplitKSpec
    operands: Mapping[str, OperandStrides]  # by tensor
    indirection: Indirection

    def cache_block(self, part: slice, before: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the tables of a cache block: rows of PACKED of src and of dst, rows of SEGMENT, indirection entries.

        ``part`` is the range of its segments. ``before`` is the number of indirection entries of earlier cache blocks.
        """
        nest, inner, src, dst = self.nest, self.nest.conv.axes[-1], self.operands["src"], self.operands["dst"]
        segments = self.segments.part(part)
        of_image = segments.part(segments.image == 0)  # other images of a leaf are packed in the same way
        row, first, end = of_image.row, of_image.first, of_image.end
        number, reached = self.indirection.reached(row)
        numbers = np.flatnonzero(reached)
        source = self.indirection.src_rows(number + numbers)
        present, slot = distinct(source[source >= 0])
        extent = nest.conv.positions if nest.pointwise else inner.src
        i0 = min(extent, max(0, int(first.min()) * inner.stride - inner.pad_begin))
        i1 = (int(end.max()) - 1) * inner.stride + (inner.kernel - 1) * inner.dilation - inner.pad_begin + 1
        width = max(0, min(extent, i1) - i0)
        left, right = margins(nest, self.spec)
        src_rows, dst_rows = self._rows("src", present), self._rows("dst", row)
        if nest.pointwise:
            src_packed, dst_packed = (self._rows_of(tensor, i0, width) for tensor in ("src", "dst"))
        else:
            src_packed = PACKED.table(len(present), offset=src_rows + i0 * src.k, count=width)
            dst_packed = PACKED.table(len(row), offset=dst_rows + first * dst.k, count=end - first)
        if src.operand.in_place:
            x = src_rows[slot] - wrapped(inner.pad_begin * src.k)
        else:
            x = slot * ((left + width + right) * src.step) + wrapped((left - i0 - inner.pad_begin) * src.step)
        y = dst_rows if dst.operand.in_place else (np.cumsum(end - first) - end) * dst.step
        there = np.searchsorted(row, segments.row)  # for each segment of the leaf, one of its row in the first image
        indirection = np.full(len(reached), NO_ROW)
        if width:
            assert not (x == NO_ROW).any(), "an offset of a row would stand for padding"
            indirection[numbers[source >= 0]] = x
        entry = self.indirection.rows[segments.row] - number + before
        number_of_portion = segments.portion - segments.portion[0]
        rows_of_segments = SEGMENT.table(
            len(segments.row),
            image=segments.image,
            first=segments.first,
            end=segments.end,
            dst=y[there],
            row=entry * indirection.itemsize,
            odd=segments.odd,
            of_portion=np.bincount(number_of_portion)[number_of_portion],
        )
        if not left + right:
            src_packed = merged(src_packed, src.k)
        return src_packed, merged(dst_packed, dst.k), rows_of_segments, indirection

    def _rows(self, tensor: str, numbers: Ints) -> Ints:
        """Return the byte offsets in an image of the rows with these row-major numbers."""
        outer, strides = self.nest.conv.axes[:-1], self.nest.strides(tensor)[2:-1]
        rows = np.zeros_like(numbers)
        for axis, stride in zip(reversed(outer), reversed(strides), strict=True):
            numbers, index = np.divmod(numbers, axis.src if tensor == "src" else axis.dst)
            rows = rows + index * stride
        return rows

    def _rows_of(self, tensor: str, first: int, count: int) -> Ints:
        """Return rows of PACKED for ``count`` positions of a pointwise image, one for each row of positions."""
        row, step = self.nest.conv.axes[-1].dst, self.nest.strides(tensor)[-1]
        begin = np.arange(first // row, -(-(first + count) // row)) * row
        start, stop = np.maximum(begin, first), np.minimum(begin + row, first + count)
        offset = self._rows(tensor, begin // row) + (start - begin) * step
        return PACKED.table(begin.size, offset=offset, count=stop - start)
