"""Tables of the taps of micro-tiles: byte offsets in src, the positions at which each tap exists, and output offsets.

A tap of the innermost axis exists at the positions of dst where it reads src, not padding. Example: an axis of 5
positions, with 3 taps and pads of 1:

    position   0 | 1 .. 3 | 4         A micro-tile of 3 taps has the whole range, 0 to 5, and then its three parts.
    taps     1 2 | 0 1 2  | 0 1       The masks of a part are a word per tap: -1 if the tap exists, or 0.

First, a kernel sums the whole range with all taps, because padding is packed as zeros. If a sum is not finite, it sums
the parts again with masks. An outer tap exists for a whole segment or not at all (``segments.py``).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from convgrad.plan.records import Record
from convgrad.plan.split_k.constants import MIN_STORE_LINE
from convgrad.plan.split_k.nest import WeightsNest
from convgrad.plan.split_k.operands import OperandStrides
from convgrad.plan.split_k.recipe import DEPTHWISE, SplitKSpec
from convgrad.plan.tables import ELSEWHERE, Ints, Table, offsets, wrapped

TAP_RANGE = Record("first", "end", "masks")  # first position, end, and byte offset of the range's masks
MASK_BYTES = 4


def taps_record(spec: SplitKSpec) -> Record:
    """Return the columns of a table with one row per micro-tile of taps.

    ``shift`` is the byte offset of the first inner tap in src. ``range`` is the first row of TAP_RANGE, and ``parts``
    the number of parts after it. Other columns are byte offsets of outer taps in the indirection table.
    """
    outer = (f"row{u}" for u in range(spec.micro_tile.outer_taps))
    return Record("shift", "range", "parts", *outer)


def starts(count: int, size: int) -> list[int]:
    """Return the first tap of each micro-tile of ``size`` taps. The last micro-tile may overlap the one before.

    >>> starts(7, 3), starts(3, 3)
    ([0, 3, 4], [0])
    """
    return [*range(0, count - size, size), count - size]


def of_tiles(count: int, size: int) -> Ints:
    """Return the numbers of the taps of each micro-tile, one row per micro-tile.

    >>> of_tiles(5, 2).tolist()
    [[0, 1], [2, 3], [3, 4]]
    """
    return np.add.outer(starts(count, size), np.arange(size))


def margins(nest: WeightsNest, spec: SplitKSpec) -> tuple[int, int]:
    """Return the numbers of padding positions that are packed before and after each row of src."""
    if spec.moving.in_place:  # src in memory has no padding
        return 0, 0
    axis = nest.conv.axes[-1]
    reach = (spec.micro_tile.inner_taps - 1) * axis.dilation
    after = axis.span - axis.pad_begin - axis.src
    return min(reach, axis.pad_begin), min(reach, max(after, 0))


def tap_tables(nest: WeightsNest, spec: SplitKSpec, src: OperandStrides, outer_numbers: Ints) -> dict[str, Table]:
    """Return the tables of all micro-tiles of taps. ``outer_numbers`` are the taps of the ``Indirection``."""
    (*outer, inner), (*outer_steps, inner_step) = nest.conv.axes, nest.weights_strides[2:]
    micro_tile = spec.micro_tile
    existing: dict[tuple[bool, ...], int] = {(True,) * micro_tile.inner_taps: 0}
    ranges: list[dict[str, int]] = []
    along: list[dict[str, int]] = []  # for each micro-tile of inner taps: the columns other than those of outer taps
    for k in starts(inner.kernel, micro_tile.inner_taps):
        positions = [inner.existing(k + t, range(inner.src), range(inner.dst)) for t in range(micro_tile.inner_taps)]
        if nest.pointwise:
            positions = [range(nest.conv.positions)]
        whole = len(ranges)
        if spec.body == DEPTHWISE:  # positions at which all taps exist, and those at which each tap exists
            all_exist = (max(span.start for span in positions), min(span.stop for span in positions))
            spans = [all_exist, *((span.start, span.stop) for span in positions)]
            ranges += [{"first": first, "end": max(first, end), "masks": 0} for first, end in spans]
        else:
            some = [span for span in positions if span] or positions[:1]
            first, end = min(span.start for span in some), max(span.stop for span in some)
            ranges.append({"first": first, "end": end, "masks": 0})
            for first, end, exist in _parts(positions):
                masks = existing.setdefault(exist, len(existing)) * (
                    micro_tile.taps * MASK_BYTES << micro_tile.outer_taps
                )
                ranges.append({"first": first, "end": end, "masks": masks})
        shift = wrapped(k * inner.dilation * src.step)
        along.append({"shift": shift, "range": whole, "parts": len(ranges) - whole - 1})
    outer_out = offsets(tuple(a.kernel for a in outer), tuple(outer_steps))
    outer_tiles = of_tiles(len(outer_out), micro_tile.outer_taps)
    inner_tiles = of_tiles(inner.kernel, micro_tile.inner_taps)
    outs = outer_out[outer_tiles][:, None, :, None] + inner_tiles[:, None, :] * inner_step
    here = _first_here(outer_tiles)[:, None, :, None] & _first_here(inner_tiles)[:, None, :]
    count = len(outer_tiles) * len(along)
    rows = np.repeat(outer_numbers[outer_tiles] * outer_numbers.itemsize, len(along), axis=0)
    of_outer = {f"row{u}": rows[:, u] for u in range(micro_tile.outer_taps)}
    of_inner = {column: np.tile([row[column] for row in along], len(outer_tiles)) for column in along[0]}
    return {
        "taps": taps_record(spec).table(count, **of_inner, **of_outer),
        "outs": np.where(here, outs, ELSEWHERE).reshape(count, micro_tile.taps),
        "ranges": TAP_RANGE.rows(ranges),
        "masks": _masks(micro_tile.outer_taps, list(existing)),
    }


def _first_here(tiles: Ints) -> NDArray[np.bool_]:
    """Return whether each tap of each micro-tile is in no earlier micro-tile."""
    count, size = tiles.shape
    first: NDArray[np.bool_] = tiles >= (np.arange(count) * size)[:, None]
    return first


def contiguous(outs: Table, size: int) -> bool:
    """Return whether the taps of each micro-tile are contiguous in the output, or all taps if a micro-tile has one.

    The result is False if a micro-tile has taps that another micro-tile stores.

    >>> [contiguous(np.array(outs), 4) for outs in ([[0], [4], [8], [12]], [[0, 4, 8, 12], [ELSEWHERE, 16, 20, 24]])]
    [True, False]
    """
    rows = outs.reshape(1, -1) if outs.shape[1] == 1 else outs
    return rows.shape[1] >= MIN_STORE_LINE and bool((np.diff(rows) == size).all())


def _parts(positions: list[range]) -> list[tuple[int, int, tuple[bool, ...]]]:
    """Cut positions where the existing taps change. Return (first, end, whether each tap exists) for each part.

    >>> _parts([range(1, 5), range(0, 4)])
    [(0, 1, (False, True)), (1, 4, (True, True)), (4, 5, (True, False))]
    """
    ends = sorted({end for r in positions if r for end in (r.start, r.stop)})
    cuts = [(first, end, tuple(first in r for r in positions)) for first, end in pairwise(ends)]
    return [cut for cut in cuts if any(cut[2])]


def _masks(outer_taps: int, existing: list[tuple[bool, ...]]) -> NDArray[np.int32]:
    """Return a mask per tap, -1 if it exists, for all sets of existing inner taps and of absent outer taps."""
    numbers = (1 << outer_taps) - 1 - np.arange(1 << outer_taps)
    outer = (numbers[:, None] >> np.arange(outer_taps) & 1).astype(bool)
    both = outer[None, :, :, None] & np.array(existing)[:, None, None, :]
    masks: NDArray[np.int32] = -both.astype(np.int32)
    return masks
