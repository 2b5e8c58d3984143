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
from math import prod

import numpy as np

from convgrad.plan.records import Record
from convgrad.plan.regions import FAR
from convgrad.plan.split_k.nest import Segments, WeightsNest
from convgrad.plan.split_k.operands import OperandStrides
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.taps import margins
from convgrad.plan.tables import Ints, distinct, merged, numbered, wrapped
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

    def reached(self, rows: Ints, begins: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the numbers that the rows of dst of each cache block have with all taps.

        ``rows`` ascend in each cache block, which begins at one of ``begins``. Return for each cache block its smallest
        number and the begin of its mask, which has the numbers from the smallest on, and the masks of all cache blocks.
        """
        numbers = self.rows[rows]
        first, last = numbers[begins], numbers[np.append(begins[1:], len(rows)) - 1]
        sizes = last - first + self.taps[-1] + 1
        at = np.cumsum(sizes) - sizes
        mask = np.zeros(sizes.sum(), bool)
        mask[numbers + np.repeat(at - first, np.diff(begins, append=len(rows)))] = True
        for step, count in self.steps:
            covered = 1
            while covered < count:  # each pass doubles the number of taps that the mask covers
                more = min(covered, count - covered)
                mask[more * step :] |= mask[: max(0, len(mask) - more * step)].copy()
                covered += more
        return first, at, mask


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
    if reach > pairs:
        return axis.kernel, 1, pairs
    return min(axis.stride, reach), min(axis.dilation, reach), reach  # larger ones have no effect


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
class PackedRows:
    """What is packed of a tensor: rows of PACKED, in the order of the cache blocks of an image."""

    rows: Ints
    counts: Ints  # the number of rows of each cache block
    max_k: int  # positions packed for the largest cache block

    @classmethod
    def of(cls, rows: Ints, block: Ints, blocks: int, step: int, padding: int = 0) -> PackedRows:
        """Return rows of ``blocks`` cache blocks, each with the number of its cache block.

        Rows are merged if they are adjacent, ``step`` bytes per position, and no ``padding`` is packed with each row.
        """
        max_k = np.bincount(block, rows[:, 1] + padding, blocks).max()
        if not padding:
            rows, block = merged(rows, step, block)
        return cls(rows, np.bincount(block, minlength=blocks), int(max_k))


@dataclass(frozen=True)
class ImageTables:
    """The tables of an image, in the order of its cache blocks."""

    chains: tuple[Ints, Ints]  # for each cache block: the first chain, and the end after the last
    packed: Mapping[str, PackedRows]  # by tensor
    segments: Ints  # rows of SEGMENT, for all chains of a leaf
    indirection: Ints  # byte offsets of rows of src, or NO_ROW


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
    step = chains_a_cache_block or nest.chains
    begins = np.zeros(1, np.int64)
    a_row = 1 if nest.pointwise else nest.chains_a_row
    # Cache blocks end where rows end, because a block with parts of two rows would pack both rows.
    if a_row > 1 and (step < a_row or step % a_row):
        begins = segments.chain[(segments.first == 0) & (segments.image == 0)]
    row, number = numbered(-(-np.diff(begins, append=nest.chains) // step))
    first = begins[row] + number * step
    by_tensor = {operand.tensor: operand for operand in operands}
    image = _Image(nest, segments, spec, by_tensor, indirection, np.searchsorted(segments.chain, first))
    return ImageTables((first, np.append(first[1:], nest.chains)), *image.tables())


@dataclass(frozen=True)
class _Image:
    """The segments of an image, and how the kernel reads its operands."""

    nest: WeightsNest
    segments: Segments
    spec: SplitKSpec
    operands: Mapping[str, OperandStrides]  # by tensor
    indirection: Indirection
    begins: Ints  # the first segment of each cache block

    def tables(self) -> tuple[Mapping[str, PackedRows], Ints, Ints]:
        """Return what is packed, rows of SEGMENT and the indirection table, of all cache blocks at once.

        An image can have so many cache blocks that a loop over them would take longer than the kernel.
        """
        segments, indirection, numbers = self.segments, self.indirection, np.arange(len(self.begins))
        block = np.repeat(numbers, np.diff(self.begins, append=len(segments.row)))
        first_image = segments.image == 0  # other images of a leaf are packed in the same way
        of_image, block_of_row = segments.part(first_image), block[first_image]
        row = of_image.row
        begins = np.searchsorted(block_of_row, numbers)
        smallest, at, reached = indirection.reached(row, begins)
        entries = np.flatnonzero(reached)
        block_of_entry = np.searchsorted(at, entries, side="right") - 1
        source = indirection.src_rows(entries + (smallest - at)[block_of_entry])
        entries, block_of_entry, source = (column[source >= 0] for column in (entries, block_of_entry, source))
        extent = prod(indirection.extents)
        present, slot = distinct(block_of_entry * extent + source)
        block_of_src, present = np.divmod(present, extent)
        columns = self._columns(np.minimum.reduceat(of_image.first, begins), np.maximum.reduceat(of_image.end, begins))
        _, width = columns
        slot_in_block = slot - np.searchsorted(block_of_src, numbers)[block_of_entry]
        x = self._offsets_of_src(present[slot], slot_in_block, block_of_entry, columns)
        read = width[block_of_entry] > 0
        assert not (x[read] == NO_ROW).any(), "an offset of a row would stand for padding"
        offsets_of_src = np.full(len(reached), NO_ROW)
        offsets_of_src[entries[read]] = x[read]
        y, dst_packed = self._offsets_of_dst(of_image, block_of_row, begins)
        rows = len(indirection.rows)
        # for each segment of the leaf, one of its row in the first image
        there = np.searchsorted(block_of_row * rows + row, block * rows + segments.row)
        rows_of_segments = SEGMENT.table(
            len(segments.row),
            image=segments.image,
            first=segments.first,
            end=segments.end,
            dst=y[there],
            row=(indirection.rows[segments.row] + (at - smallest)[block]) * offsets_of_src.itemsize,
            odd=segments.odd,
            of_portion=np.bincount(segments.portion)[segments.portion],
        )
        return (
            self._packed((present, block_of_src), columns, (dst_packed, block_of_row)),
            rows_of_segments,
            offsets_of_src,
        )

    def _offsets_of_src(self, rows: Ints, slots: Ints, block: Ints, columns: tuple[Ints, Ints]) -> Ints:
        """Return the byte offsets of position 0 of rows of src, or of their ``slots`` if they are packed.

        ``block`` has their cache blocks, whose ``columns`` are packed.
        """
        src, pad, (i0, width), (left, right) = self.operands["src"], self._pad, columns, margins(self.nest, self.spec)
        if src.operand.in_place:
            return self._rows("src", rows) - wrapped(pad * src.k)
        offsets: Ints = slots * ((left + width + right) * src.step)[block]
        return offsets + ((left - i0 - wrapped(pad)) * src.step)[block]

    def _offsets_of_dst(self, segments: Segments, block: Ints, begins: Ints) -> tuple[Ints, Ints]:
        """Return the byte offsets of position 0 of the rows of segments of an image, and rows of PACKED."""
        dst, offset, lengths = self.operands["dst"], self._rows("dst", segments.row), segments.end - segments.first
        packed = PACKED.table(len(lengths), offset=offset + segments.first * dst.k, count=lengths)
        if not dst.operand.in_place:
            before = np.cumsum(lengths) - lengths
            offset = (before - before[begins][block] - segments.first) * dst.step
        return offset, packed

    def _packed(
        self, src_rows: tuple[Ints, Ints], columns: tuple[Ints, Ints], dst_rows: tuple[Ints, Ints]
    ) -> Mapping[str, PackedRows]:
        """Return what is packed of each tensor.

        ``src_rows`` are numbers of rows of src and their cache blocks, whose ``columns`` are packed. ``dst_rows`` are
        rows of PACKED and their cache blocks.
        """
        (i0, width), (rows, block), src = columns, src_rows, self.operands["src"]
        if self.nest.pointwise:
            src_packed, dst_packed = (self._rows_of(tensor, *columns) for tensor in ("src", "dst"))
        else:
            offset = self._rows("src", rows) + (i0 * src.k)[block]
            src_packed, dst_packed = (PACKED.table(len(rows), offset=offset, count=width[block]), block), dst_rows
        return {
            "src": PackedRows.of(*src_packed, len(i0), src.k, sum(margins(self.nest, self.spec))),
            "dst": PackedRows.of(*dst_packed, len(i0), self.operands["dst"].k),
        }

    @property
    def _pad(self) -> int:
        return self.nest.conv.axes[-1].pad_begin

    def _columns(self, first: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return the first src position of a row that each cache block reads, and the number of these positions.

        A cache block has the positions of dst from ``first`` to ``end``.
        """
        nest, inner = self.nest, self.nest.conv.axes[-1]
        extent = nest.conv.positions if nest.pointwise else inner.src
        kind = np.int64 if inner.span + inner.pad_begin + extent < FAR else object
        low = first.astype(kind) * inner.stride - inner.pad_begin
        high = (end.astype(kind) - 1) * inner.stride + inner.effective_kernel - inner.pad_begin
        i0, i1 = (np.clip(bound, 0, extent).astype(np.int64) for bound in (low, high))
        return i0, i1 - i0

    def _rows(self, tensor: str, numbers: Ints) -> Ints:
        """Return the byte offsets in an image of the rows with these row-major numbers."""
        outer, strides = self.nest.conv.axes[:-1], self.nest.strides(tensor)[2:-1]
        rows = np.zeros_like(numbers)
        for axis, stride in zip(reversed(outer), reversed(strides), strict=True):
            numbers, index = np.divmod(numbers, axis.src if tensor == "src" else axis.dst)
            rows = rows + index * stride
        return rows

    def _rows_of(self, tensor: str, first: Ints, count: Ints) -> tuple[Ints, Ints]:
        """Return rows of PACKED for a range of positions of each cache block of a pointwise image, one for each row.

        Also return the number of the cache block of each row.
        """
        row, step, end = self.nest.conv.axes[-1].dst, self.nest.strides(tensor)[-1], first + count
        block, number = numbered(-(-end // row) - first // row)
        at = first[block] // row + number
        start, stop = np.maximum(at * row, first[block]), np.minimum(at * row + row, end[block])
        offset = self._rows(tensor, at) + (start - at * row) * step
        return PACKED.table(at.size, offset=offset, count=stop - start), block
