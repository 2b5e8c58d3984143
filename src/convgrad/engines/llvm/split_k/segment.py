"""A segment in IR: positions of a row of dst, and the row of src that each outer tap of a micro-tile reads there."""

from __future__ import annotations

from functools import reduce

from convgrad.engines.llvm.arguments import Named, columns
from convgrad.engines.llvm.emit import Function, Value
from convgrad.plan.split_k.recipe import SplitKSpec
from convgrad.plan.split_k.segments import NO_ROW, SEGMENT
from convgrad.plan.split_k.taps import MASK_BYTES


class SegmentRows:
    """The positions of a segment, and the offsets of its rows in dst and src.

    The segment is empty if no outer tap exists. ``src`` has the offset of the row of src for each outer tap, at the
    first inner tap. An outer tap that does not exist gets the offset of another one, and its sums are not used.
    """

    def __init__(self, f: Function, spec: SplitKSpec, args: Named, taps: Named, pointer: Value) -> None:
        self.f, here = f, columns(f, pointer, SEGMENT)
        self.image, self.first, self.dst, self.odd = here.image, here.first, here.dst, here.odd
        rows = [f.at(args.indirection, taps.named(f"row{u}")) for u in range(spec.micro_tile.outer_taps)]
        offsets_of_rows = [f.load("i64", f.at(row, here.row)) for row in rows]
        some = reduce(f.min, offsets_of_rows)  # of a row that exists, if any does: NO_ROW is the largest number
        self.end = f.select(f.compare("eq", some, NO_ROW), self.first, here.end)
        self.absent = [f.compare("eq", offset, NO_ROW) for offset in offsets_of_rows]
        offsets = [f.select(absent, some, offset) for absent, offset in zip(self.absent, offsets_of_rows, strict=True)]
        self.src = [offset + taps.shift for offset in offsets]

    def masks(self, tap_count: int) -> Value:
        """Return the offset of the table's row of masks for the outer taps that are absent here.

        A row has ``tap_count`` masks.
        """
        if len(self.absent) == 1:
            return self.f.value(0)
        offsets = [self.f.value(tap_count * MASK_BYTES << u) for u in range(len(self.absent))]
        masks = [self.f.select(*pair, self.f.value(0)) for pair in zip(self.absent, offsets, strict=True)]
        return sum(masks[1:], masks[0])
