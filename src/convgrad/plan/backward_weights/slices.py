"""What of an image is packed at a time: which blocks, the rows of src and dst they need, and where those lie then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from convgrad.plan.backward_weights.lines import LINE, NOWHERE, Lines
from convgrad.plan.backward_weights.nest import Pieces, View, blocks_a_row
from convgrad.plan.backward_weights.operands import Side
from convgrad.plan.backward_weights.recipe import KernelSpec
from convgrad.plan.backward_weights.taps import margins
from convgrad.plan.records import Record
from convgrad.plan.tables import Ints, distinct, merged, wrapped

ENTRY = Record("offset", "terms")  # what is packed at a time: bytes from the image, positions
INDEX = Record("line", "lines")  # of a block: its first line, and their number


@dataclass(frozen=True)
class Slices:
    """The tables of all slices of an image, one after the other."""

    ranges: tuple[tuple[int, int], ...]  # of blocks
    entries: Mapping[str, tuple[Ints, ...]]  # of each tensor, by slice: rows of ENTRY
    lines: Ints  # rows of LINE
    line_index: Ints  # rows of INDEX, of each block
    places: Ints  # bytes of source rows at position 0, in each slice by what lines and outer taps meet
    terms: Mapping[str, int]  # of each tensor: the most of any slice


def slices(
    view: View, cutting: Pieces, slice_blocks: int, spec: KernelSpec, sides: tuple[Side, Side], met: Lines
) -> Slices:
    """Return the tables of an image cut every ``slice_blocks`` blocks, or not at all where it is 0."""
    cut = _Slicing(view, cutting, spec, {side.tensor: side for side in sides}, met)
    step = slice_blocks or cutting.blocks
    begins = [0]
    row = 1 if view.pointwise else blocks_a_row(view.conv)
    if row > 1 and (step < row or step % row):  # an end of a row and a beginning together span whole rows
        begins = [int(block) for block in cutting.block[cutting.first == 0]]
    stretches = pairwise([*begins, cutting.blocks])
    ranges = [(b, min(b + step, end)) for start, end in stretches for b in range(start, end, step)]
    ends = np.searchsorted(cutting.block, [0, *(end for _, end in ranges)])
    made, behind = [], 0
    for first, end in pairwise(ends):
        made.append(cut.slice(slice(first, end), behind))
        behind += len(made[-1][3])
    src, dst, found, places = ([one[i] for one in made] for i in range(4))
    count = np.bincount(cutting.block, minlength=cutting.blocks)
    return Slices(
        tuple(ranges),
        {"src": tuple(src), "dst": tuple(dst)},
        np.concatenate(found),
        INDEX.table(cutting.blocks, line=np.cumsum(count) - count, lines=count),
        np.concatenate(places),
        {
            "src": max(int((entries[:, 1] + sum(margins(view, spec))).sum()) for entries in src),
            "dst": max(int(entries[:, 1].sum()) for entries in dst),
        },
    )


@dataclass(frozen=True)
class _Slicing:
    """An image's pieces, and how each operand is read."""

    view: View
    cutting: Pieces
    spec: KernelSpec
    sides: Mapping[str, Side]
    met: Lines

    def slice(self, part: slice, behind: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Return src entries, dst entries, rows of LINE, and places, which are put behind those of other slices."""
        view, inner, src, dst = self.view, self.view.conv.axes[-1], self.sides["src"], self.sides["dst"]
        row, p0, p1 = (a[part] for a in (self.cutting.row, self.cutting.first, self.cutting.end))
        number, reached = self.met.reached(row)
        numbers = np.flatnonzero(reached)
        source = self.met.met(number + numbers)
        present, slot = distinct(source[source >= 0])
        extent = view.conv.positions if view.pointwise else inner.src
        i0 = min(extent, max(0, int(p0.min()) * inner.stride - inner.pad_begin))
        i1 = (int(p1.max()) - 1) * inner.stride + (inner.kernel - 1) * inner.dilation - inner.pad_begin + 1
        width = max(0, min(extent, i1) - i0)
        left, right = margins(view, self.spec)
        src_rows, dst_rows = self._rows("src", present), self._rows("dst", row)
        if view.pointwise:
            src_entries, dst_entries = (self._rows_of(tensor, i0, width) for tensor in ("src", "dst"))
        else:
            src_entries = ENTRY.table(len(present), offset=src_rows + i0 * src.term, terms=width)
            dst_entries = ENTRY.table(len(row), offset=dst_rows + p0 * dst.term, terms=p1 - p0)
        if src.read.in_place:
            x = src_rows[slot] - wrapped(inner.pad_begin * src.term)
        else:
            x = slot * ((left + width + right) * src.step) + wrapped((left - i0 - inner.pad_begin) * src.step)
        y = dst_rows if dst.read.in_place else (np.cumsum(p1 - p0) - p1) * dst.step
        places = np.full(len(reached), NOWHERE)
        if width:
            places[numbers[source >= 0]] = x
        found = LINE.table(len(row), first=p0, end=p1, fixed=y, number=(self.met.lines[row] - number + behind) * 8)
        if not left + right:
            src_entries = merged(src_entries, src.term)
        return src_entries, merged(dst_entries, dst.term), found, places

    def _rows(self, tensor: str, numbers: Ints) -> Ints:
        """Return the byte offsets of some rows of an image, by their numbers, row-major."""
        outer, strides = self.view.conv.axes[:-1], self.view.strides(tensor)[2:-1]
        found = np.zeros_like(numbers)
        for axis, stride in zip(reversed(outer), reversed(strides), strict=True):
            numbers, index = np.divmod(numbers, axis.src if tensor == "src" else axis.dst)
            found = found + index * stride
        return found

    def _rows_of(self, tensor: str, first: int, count: int) -> Ints:
        """Return rows of ENTRY: the rows of the image in which ``count`` positions of a pointwise image are."""
        row, step = self.view.conv.axes[-1].dst, self.view.strides(tensor)[-1]
        begin = np.arange(first // row, -(-(first + count) // row)) * row
        start, stop = np.maximum(begin, first), np.minimum(begin + row, first + count)
        offset = self._rows(tensor, begin // row) + (start - begin) * step
        return ENTRY.table(begin.size, offset=offset, terms=stop - start)
